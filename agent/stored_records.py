# SPDX-License-Identifier: Apache-2.0
"""Records about GPUs as JSON, schema version 1, and back. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from agent.gpu_errors.gpu_recovery import Need
from agent.gpu_errors.xid_book import XidBook, XidRecord
from agent.gpu_records import GpuRecords
from api.versioned import VersionedFormat
from discovery import remember
from discovery.gpu_part import GpuPart
from discovery.known_node_gpus import KnownGpusRecord
from discovery.model import Fabric, GpuSnapshot, NvLink, Xid
from discovery.nvml_terms import Architecture, Virtualization
from exporters.gpuscape.waste import GpuUse, Times, Waste, WasteRecord

VERSION = 1
MOST_BYTES = 1 << 20
"""Sixteen GPUs with 18 NVLinks each take 40 KiB."""


class _Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base: keys at their defaults are left out, and unknown ones are ignored."""


class Session(_Stored, frozen=True, kw_only=True):
    """The boot and the driver for which the other records hold."""

    boot: str
    driver: str | None = None
    """Version of the loaded kernel module; None without one."""


class StoredGpu(_Stored, frozen=True, kw_only=True):
    """A GPU's place, and the facts that :data:`remember.FACTS` names."""

    bus_id: str
    place: int
    expected: bool = True
    """False: another driver has it, and only its place is kept."""
    hung: bool = False
    """Whether the GPU hangs for good: the next agent reads the others first."""
    minor: int | None = None
    uuid: str | None = None
    serial: str | None = None
    model: str | None = None
    architecture: Architecture | None = None
    compute_capability: tuple[int, int] | None = None
    pci_device_id: int | None = None
    pci_subsystem_id: int | None = None
    vbios_version: str | None = None
    memory_bytes: int | None = None
    memory_bus_bits: int | None = None
    max_mig_devices: int | None = None
    fabric: Fabric | None = None
    virtualization: Virtualization | None = None
    own_numa_node: int | None = None
    ancestors: tuple[tuple[str, int], ...] = ()
    links: tuple[NvLink, ...] = ()


class StoredXid(_Stored, frozen=True, kw_only=True):
    """XIDs with one code on one GPU or instance."""

    bus_id: str
    xid: Xid


class StoredTimes(_Stored, frozen=True, kw_only=True):
    """How long a GPU or GPU instance was held, and in vain; seconds."""

    bus_id: str
    gpu_instance_id: int | None = None
    held_by: tuple[tuple[str, str, str], ...] | None = None
    """Namespace, pod and container."""
    allocated: float = 0.0
    idle: float | None = None
    idle_for: float | None = None


class StoredRecords(_Stored, frozen=True, kw_only=True):
    """The file's content."""

    v: int
    session: Session
    gpus: tuple[StoredGpu, ...] = ()
    unaddressed: int = 0
    """GPUs of the node without a known bus id."""
    former: int = 0
    """GPUs that the node had in an earlier boot; see :attr:`KnownGpusRecord.former`."""
    xids: tuple[StoredXid, ...] = ()
    """The newest last."""
    needed: dict[str, tuple[Need, ...]] = {}
    """Bus id to what the GPU was seen to need since its newest error."""
    cleared: str | None = None
    """The last request of a person to clear XIDs."""
    waste: tuple[StoredTimes, ...] = ()
    sampled_at: float | None = None
    """Time of the newest sample in ``waste``, monotonic seconds, which go on through a boot."""

    @property
    def without_times(self) -> StoredRecords:
        """The records without the times that grow from sample to sample."""
        return msgspec.structs.replace(self, waste=(), sampled_at=None)


def _faults(stored: StoredRecords) -> Iterator[str]:
    places = [gpu.place for gpu in stored.gpus]
    if sorted(places) != list(range(len(places))):
        yield "gpus: their places are not the numbers from 0 on"
    if len({gpu.bus_id for gpu in stored.gpus}) != len(places):
        yield "gpus: a bus id comes twice"


FORMAT = VersionedFormat(
    name="the state file",
    remedy="it is started anew",
    content=StoredRecords,
    version=VERSION,
    most_length=MOST_BYTES,
    faults=_faults,
)


def stored(records: GpuRecords, session: Session) -> StoredRecords:
    """The records as they are now."""
    known, book, waste = records.known_gpus.record, records.xids.record, records.waste.times
    sampled = [times.use.at_seconds for times in waste.values() if times.use.at_seconds is not None]
    return StoredRecords(
        v=VERSION,
        session=session,
        gpus=tuple(
            StoredGpu(
                bus_id=bus_id,
                place=place,
                expected=bus_id in known.expected,
                hung=bus_id in known.hung,
                **(remember.lasting_facts(known.gpus[bus_id]) if bus_id in known.gpus else {}),
            )
            for bus_id, place in known.places.items()
        ),
        unaddressed=known.unaddressed,
        former=known.former,
        xids=tuple(StoredXid(bus_id=bus_id, xid=xid) for bus_id, xid in book.xids),
        needed={bus_id: tuple(sorted(need)) for bus_id, need in book.needed.items()},
        cleared=book.request,
        waste=tuple(
            StoredTimes(
                bus_id=bus_id,
                gpu_instance_id=instance,
                held_by=None if times.use.held_by is None else tuple(sorted(times.use.held_by)),
                allocated=times.allocated_seconds,
                idle=times.idle_seconds,
                idle_for=times.idle_for_seconds,
            )
            for (bus_id, instance), times in waste.items()
            if times.use.held_by or times.allocated_seconds
        ),
        sampled_at=max(sampled, default=None),
    )


def restore_records(
    records: GpuRecords, stored: StoredRecords, session: Session, now: float
) -> None:
    """Go on from what of ``stored`` holds in this session; ``now`` is monotonic.

    Another driver has read nothing yet, and of another boot only the number of GPUs is left.
    """
    known = _known(stored)
    if stored.session == session:
        xids = tuple((stored_xid.bus_id, stored_xid.xid) for stored_xid in stored.xids)
        needed = {bus_id: frozenset(need) for bus_id, need in stored.needed.items()}
        records.xids = XidBook(XidRecord(xids=xids, needed=needed, request=stored.cleared))
        records.waste = WasteRecord(_waste(stored))
    elif stored.session.boot == session.boot:
        known = known.of_other_driver
    else:
        known = known.of_earlier_boot
    records.known_gpus.restore(known, now)


def _known(stored: StoredRecords) -> KnownGpusRecord:
    gpus = {gpu.bus_id: gpu for gpu in stored.gpus}
    return KnownGpusRecord(
        places={bus_id: gpu.place for bus_id, gpu in gpus.items()},
        expected=frozenset(bus_id for bus_id, gpu in gpus.items() if gpu.expected),
        gpus={bus_id: _gpu(gpu) for bus_id, gpu in gpus.items() if gpu.uuid is not None},
        hung=frozenset(bus_id for bus_id, gpu in gpus.items() if gpu.expected and gpu.hung),
        unaddressed=stored.unaddressed,
        former=stored.former,
    )


def _gpu(stored: StoredGpu) -> GpuSnapshot:
    facts = {name: getattr(stored, name) for name in (*remember.FACTS, "ancestors", "links")}
    return remember.gpu_of_lasting_facts(stored.bus_id, facts)


def _waste(stored: StoredRecords) -> Waste:
    return {
        GpuPart(times.bus_id, times.gpu_instance_id): Times(
            use=GpuUse(
                entity=GpuPart(times.bus_id, times.gpu_instance_id),
                at_seconds=stored.sampled_at,
                held_by=None if times.held_by is None else frozenset(times.held_by),
                busy_ratio=None,
            ),
            allocated_seconds=times.allocated,
            idle_seconds=times.idle,
            idle_for_seconds=times.idle_for,
        )
        for times in stored.waste
    }
