# SPDX-License-Identifier: Apache-2.0
"""Times that nodes wait for their change, by their requests or since they were seen. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from api.mig_status_annotation import MigPhase
from fleet.mig_node import MigNode
from fleet.slot_gate import WaitReason


class WaitAges:
    """Remembers since when each node's request is open. One thread.

    One that does not say when it was asked for counts from when it was first seen here, or from
    the time of its agent's status.
    """

    def __init__(self) -> None:
        self._since: dict[str, tuple[str, float]] = {}
        """Node to its request, and seconds since 1970."""

    def forget(self) -> None:
        """Remember nothing: another coordinator goes on."""
        self._since.clear()

    def oldest(
        self, nodes: Mapping[str, MigNode], waiting: Mapping[str, WaitReason], now: float
    ) -> dict[WaitReason, float]:
        """Longest wait of a node in seconds, by the reason that it has now.

        A node that has had a slot in between goes on counting, as long as its request is the same.
        """
        kept: dict[str, tuple[str, float]] = {}
        longest: dict[WaitReason, float] = {}
        for name, node in nodes.items():
            if node.request is None:
                continue
            before = self._since.get(name)
            if before is None or before[0] != node.request.request:
                before = node.request.request, _shown_since(node, now)
            kept[name] = before
            if (reason := waiting.get(name)) is not None:
                longest[reason] = max(longest.get(reason, 0.0), now - before[1])
        self._since = kept
        return longest


def _shown_since(node: MigNode, now: float) -> float:
    """Time since when the agent asks, or shows that it waits; now where it does not say so."""
    status, request = node.status, node.request
    if request is None:
        return now
    text = request.since
    if not text and status is not None and status.request == request.request:
        # it may be too late: pods that came and went meanwhile are news too
        text = status.since if status.phase == MigPhase.WAITING else ""
    try:
        return min(datetime.fromisoformat(text).timestamp(), now)
    except (ValueError, OverflowError):
        return now
