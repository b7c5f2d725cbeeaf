# SPDX-License-Identifier: Apache-2.0
"""The file that the agent writes for ``gpuscape devices``: the node's GPUs, their health and links.

The reader runs as root, and what it answers puts device nodes into containers. So the file is taken
for hostile: sizes are bounded, each text has a form of its own, and no field holds a path. Where
device nodes lie is known to the reader alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from api import topology_annotation
from api.topology_annotation import TopologyAnnotation
from api.versioned import VersionedFormat
from base.errors import BadInput

VERSION: Final = 1
FILE_NAME: Final = "devices.json"
"""Name of the file in its folder."""
MOST_BYTES: Final = 512 << 10
"""Thirty-two GPUs with seven MIG devices each take 80 KiB."""
MOST_GPUS: Final = 32
MOST_TABLE_GPUS: Final = 8
"""GPUs of a node up to which the file has a table of the best sets."""

_MOST_MIG_DEVICES: Final = 64
"""MIG devices of one GPU; the largest have seven."""
_MOST_VERDICTS: Final = 32
_HEX: Final = "[0-9a-f]"
_UUID: Final = rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_LARGEST_NUMBER: Final = 2**53 - 1  # what every JSON reader holds exactly
_LARGEST_MINOR: Final = 253
"""``/dev/nvidia254`` and 255 are no GPUs. Source: the NVIDIA driver's nv-linux.h."""
_FIRST_CAPABILITY: Final = 3
"""1 and 2 are the rights to change and to watch MIG.

Source: /proc/driver/nvidia-caps/mig-minors."""

_BusId = Annotated[str, Meta(pattern=r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]
_Minor = Annotated[int, Meta(ge=0, le=_LARGEST_MINOR)]
_Capability = Annotated[int, Meta(ge=_FIRST_CAPABILITY, le=(1 << 20) - 1)]
_Instance = Annotated[int, Meta(ge=0, le=255)]
_Bytes = Annotated[int, Meta(ge=0, le=_LARGEST_NUMBER)]
_Version = Annotated[int, Meta(ge=0, le=99)]
_Number = Annotated[int, Meta(ge=0, le=_LARGEST_NUMBER)]


class ExchangedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A cause that holds now, by the table of causes in ``health``."""

    health: Annotated[str, Meta(pattern="^(unknown|degraded|unhealthy)$", max_length=9)]
    reason: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=63)]


_Verdicts = Annotated[tuple[ExchangedVerdict, ...], Meta(max_length=_MOST_VERDICTS)]


class ExchangedMigDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A MIG device that exists now."""

    uuid: Annotated[str, Meta(pattern=rf"^MIG-{_UUID}$", max_length=40)]
    profile: Annotated[
        str,
        Meta(
            pattern=r"^([1-8]c\.)?[1-8]g\.[1-9][0-9]{0,3}gb([+-][a-z.]{1,12}){0,3}$",
            max_length=48,
            description="As discovery names it, such as 1g.5gb+me.",
        ),
    ]
    gpu_instance: _Instance
    compute_instance: _Instance
    memory_bytes: _Bytes
    capability_minors: tuple[_Capability, _Capability] | None = None
    """N in ``/dev/nvidia-caps/nvidia-capN`` of its GPU instance and of its compute instance; None
    where they are not known."""
    verdicts: _Verdicts = ()
    """Causes of this device alone, the worst first; those of its GPU hold for it too."""

    @property
    def unhealthy_reasons(self) -> tuple[str, ...]:
        """Reasons of its own why work on it fails, or will."""
        return _unhealthy(self.verdicts)


class ExchangedGpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU of the node, which may not answer now."""

    uuid: Annotated[str, Meta(pattern=rf"^GPU-{_UUID}$", max_length=40)]
    index: Annotated[int, Meta(ge=0, lt=MOST_GPUS)]
    """Its place in masks, from 0, and in ``links``."""
    bus_id: _BusId
    minor: _Minor | None = None
    """N in ``/dev/nvidiaN``."""
    numa: Annotated[int, Meta(ge=0, le=65535)] | None = None
    product: Annotated[str, Meta(pattern=r"^[A-Za-z0-9 ._()+-]*$", max_length=96)] = ""
    """Name that the driver gives; empty where it is unknown or has other characters."""
    memory_bytes: _Bytes | None = None
    compute_capability: tuple[_Version, _Version] | None = None
    mig_enabled: bool | None = None
    """None: it was not read, as of a GPU that does not answer."""
    mig_devices: Annotated[tuple[ExchangedMigDevice, ...], Meta(max_length=_MOST_MIG_DEVICES)] = ()
    verdicts: _Verdicts = ()
    """Causes of the whole GPU, the worst first."""

    @property
    def unhealthy_reasons(self) -> tuple[str, ...]:
        """Reasons why work on it fails, or will."""
        return _unhealthy(self.verdicts)


class DeviceExchange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Content of the file."""

    v: Annotated[int, Meta(ge=1, description="Major version of this format.")]
    generation: _Number
    """Number of this content, from 1: a change of the rest raises it; another boot begins anew."""
    reading: _Number
    """Number of the reading of the GPUs: each reading that is written raises it."""
    boot_id: Annotated[str, Meta(pattern=rf"^{_UUID}$", max_length=36)]
    written_at: Annotated[
        str,
        Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$", max_length=20),
    ]
    """UTC, RFC 3339; only shown, and the age where nothing better is known."""
    gpus: Annotated[tuple[ExchangedGpu, ...], Meta(max_length=MOST_GPUS)]
    """By their places."""
    links: TopologyAnnotation | None = None
    """Links between all GPUs of the node, without NICs; None while they are not known."""
    table: Annotated[str, Meta(pattern=r"^[0-9a-f]*$", max_length=4096)] = ""
    """Best sets of up to MOST_TABLE_GPUS GPUs (:func:`table_of`); empty: there is none."""

    @property
    def same_but_time(self) -> DeviceExchange:
        """The content without what differs from one reading to the next."""
        return msgspec.structs.replace(self, generation=0, reading=0, written_at=_NO_TIME)

    def best_set(self, available: int, size: int) -> int | None:
        """Mask of the best ``size`` available GPUs by the table; None where it has none."""
        n = 0 if self.links is None else self.links.n
        if not self.table or not 1 <= size <= n or available >> n:
            return None
        return _entry(self.table, n, size, available) or None


class DamagedExchange(BadInput):
    """The file is not what the agent writes."""


class UnknownExchangeVersion(BadInput):
    """The file has a version of its format that this program does not read."""


class ExchangeOfOtherBoot(BadInput):
    """The file was written before the host's last boot: its devices may be others."""


_NO_TIME: Final = "1970-01-01T00:00:00Z"


def read_exchange(data: bytes, boot_id: str) -> DeviceExchange:
    """The content of a file, for a host of this boot.

    Raises DamagedExchange, UnknownExchangeVersion or ExchangeOfOtherBoot, nothing else.
    """
    for version in READ_FORMATS:
        try:
            exchange = version.decode(data)
        except BadInput as error:
            raise DamagedExchange(str(error)) from error
        if exchange is None:
            continue
        if exchange.boot_id != boot_id:
            raise ExchangeOfOtherBoot(
                f"{version.name} is of another boot of this host; the agent writes it anew"
            )
        return exchange
    raise UnknownExchangeVersion(
        f"{_FORMAT.name} has another version: update the agent and `gpuscape devices` together"
    )


def written(exchange: DeviceExchange) -> bytes:
    """The file's content. Raises DamagedExchange where this is no content that a reader takes."""
    data = _FORMAT.encode(exchange)
    read_exchange(data, exchange.boot_id)
    return data


def problem_of(gpu: ExchangedGpu) -> str | None:
    """Why the file has no form for this GPU or for one of its MIG devices; None where it has."""
    try:
        msgspec.convert(msgspec.to_builtins(gpu), ExchangedGpu)
    except msgspec.ValidationError as error:
        return str(error)
    return next(_gpu_faults(gpu), None)


def table_of(sets: Iterable[int]) -> str:
    """The table of these masks: for 1, 2, … n GPUs, and for each mask of available ones from 0 up.

    Zero where fewer are available; two hex digits each.
    """
    return "".join(f"{mask:02x}" for mask in sets)


def json_schema() -> dict[str, Any]:
    """JSON Schema of the file, 2020-12."""
    return _FORMAT.json_schema()


def _unhealthy(verdicts: Iterable[ExchangedVerdict]) -> tuple[str, ...]:
    return tuple(verdict.reason for verdict in verdicts if verdict.health == "unhealthy")


def _entry(table: str, n: int, size: int, available: int) -> int:
    place = 2 * (((size - 1) << n) + available)
    return int(table[place : place + 2], 16)


def _faults(exchange: DeviceExchange) -> Iterator[str]:
    gpus = exchange.gpus
    devices = [device for gpu in gpus for device in gpu.mig_devices]
    yield from _doubled("gpus.uuid", (gpu.uuid for gpu in gpus))
    yield from _doubled("gpus.bus_id", (gpu.bus_id for gpu in gpus))
    yield from _doubled("gpus.minor", (gpu.minor for gpu in gpus if gpu.minor is not None))
    yield from _doubled("mig_devices.uuid", (device.uuid for device in devices))
    places = [gpu.index for gpu in gpus]
    if places != sorted(set(places)):
        yield "`gpus` are not in the order of their `index`, each once"
    for gpu in gpus:
        yield from _gpu_faults(gpu)
    yield from _capability_faults(gpus)
    try:
        datetime.fromisoformat(exchange.written_at)
    except ValueError:
        yield "`written_at` is no time"
    yield from _link_faults(exchange)


def _gpu_faults(gpu: ExchangedGpu) -> Iterator[str]:
    """What one GPU says against itself."""
    devices = gpu.mig_devices
    instances = ((device.gpu_instance, device.compute_instance) for device in devices)
    yield from _doubled("mig_devices.compute_instance", instances)
    yield from _doubled("mig_devices.uuid", (device.uuid for device in devices))
    if devices and not gpu.mig_enabled:
        yield "`mig_devices` are there and `mig_enabled` is not true"


def _doubled(key: str, values: Iterable[object]) -> Iterator[str]:
    listed = list(values)
    if len(set(listed)) != len(listed):
        yield f"`{key}`: a value comes twice"


def _capability_faults(gpus: Iterable[ExchangedGpu]) -> Iterator[str]:
    """A node of capabilities belongs to one instance of one GPU."""
    owners: dict[int, tuple[int, ...]] = {}
    for gpu in gpus:
        for device in gpu.mig_devices:
            if device.capability_minors is None:
                continue
            gpu_minor, compute_minor = device.capability_minors
            place = (gpu.index, device.gpu_instance)
            of_gpu = owners.setdefault(gpu_minor, place)
            of_compute = owners.setdefault(compute_minor, (*place, device.compute_instance))
            if of_gpu != place or of_compute != (*place, device.compute_instance):
                yield "`capability_minors`: one number belongs to two instances"


def _link_faults(exchange: DeviceExchange) -> Iterator[str]:
    links, table = exchange.links, exchange.table
    if links is None:
        if table:
            yield "`table` is there without `links`"
        return
    if links.n > MOST_GPUS or any(gpu.index >= links.n for gpu in exchange.gpus):
        yield f"`links.n` is {links.n}, and the GPUs need another"
        return
    yield from (f"links: {fault}" for fault in topology_annotation.faults(links))
    if links.nic or any(links.ids) or any(links.bus):
        yield "`links` names devices"
    if table and (links.n > MOST_TABLE_GPUS or len(table) != 2 * links.n << links.n):
        yield f"`table` has {len(table)} digits, which does not fit {links.n} GPUs"
    elif table and not _is_table(table, links.n):
        yield "`table` has a set that is not of the available GPUs, or not of the size"


def _is_table(table: str, n: int) -> bool:
    return all(
        not chosen & ~available
        and chosen.bit_count() == (size if available.bit_count() >= size else 0)
        for size in range(1, n + 1)
        for available in range(1 << n)
        for chosen in (_entry(table, n, size, available),)
    )


_FORMAT: Final = VersionedFormat(
    name="the agent's file of devices",
    remedy="the agent writes it anew",
    title="The agent's file for gpuscape devices",
    content=DeviceExchange,
    version=VERSION,
    most_length=MOST_BYTES,
    safe=True,
    faults=_faults,
)
READ_FORMATS: Final = (_FORMAT,)
"""The versions that are read: the one that is written, and the one before it once there is one."""
