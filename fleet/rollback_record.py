# SPDX-License-Identifier: Apache-2.0
"""``gpuscape.io/mig-undo`` on a slot's Lease: what the coordinator did to a node, and undoes.

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

VERSION: Final = 1

Text = Annotated[str, Meta(max_length=256)]


class RollbackRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Record of a node's change, from the slot's taking to its undoing."""

    v: Literal[1]
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
    offers: dict[Text, int] = {}
    """GPU resources that the node is to offer after the change; empty: not known."""
    had: dict[Text, int] = {}
    """GPU resources that the node offered before."""
    drain: Text = ""
    """How pods leave; empty: they are waited for."""
    drain_at: int = 0
    """When the first eviction was decided; 0: none was."""
    held_at: int = 0
    """When the cordon and the grant were first seen on the Node; 0: not yet."""
    go_at: int = 0
    """When the grant's go was about to be written, or was first seen there; 0: not yet."""
    end: str = ""
    """How the request ended; ``superseded`` where nobody says that any more."""
    restarts: int = 0
    """Restarts of the device plugin's pods."""
    restarted_at: int = 0
    replaced: tuple[Text, ...] = ()
    """UIDs of pods that the newest restart replaces."""
    counted: bool = False
    """Whether the end is in the memory of rollouts."""


def encode(record: RollbackRecord) -> str:
    """The annotation's text: compact JSON."""
    return FORMAT.encode(record).decode()


def decode(text: str) -> RollbackRecord | None:
    """The annotation in ``text``; None for a major version other than ours. Raises BadInput."""
    return FORMAT.decode(text)


FORMAT: Final = VersionedFormat(
    name=f"annotation {keys.MIG_UNDO}",
    remedy="see docs/mig.md, then delete it",
    content=RollbackRecord,
    version=VERSION,
    most_length=limits.MOST_UNDO_CHARACTERS,
)
