# SPDX-License-Identifier: Apache-2.0
"""An NVML session: open, handles by PCI bus id, XID events, close."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import pynvml

from base.errors import Transient
from discovery.bus_id import bus_order
from discovery.driver_errors import DriverAbsent, DriverMismatch, GpuLost
from discovery.model import Gap
from discovery.nvml.calls import Calls, Handle
from discovery.nvml.conversions import bus_id, printable_text, whole
from discovery.reader.protocol import XidSeen

NvmlError = pynvml.NVMLError
"""What pynvml raises, for callers that must not know pynvml."""

_LIBRARY = "libnvidia-ml.so.1"

_NAME_ROOM = 96
"""Source: NVML_DEVICE_NAME_V2_BUFFER_SIZE, nvml.h."""

_INTEGRATED = object()
_INTEGRATED_NAMES = ("(nvgpu)", "NVIDIA Thor")
"""Parts of an integrated GPU's name. Source: NVIDIA/go-nvlib, pkg/nvlib/info."""

_WHOLE_GPU = 0xFFFFFFFF
"""Instance id of an event that names no MIG instance. Source: nvmlEventData_t, nvml.h."""


def use_library(path: str) -> None:
    """Let pynvml load the library at ``path`` in place of the loader's choice."""
    pynvml.CDLL = lambda _name: ctypes.CDLL(path)


def open_session() -> None:
    """Initialise NVML, with no GPU too.

    Raises DriverMismatch when library and kernel module differ, DriverAbsent when
    either is missing, and Transient for anything else.
    """
    try:
        # nvmlInit fails where it finds no GPU. Source: nvml.h, NVML_INIT_FLAG_NO_GPUS
        pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_GPUS)
    except pynvml.NVMLError as error:
        raise _session_error(error) from error


def close_session() -> None:
    """Give NVML back; a session that is gone already is as good as closed."""
    try:
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return


def _session_error(error: pynvml.NVMLError) -> Transient:
    if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return DriverMismatch(
            "the driver library and the loaded kernel module are of different versions: "
            "finish the driver upgrade, or reboot"
        )
    if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return DriverAbsent(_why_not_loaded())
    if error.value in (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_UNINITIALIZED):
        return DriverAbsent(
            "the NVIDIA kernel module is not loaded: load it, or finish its upgrade"
        )
    return Transient(f"NVML cannot be initialised: {error}")


def _why_not_loaded() -> str:
    """Why there is no library: pynvml says "not found" of one that does not load, too."""
    try:
        pynvml.CDLL(_LIBRARY)
    except OSError as error:
        why = str(error)
        name, _, rest = why.partition(": ")
        itself = name == _LIBRARY or "/" in name  # else it is something that the library needs
        if not (itself and rest.endswith("No such file or directory")):
            return (
                f"the NVIDIA driver's library is there and does not load: {why}; it must be built "
                "for this system, and what it needs must be installed"
            )
    return (
        f"no NVIDIA driver: {_LIBRARY} is not found; install the driver, or name its library "
        "with --library"
    )


def open_gpu(bus_id: str) -> tuple[Handle | None, Gap | None]:
    """The handle of the GPU at a PCI bus id, or the gap that says why there is none.

    Raises GpuLost, DriverAbsent or DriverMismatch as :meth:`Calls.ask` does.
    """
    calls = Calls()
    handle = calls.ask("state", "nvmlDeviceGetHandleByPciBusId", bus_id.encode())
    return handle, None if handle is not None else calls.gaps[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedGpus:
    """The GPUs that NVML gives by index. Those that refuse are in neither number."""

    bus_ids: tuple[str, ...]
    """In PCI bus order."""
    integrated: int
    """GPUs of a system on chip, which have no bus id."""


def nvml_gpu_count() -> tuple[int | None, Gap | None]:
    """How many GPUs NVML counts, or the gap that says why that is not known.

    Raises DriverAbsent or DriverMismatch as :meth:`Calls.ask` does.
    """
    calls = Calls()
    count = calls.ask("gpus", "nvmlDeviceGetCount", convert=whole(1024))
    return count, None if count is not None else calls.gaps[0]


def gpus_by_index(count: int) -> IndexedGpus:
    """The first ``count`` GPUs of NVML, for systems whose sysfs does not show them all."""
    answers = [_at_index(index) for index in range(count)]
    named = (answer for answer in answers if isinstance(answer, str))
    return IndexedGpus(
        bus_ids=tuple(sorted(named, key=bus_order)),
        integrated=sum(answer is _INTEGRATED for answer in answers),
    )


def _at_index(index: int) -> str | object | None:
    """A GPU's bus id, or _INTEGRATED; None for one that refuses."""
    calls = Calls()
    try:
        handle = calls.ask("state", "nvmlDeviceGetHandleByIndex", index)
        if handle is None:
            return None
        # an integrated GPU is on no PCI bus: it has no address here, and its name decides
        address: str | None = calls.ask("state", "nvmlDeviceGetPciInfo_v3", handle, convert=bus_id)
        if address is not None:
            return address
        name = calls.ask("model", "nvmlDeviceGetName", handle, convert=printable_text(_NAME_ROOM))
    except GpuLost:
        return None
    return _INTEGRATED if any(part in (name or "") for part in _INTEGRATED_NAMES) else None


def excluded_bus_ids() -> tuple[str, ...]:
    """Bus ids of the GPUs that the driver is configured to leave alone, though it is bound to them.

    Source: nvmlGetExcludedDeviceInfoByIndex; the kernel module's NVreg_ExcludedGpus.
    """
    calls = Calls()
    count = calls.ask("gpus", "nvmlGetExcludedDeviceCount", convert=whole(1024)) or 0
    call = "nvmlGetExcludedDeviceInfoByIndex"
    answers = (
        calls.ask("gpus", call, index, convert=lambda info: bus_id(info.pci))
        for index in range(count)
    )
    return tuple(answer for answer in answers if answer is not None)


class XidEvents:
    """The driver's XID events for GPUs that were registered."""

    def __init__(self) -> None:
        self._set = pynvml.nvmlEventSetCreate()
        self._bus_ids: dict[int, str] = {}

    def register(self, bus_id: str, handle: Handle) -> None:
        """Have this GPU's XIDs delivered. Raises pynvml's NVMLError where that is refused."""
        key = _key(handle)
        if key not in self._bus_ids:
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._set)
            self._bus_ids[key] = bus_id

    def wait(self, milliseconds: int) -> XidSeen | None:
        """The next XID, or None when none came in that time. Raises pynvml's NVMLError."""
        try:
            data = pynvml.nvmlEventSetWait_v2(self._set, milliseconds)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return None
            raise
        bus_id = self._bus_ids.get(_key(data.device))
        if bus_id is None or data.eventType != pynvml.nvmlEventTypeXidCriticalError:
            return None
        return XidSeen(
            bus_id=bus_id,
            code=int(data.eventData),
            gpu_instance_id=_instance(data.gpuInstanceId),
            compute_instance_id=_instance(data.computeInstanceId),
        )

    def close(self) -> None:
        """Free the event set; nobody may be waiting on it."""
        try:
            pynvml.nvmlEventSetFree(self._set)
        except pynvml.NVMLError:
            return


def _key(handle: Handle) -> int:
    """Handles are opaque pointers: the same GPU has the same one within a session."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _instance(number: int) -> int | None:
    return None if number == _WHOLE_GPU else int(number)
