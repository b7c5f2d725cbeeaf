# SPDX-License-Identifier: Apache-2.0
"""The Leases ``mig-slot-<n>``: who has a slot, and the records of what has to be undone. Pure.

A slot is a Lease with a number below the number of slots; two coordinators that both believe to
lead cannot take the same one, so their number bounds the nodes in change. Leases from
:data:`PARKING` on are no slots: they keep records of nodes whose slot is free again.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from api import keys, names
from base.errors import BadInput
from fleet import rollback_record
from fleet.rollback_record import RollbackRecord
from kube import lease as leases
from kube.api import Object
from kube.lease import Lease

MOST_SLOTS: Final = 100
PARKING: Final = 1000
DURATION_SECONDS: Final = 60
"""Duration without a meaning: a slot is freed by what is seen of its node, never by time alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLease:
    """A Lease of a slot or of a parked record, at one resourceVersion."""

    number: int
    version: str
    holder: str = ""
    record: RollbackRecord | None = None
    damaged: bool = False
    """Whether somebody has the Lease, and there is no record that can be read."""
    has_former_record: bool = False
    """There is a record in the form before 0.1.0, which nobody reads."""

    @property
    def name(self) -> str:
        """Name of the Lease."""
        return slot_name(self.number)

    @property
    def is_parked(self) -> bool:
        """Whether the Lease keeps a parked record, and is no slot."""
        return self.number >= PARKING

    @property
    def is_free(self) -> bool:
        """Whether nobody has the Lease, and it records nothing that is to be undone."""
        return not self.holder and self.record is None and not self.damaged


def slot_name(number: int) -> str:
    """Name of the Lease of this number."""
    return f"{names.SLOT_LEASE_PREFIX}{number}"


def is_slot(lease: Object) -> bool:
    """Whether it is one of these Leases, by its name."""
    return number_of(lease["metadata"]["name"]) >= 0


def number_of(name: str) -> int:
    """Number of one of these Leases, by its name; -1 for another Lease."""
    match = re.fullmatch(rf"{re.escape(names.SLOT_LEASE_PREFIX)}(0|[1-9][0-9]{{0,5}})", name)
    return -1 if match is None else int(match[1])


def slot_of(seen: Object) -> SlotLease:
    """The Lease's values; a damaged record is marked. Raises BadInput for what no API server sends.

    ``seen`` is one of these Leases.
    """
    lease = Lease.from_object(seen)
    annotations = lease.metadata.annotations
    text = annotations.get(keys.MIG_ROLLBACK_RECORD)
    has_former_record = keys.FORMER_MIG_ROLLBACK_RECORD in annotations
    record = None
    if text is not None:
        with suppress(BadInput):
            record = rollback_record.decode(text)
    holder = lease.spec.holder_identity
    return SlotLease(
        number=number_of(lease.metadata.name),
        version=lease.metadata.resource_version,
        holder=holder,
        record=record,
        damaged=record is None and bool(holder or text is not None or has_former_record),
        has_former_record=has_former_record,
    )


def new_lease(number: int, record: RollbackRecord, now: datetime) -> Object:
    """Body of a Lease that holds this record."""
    return leases.lease_object(
        slot_name(number),
        holder=_holder(number, record),
        duration_seconds=DURATION_SECONDS,
        wall_time=now,
        annotations={keys.MIG_ROLLBACK_RECORD: rollback_record.encode(record)},
    )


def record_patch(slot: SlotLease, record: RollbackRecord | None, now: datetime) -> Object:
    """Patch that puts this record on the Lease; None empties it.

    Conflict as its answer says that somebody else has written the Lease since.
    """
    text = None if record is None else rollback_record.encode(record)
    annotations = {keys.MIG_ROLLBACK_RECORD: text}
    if slot.has_former_record:
        annotations[keys.FORMER_MIG_ROLLBACK_RECORD] = None
    return {
        "metadata": {"resourceVersion": slot.version, "annotations": annotations},
        "spec": {
            "holderIdentity": _holder(slot.number, record),
            "renewTime": leases.micro_time(now),
        },
    }


def _holder(number: int, record: RollbackRecord | None) -> str:
    """The node that has the slot; a parked record has none."""
    return "" if record is None or number >= PARKING else record.node
