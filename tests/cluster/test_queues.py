# SPDX-License-Identifier: Apache-2.0
"""A queue of jobs on linked GPUs, end to end: the files of examples/queue as they stand.

Kueue, JobSet, kube-scheduler, API server and controllers are real, so are agents and extender;
GPUs are handed out by NVIDIA's go-gpuallocator. Kubelets are played: no container runs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests import pages
from tests.agent.agent_process import until
from tests.cluster import queues
from tests.controlplane.plane import Object
from tests.kubelet_nodes import play
from tests.kubelet_nodes.play import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]

EXAMPLES = pages.ROOT / "examples" / "queue"
QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/linked-gpus"
SOON = 240.0
"""For what is bound to come, even where the machine is busy."""
LINKED = ", linked by 2 NVLinks"
"""As the two GPUs of a DGX-1 are that are linked best."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A DGX-1 with a mesh of links, and a server with bridges, which the queue does not use."""
    with play.started(["dgx1-v100", "a100-pcie-pairs"]) as made:
        queues.start_jobset(made.plane, made.plane.programs)
        queues.start_kueue(made.plane, made.plane.programs)
        yield made


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A team's own; nothing of it and its queue is left afterwards."""
    namespace = cluster.plane.namespace("team")
    yield namespace
    cluster.plane.kubectl("delete", "namespace", namespace, "--wait=false")
    cluster.plane.kubectl("delete", "clusterqueue", "linked-gpus", "--wait=false")
    for path in (f"/api/v1/namespaces/{namespace}", QUEUE):
        until(lambda path=path: cluster.plane.request("GET", path).status == 404, SOON)  # type: ignore[misc]


@pytest.fixture
def team(cluster: Cluster, namespace: str) -> str:
    """The namespace, with the queue."""
    cluster.plane.kubectl("-n", namespace, "apply", "-f", EXAMPLES / "queue.yaml")
    return namespace


def create(cluster: Cluster, team: str, file: str, name: str) -> None:
    """An object as in a file of the examples, under another name."""
    text = (EXAMPLES / file).read_text(encoding="utf-8")
    first = next(line for line in text.splitlines() if line.startswith("  name: "))
    cluster.plane.kubectl(
        "-n", team, "create", "-f", "-", stdin=text.replace(first, f"  name: {name}", 1)
    )


def pods(cluster: Cluster, team: str) -> dict[str, Object]:
    """By the job that they are of."""
    found = cluster.plane.demand("GET", f"/api/v1/namespaces/{team}/pods")["items"]
    return {pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]: pod for pod in found}


def running(cluster: Cluster, team: str) -> set[str]:
    """Jobs whose pods run."""
    return {job for job, pod in pods(cluster, team).items() if pod["status"]["phase"] == "Running"}


def held(cluster: Cluster, team: str) -> dict[str, str]:
    """By job: its node, and which GPUs its pod has, in the words of ``holders``."""
    said = subprocess.run(
        [sys.executable, "-m", "tests.kubelet_nodes.holders"],
        input=cluster.plane.kubectl("get", "nodes,leases,pods", "-A", "-o", "json"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = {f"{team}/{pod['metadata']['name']}": job for job, pod in pods(cluster, team).items()}
    found = re.findall(r"^(\S+): (\S+) holds (.*)$", said, re.MULTILINE)
    return {names[pod]: f"{node}: {what}" for node, pod, what in found if pod in names}


def all_linked(cluster: Cluster, team: str) -> bool:
    """Whether each running job has two GPUs of the DGX-1 that are linked best."""
    there = held(cluster, team)
    return set(there) == running(cluster, team) and all(
        what.startswith("dgx1-v100: ") and what.endswith(LINKED) for what in there.values()
    )


def test_jobs_wait_in_the_queue_and_run_on_linked_gpus(cluster: Cluster, team: str) -> None:
    """Three jobs fill the quota of six GPUs; the fourth begins when one of them is gone."""
    for name in ("a", "b", "c", "d"):
        create(cluster, team, "job.yaml", name)

    until(lambda: len(running(cluster, team)) == 3, SOON)
    until(lambda: all_linked(cluster, team), SOON)
    first = running(cluster, team)
    (late,) = {"a", "b", "c", "d"} - first
    waiting = cluster.plane.demand("GET", f"/apis/batch/v1/namespaces/{team}/jobs/{late}")
    cluster.plane.kubectl("-n", team, "delete", "job", min(first))
    until(lambda: late in running(cluster, team), SOON)
    until(lambda: all_linked(cluster, team), SOON)

    assert waiting["spec"]["suspend"] is True
    assert waiting["status"].get("active", 0) == 0
    assert running(cluster, team) == first - {min(first)} | {late}


def test_a_job_set_starts_whole_or_not_at_all(cluster: Cluster, team: str) -> None:
    """With four of six GPUs in use its two workers do not fit; with two of them they start."""
    create(cluster, team, "job.yaml", "a")
    create(cluster, team, "job.yaml", "b")
    until(lambda: running(cluster, team) == {"a", "b"}, SOON)
    create(cluster, team, "jobset.yaml", "both")
    create(cluster, team, "job.yaml", "small")  # which fits, and comes first
    until(lambda: "small" in running(cluster, team), SOON)

    before = pods(cluster, team).keys() - {"a", "b", "small"}
    cluster.plane.kubectl("-n", team, "delete", "job", "a", "small")
    workers = {"both-workers-0", "both-workers-1"}
    until(lambda: running(cluster, team) == {"b", *workers}, SOON)
    until(lambda: all_linked(cluster, team), SOON)

    assert before == set()


def test_the_lines_of_the_page_do_what_it_says(cluster: Cluster, namespace: str) -> None:
    lines = pages.marked(pages.page("docs/workloads.md"), "queue").replace("team-a", namespace)
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": f"{cluster.commands}{os.pathsep}{os.environ['PATH']}",
    }
    subprocess.run(["sh", "-ec", lines], cwd=pages.ROOT, env=environment, check=True)
    jobs = {"finetune", "pretrain-workers-0", "pretrain-workers-1"}
    until(lambda: running(cluster, namespace) == jobs, SOON)
    until(lambda: all_linked(cluster, namespace), SOON)

    admitted = cluster.plane.kubectl("-n", namespace, "get", "workloads", "-o", "name")
    assert len(re.findall(r"/(?:job-finetune|jobset-pretrain)-", admitted)) == 2
