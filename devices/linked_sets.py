# SPDX-License-Identifier: Apache-2.0
"""The best sets of one node's GPUs: from the agent's table, else computed from its links."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from api.device_exchange import DeviceExchange
from placement.exact_choice import ExactChoice
from placement.score_table import MOST_GPUS
from placement.shape import shape
from placement.workspace import TooMuchWork, Workspace

_MOST_BYTES: Final = 4 << 20
_MOST_STEPS: Final = 1_000_000


class LinkedSets:
    """The best sets by one file of the agent; keeps what it computed."""

    def __init__(self, exchange: DeviceExchange) -> None:
        links = exchange.links
        self._exchange = exchange
        self._workspace = Workspace(most_bytes=_MOST_BYTES)
        self._choice = (
            None
            if links is None or links.n > MOST_GPUS
            else ExactChoice(shape(links), self._workspace)
        )
        self._n = 0 if links is None else links.n

    def best(self, available: int, size: int, required: int) -> int | None:
        """Mask of the best set; None where it is not known, or takes too much work.

        The table has no required GPUs: those sets are computed.
        """
        if not required:
            chosen = self._exchange.best_set(available, size)
            if chosen is not None:
                return chosen
        if self._choice is None or available >> self._n:
            return None
        with suppress(TooMuchWork), self._workspace.counted(_MOST_STEPS):
            return self._choice.best(available, size, required)
        return None
