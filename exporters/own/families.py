"""All metric families of our own that follow from the node, and their text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from discovery.model import NodeSnapshot
from discovery.sample import GpuSample
from exporters.own import (
    allocation,
    gpu_facts,
    gpu_readings,
    links,
    mig,
    process_families,
    profiling,
    switch_families,
    topology,
)
from exporters.own.family import OwnFamily, OwnText
from exporters.own.processes import ProcessUse
from exporters.own.sxids import Sxid
from exporters.own.view import Holdings, Verdict, view
from exporters.own.waste import NOTHING_SEEN, Waste, step

FAMILIES: tuple[OwnFamily, ...] = (
    *gpu_facts.FAMILIES,
    *gpu_readings.FAMILIES,
    *profiling.FAMILIES,
    *mig.FAMILIES,
    *links.FAMILIES,
    *topology.FAMILIES,
    *allocation.FAMILIES,
    *process_families.FAMILIES,
    *switch_families.FAMILIES,
)


class OwnFamilies:
    """Renders them moment after moment; one instance for one stream, in one thread."""

    def __init__(self, families: Iterable[OwnFamily] = FAMILIES) -> None:
        self._texts = [OwnText(family) for family in families]
        self._waste: Waste = NOTHING_SEEN

    def __bool__(self) -> bool:
        """There are some."""
        return bool(self._texts)

    def render(
        self,
        snapshot: NodeSnapshot,
        samples: Iterable[GpuSample],
        *,
        holdings: Holdings | None = None,
        health: Mapping[str, Verdict] | None = None,
        processes: Iterable[ProcessUse] = (),
        sxids: Iterable[Sxid] = (),
    ) -> bytes:
        """All series that have a value, in text format 0.0.4.

        ``holdings`` is None where nobody tells who holds what; ``health`` is by bus id. The
        same samples may be given again, with a newer snapshot: they count once.
        """
        if not self._texts:
            return b""
        node = view(
            snapshot, samples, holdings=holdings, health=health, processes=processes, sxids=sxids
        )
        self._waste = step(self._waste, allocation.uses(node))
        node = replace(node, waste=self._waste)
        lines = [line for text in self._texts for line in text.lines(node)]
        if lines:
            lines.append("")  # the last line ends too
        return "\n".join(lines).encode("utf-8")
