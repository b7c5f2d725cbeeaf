# SPDX-License-Identifier: Apache-2.0
"""From gpu-feature-discovery to gpuscape and back on real nodes, by the install page's lines."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest

from api import names
from tests import pages
from tests.agent.agent_process import until
from tests.cluster import nfd
from tests.controlplane.own import install_node_features, start_nfd_master
from tests.node import feature_discovery
from tests.node.chart_cluster import ChartCluster, chart_cluster
from tests.node.container_agents import labels_of
from tests.node.real_node import SOON

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]

INSTALL: Final = pages.page("docs/install.md")
MACHINE: Final = "a100-pcie-pairs"
TIME: Final = "nvidia.com/gfd.timestamp"
OURS: Final = labels_of(MACHINE)


def test_nodes_go_over_and_back_without_a_moment_without_labels(tmp_path: Path) -> None:
    """With the real programs on both sides. Values are the same at every moment too."""
    with chart_cluster(tmp_path, MACHINE, MACHINE) as stage:
        plane = stage.cluster.plane
        install_node_features(plane)
        start_nfd_master(plane, plane.programs)
        theirs = plane.namespace("gpu-operator")
        feature_discovery.grant(plane, theirs)
        feature_discovery.install(plane, theirs)
        common = OURS.keys() - {TIME} - {it for it in OURS if it.startswith("gpuscape.io/")}
        until(lambda: all(common <= labels.keys() for labels in shown(stage)), SOON)
        before = [{key: labels[key] for key in common} for labels in shown(stage)]
        mark = plane.mark()

        stage.type(pages.marked(INSTALL, "take-over"))
        until(lambda: published(stage, names.NAMESPACE) == len(stage.gpus), SOON)
        until(lambda: all(OURS.keys() <= labels.keys() for labels in shown(stage)), SOON)
        path = f"/apis/apps/v1/namespaces/{theirs}/daemonsets"
        plane.demand("DELETE", f"{path}/{feature_discovery.NAME}")
        until(lambda: published(stage, theirs) == 0, SOON)
        half_way = [{key: labels.get(key) for key in common} for labels in shown(stage)]

        feature_discovery.install(plane, theirs)
        until(lambda: published(stage, theirs) == len(stage.gpus), SOON)
        stage.type(pages.marked(INSTALL, "hand-back"))
        until(
            lambda: all(OURS.keys() - common - {TIME} - labels.keys() for labels in shown(stage)),
            SOON,
        )

        assert half_way == before
        for name, wanted in zip(stage.gpus, before, strict=True):
            seen = nfd.versions(plane, name, mark)
            assert len(seen) > 1
            lacking = [wanted.keys() - it.labels.keys() for it in seen]
            assert lacking == [set()] * len(seen)
            assert all(wanted.items() <= it.labels.items() for it in seen)


def shown(stage: ChartCluster) -> list[dict[str, str]]:
    """The labels of each GPU node."""
    nodes = (stage.cluster.nodes[name] for name in stage.gpus)
    return [node.object()["metadata"]["labels"] for node in nodes]


def published(stage: ChartCluster, namespace: str) -> int:
    """How many GPU nodes have a NodeFeature there."""
    paths = [nfd.node_feature(namespace, name) for name in stage.gpus]
    return sum(stage.cluster.plane.request("GET", it).status == HTTPStatus.OK for it in paths)
