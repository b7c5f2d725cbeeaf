# SPDX-License-Identifier: Apache-2.0
"""A queue of linked-GPU jobs end to end on real nodes: the files of ``examples/queue``.

Kueue, JobSet, kube-scheduler and the extender are the real ones, and so are kubelets and NVIDIA's
device plugin; GPUs are simulated. Which GPUs a pod has is what the kubelet's checkpoint says.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import pages
from tests.agent.agent_process import until
from tests.controlplane.plane import Object
from tests.node.queue_stage import JOB, LINKED, TEAM, QueueStage, queue_stage
from tests.node.real_node import SOON

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1800)]

FIRST = {"finetune", "pretrain-workers-0", "pretrain-workers-1"}
"""Jobs of the page's lines: they fill the quota of six GPUs."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueStage]:
    with queue_stage(tmp_path_factory.mktemp("queue")) as found:
        yield found


def test_jobs_wait_run_on_linked_gpus_and_the_next_follow(stage: QueueStage) -> None:
    """A Job follows the Job that has ended; a JobSet of four GPUs waits until both workers of the
    first one have ended, and starts whole."""
    since = stage.there.cluster.resource_version()
    stage.type(pages.marked(pages.page("docs/workloads.md"), "queue"))
    check_running(stage, FIRST)

    stage.create("job.yaml", "next")
    stage.create("jobset.yaml", "again")
    until(lambda: stage.waiting() == {"next", "again"}, SOON)
    stage.finish("finetune")
    check_running(stage, FIRST - {"finetune"} | {"next"})
    stage.finish("pretrain-workers-0")
    stage.finish("pretrain-workers-1")
    check_running(stage, {"next", "again-workers-0", "again-workers-1"})

    versions = stage.there.cluster.versions(f"/api/v1/namespaces/{TEAM}/pods", since=since)
    first, done = first_seen(versions), first_seen(versions, "Succeeded")
    assert done["finetune"] < first["next"]
    ended = max(done["pretrain-workers-0"], done["pretrain-workers-1"])
    assert ended < min(first["again-workers-0"], first["again-workers-1"])


def check_running(stage: QueueStage, jobs: set[str]) -> None:
    """These run, on the empty node, each with two GPUs that are linked best and nobody else's."""
    until(lambda: stage.running().keys() == jobs, SOON)
    granted = stage.granted()
    assert {node for node, _ in granted.values()} == {stage.empty.name}
    assert {its for _, its in granted.values()} <= LINKED
    assert len(frozenset().union(*(its for _, its in granted.values()))) == 2 * len(jobs)


def first_seen(versions: list[Object], phase: str = "") -> dict[str, int]:
    """By job: at which of the versions its pod was there, in this phase if one is named."""
    found: dict[str, int] = {}
    for number, pod in enumerate(versions):
        if phase in ("", pod["status"]["phase"]):
            found.setdefault(pod["metadata"]["labels"][JOB], number)
    return found
