# SPDX-License-Identifier: Apache-2.0
"""State of a GPU while it is sampled, and its readings that take more than one call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeVar

import pynvml

from discovery.model import Reason
from discovery.nvml.calls import Calls, Field, Handle
from discovery.nvml.conversions import BYTES, COUNT, boolean, printable_text, whole
from discovery.nvml.history import History
from discovery.nvml.link_counters import read_link_counters
from discovery.nvml.mig import mig_handles
from discovery.nvml.p2p import Peers
from discovery.nvml.processes import read_processes
from discovery.nvml.profiling import NOT_PROFILED, Profiled
from discovery.nvml.reading_plan import OpenGpu
from discovery.sample import (
    GPU_NUMBERS,
    NVLINK_NUMBERS,
    LinkCounters,
    MemoryUse,
    Platform,
    Process,
    ReadingGroup,
)

Read = TypeVar("Read")
Key = TypeVar("Key", bound=tuple[int, ...])

ALL_LINKS = 0xFFFFFFFF
"""Scope of a counter over all NVLinks of a GPU."""

_MEMORY_ERRORS = tuple(
    product(
        range(pynvml.NVML_MEMORY_ERROR_TYPE_COUNT),
        (pynvml.NVML_VOLATILE_ECC, pynvml.NVML_AGGREGATE_ECC),
        range(pynvml.NVML_MEMORY_LOCATION_COUNT),
    )
)
_LINK_ERRORS = (
    pynvml.NVML_NVLINK_ERROR_DL_REPLAY,
    pynvml.NVML_NVLINK_ERROR_DL_RECOVERY,
    pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,
    pynvml.NVML_NVLINK_ERROR_DL_CRC_DATA,
)


@dataclass(slots=True, kw_only=True, eq=False)
class SampledGpu(OpenGpu):
    """State of a GPU while it is sampled; methods take the reading's name, for its gaps."""

    now: Callable[[], float]
    groups: Collection[ReadingGroup]
    history: History
    peers: Peers
    mig_enabled: bool = False
    """Once ``mig_memory`` was read."""
    mig_devices: tuple[tuple[int, Handle], ...] = ()
    """GPU instance id and handle of each, once ``mig_memory`` was read."""
    profiled: Profiled = NOT_PROFILED
    """Once ``profiling`` was read."""

    def memory(self, name: str) -> MemoryUse | None:
        """Use of the whole frame buffer."""
        return _memory(self.calls, self.handle, name)

    def mig_memory(self, name: str) -> tuple[tuple[int, MemoryUse], ...]:
        """GPU instance id to its memory use, read on its first compute instance that gives it."""
        self._find_mig_devices(name)
        uses: dict[int, MemoryUse] = {}
        for instance, device in self.mig_devices:
            if instance not in uses:
                use = _memory(self.calls, device, name)
                if use is not None:
                    uses[instance] = use
        return tuple(uses.items())

    def clock_event_reasons(self, name: str) -> int | None:
        """Bits; drivers before 535 know the call by its older name only."""
        newer, mask = Calls(), whole((1 << 53) - 1)
        bits = newer.ask(name, "nvmlDeviceGetCurrentClocksEventReasons", self.handle, convert=mask)
        if bits is None and newer.gaps[0].reason is Reason.UNSUPPORTED:
            older = "nvmlDeviceGetCurrentClocksThrottleReasons"
            return self.calls.ask(name, older, self.handle, convert=mask)
        self.calls.gaps += newer.gaps
        return bits

    def links(self, _what: str) -> tuple[LinkCounters, ...]:
        """Errors of each active link, and its traffic where that is selected."""
        ports = self.history.ports(self.bus_id, self.handle)
        traffic = ReadingGroup.LINKS in self.groups
        return read_link_counters(self.calls, self.handle, ports, traffic=traffic)

    def sram_exceeded(self, name: str) -> bool | None:
        """Whether the SRAM had too many uncorrectable errors, as after the last discovery."""
        status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
        return self._filled(
            name,
            "nvmlDeviceGetSramEccErrorStatus",
            status,
            lambda _: boolean(status.bThresholdExceeded),
        )

    def platform(self, name: str) -> Platform | None:
        """The GPU's place in the rack, as after the last discovery."""
        info = pynvml.c_nvmlPlatformInfo_v2_t()
        return self._filled(name, "nvmlDeviceGetPlatformInfo", info, lambda _: _platform(info))

    def _filled(
        self, name: str, call: str, struct: Any, convert: Callable[[Any], Read]
    ) -> Read | None:
        """What a call says that fills a struct, made by the first sample after each discovery."""

        def ask(calls: Calls) -> Read | None:
            return calls.ask(name, call, self.handle, ctypes.byref(struct), convert=convert)

        return self.history.rare(self.bus_id, name, self.calls, ask)

    def numbers(self, name: str) -> tuple[tuple[int, int], ...]:
        """Fields that are served as they are; those that the GPU has not are one gap."""
        lacking = self.history.lacking(self.bus_id, name)
        scopes = {**dict.fromkeys(NVLINK_NUMBERS, ALL_LINKS), **dict.fromkeys(GPU_NUMBERS, 0)}
        fields = [
            Field(number=number, scope=scope, convert=COUNT)
            for number, scope in scopes.items()
            if (number,) not in lacking
        ]
        tried = Calls()
        selected = [(f"{name}.{field.number}", field) for field in fields]
        read = tried.fields(selected, self.handle) if selected else []
        keys = [(field.number,) for field in fields]
        self._keep_lacking(name, "nvmlDeviceGetFieldValues", tried, keys)
        return tuple(
            (field.number, number)
            for field, number in zip(fields, read, strict=True)
            if number is not None
        )

    def memory_errors(self, name: str) -> tuple[tuple[tuple[int, int, int], int], ...]:
        """ECC errors of each part of the memory; parts that the GPU does not count are one gap."""
        return self._counters(name, "nvmlDeviceGetMemoryErrorCounter", _MEMORY_ERRORS)

    def link_errors(self, name: str) -> tuple[tuple[tuple[int, int], int], ...]:
        """Errors of each active NVLink; kinds that the GPU does not count are one gap."""
        ports = self.history.ports(self.bus_id, self.handle)
        self.calls.gaps += [replace(gap, what=name) for gap in ports.gaps[:1]]
        keys = [(port, kind) for port in ports.active for kind in _LINK_ERRORS]
        return self._counters(name, "nvmlDeviceGetNvLinkErrorCounter", keys)

    def _counters(self, name: str, call: str, keys: Collection[Key]) -> tuple[tuple[Key, int], ...]:
        """A count for each key, which are the call's further arguments."""
        lacking = self.history.lacking(self.bus_id, name)
        tried = Calls(invalid_argument=Reason.UNSUPPORTED)
        counts = [
            (key, tried.ask(_gap_name(name, key), call, self.handle, *key, convert=COUNT))
            for key in keys
            if key not in lacking
        ]
        self._keep_lacking(name, call, tried, keys)
        return tuple((key, count) for key, count in counts if count is not None)

    def _keep_lacking(
        self, name: str, call: str, tried: Calls, keys: Collection[tuple[int, ...]]
    ) -> None:
        """Keep the gaps: all that is not supported is one, and is not read until a discovery."""
        refused = {gap.what for gap in tried.gaps if gap.reason is Reason.UNSUPPORTED}
        missing = [key for key in keys if _gap_name(name, key) in refused]
        self.history.lacks(self.bus_id, name, missing)
        self.calls.gaps += [gap for gap in tried.gaps if gap.what not in refused]
        if lacking := self.history.lacking(self.bus_id, name):
            numbers = ", ".join(".".join(map(str, key)) for key in sorted(lacking))
            self.calls.miss(name, Reason.UNSUPPORTED, call, f"it has no {numbers}")

    def processes(self, _what: str) -> tuple[Process, ...]:
        """All processes on the GPU."""
        utilization = self.history.utilization
        return read_processes(
            self.calls, self.bus_id, self.handle, utilization, mig=self.mig_enabled
        )

    def profiling(self, _what: str) -> tuple[tuple[int, float], ...]:
        """Metrics of GPM of the GPU as a whole; its instances' are read with them."""
        instances = tuple(dict.fromkeys(instance for instance, _ in self.mig_devices))
        self.profiled = self.history.profiler.read(
            self.calls, self.bus_id, self.handle, instances, self.groups, self.now
        )
        return self.profiled.gpu

    def mig_profiling(self, _what: str) -> tuple[tuple[int, tuple[tuple[int, float], ...]], ...]:
        """GPU instance id to its metrics."""
        return self.profiled.instances

    def nvlink_p2p(self, _what: str) -> tuple[tuple[str, int], ...]:
        """Bus id of each peer to NVML's status of the pair, as after the last discovery."""
        p2p = self.history.p2p(self.bus_id, self.handle, self.peers)
        self.calls.gaps += p2p.gaps
        return p2p.statuses

    def _find_mig_devices(self, name: str) -> None:
        tried = Calls()
        mode = tried.ask(name, "nvmlDeviceGetMigMode", self.handle)
        self.calls.gaps += [gap for gap in tried.gaps if gap.reason is not Reason.UNSUPPORTED]
        self.mig_enabled = mode is not None and mode[0] == 1
        if self.mig_enabled:
            call, calls = "nvmlDeviceGetGpuInstanceId", self.calls
            devices = (
                (calls.ask(name, call, device, convert=whole(0xFFFF)), device)
                for device in mig_handles(calls, self.handle)
            )
            self.mig_devices = tuple(
                (instance, device) for instance, device in devices if instance is not None
            )


def _gap_name(name: str, key: tuple[int, ...]) -> str:
    return ".".join((name, *map(str, key)))


def _memory(calls: Calls, handle: Handle, name: str) -> MemoryUse | None:
    call, newer = "nvmlDeviceGetMemoryInfo", Calls(invalid_argument=Reason.UNSUPPORTED)
    use = newer.ask(name, call, handle, pynvml.nvmlMemory_v2, convert=_memory_use)
    if use is not None or newer.gaps[0].reason is not Reason.UNSUPPORTED:
        calls.gaps += newer.gaps
        return use
    return calls.ask(name, call, handle, convert=_memory_use)


def _memory_use(value: Any) -> MemoryUse:
    """Version 2 has what the driver reserves; version 1 counts it as used."""
    reserved = getattr(value, "reserved", None)
    return MemoryUse(
        free_bytes=BYTES(value.free),
        used_bytes=BYTES(value.used),
        reserved_bytes=None if reserved is None else BYTES(reserved),
    )


_NOT_KNOWN = 0xFF
"""Number of a slot or a tray that the platform does not give. Source: DCGM 4.6.0."""


def _platform(info: Any) -> Platform:
    """Source of the forms: DCGM 4.6.0, ``DcgmCacheManager.cpp``.

    By bytes, since pynvml takes GUID and numbers for texts, which would end at a zero.
    """
    raw = bytes(info)

    def part(name: str) -> bytes:
        field = getattr(type(info), name)
        return raw[field.offset : field.offset + field.size]

    def known(number: int) -> int | None:
        return None if number == _NOT_KNOWN else number

    serial = part("chassisSerialNumber")
    written = serial.split(b"\0", 1)[0]
    return Platform(
        infiniband_guid=f"0x{int.from_bytes(part('ibGuid')[:8], 'little'):016x}",
        chassis_serial=None
        if not written or set(serial) == {_NOT_KNOWN}
        else _CHASSIS_SERIAL(written.decode()),
        slot=known(part("slotNumber")[0]),
        tray=known(part("trayIndex")[0]),
        host_id=part("hostId")[0],
        peer_type=part("peerType")[0],
        module_id=part("moduleId")[0],
    )


_CHASSIS_SERIAL = printable_text(17)
"""Sixteen bytes, which need no end."""
