# SPDX-License-Identifier: Apache-2.0
"""Labels of the links between GPUs: NVLink class, largest island, fabric clique."""

from __future__ import annotations

from collections.abc import Sequence

from api import keys
from api.fabric_kind import FabricKind
from discovery.model import GpuSnapshot, NodeSnapshot, nvidia_gpus
from discovery.topology import largest_island
from labelers.decision import Absent, Decision, Decisions, Keep, value, why_none
from labelers.groups.labelled_gpus import (
    answering,
    nvidia_part,
    unsure,
    without_answers,
)
from labelers.label_settings import LabelSettings

IN_PROGRESS = 2
"""NVML_GPU_FABRIC_STATE_IN_PROGRESS."""


def link_labels(snapshot: NodeSnapshot, _: LabelSettings) -> Decisions:
    """Labels about NVLink and the fabric of the GPUs that answer."""
    none = without_answers(snapshot)
    if none is not None:
        return {key.name: none for key in keys.LINKS}
    nvidia = nvidia_part(snapshot)
    clique = without_answers(nvidia) or _clique(answering(nvidia))
    return {keys.CLIQUE: clique, **_nvlink(snapshot)}


def _clique(gpus: Sequence[GpuSnapshot]) -> Decision:
    """Cluster and clique that all registered GPUs agree on.

    GPUs outside a fabric are passed over. A registration under way is not yet an
    answer, so it removes nothing.
    """
    fabrics = [nvidia.fabric for _, nvidia in nvidia_gpus(gpus) if nvidia.fabric is not None]
    cliques = {f"{f.cluster_uuid}.{f.clique_id}" for f in fabrics if f.attached}
    if len(cliques) == 1:
        return value(cliques.pop())
    if cliques:
        return Absent(reason=f"GPUs are in several cliques: {', '.join(sorted(cliques))}")
    if any(fabric.state == IN_PROGRESS for fabric in fabrics):
        return Keep(reason="registration with the fabric is in progress")
    unknown = [gpu for gpu, nvidia in nvidia_gpus(gpus) if nvidia.fabric is None]
    return why_none(unknown, "fabric") if unknown else Absent(reason="no GPU is in a fabric")


def _nvlink(snapshot: NodeSnapshot) -> dict[str, Decision]:
    """The labels about NVLink; kept while a GPU's links are not known, since links do not move."""
    topology = snapshot.topology
    texts = {
        keys.NVLINK_CLASS: topology.kind.value,
        keys.NVLINK_ISLAND: str(largest_island(topology)),
    }
    blind = any(links is None for row in topology.nvlinks for links in row)
    unknown = "the NVLinks of a GPU are not known" if blind else snapshot.counts.why_unaddressed
    if not unknown:
        return {key: value(text) for key, text in texts.items()}
    if topology.kind is FabricKind.NONE:  # which would say that there are none
        return {key: Keep(reason=unknown) for key in texts}
    return {key: unsure(snapshot, unknown, text) for key, text in texts.items()}
