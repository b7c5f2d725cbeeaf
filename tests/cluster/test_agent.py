# SPDX-License-Identifier: Apache-2.0
"""A real agent on a real API server: what it writes, when it does not, and what it lets go of."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from api import keys, names, topology_annotation
from simulator.simulation import Simulation
from tests.agent.agent_process import AgentProcess, until
from tests.cluster.agents import Site, agent, has_topology

pytestmark = pytest.mark.cluster

AGENT = "system:serviceaccount:gpuscape:gpuscape-agent"
WRITE_SECONDS = 120.0
"""For a write of the Node that is not among the first three: one a minute."""
QUICK = {"GPUSCAPE_DISCOVER_INTERVAL": "1s", "GPUSCAPE_SAMPLE_INTERVAL": "1s"}


class Scene:
    """One node with an agent that has published."""

    def __init__(self, site: Site, node: str, process: AgentProcess, ready: Path) -> None:
        self.site = site
        self.node = node
        self.process = process
        self.ready = ready
        """The GPU operator's driver-ready file."""

    def clients(self) -> int:
        """Processes that hold NVML."""
        return self.process.simulation.clients()

    def health(self) -> tuple[str | None, str | None]:
        """The Node's labels of health and its reason."""
        labels = self.site.labels(self.node)
        return labels.get(keys.HEALTH), labels.get(keys.HEALTH_REASON)

    def holder(self) -> str | None:
        """Who holds the node's Lease."""
        lease = self.site.lease(self.node)
        return None if lease is None else lease["spec"].get("holderIdentity") or None

    def hangup(self) -> None:
        """Have the agent read its settings again; returns when it has."""
        logged = self.process.logged
        before = sum(line["message"] == "settings reloaded" for line in logged)
        self.process.signal(signal.SIGHUP)
        until(lambda: sum(line["message"] == "settings reloaded" for line in logged) > before)


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation.create("a30-pair", tmp_path)


@pytest.fixture
def scene(site: Site, simulation: Simulation, tmp_path: Path) -> Iterator[Scene]:
    node = site.plane.make_node()
    ready = simulation.host_root / "run/nvidia/validations/driver-ready"
    ready.parent.mkdir(parents=True)
    ready.touch()
    options = {**QUICK, "GPUSCAPE_HOST_ROOT": str(simulation.host_root)}
    with agent(site, node, simulation, tmp_path, options=options) as process:
        until(lambda: has_topology(site, node))
        yield Scene(site, node, process, ready)


def test_a_start_takes_one_watch_and_one_write_of_the_node(
    site: Site, simulation: Simulation, tmp_path: Path
) -> None:
    node = site.plane.make_node()
    mark = site.plane.mark()
    with agent(site, node, simulation, tmp_path):
        until(lambda: has_topology(site, node))
    asked = [
        event["verb"]
        for event in site.plane.audit(since=mark, user=AGENT, resource="nodes")
        if "dryRun=All" not in event["requestURI"]
    ]
    assert asked == ["watch", "patch"]


def test_labels_and_topology_are_those_of_the_machine(scene: Scene) -> None:
    labels = scene.site.labels(scene.node)
    assert (labels["nvidia.com/gpu.count"], labels[keys.FOUND]) == ("2", "2")
    topology = topology_annotation.decode(scene.site.annotations(scene.node)[keys.TOPOLOGY])
    assert topology is not None
    assert topology.n == 2


def test_what_somebody_changes_of_ours_is_put_right(scene: Scene) -> None:
    scene.site.edit(scene.node, labels={"nvidia.com/gpu.count": "64"})
    until(lambda: scene.site.labels(scene.node)["nvidia.com/gpu.count"] == "2")


def test_an_agent_that_ends_leaves_its_labels_and_empties_its_lease(scene: Scene) -> None:
    before = scene.site.labels(scene.node)
    scene.process.process.terminate()
    scene.process.process.wait(5)
    lease = scene.site.lease(scene.node)
    assert lease is not None
    assert not lease["spec"].get("holderIdentity")
    assert scene.site.labels(scene.node) == before


def test_a_node_made_anew_under_its_name_is_labelled_again(scene: Scene) -> None:
    scene.site.plane.demand("DELETE", f"/api/v1/nodes/{scene.node}")
    scene.site.plane.make_node(scene.node)
    until(lambda: has_topology(scene.site, scene.node))


def test_of_two_agents_on_a_node_the_second_only_reads(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    mark = scene.site.plane.mark()
    with agent(scene.site, scene.node, scene.process.simulation, tmp_path / "second") as second:
        until(lambda: any(it["message"] == "Lease held by another agent" for it in second.logged))
        scene.site.edit(scene.node, labels={keys.FOUND: "7"})
        until(lambda: scene.site.labels(scene.node)[keys.FOUND] == "2")
    writes = scene.site.plane.audit(since=mark, user=AGENT, verb="patch", resource="nodes")
    pods = {
        event["user"]["extra"]["authentication.kubernetes.io/pod-name"][0]
        for event in writes
        if "dryRun=All" not in event["requestURI"]
    }
    assert len(pods) == 1


CAUSES: list[dict[str, dict[str, str]]] = [
    {"annotations": {keys.RELEASE: "driver upgrade"}},
    *(
        {"labels": {f"nvidia.com/gpu.deploy.{part}": "paused-for-driver-upgrade"}}
        for part in ("driver", "device-plugin", "gpu-feature-discovery", "dcgm-exporter", "client")
    ),
    *({"labels": {keys.MIG_CONFIG_STATE: state}} for state in ("pending", "rebooting")),
]


def test_each_cause_on_the_node_closes_all_handles_within_five_seconds(scene: Scene) -> None:
    """And they are back within a minute of its end."""
    for asked in CAUSES:
        scene.site.edit(scene.node, **asked)
        until(lambda: scene.clients() == 0, 5)
        scene.site.edit(scene.node, **{part: dict.fromkeys(texts) for part, texts in asked.items()})
        until(lambda: scene.process.gpus("present") == 2 and scene.clients() > 0, 60)


def test_the_driver_ready_file_that_goes_closes_all_handles(scene: Scene) -> None:
    scene.ready.unlink()
    until(lambda: scene.clients() == 0, 5)
    scene.ready.touch()
    until(lambda: scene.clients() > 0, 60)


def test_an_annotation_of_the_admins_ends_an_xid_and_stays_as_it_is(scene: Scene) -> None:
    bus_id = next(iter(scene.process.simulation.state.gpus))
    scene.process.simulation.xid(bus_id, 94)
    until(lambda: scene.health() == ("degraded", "xid-94"), WRITE_SECONDS)
    mark = scene.site.plane.mark()

    scene.site.edit(scene.node, annotations={keys.CLEAR_XIDS: bus_id})
    until(lambda: scene.health() == ("healthy", None), WRITE_SECONDS)
    scene.process.simulation.xid(bus_id, 94)
    until(lambda: scene.health() == ("degraded", "xid-94"), WRITE_SECONDS)

    assert scene.site.annotations(scene.node)[keys.CLEAR_XIDS] == bus_id
    ends = [line for line in scene.process.logged if line["message"] == "XID errors over"]
    assert len(ends) == 1
    asked = scene.site.plane.audit(since=mark, user=AGENT)
    assert [it for it in asked if it["responseStatus"]["code"] >= 400] == []


@pytest.mark.parametrize("key", [keys.CLEAR_XIDS, keys.RELEASE])
def test_what_admins_ask_for_the_agent_may_neither_write_nor_remove(scene: Scene, key: str) -> None:
    token = scene.site.plane.bound_token(scene.site.namespace, names.AGENT, scene.node)
    scene.site.edit(scene.node, annotations={key: "false"})
    for value in ("all", None):
        answer = scene.site.plane.request(
            "PATCH",
            f"/api/v1/nodes/{scene.node}?dryRun=All&fieldManager={names.AGENT}",
            {"metadata": {"annotations": {key: value}}},
            token=token,
            content_type="application/merge-patch+json",
        )
        assert (answer.status, key in str(answer.body)) == (422, True), answer.body


def test_a_hangup_writes_nothing_loses_no_edit_and_the_watch_goes_on(scene: Scene) -> None:
    until(lambda: scene.holder() is not None)
    holder, before = scene.holder(), scene.site.node(scene.node)["metadata"]
    mark = scene.site.plane.mark()
    scene.hangup()
    until(lambda: scene.holder() == holder)
    after = scene.site.node(scene.node)["metadata"]
    written = scene.site.plane.audit(since=mark, user=AGENT, verb="patch", resource="nodes")
    assert [it for it in written if "dryRun=All" not in it["requestURI"]] == []
    assert all(after[part] == before[part] for part in ("labels", "annotations"))

    scene.site.edit(scene.node, labels={keys.FOUND: "7"})
    scene.hangup()  # the edit may come before it, while it lasts, or after it
    until(lambda: scene.site.labels(scene.node)[keys.FOUND] == "2", WRITE_SECONDS)
    scene.site.edit(scene.node, annotations={keys.RELEASE: "driver upgrade"})
    until(lambda: scene.clients() == 0)
    scene.hangup()
    assert scene.clients() == 0
    scene.site.edit(scene.node, annotations={keys.RELEASE: None})
    until(lambda: scene.process.gpus("present") == 2 and scene.clients() > 0)


def lets_a_foreign_label_through(site: Site, node: str) -> bool:
    """Whether the account may do what the policy forbids."""
    answer = site.plane.request(
        "PATCH",
        f"/api/v1/nodes/{node}?dryRun=All&fieldManager={names.AGENT}",
        {"metadata": {"labels": {"someone.else/label": "1"}}},
        token=site.plane.bound_token(site.namespace, names.AGENT, node),
        content_type="application/merge-patch+json",
    )
    return answer.status == 200


def test_an_agent_that_no_policy_holds_says_so_and_writes_nothing(
    site: Site, simulation: Simulation, tmp_path: Path
) -> None:
    binding = (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/"
        f"{names.AGENT_NODE}"
    )
    kept = site.plane.demand("GET", binding)
    site.plane.demand("DELETE", binding)
    node = site.plane.make_node()
    until(lambda: lets_a_foreign_label_through(site, node))  # it takes a moment
    mark = site.plane.mark()
    try:
        with agent(site, node, simulation, tmp_path) as process:
            series = f'gpuscape_confinement_enforced{{policy="{names.AGENT_NODE}"}} 0'
            until(lambda: series in process.metrics())
            until(lambda: process.get("probes", "/readyz")[0] == 200)
    finally:
        metadata = {"name": kept["metadata"]["name"]}
        site.plane.demand(
            "POST", binding.rsplit("/", 1)[0], {"metadata": metadata, "spec": kept["spec"]}
        )
    written = [
        event
        for event in site.plane.audit(since=mark, user=AGENT, verb=("create", "patch"))
        if "dryRun=All" not in event["requestURI"]
    ]
    assert written == []
