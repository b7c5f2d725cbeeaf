# SPDX-License-Identifier: Apache-2.0
"""``gpuscape.io/mig-rollback-record`` on a slot's Lease: how a node comes back as it was.

It is written before the first effect on the node, so that any coordinator that comes later can
go on, or put everything back. Times are whole seconds since 1970.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from api import keys, limits
from api.mig_request_annotation import RequestId
from api.versioned import VersionedFormat

VERSION: Final = 2

Text = Annotated[str, Meta(max_length=256)]


class RollbackRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the coordinator changed on a node, from taking the slot to freeing it."""

    v: Literal[2]
    node: Text
    uid: Text
    request: RequestId
    rollout: Annotated[str, Meta(max_length=512)] = ""
    """The layout that the admin asks for, as :attr:`fleet.mig_node.MigNode.rollout`."""
    taken_at: int = 0
    cordon: bool = False
    """The cordon is ours: nobody else's was there before, and nobody has taken ours off."""
    guards: dict[Text, Text | None] = {}
    """Autoscalers' annotations that we set, with what they were; None: absent."""
    labels: dict[Text, Text] = {}
    """Labels of the GPU operator that we set to pause its parts, with what they were."""
    allocatable: dict[Text, int] = {}
    """GPU resources that are to be allocatable after the change; empty: not known."""
    allocatable_before: dict[Text, int] = {}
    """GPU resources that were allocatable before the change."""
    drain: Text = ""
    """How pods leave; empty: they are waited for."""
    drain_at: int = 0
    """When the first eviction was decided; 0: none was."""
    cordoned_at: int = 0
    """When the cordon and the permit were first seen on the Node; 0: not yet."""
    proceed_at: int = 0
    """When the permit to proceed was about to be written, or was first seen there; 0: not yet."""
    boots: bool = False
    """Whether the change has waited for a boot of the node: then it has more time."""
    outcome: str = ""
    """Outcome of the request; ``superseded`` where nobody states one any more."""
    restarts: int = 0
    """Restarts of the device plugin's pods."""
    restarted_at: int = 0
    replaced: tuple[Text, ...] = ()
    """UIDs of pods that the newest restart replaces."""
    counted: bool = False
    """Whether the outcome is in the memory of rollouts."""


FORMAT: Final = VersionedFormat(
    name=f"annotation {keys.MIG_ROLLBACK_RECORD}",
    remedy="see docs/mig.md, then delete it",
    content=RollbackRecord,
    version=VERSION,
    most_length=limits.MOST_RECORD_CHARACTERS,
)
encode, decode = FORMAT.text, FORMAT.decode
