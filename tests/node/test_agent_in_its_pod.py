# SPDX-License-Identifier: Apache-2.0
"""What a pod on a real node gives the agent: a network, credentials that change, little memory."""

from __future__ import annotations

import base64
import ipaddress
import json
import struct
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import pytest

from api import names
from tests.agent.agent_process import runs, until
from tests.controlplane.audit import Event
from tests.node import full_machine, prometheus_pod
from tests.node.container_agents import CREDENTIALS, DAEMONSET, Agent, agents, changed, episode
from tests.node.hasty_pod import HastyPod
from tests.node.network import SERVICE_IP
from tests.node.real_cluster import PORT, RealCluster
from tests.node.real_node import SOON

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
"""In the audit log. Source: kubernetes.io, service account tokens; on since 1.30."""
SHORTEST_SECONDS: Final = 600
"""The API accepts no shorter life of a projected token."""
SERVED: Final = (9400, 9401)
ESTABLISHED: Final = "01"
FLOOR_BYTES: Final = 40 << 20
"""No agent that serves takes less."""


def test_prometheus_in_a_pod_scrapes_the_agents_of_both_nodes_by_the_shipped_job(
    cluster: RealCluster, tmp_path: Path
) -> None:
    found = agents(cluster)
    with prometheus_pod.running(cluster, next(iter(cluster.nodes.values())), tmp_path) as real:
        real.wait_for(f'count(up{{job="gpuscape"}} == 1) == {len(found)}')
        scraped = {it["labels"]["instance"]: it["scrapeUrl"] for it in real.targets()}
        counted = real.query("count by (instance) (DCGM_FI_DEV_GPU_TEMP)")

    assert scraped == {name: f"http://{it.address}:9400/metrics" for name, it in found.items()}
    assert {it.labels["instance"]: it.value for it in counted} == dict.fromkeys(found, 8)


def test_the_api_server_is_reached_by_the_services_address_and_the_projected_authority(
    cluster: RealCluster,
) -> None:
    for agent in agents(cluster).values():
        proc = Path(f"/proc/{agent.process.pid}")
        variables = dict(
            it.split("=", 1) for it in (proc / "environ").read_text().split("\0") if it
        )
        assert variables["KUBERNETES_SERVICE_HOST"] == SERVICE_IP
        assert "KUBECONFIG" not in variables
        until(lambda proc=proc: peers(proc) == {(SERVICE_IP, PORT)}, SOON)  # type: ignore[misc]
        authority = agent.file(f"{CREDENTIALS}/ca.crt").read_text()
        assert authority == cluster.plane.ca_file.read_text()
        used = {event["user"]["extra"][CREDENTIAL_ID][0] for event in agent.requests(cluster)}
        assert used == {credential(agent)}


def test_a_token_that_the_kubelet_replaces_is_used_from_then_on(cluster: RealCluster) -> None:
    """A kubelet that was restarted knows no token any more, and asks for one for each pod."""
    agent, _ = agents(cluster).values()
    process, first = agent.process, credential(agent)
    with episode(cluster) as happens:
        agent.node.stop("kubelet")
        agent.node.start_kubelet()
        until(lambda: credential(agent) != first, SOON)
        mark, second = cluster.plane.mark(), credential(agent)
        until(lambda: credentials(cluster, agent, mark) != [], SOON)
        after = agents(cluster)[agent.node.name]

    assert credentials(cluster, agent, mark) == [second]
    assert runs(process)
    assert after.status["restartCount"] == agent.status["restartCount"]
    assert set(happens.holders(agent.node.name)) <= {agent.uid}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_an_agent_outlives_its_first_token(cluster: RealCluster) -> None:
    """The kubelet replaces it after four fifths of its life, here as short as the API allows."""
    spec = cluster.plane.demand("GET", DAEMONSET)["spec"]["template"]["spec"]
    (token,) = [it for it in spec["volumes"] if it["name"] == "token"]
    source, *_ = token["projected"]["sources"]
    source["serviceAccountToken"]["expirationSeconds"] = SHORTEST_SECONDS
    short = {"spec": {"template": {"spec": {"volumes": spec["volumes"]}}}}
    with changed(cluster, short):
        agent, _ = agents(cluster).values()
        process, first = agent.process, agent.token()
        assert claims(first)["exp"] - claims(first)["iat"] == SHORTEST_SECONDS
        time.sleep(max(0.0, claims(first)["exp"] - time.time()))
        # the API server allows clocks to differ, and remembers whom it has let in
        until(lambda: refused(cluster, first), SOON)
        mark = cluster.plane.mark()
        with episode(cluster) as happens:  # the API server forgets what was written before
            until(lambda: credentials(cluster, agent, mark) != [], SOON)
            after = agents(cluster)[agent.node.name]

        assert credentials(cluster, agent, mark) == [credential(agent)]
        assert turned_away(cluster, agent) == []
        assert runs(process)
        assert after.uid == agent.uid
        assert set(happens.holders(agent.node.name)) <= {agent.uid}


def refused(cluster: RealCluster, token: str) -> bool:
    """Whether the API server lets nobody in with it any more."""
    answer = cluster.plane.request("GET", f"/api/v1/namespaces/{names.NAMESPACE}", token=token)
    return answer.status == HTTPStatus.UNAUTHORIZED


def turned_away(cluster: RealCluster, agent: Agent) -> list[Event]:
    """Its requests with a token that the API server did not take."""
    refusals = cluster.plane.audit(code=HTTPStatus.UNAUTHORIZED)
    return [it for it in refusals if agent.address in it["sourceIPs"]]


def test_a_pod_that_is_deleted_while_python_starts_ends_as_soon_as_it_can(
    cluster: RealCluster,
) -> None:
    """Of a container's first process the kernel drops a signal that it neither blocks nor handles;
    the kubelet sends SIGTERM once and kills after 30 seconds."""
    agent, _ = agents(cluster).values()
    pod = HastyPod.caught(cluster, agent.node)
    pod.delete()
    pod.go_on()
    assert pod.end() == (0, "Completed")


@pytest.fixture
def full(cluster: RealCluster) -> Iterator[dict[str, Agent]]:
    """Agents with sixteen GPUs and all metric groups."""
    yield full_machine.give(cluster)
    full_machine.take_back(cluster)


def test_sixteen_gpus_with_all_metric_groups_fit_into_192_mib(
    cluster: RealCluster, full: dict[str, Agent]
) -> None:
    wanted = full_machine.families()
    for agent in full.values():
        until(lambda agent=agent: wanted <= full_machine.families_in(agent.metrics()), SOON)  # type: ignore[misc]
        assert agent.metrics().count("\nDCGM_FI_DEV_GPU_TEMP{") == full_machine.GPUS
        limit = agent.cgroup.memory_limit_bytes
        assert limit == full_machine.LIMIT_MIB << 20
        assert agent.cgroup.memory_limit_hits == 0
        # the kubelet's first figure is of the container's first moments
        until(lambda it=agent: full_machine.working_set_bytes(cluster, it) > FLOOR_BYTES, SOON)  # type: ignore[misc]
        assert full_machine.working_set_bytes(cluster, agent) < limit * 2 / 3
        for process in (agent.process, *agent.process.children(recursive=True)):
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert "\nUid:\t0\t0\t0\t0\n" in status
            assert "\nCapEff:\t0000000000000000\n" in status
            assert "\nSeccomp:\t2\n" in status


def peers(proc: Path) -> set[tuple[str, int]]:
    """Whom a process's network has connections to that it opened itself. Source: proc_net(5)."""
    found = set()
    for line in (proc / "net" / "tcp").read_text().splitlines()[1:]:
        near, far, state = line.split()[1:4]
        if state == ESTABLISHED and int(near.partition(":")[2], 16) not in SERVED:
            address, port = far.split(":")
            packed = struct.pack("=I", int(address, 16))
            found.add((str(ipaddress.IPv4Address(packed)), int(port, 16)))
    return found


def credential(agent: Agent) -> str:
    """The identity of its token, as the audit log has it."""
    return f"JTI={claims(agent.token())['jti']}"


def claims(token: str) -> dict[str, Any]:
    """What a token says of itself. Source: RFC 7519."""
    middle = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    return found


def credentials(cluster: RealCluster, agent: Agent, mark: int) -> list[str]:
    """With which tokens it has asked since; sorted."""
    events = agent.requests(cluster, since=mark)
    return sorted({event["user"]["extra"][CREDENTIAL_ID][0] for event in events})
