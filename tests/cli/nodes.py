# SPDX-License-Identifier: Apache-2.0
"""Nodes with everything that output has to show."""

from __future__ import annotations

from dataclasses import replace

from api.fabric_kind import FabricKind
from discovery.model import Nic, NodeSnapshot, Topology
from tests import build


def bridged() -> NodeSnapshot:
    """GPU 0 and 1 bridged; GPU 2 with unknown place and links that one side sees; one NIC."""
    gpus = [
        build.gpu(at, numa_node=node, cpu_affinity=cpus)
        for at, node, cpus in ((0, 0, "0-15"), (1, 0, "0-15"), (2, None, None))
    ]
    node = build.node(gpus)
    nic = Nic(name="mlx5_0", bus_id="0000:18:00.0", numa_node=0)
    topology = Topology(
        gpus=node.topology.gpus,
        nics=("mlx5_0",),
        kind=FabricKind.BRIDGE,
        nvlinks=((0, 4, 0), (4, 0, 2), (0, 0, 0)),
        pcie=((0, 1, 5, 2), (1, 0, 5, 3), (5, 5, 0, None), (2, 3, None, 0)),
    )
    return replace(node, topology=topology, host=replace(node.host, nics=(nic,)))
