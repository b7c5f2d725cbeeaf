# SPDX-License-Identifier: Apache-2.0
"""How long a device reader may take for its next frame.

NVML initialises a GPU when the first process opens it, which takes seconds; without
persistence mode the driver drops that again when the last process has closed it. So
the first answers to each reader, of the driver and of each GPU, have a longer
deadline, but for what another reader of ours has open. Source: NVIDIA Driver Persistence.
"""

from __future__ import annotations

from collections.abc import Callable

from discovery.reader.protocol import Touching

SLOW_SECONDS = 1.0
"""A first answer that takes longer is shown: the driver or a GPU is being initialised."""


class Deadlines:
    """Deadline of each call by what a reader announced."""

    def __init__(
        self, answer_seconds: float, init_seconds: float, is_open: Callable[[str | None], bool]
    ) -> None:
        """``is_open``: another reader has this GPU open now, or the driver (None)."""
        self._answer_seconds = answer_seconds
        self._init_seconds = max(answer_seconds, init_seconds)
        self._is_open = is_open

    def seconds_for(self, call: Touching | None) -> float:
        """Seconds that this call may take until its frame comes."""
        if call is None or not call.first or self._is_open(call.bus_id):
            return self._answer_seconds
        return self._init_seconds

    def remaining_seconds(self, call: Touching | None, waited_seconds: float) -> float:
        """Seconds to wait on; at most SLOW_SECONDS, since the other reader may end meanwhile."""
        return min(self.seconds_for(call) - waited_seconds, SLOW_SECONDS)


def slow_first_answer(call: Touching | None, waited_seconds: float) -> str | None:
    """Target that takes long for its first answer: a bus id, or ``driver``; None if none does."""
    if call is None or not call.first or waited_seconds < SLOW_SECONDS:
        return None
    return call.target
