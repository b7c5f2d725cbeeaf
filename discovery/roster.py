"""The GPUs this node is known to have, and what is said of those that do not answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from discovery.model import Gap, GpuSnapshot, GpuState, Reason, bus_order
from discovery.quarantine import Quarantine

_IDENTITY = (
    "index",
    "minor",
    "uuid",
    "serial",
    "model",
    "architecture",
    "compute_capability",
    "pci_device_id",
    "pci_subsystem_id",
)
"""What stays true of a GPU that does not answer now."""


class Roster:
    """Every GPU that answered once stays known by its bus id until the process ends."""

    def __init__(self) -> None:
        self._known: dict[str, GpuSnapshot] = {}

    def __len__(self) -> int:
        return len(self._known)

    def call(
        self, listed: tuple[str, ...], read: Mapping[str, GpuSnapshot], quarantine: Quarantine
    ) -> tuple[GpuSnapshot, ...]:
        """Each listed or once known GPU, in order of bus id: as read, or with why it was not."""
        bus_ids = sorted({*listed, *self._known}, key=bus_order)
        held = quarantine.bus_ids  # it may have been read first, and hung when read once more
        gpus = [
            read[bus_id]
            if bus_id in read and bus_id not in held
            else self._missing(bus_id, listed, quarantine)
            for bus_id in bus_ids
        ]
        self._known |= {gpu.bus_id: gpu for gpu in gpus if gpu.state is GpuState.PRESENT}
        return tuple(self._recognised(gpu) for gpu in gpus)

    def _missing(self, bus_id: str, listed: tuple[str, ...], quarantine: Quarantine) -> GpuSnapshot:
        held = quarantine.held(bus_id)
        if held is not None:
            state = GpuState.HUNG if held.reason is Reason.HUNG else GpuState.UNREADABLE
            gap = Gap(what="state", reason=held.reason, source="device reader", detail=held.why)
        elif bus_id not in listed:
            state = GpuState.LOST
            gap = Gap(what="state", reason=Reason.LOST, source="sysfs", detail="no longer listed")
        else:
            state = GpuState.UNREADABLE
            gap = Gap(what="state", reason=Reason.FAILED, source="device reader", detail="not read")
        return GpuSnapshot(bus_id=bus_id, state=state, gaps=(gap,))

    def _recognised(self, gpu: GpuSnapshot) -> GpuSnapshot:
        """A GPU that does not answer, with the identity it had when it last did."""
        known = self._known.get(gpu.bus_id)
        if gpu.state is GpuState.PRESENT or known is None:
            return gpu
        missing = {what: getattr(known, what) for what in _IDENTITY if getattr(gpu, what) is None}
        return replace(gpu, **missing)
