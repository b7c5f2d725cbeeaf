# SPDX-License-Identifier: Apache-2.0
"""All metric families of our own that follow from the node, and their text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from discovery.model import NodeSnapshot
from discovery.sample import GpuSample
from exporters.gpuscape import (
    allocation_families,
    gpu_fact_families,
    gpu_reading_families,
    link_families,
    mig_families,
    process_families,
    profiling_families,
    switch_families,
    topology_families,
)
from exporters.gpuscape.gpuscape_family import GpuscapeFamily, GpuscapeText
from exporters.gpuscape.node_view import GpuAllocation, build_node_view
from exporters.gpuscape.process_use import ProcessUse
from exporters.gpuscape.switch_errors import Sxid
from exporters.gpuscape.waste import WasteRecord
from health.health_verdict import HealthVerdict

FAMILIES: tuple[GpuscapeFamily, ...] = (
    *(
        replace(family, of_discovery=family.name not in gpu_fact_families.SAMPLED_TOO)
        for family in gpu_fact_families.FAMILIES
    ),
    *gpu_reading_families.FAMILIES,
    *profiling_families.FAMILIES,
    *mig_families.FAMILIES,
    *link_families.FAMILIES,
    *(replace(family, of_discovery=True) for family in topology_families.FAMILIES),
    *allocation_families.FAMILIES,
    *process_families.FAMILIES,
    *switch_families.FAMILIES,
)


class GpuscapeFamilies:
    """Renders gpuscape's own families for one snapshot after the other. For one thread."""

    def __init__(
        self, families: Iterable[GpuscapeFamily] = FAMILIES, *, waste: WasteRecord | None = None
    ) -> None:
        """``waste`` is continued from its state; None starts a new record."""
        self._texts = [GpuscapeText(family) for family in families]
        self._waste = WasteRecord() if waste is None else waste
        self._waste.pause()

    def __bool__(self) -> bool:
        """Whether any family is rendered."""
        return bool(self._texts)

    def render(
        self,
        snapshot: NodeSnapshot,
        samples: Iterable[GpuSample],
        *,
        allocation: GpuAllocation | None = None,
        health: Mapping[str, HealthVerdict] | None = None,
        processes: Iterable[ProcessUse] = (),
        sxids: Iterable[Sxid] = (),
    ) -> bytes:
        """All series that have a value, in text format 0.0.4.

        ``allocation`` is None where no source reports who holds what; ``health`` is by bus id. The
        same samples may come again, with a newer snapshot: they count once.
        """
        if not self._texts:
            return b""
        node = build_node_view(
            snapshot,
            samples,
            allocation=allocation,
            health=health,
            processes=processes,
            sxids=sxids,
        )
        self._waste.add(allocation_families.uses(node))
        node = replace(node, waste=self._waste.times)
        lines = [line for text in self._texts for line in text.lines(node)]
        if lines:
            lines.append("")  # the last line ends too
        return "\n".join(lines).encode("utf-8")
