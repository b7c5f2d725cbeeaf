# SPDX-License-Identifier: Apache-2.0
"""The extender as a process: from its start to its end, with and without an API server."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api import keys, names
from api.state_annotation import pod_key
from tests.agent.agent_process import GPUSCAPE, SOON, until
from tests.controlplane.plane import MERGE_PATCH, Plane
from tests.scheduler import fleets
from tests.scheduler.calls import body, pod
from tests.scheduler.extender_process import ExtenderProcess, running, unreachable_cluster
from tests.scheduler.streamed_cluster import StreamedCluster, kubeconfig

KEPT_FREE = 4
"""Free nodes of a product: of so many none is kept for larger pods."""


@pytest.fixture
def nobody(tmp_path: Path) -> Path:
    """The kubeconfig of a cluster whose API server does not answer."""
    return unreachable_cluster(tmp_path)


def test_without_an_api_server_it_lives_is_not_ready_and_scores_nothing(nobody: Path) -> None:
    with running(nobody) as extender:
        until(lambda: extender.says("watch lost"))
        assert extender.ask("/livez").status == http.client.OK
        assert extender.ask("/readyz").status == http.client.SERVICE_UNAVAILABLE
        assert extender.ask("/v1/prioritize", body()).body == b"[]"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_success(nobody: Path, number: signal.Signals) -> None:
    with running(nobody) as extender:
        extender.process.send_signal(number)
        assert extender.process.wait(SOON) == 0
        until(lambda: extender.says("scheduler extender stopped"))


def _is_past_env(pid: int) -> bool:
    """Whether it runs what ``env`` was to run; in the midst of an exec it has no arguments."""
    arguments = Path(f"/proc/{pid}/cmdline").read_text()
    return bool(arguments) and "--block" not in arguments


def test_a_signal_that_came_before_it_ran_ends_it_with_success(nobody: Path) -> None:
    """It waits, as the command of the image has it, until the program takes it."""
    command = ["/usr/bin/env", "--block-signal=TERM", str(GPUSCAPE), "scheduler"]
    with subprocess.Popen(
        [*command, "--kubeconfig", nobody, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE
    ) as process:
        until(lambda: _is_past_env(process.pid))
        process.terminate()
        try:
            assert process.wait(SOON) == 0
        finally:
            process.kill()


def test_files_that_are_not_there_end_it_at_once_in_one_sentence(nobody: Path) -> None:
    options = ["--tls-cert-file", "/none.crt", "--tls-private-key-file", "/none.key"]
    ran = subprocess.run(
        [GPUSCAPE, "scheduler", "--kubeconfig", nobody, *options],
        capture_output=True,
        text=True,
        timeout=SOON,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stderr == "Error: cannot read /none.crt: No such file or directory\n"


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ((), "hgx-h100"),
        (("--product-order", "fastest"), "hgx-h100"),
        (("--product-order", "cheapest"), "dgx1-v100"),
    ],
)
def test_its_setting_says_to_which_product_pods_of_several_gpus_go_first(
    tmp_path: Path, options: tuple[str, ...], first: str
) -> None:
    machines = ("dgx1-v100", "hgx-h100")
    cluster = StreamedCluster(machines, 2 * KEPT_FREE, most_pods=0)
    with (
        cluster.serving() as server,
        running(kubeconfig(tmp_path, server), "--budget", "20s", *options) as extender,
    ):
        until(lambda: extender.ask("/readyz").status == http.client.OK)
        ranked = json.loads(extender.ask("/v1/prioritize", body(cluster.names, Pod=pod(2))).body)

    best = {entry["Host"] for entry in ranked if entry["Score"] == 10}
    assert best == set(cluster.names[machines.index(first) :: len(machines)])


@pytest.mark.cluster
def test_in_a_cluster_it_scores_what_agents_tell(plane: Plane) -> None:
    agents = plane.namespace()
    free, full = (plane.make_node(annotations={keys.TOPOLOGY: fleets.topology()}) for _ in "ab")
    say(plane, agents, free)
    say(plane, agents, full, used=0xFF)

    with ready(plane, agents) as extender:
        asking = body([free, full], Pod=pod(2, resource=RESOURCE))

        def scores() -> dict[str, int]:
            """By node; empty where they are not there within the budget, as on a busy machine."""
            told = json.loads(extender.ask("/v1/prioritize", asking).body)
            return {each["Host"]: each["Score"] for each in told}

        until(lambda: scores() == {free: 10, full: 0})
        shown = json.loads(extender.ask(f"/debug/nodes/{full}").body)

    assert shown["used"] == list(range(8))


@pytest.mark.cluster
def test_in_a_cluster_it_tells_whom_it_promised_too_much(plane: Plane) -> None:
    """A pod wishes linked GPUs, is expected to get a pair, and gets one GPU of each of two."""
    agents, team = plane.namespace(), plane.namespace()
    node = plane.make_node(annotations={keys.TOPOLOGY: fleets.topology()})
    say(plane, agents, node)

    with ready(plane, agents) as extender:
        made = pod(2, resource=RESOURCE, annotations={keys.LINK: "nvlink"}, namespace=team)
        made["metadata"].pop("uid")
        made["spec"]["nodeName"] = node
        uid = plane.demand("POST", f"/api/v1/namespaces/{team}/pods", made)["metadata"]["uid"]
        until(lambda: json.loads(extender.ask(f"/debug/nodes/{node}").body)["pods"] != [])
        state = fleets.said(used=0b110)
        held = json.loads(state) | {"pods": {pod_key(team, "train"): "06"}}
        say(plane, agents, node, text=json.dumps(held), method="PATCH")
        until(lambda: b'predictions_total{result="miss"} 1.0' in extender.ask("/metrics").body)
        assert b"unlinked_pods_total 1.0" in extender.ask("/metrics").body
        event = f"/apis/events.k8s.io/v1/namespaces/{team}/events/{names.pod_event(uid)}"
        until(lambda: plane.request("GET", event).status == http.client.OK)
        assert plane.demand("GET", event)["reportingInstance"] == "replica-1"


RESOURCE = "nvidia.com/a100"


@contextlib.contextmanager
def ready(plane: Plane, agents: str) -> Iterator[ExtenderProcess]:
    """An extender for this resource and agents of this namespace, which has read all."""
    options = ["--namespace", agents, "--gpu-resource", RESOURCE, "--instance", "replica-1"]
    with running(plane.kubeconfig(), *options) as extender:
        until(lambda: extender.ask("/readyz").status == http.client.OK)
        yield extender


def say(plane: Plane, namespace: str, node: str, method: str = "POST", **facts: Any) -> None:
    """The agent of a node writes its Lease."""
    lease = fleets.lease(renewed="2026-11-20T08:00:00.000000Z", **facts)
    lease["metadata"] = {
        "name": names.agent_lease(node),
        "annotations": lease["metadata"]["annotations"],
    }
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    if method == "POST":
        plane.demand("POST", path, lease)
    else:
        plane.demand("PATCH", f"{path}/{names.agent_lease(node)}", lease, content_type=MERGE_PATCH)


def test_it_imports_nothing_of_the_agent() -> None:
    script = (
        "import sys, scheduler.extender.extender_program;"
        " print({name.partition('.')[0] for name in sys.modules}"
        " & {'agent', 'pynvml', 'grpc', 'apscheduler', 'click', 'rich'})"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
