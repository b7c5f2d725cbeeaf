# SPDX-License-Identifier: Apache-2.0
"""Strangers connect to the extender, and each of its answers still reaches kube-scheduler."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.agent.agent_process import until
from tests.cluster import gpu_fleet
from tests.cluster.extender import PATIENT, Extender, extender
from tests.cluster.scheduling import PROFILE, Stage, configuration
from tests.scheduler.strangers import STRANGERS, Stranger

pytestmark = pytest.mark.cluster

WITHOUT = "without"
"""Profile of a scheduler like ours that has no extender."""
BROKEN, WHOLE = (
    gpu_fleet.Written(name=name, machine="a100-pcie-pairs") for name in ("broken", "whole")
)
"""Nodes of four bridged pairs. Of the first one GPU of each pair is taken, so that whoever packs
takes it; of the second one pair."""
COUNT = 64
"""Strangers of a kind."""
PODS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Two nodes and two schedulers, of which one asks the extender."""

    stage: Stage
    extender: Extender

    def placed(self, scheduler: str = PROFILE) -> str:
        """Node of a new pod of two GPUs, which goes again."""
        pod = self.stage.add_pod(2, scheduler=scheduler)
        node = self.stage.placed(pod)
        self.stage.remove_pod(pod)
        return node

    @property
    def trusting(self) -> ssl.SSLContext:
        """Of a client without a certificate, whatever the server's name."""
        made = ssl.create_default_context(cafile=str(self.stage.client.authority))
        made.check_hostname = False
        return made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with Stage.running(folder) as stage:
        gpu_fleet.add_nodes(stage.plane, [BROKEN, WHOLE])
        for node, pods, apart in ((BROKEN, 4, 2), (WHOLE, 2, 1)):
            gpu_fleet.add_bound_pods(stage.plane, stage.namespace, [node], pods_each=pods)
            gpu_fleet.tell_states(
                stage.plane, [node], namespace=stage.namespace, pods_each=pods, apart=apart
            )
        with extender(stage, folder, PATIENT) as helper:
            patient = configuration(helper.address, stage.client, timeout="30s")
            stage.start_scheduler(patient)
            without = configuration(None, stage.client, profile=WITHOUT, leads=False)
            stage.start_scheduler(without, WITHOUT)
            made = Cluster(stage=stage, extender=helper)
            until(lambda: made.placed() == WHOLE.name)  # score tables are there
            yield made


def test_packing_alone_breaks_a_pair(cluster: Cluster) -> None:
    """Or else the test below would say nothing."""
    assert cluster.placed(WITHOUT) == BROKEN.name


@pytest.mark.parametrize("stranger", STRANGERS)
def test_no_answer_is_missing_while_64_strangers_come_and_when_they_are_there(
    cluster: Cluster, stranger: Stranger
) -> None:
    trusting, port = cluster.trusting, cluster.extender.port
    with contextlib.ExitStack() as opened, ThreadPoolExecutor(4) as pool:

        def stay() -> None:
            with contextlib.suppress(OSError):  # it had to make room already
                opened.enter_context(stranger(port, trusting))

        coming = [pool.submit(stay) for _ in range(COUNT)]
        places = [cluster.placed() for _ in range(PODS)]
        for each in coming:
            each.result()
        places += [cluster.placed() for _ in range(PODS)]
    assert places == [WHOLE.name] * 2 * PODS
