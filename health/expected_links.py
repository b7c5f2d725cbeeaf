# SPDX-License-Identifier: Apache-2.0
"""NVLinks of a GPU that are up, and those that should be. Pure."""

from __future__ import annotations

from api.fabric_kind import FabricKind
from discovery.model import GpuSnapshot, NodeSnapshot, NvidiaFacts, nvidia_gpus


def links_up(nvidia: NvidiaFacts) -> int:
    """Number of NVLinks that are known to be up."""
    return sum(link.active is True for link in nvidia.links)


def all_links_read(nvidia: NvidiaFacts) -> bool:
    """Whether the GPU has NVLinks and reported the state of all."""
    return bool(nvidia.links) and all(link.active is not None for link in nvidia.links)


def expected_links(gpu: GpuSnapshot, snapshot: NodeSnapshot) -> int | None:
    """NVLinks that should be up: the most that any GPU of this model in the node has up.

    None on bridged cards, which may stand alone by intent; with MIG on, which takes links down
    on Ampere; and on a GPU that did not report all its links.
    """
    linked = snapshot.topology.kind in (FabricKind.MESH, FabricKind.SWITCH)
    if not linked or gpu.mig_enabled or gpu.nvidia is None or not all_links_read(gpu.nvidia):
        return None
    of_model = [
        links_up(nvidia)
        for peer, nvidia in nvidia_gpus(snapshot.answering)
        if peer.model == gpu.model and not peer.mig_enabled
    ]
    return max(of_model, default=None)
