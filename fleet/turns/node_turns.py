# SPDX-License-Identifier: Apache-2.0
"""Counts the slots that each node has had for its layout, and says when it may have the next.

Each turn of a node, however it ended, puts the node behind all nodes with fewer turns, and doubles
its wait. So whatever one agent reports, its node cannot keep a slot from the others. It is
remembered by the coordinator that acts; a new one knows of failed nodes by the memory of rollouts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fleet.rollout_settings import LONGEST_RETRY_SECONDS

_MOST_TURNS = 32
"""Turns that are counted at most: the wait is at its longest long before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTurn:
    """The turns of one node in one rollout."""

    uid: str
    rollout: str
    turns: int = 0
    not_before: float = 0.0
    """Seconds since 1970."""


_NO_TURN = NodeTurn(uid="", rollout="")


class NodeTurns:
    """The turns of all nodes. One thread."""

    def __init__(self, retry_seconds: float) -> None:
        """``retry_seconds``: from a node's first turn to its second; it doubles up to an hour."""
        self._retry_seconds = retry_seconds
        self._turns: dict[str, NodeTurn] = {}

    def ended(self, node: str, uid: str, rollout: str, now: float, rest: float = 0.0) -> None:
        """A turn is over. ``rest``: seconds for which the node gets no slot in any case."""
        turns = min(self.turn_of(node, uid, rollout).turns + 1, _MOST_TURNS)
        wait = min(self._retry_seconds * 2 ** (turns - 1), LONGEST_RETRY_SECONDS)
        not_before = now + max(wait, rest)
        self._turns[node] = NodeTurn(uid=uid, rollout=rollout, turns=turns, not_before=not_before)

    def turn_of(self, node: str, uid: str, rollout: str) -> NodeTurn:
        """The turn of a node; none where its admin asks for another layout since."""
        known = self._turns.get(node, _NO_TURN)
        return known if (known.uid, known.rollout) == (uid, rollout) else _NO_TURN

    def forget_all_but(self, is_there: Callable[[str], bool]) -> None:
        """Forget nodes that are gone; those whose agent shows nothing are not."""
        self._turns = {name: turn for name, turn in self._turns.items() if is_there(name)}
