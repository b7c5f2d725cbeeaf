# SPDX-License-Identifier: Apache-2.0
"""Pods land where the NVLinks are: kube-scheduler, extender, agents and device plugin's choice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from api import names
from tests import previous_tree
from tests.agent.agent_process import until
from tests.cluster.agents import Site
from tests.cluster.extender import PATIENT, Extender, extender
from tests.cluster.gpu_nodes import GpuNode, gpu_node, leave_free, mask
from tests.cluster.scheduling import PROFILE, Stage, configuration
from tests.controlplane.plane import Plane
from tests.controlplane.versions import VERSIONS
from tests.kubelet_nodes.allocator import Allocator
from tests.kubelet_nodes.kubelet import Kubelets

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

WITHOUT = "without"
"""Profile of a scheduler like ours that has no extender."""

BROKEN, WHOLE = "broken", "whole"
FREE = {BROKEN: (0, 2, 4, 6), WHOLE: (0, 1, 2, 3, 4, 5)}
"""Nodes of four bridged pairs. The first is fuller, so whoever packs takes it; a pod of two gets no
linked GPUs there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster with two nodes and our scheduler."""

    stage: Stage
    extender: Extender
    nodes: dict[str, GpuNode]

    def placed(self, gpus: int, scheduler: str = PROFILE) -> tuple[str, tuple[int, ...]]:
        """Node of a new pod and the places of the GPUs that it was given; the pod goes again."""
        pod = self.stage.add_pod(gpus, scheduler=scheduler)
        node = self.nodes[self.stage.placed(pod)]
        uid = self.stage.pod(pod)["metadata"]["uid"]
        until(lambda: node.gpus_of(uid) != ())
        given = node.gpus_of(uid)
        self.stage.remove_pod(pod)
        until(lambda: node.gpus_of(uid) == ())
        until(lambda: node.free() == mask(FREE[node.name]))
        return node.name, given


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with contextlib.ExitStack() as running:
        plane = running.enter_context(
            Plane.start(folder / "plane", minor=request.param, controller_manager=False, kwok=True)
        )
        site = Site.create(plane, names.NAMESPACE)
        stage = Stage.create(plane, folder / "admin")
        allocator = running.enter_context(Allocator())
        kubelets = running.enter_context(Kubelets(plane, allocator, folder / "kubelets"))
        nodes = {
            name: running.enter_context(
                gpu_node(site, kubelets, "a100-pcie-pairs", name, folder / name)
            )
            for name in (BROKEN, WHOLE)
        }
        helper = running.enter_context(extender(stage, folder, PATIENT))
        stage.start_scheduler(configuration(helper.address, stage.client, timeout="30s"))
        stage.start_scheduler(
            configuration(None, stage.client, profile=WITHOUT, leads=False), WITHOUT
        )
        for name, gpus in FREE.items():
            leave_free(stage, nodes[name], gpus)
        yield Cluster(stage=stage, extender=helper, nodes=nodes)


def test_a_pod_of_two_is_given_a_linked_pair_where_packing_alone_gives_none(
    cluster: Cluster,
) -> None:
    packed, apart = cluster.placed(2, scheduler=WITHOUT)
    chosen, linked = cluster.placed(2)

    assert packed == BROKEN
    assert cluster.nodes[packed].links(apart) == 0
    assert chosen == WHOLE
    assert cluster.nodes[chosen].links(linked) > 0


def test_a_pod_of_one_leaves_the_pairs_whole(cluster: Cluster) -> None:
    assert cluster.placed(1)[0] == BROKEN


def test_without_the_extender_packing_goes_on_and_with_it_back_links_count_again(
    cluster: Cluster,
) -> None:
    cluster.extender.kill()
    meanwhile, _ = cluster.placed(2)
    cluster.extender.start_again()
    after, _ = cluster.placed(2)

    assert (meanwhile, after) == (BROKEN, WHOLE)


@pytest.mark.long
def test_an_earlier_extender_ranks_by_what_agents_publish_now(
    cluster: Cluster, tmp_path: Path
) -> None:
    earlier = previous_tree.program(previous_tree.unpack(tmp_path / "earlier"))
    cluster.extender.kill()
    cluster.extender.start_again(earlier)
    chosen, linked = cluster.placed(2)
    cluster.extender.kill()
    cluster.extender.start_again()

    assert chosen == WHOLE
    assert cluster.nodes[chosen].links(linked) > 0
