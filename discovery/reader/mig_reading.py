# SPDX-License-Identifier: Apache-2.0
"""The MIG state of all GPUs through the device reader: a GPU that hangs costs itself alone."""

from __future__ import annotations

from base.errors import Transient
from discovery.bus_id import bus_order
from discovery.mig_state import MigReading, UnreadMigGpu
from discovery.model import Gap, Reason
from discovery.reader.device_reader import DeviceReader
from discovery.reader.protocol import DriverFrame, MigFrame, ReadMig, UnreadMigFrame
from discovery.shared_identities import without_shared_mig


def read_mig(reader: DeviceReader) -> tuple[MigReading, ...]:
    """Every GPU that should answer, in PCI bus order; one that did not is an UnreadMigGpu.

    Raises as :meth:`DeviceReader.discover` does, and Transient where nothing lists the GPUs.
    """
    listed: tuple[str, ...] = ()
    read: dict[str, MigReading] = {}
    for answer in reader.answers(ReadMig(request=0)):
        match answer:
            case DriverFrame():
                listed = answer.listed
                if why := answer.counts.why_not_listed:
                    raise Transient(f"which GPUs there are is not known: {why}")
            case MigFrame() | UnreadMigFrame():
                read[answer.gpu.bus_id] = answer.gpu
    health = reader.health()
    skipped = {**dict.fromkeys(health.awaited, Reason.PENDING), **health.why_quarantined}
    answered = {bus_id: gpu for bus_id, gpu in read.items() if bus_id not in skipped}
    return without_shared_mig(
        [
            answered.get(bus_id) or _unread(bus_id, skipped.get(bus_id))
            for bus_id in sorted(listed, key=bus_order)
        ]
    )


def _unread(bus_id: str, reason: Reason | None) -> UnreadMigGpu:
    details = {
        None: "not read",
        Reason.HUNG: "no answer within the deadline",
        Reason.PENDING: "its first answer is being waited for",
    }
    gap = Gap(
        what="state",
        reason=reason or Reason.FAILED,
        source="device reader",
        detail=details.get(reason, "the device reader died on it"),
    )
    return UnreadMigGpu(bus_id=bus_id, gaps=(gap,))
