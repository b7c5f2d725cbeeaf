"""The score tables of all topology classes in a fleet."""

from __future__ import annotations

import threading
from collections import OrderedDict

from labelers.schema import TopologyAnnotation, generation
from scheduler.scores.kubelet_model import DevicePluginPolicy, Policies, TopologyManager
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
        default: Policies | None = None,
        most: int = _MOST_CLASSES,
    ) -> None:
        """``later``: an executor's ``submit``, for what takes too long within a request.

        ``default``: policies of nodes that do not tell theirs.
        """
        self._later = later
        self._default = default or Policies()
        self._most = most
        self._tables: OrderedDict[str, ScoreTable] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, annotation: TopologyAnnotation) -> str:
        """The class of this topology, which has its table now, if a node can be that large.

        The ``gen`` that was sent is not believed: a wrong one would touch other nodes' table.
        """
        gen = generation(annotation)
        if self.find(gen) is None and annotation.n <= MOST_GPUS:
            table = ScoreTable(shape(annotation), self._policies(annotation), self._later)
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

    def _policies(self, annotation: TopologyAnnotation) -> Policies:
        """The node's; the default for one that it does not tell, or that is not known here."""
        return Policies(
            tm=_TM.get(annotation.tm or "", self._default.tm),
            scope=self._default.scope,
            al=_AL.get(annotation.al or "", self._default.al),
        )


_TM = {each.value: each for each in TopologyManager}
_AL = {each.value: each for each in DevicePluginPolicy} | {
    "distributed": DevicePluginPolicy.RANDOM,  # of the plugin's greedy ones: GPUs are alike to them
    "packed": DevicePluginPolicy.RANDOM,
}
