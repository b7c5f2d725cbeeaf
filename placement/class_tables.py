# SPDX-License-Identifier: Apache-2.0
"""The score tables of all topology classes in a fleet."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial

from api.gpu_request import gpu_request
from api.topology_annotation import TopologyAnnotation, generation
from placement.kubelet_model import Policies
from placement.score_table import MOST_GPUS, Later, ScoreTable
from placement.shape import shape
from placement.turns import Turns

_MOST_CLASSES = 512
"""An empty table takes some kilobytes. Fleets have a few classes, and one more for each way in
which links are degraded."""
_MOST_BYTES = 72 << 20
"""Bytes of all tables together: with 5,000 nodes and the program itself less than 150 MiB."""
_CHECKED_EVERY = 64
"""Outcomes between two checks of the budget; between them each class keeps to its own."""


class ScoreTables:
    """Tables by class. Thread-safe.

    Of too many classes those go that were not used for longest. Of too many bytes those classes
    lose theirs first, and compute them again when they are used.
    """

    def __init__(
        self,
        later: Later | None = None,
        *,
        policies: Policies | None = None,
        max_classes: int = _MOST_CLASSES,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        """``later``: an executor's ``submit``, for what takes too long within a request.

        ``policies``: the same for all nodes.
        """
        self._turns = None if later is None else Turns(later)
        self._policies = policies or Policies()
        self._max_classes = max_classes
        self._most_bytes = most_bytes
        self._computed = 0
        self._tables: OrderedDict[str, ScoreTable] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """About what all outcomes, and what was computed on the way to them, take now."""
        with self._lock:
            return sum(table.bytes for table in self._tables.values())

    def add(self, annotation: TopologyAnnotation) -> str:
        """The class of this topology, which has its table now, if a node can be that large.

        The ``gen`` that was sent is not believed: a wrong one would touch other nodes' table.
        """
        gen = generation(annotation)
        if self.find(gen) is not None or annotation.n > MOST_GPUS:
            return gen
        later = None if self._turns is None else partial(self._turns.put, gen)
        table = ScoreTable(shape(annotation), self._policies, later, self._trim)
        with self._lock:
            self._tables.setdefault(gen, table)
            if len(self._tables) > self._max_classes:
                oldest, dropped = self._tables.popitem(last=False)
                dropped.forget()  # at once: Python's collector leaves alone what is there for long
                if self._turns is not None:
                    self._turns.drop(oldest)
        if later is not None:
            later(table.compute_best_speeds)
            if table.is_quick and self.bytes < self._most_bytes // 2:
                for gpus in range(table.n):
                    later(partial(table.fill, gpu_request(gpus + 1)))
        return gen

    def find(self, gen: str) -> ScoreTable | None:
        """The table of a class; None for a class that is not there."""
        with self._lock:
            table = self._tables.get(gen)
            if table is not None:
                self._tables.move_to_end(gen)
        return table

    def _trim(self) -> None:
        """Keep to the budget, now and then; called by a table that has grown."""
        with self._lock:
            self._computed += 1
            if self._computed % _CHECKED_EVERY:
                return
            tables = list(self._tables.values())
        total = sum(table.bytes for table in tables)
        for table in tables[:-1]:  # the last one is in use
            if total <= self._most_bytes:
                return
            total -= table.bytes
            table.forget()
