# SPDX-License-Identifier: Apache-2.0
"""The score tables of all topology classes in a fleet."""

from __future__ import annotations

import threading
from collections import OrderedDict

from api.topology_annotation import TopologyAnnotation, generation
from scheduler.scores.kubelet_model import Policies
from scheduler.scores.score_table import MOST_GPUS, Later, ScoreTable
from scheduler.scores.shape import shape

_MOST_CLASSES = 64
"""A table takes one to two megabytes. Fleets have a few classes; degraded links add some."""


class ScoreTables:
    """Tables by class; of too many classes those go that were not used for longest. Thread-safe."""

    def __init__(
        self,
        later: Later | None = None,
        *,
        policies: Policies | None = None,
        most: int = _MOST_CLASSES,
    ) -> None:
        """``later``: an executor's ``submit``, for what takes too long within a request.

        ``policies``: of all nodes.
        """
        self._later = later
        self._policies = policies or Policies()
        self._most = most
        self._tables: OrderedDict[str, ScoreTable] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, annotation: TopologyAnnotation) -> str:
        """The class of this topology, which has its table now, if a node can be that large.

        The ``gen`` that was sent is not believed: a wrong one would touch other nodes' table.
        """
        gen = generation(annotation)
        if self.find(gen) is None and annotation.n <= MOST_GPUS:
            table = ScoreTable(shape(annotation), self._policies, self._later)
            with self._lock:
                self._tables.setdefault(gen, table)
                if len(self._tables) > self._most:
                    self._tables.popitem(last=False)
            if self._later is not None and table.is_quick:
                self._later(table.fill)
        return gen

    def find(self, gen: str) -> ScoreTable | None:
        """The table of a class; None for a class that is not there."""
        with self._lock:
            table = self._tables.get(gen)
            if table is not None:
                self._tables.move_to_end(gen)
        return table
