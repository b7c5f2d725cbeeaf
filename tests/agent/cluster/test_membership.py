# SPDX-License-Identifier: Apache-2.0
"""When an agent writes, and what it lets go of: over an API server in memory, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.cluster.confinement import CORE
from agent.cluster.gpus_before import GpusBefore
from agent.cluster.membership import Cluster, Member
from agent.cluster.startup_spread import StartupSpread
from agent.layouts.change_state import ActuatorTask
from agent.layouts.enforced_layouts import CAUSE, EnforcePorts
from agent.layouts.layout_evaluator import LayoutInputs
from agent.layouts.layout_watch import LayoutWatch
from agent.pods.kubelet_pods import KubeletPods
from agent.publish import NodeDecision
from api import (
    keys,
    known_gpus_annotation,
    mig_permit_annotation,
    mig_request_annotation,
    mig_status_annotation,
    names,
    state_annotation,
    topology_annotation,
)
from api.actuator.actuator_messages import (
    ActuatorAnswer,
    ApplyRequest,
    ChangeAnswer,
    StateAnswer,
    StateRequest,
)
from api.mig_outcome import Outcome
from api.mig_permit_annotation import MigPermitAnnotation, PermitPhase
from api.mig_status_annotation import GpuChangeStatus, MigStatusAnnotation
from base.errors import Transient
from discovery.known_node_gpus import KnownGpus
from discovery.mig_state import MigGpu
from discovery.model import GpuState, Mode, NodeSnapshot
from exporters.gpuscape.agent_metrics import AgentMetrics
from kube.api import EVENTS, LEASES, NODE_FEATURES, NODES, Object
from kube.api_errors import Unreachable
from kube.informer import CacheSynced, ObjectGone, ObjectSeen, WatchConnected, WatchLost
from labelers.annotations import node_annotations, topology_of
from labelers.decision import Value
from tests import build, exposition
from tests.agent.virtual import VirtualRuntime
from tests.cluster.publishers import FakeKubelet
from tests.fakes.api import Call, FakeApi
from tests.log_lines import log_lines
from tests.mig.naive_gpu import mig_gpu

NODE, NAMESPACE, MINUTE = "node-a", "gpuscape", 60.0
COUNT = "nvidia.com/gpu.count"
BOOT = "8f4f4a6c-6a3e-4a44-9a55-0b2f7f9c1d10"
OTHER_BOOT = "5e6ea2c4-4cb4-4b0c-9a30-1d1b6a2a7b11"


class Policies:
    """The admission policies, as far as the agent tries them."""

    def __init__(self, api: FakeApi) -> None:
        self.holding = {*CORE, names.AGENT_EVENT, names.AGENT_NODE_FEATURE, names.MIG_PERMIT}
        for policy, refuses in {
            names.AGENT_FLOOR: lambda call: call.manager != names.AGENT,
            names.AGENT_NODE: lambda call: call.resource is NODES and _foreign(call),
            names.AGENT_LEASE: lambda call: (
                call.resource is LEASES and call.name != names.agent_lease(NODE)
            ),
            names.AGENT_EVENT: lambda call: (
                call.resource is EVENTS
                and call.verb == "create"
                and (call.body or {})["regarding"]["name"] != NODE
            ),
            names.AGENT_NODE_FEATURE: lambda call: (
                call.resource is NODE_FEATURES and call.name != names.node_feature(NODE)
            ),
            names.MIG_PERMIT: lambda call: (
                keys.MIG_PERMIT in ((call.body or {}).get("metadata", {}).get("annotations") or {})
            ),
        }.items():
            api.refuse(policy, self._judge(policy, refuses))

    def _judge(self, policy: str, refuses: Callable[[Call], bool]) -> Callable[[Call], bool]:
        return lambda call: policy in self.holding and refuses(call)


def _foreign(call: Call) -> bool:
    metadata = (call.body or {}).get("metadata") or {}
    labels = set(metadata.get("labels") or ()) - {keys.MIG_CONFIG_STATE}
    return any(keys.label(key) is None for key in labels)


class Scene:
    """A cluster with the agent's side of one node in it."""

    def __init__(
        self,
        *,
        sink: str = "node",
        spread: float | None = 0.0,
        unconfined: bool = False,
        ready: Path,
        layouts: bool = False,
        enforce: EnforcePorts | None = None,
    ) -> None:
        self.api = FakeApi()
        self.api.server.create(NODES, {"metadata": {"name": NODE}}, manager="kubelet")
        self.policies = Policies(self.api)
        gpus = (build.gpu(0), build.gpu(1))
        self.snapshot: NodeSnapshot | None = build.node(gpus=gpus)
        self.kubelet = FakeKubelet(snapshot=build.node(gpus=gpus))
        self.held: list[tuple[str, ...]] = []
        self.wishes: list[str | None] = []
        self.obeys = False
        self.on_trigger: Callable[[str], None] = lambda _tick: None
        self.runtime: VirtualRuntime | None = None
        self.own = AgentMetrics("0", self._clock)
        self.known_gpus = KnownGpus()
        self.mig_read: tuple[MigGpu, ...] = ()
        inputs = LayoutInputs(
            read=lambda: self.mig_read, snapshot=lambda: self.snapshot, enforce=enforce
        )
        self.cluster = Cluster(
            self.api,
            Member(node=NODE, namespace=NAMESPACE, pod="agent-1", identity="uid-1"),
            sink=sink,
            allow_unconfined=unconfined,
            turn=StartupSpread(
                self.api,
                namespace=NAMESPACE,
                spread_seconds=spread,
                clock=self._clock,
                uniform=lambda _low, high: high,
            ),
            driver_ready_file=ready,
            update_metrics=self._tell,
            hold=self.held.append,
            clear_xids=self._clear_xids,
            trigger=self._trigger,
            before=GpusBefore(self.known_gpus, BOOT),
            layouts=LayoutWatch(inputs, clock=self._clock) if layouts else None,
            clock=self._clock,
            wall=lambda: 1_700_000_000.0,
            uniform=lambda _low, high: high,
        )
        pods = KubeletPods(
            self.kubelet,
            node=NODE,
            snapshot=lambda: self.snapshot,
            update_metrics=self._tell,
            allocated=self.cluster.show_allocation,
        )
        self.runtime = VirtualRuntime({**self.cluster.ticks, "pods": pods.ask})

    @property
    def now(self) -> float:
        return self._clock()

    def _trigger(self, tick: str) -> None:
        self.on_trigger(tick)
        if self.runtime is not None:
            self.runtime.trigger(tick)

    def _clear_xids(self, wish: str | None) -> bool:
        if [wish] != self.wishes[-1:]:
            self.wishes.append(wish)
        return self.obeys

    def run(self, seconds: float = 30.0) -> None:
        assert self.runtime is not None
        self.runtime.run(seconds)

    def see(self, **metadata: object) -> None:
        """The watch tells the Node, edited like this before."""
        if metadata:
            self.api.server.patch(NODES, NODE, {"metadata": metadata}, manager="kubectl")
        self.cluster.on_watch_event(ObjectSeen(object=self.api.server.get(NODES, NODE)))

    def set_desired(self, count: str = "2") -> None:
        assert self.snapshot is not None
        self.cluster.set_desired(
            NodeDecision(
                labels={COUNT: Value(text=count)}, annotations=node_annotations(self.snapshot, BOOT)
            )
        )

    def start(self) -> None:
        self.see()
        self.set_desired()
        self.run()

    def again(self) -> Scene:
        """The same Node with a new agent."""
        again = Scene(ready=Path("none"))
        again.api.server = self.api.server
        return again

    def lose_the_first_gpu(self) -> None:
        assert self.snapshot is not None
        lost = replace(self.snapshot.gpus[0], state=GpuState.LOST)
        self.snapshot = replace(self.snapshot, gpus=(lost, self.snapshot.gpus[1]))

    def node(self) -> Object:
        return self.api.server.get(NODES, NODE)["metadata"]  # type: ignore[no-any-return]  # JSON

    def shown(self) -> state_annotation.StateAnnotation:
        lease = self.api.server.get(LEASES, names.agent_lease(NODE), NAMESPACE)
        found = state_annotation.decode(lease["metadata"]["annotations"][keys.STATE])
        assert found is not None
        return found

    def metric(self, name: str, **labels: str) -> float:
        return exposition.series(self.own.render())[name, tuple(sorted(labels.items()))]

    def _tell(self, change: Callable[[AgentMetrics], None]) -> None:
        change(self.own)

    def _clock(self) -> float:
        return self.runtime.now if self.runtime else 1000.0


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(ready=tmp_path / "driver-ready")


def test_labels_and_topology_are_written_once_the_agent_is_confined_and_holds_its_lease(
    scene: Scene,
) -> None:
    scene.start()
    assert scene.node()["labels"][COUNT] == "2"
    assert keys.TOPOLOGY in scene.node()["annotations"]
    assert [call.resource for call in scene.api.writes()][:2] == [LEASES, NODES]
    assert scene.metric("gpuscape_lease_held", lease=names.agent_lease(NODE)) == 1
    assert scene.metric("gpuscape_confinement_enforced", policy=names.AGENT_NODE) == 1
    assert scene.metric("gpuscape_api_writes_total", object="Node") == 1


@pytest.mark.parametrize("inert", CORE)
def test_nothing_at_all_is_written_while_a_policy_does_not_hold(scene: Scene, inert: str) -> None:
    scene.policies.holding.remove(inert)
    scene.start()
    assert scene.api.writes() == []
    assert scene.metric("gpuscape_confinement_enforced", policy=inert) == 0
    scene.policies.holding.add(inert)
    scene.run(2 * MINUTE)
    assert scene.node()["labels"][COUNT] == "2"


def test_a_label_that_is_refused_shows_in_the_metrics_and_as_an_event(scene: Scene) -> None:
    scene.api.refuse("theirs", lambda call: call.resource is NODES and COUNT in str(call.body))
    scene.start()
    scene.run(3 * MINUTE)
    assert keys.TOPOLOGY in scene.node()["annotations"]
    assert COUNT not in (scene.node().get("labels") or {})
    assert scene.metric("gpuscape_keys_refused", object="Node") == 1
    assert [event["reason"] for event in scene.api.server.objects(EVENTS)] == ["KeysRefused"]


def test_no_event_is_sent_while_the_policy_of_events_does_not_hold(scene: Scene) -> None:
    scene.policies.holding -= {names.AGENT_EVENT}
    scene.start()
    before = scene.api.server.objects(EVENTS)
    assert scene.node()["labels"][COUNT] == "2"
    assert scene.metric("gpuscape_confinement_enforced", policy=names.AGENT_EVENT) == 0
    scene.policies.holding.add(names.AGENT_EVENT)
    scene.run(10 * MINUTE)
    assert before == []
    assert {event["reason"] for event in scene.api.server.objects(EVENTS)} == {
        "NotConfined",
        "Confined",
    }


def test_no_node_feature_is_written_while_its_policy_does_not_hold(tmp_path: Path) -> None:
    scene = Scene(sink="nodefeature", ready=tmp_path / "driver-ready")
    scene.policies.holding -= {names.AGENT_NODE_FEATURE}
    scene.start()
    before = scene.api.server.objects(NODE_FEATURES)
    assert keys.TOPOLOGY in scene.node()["annotations"]
    scene.policies.holding.add(names.AGENT_NODE_FEATURE)
    scene.run(2 * MINUTE)
    (feature,) = scene.api.server.objects(NODE_FEATURES)
    assert before == []
    assert feature["spec"]["labels"] == {COUNT: "2"}


def test_it_writes_unconfined_where_it_was_told_to(tmp_path: Path) -> None:
    scene = Scene(unconfined=True, ready=tmp_path / "driver-ready")
    scene.policies.holding.clear()
    scene.start()
    assert scene.node()["labels"][COUNT] == "2"


def test_a_starting_fleet_is_confined_early_and_writes_spread_out(tmp_path: Path) -> None:
    scene = Scene(spread=90.0, ready=tmp_path / "driver-ready")
    scene.see()
    scene.set_desired()
    scene.run(46.0)
    assert scene.metric("gpuscape_confinement_enforced", policy=names.AGENT_NODE) == 1
    assert scene.api.writes() == []
    scene.run(45.0)
    assert scene.node()["labels"][COUNT] == "2"


def test_while_another_agent_holds_the_lease_nothing_is_written(scene: Scene) -> None:
    spec = {"holderIdentity": "uid-2", "leaseDurationSeconds": 180}
    lease = {"metadata": {"name": names.agent_lease(NODE)}, "spec": spec}
    scene.api.server.create(LEASES, lease, namespace=NAMESPACE, manager=names.AGENT)
    scene.see(annotations={keys.TOPOLOGY: "{}"})
    scene.start()
    assert scene.api.writes() == []
    assert scene.metric("gpuscape_lease_held", lease=names.agent_lease(NODE)) == 0


def test_with_the_nodefeature_sink_labels_go_there_and_the_topology_on_the_node(
    tmp_path: Path,
) -> None:
    scene = Scene(sink="nodefeature", ready=tmp_path / "driver-ready")
    scene.start()
    feature = scene.api.server.get(NODE_FEATURES, names.node_feature(NODE), NAMESPACE)
    assert feature["spec"]["labels"] == {COUNT: "2"}
    assert COUNT not in (scene.node().get("labels") or {})
    assert keys.TOPOLOGY in scene.node()["annotations"]


def test_with_no_sink_the_node_is_left_alone_and_the_lease_kept(tmp_path: Path) -> None:
    scene = Scene(sink="none", ready=tmp_path / "driver-ready")
    scene.start()
    assert {call.resource for call in scene.api.writes()} <= {LEASES, EVENTS}
    assert scene.shown().ok == "3"


def test_the_gpus_of_pods_are_shown_and_let_go(scene: Scene) -> None:
    scene.kubelet.held["job-1"] = 1
    scene.start()
    assert (scene.shown().ok, scene.shown().used) == ("3", "2")
    assert scene.shown().pods == {state_annotation.pod_key("jobs", "job-1"): "2"}
    scene.kubelet.held.clear()
    scene.run()
    assert (scene.shown().used, scene.shown().pods) == ("0", {})


def test_a_kubelet_that_does_not_answer_leaves_the_state_as_it_was(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.kubelet.held["job-1"] = 1
    scene.start()

    def fail() -> None:
        raise Transient("no such socket")

    monkeypatch.setattr(scene.kubelet, "list", fail)
    scene.run()
    assert scene.shown().used == "2"
    assert scene.metric("gpuscape_source_up", source="pod-resources") == 0


def test_a_lost_gpu_is_no_longer_offered_in_the_order_of_the_topology_shown_last(
    scene: Scene,
) -> None:
    scene.start()
    before = scene.shown()
    scene.lose_the_first_gpu()
    scene.run()
    assert (scene.shown().ok, scene.shown().gen) == ("2", before.gen)
    assert scene.shown().seq == before.seq + 1


def test_an_agent_that_starts_on_a_node_with_a_lost_gpu_follows_the_topology_shown_last(
    scene: Scene,
) -> None:
    scene.start()
    before = scene.shown()
    again = scene.again()
    again.lose_the_first_gpu()
    again.start()
    assert (again.shown().ok, again.shown().gen) == ("2", before.gen)


@pytest.mark.parametrize("what", ["other GPUs", "damaged", "none"])
def test_an_agent_that_starts_with_a_lost_gpu_and_no_topology_of_these_gpus_shows_no_state(
    scene: Scene, what: str
) -> None:
    text = {
        "other GPUs": topology_annotation.encode(
            topology_of(build.node(gpus=(build.gpu(0), build.gpu(2))))
        ),
        "damaged": "{",
        "none": None,
    }[what]
    scene.see(annotations={keys.TOPOLOGY: text})
    scene.lose_the_first_gpu()
    scene.start()
    with pytest.raises(KeyError):
        scene.shown()


def test_an_agent_that_starts_again_goes_on_counting_where_the_last_one_stopped(
    scene: Scene,
) -> None:
    scene.start()
    before = scene.shown()
    again = scene.again()
    again.kubelet.held["job-1"] = 0
    again.start()
    assert again.shown().seq == before.seq + 1


def test_a_release_is_asked_for_once_and_ends_once(scene: Scene) -> None:
    scene.start()
    scene.see(annotations={keys.RELEASE: "upgrade"})
    scene.run()
    scene.see(annotations={keys.RELEASE: None})
    scene.run()
    assert scene.held == [(), (f"annotation {keys.RELEASE}=upgrade",), ()]


def test_what_was_released_before_a_restart_stays_so_until_the_node_is_seen(scene: Scene) -> None:
    scene.run()
    assert scene.held == []
    scene.see()
    scene.run()
    assert scene.held == [()]


def test_a_wish_to_clear_xids_is_passed_on_once_the_node_is_known(scene: Scene) -> None:
    scene.run()
    assert scene.wishes == []
    scene.see(annotations={keys.CLEAR_XIDS: "all"})
    scene.run()
    scene.cluster.on_watch_event(WatchLost(error=Unreachable("gone")))
    scene.run()
    scene.see(annotations={keys.CLEAR_XIDS: None})
    scene.run()
    assert scene.wishes == ["all", None]


def test_an_outage_ends_no_release(scene: Scene) -> None:
    scene.see(annotations={keys.RELEASE: "upgrade"})
    scene.run()
    scene.cluster.on_watch_event(WatchLost(error=Unreachable("gone")))
    scene.run(3600.0)
    assert len(scene.held) == 1
    assert scene.metric("gpuscape_source_up", source="kubernetes") == 0
    scene.cluster.on_watch_event(WatchConnected())
    assert scene.metric("gpuscape_source_up", source="kubernetes") == 1


def test_an_outage_is_told_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        scene.cluster.on_watch_event(WatchLost(error=Unreachable("refused")))
    fields = {"source": "kubernetes", "why": "refused"}
    assert log_lines(caplog) == [("WARNING", "watch lost", fields)]
    scene.cluster.on_watch_event(WatchConnected())
    scene.cluster.on_watch_event(WatchLost(error=Unreachable("refused")))
    assert caplog.messages.count("watch lost") == 2


def test_a_driver_ready_file_that_goes_is_a_cause(tmp_path: Path) -> None:
    ready = tmp_path / "driver-ready"
    ready.touch()
    scene = Scene(ready=ready)
    scene.start()
    ready.unlink()
    scene.run()
    assert scene.held == [(), (f"{ready} is gone",)]


@pytest.mark.parametrize("news", [ObjectGone(namespace=None, name=NODE, uid="1"), CacheSynced()])
def test_a_node_that_is_not_there_is_waited_for(
    scene: Scene, news: ObjectGone | CacheSynced, caplog: pytest.LogCaptureFixture
) -> None:
    scene.set_desired()
    scene.cluster.on_watch_event(news)
    scene.run()
    assert scene.api.writes() == []
    assert "object not written" in caplog.messages
    scene.see()
    scene.run()
    assert scene.node()["labels"][COUNT] == "2"


def test_an_agent_that_leaves_empties_its_lease_and_writes_nothing_more(scene: Scene) -> None:
    scene.start()
    scene.cluster.leave()
    lease = scene.api.server.get(LEASES, names.agent_lease(NODE), NAMESPACE)
    assert not lease["spec"].get("holderIdentity")
    done = len(scene.api.writes())
    scene.set_desired("7")
    scene.run(10 * MINUTE)
    assert len(scene.api.writes()) == done


def test_that_a_policy_did_not_hold_is_told_as_events_once_one_may_be_written(
    scene: Scene,
) -> None:
    scene.policies.holding.remove(names.AGENT_NODE)
    scene.start()
    scene.policies.holding.add(names.AGENT_NODE)
    scene.run(2 * MINUTE)
    events = scene.api.server.objects(EVENTS)
    assert {event["reason"] for event in events} == {"NotConfined", "Confined"}
    assert {event["regarding"]["name"] for event in events} == {NODE}


def test_a_start_that_goes_well_takes_two_requests_beside_the_watch(tmp_path: Path) -> None:
    scene = Scene(spread=10.0, ready=tmp_path / "driver-ready")
    scene.start()
    asked = [(call.verb, call.resource) for call in scene.api.calls if not call.dry_run]
    assert asked == [("create", LEASES), ("patch", NODES)]


# Events, metrics and what is run soon


def hastened(scene: Scene) -> list[str]:
    """Ticks that are asked for from now on; the time stands."""
    asked: list[str] = []
    scene.on_trigger = asked.append
    return asked


def test_events_are_about_the_node_by_its_uid_and_come_from_the_agents_pod(scene: Scene) -> None:
    scene.policies.holding.remove(names.AGENT_NODE)
    scene.start()
    scene.policies.holding.add(names.AGENT_NODE)
    scene.run(2 * MINUTE)
    events = {event["reason"]: event for event in scene.api.server.objects(EVENTS)}
    uid = scene.node()["uid"]
    for reason, kind in (("NotConfined", "Warning"), ("Confined", "Normal")):
        event = events[reason]
        assert event["regarding"] == {
            "apiVersion": "v1",
            "kind": "Node",
            "name": NODE,
            "uid": uid,
        }
        assert (event["type"], event["action"]) == (kind, "Publish")
        assert event["reportingController"] == names.AGENT
        assert event["reportingInstance"] == "agent-1"
    assert names.AGENT_NODE in events["NotConfined"]["note"]
    assert events["Confined"]["note"] == "admission policies hold this agent to its node"


def test_an_agent_that_starts_confined_sends_no_event(scene: Scene) -> None:
    scene.start()
    scene.run(2 * MINUTE)
    assert scene.api.server.objects(EVENTS) == []


def test_an_event_that_is_refused_is_counted(scene: Scene) -> None:
    scene.api.refuse("theirs", lambda call: call.resource is EVENTS and call.verb == "create")
    scene.policies.holding.remove(names.AGENT_NODE_FEATURE)
    scene.api.refuse("ours", lambda call: call.resource is NODES and COUNT in str(call.body))
    scene.start()
    scene.run(3 * MINUTE)
    assert scene.metric("gpuscape_events_dropped_total") == 1


@pytest.mark.parametrize("sink", ["node", "nodefeature"])
def test_writes_keys_refused_and_keys_left_alone_are_counted_by_kind(
    sink: str, tmp_path: Path
) -> None:
    scene = Scene(sink=sink, ready=tmp_path / "driver-ready")
    kind = "Node" if sink == "node" else "NodeFeature"
    resource = NODES if sink == "node" else NODE_FEATURES
    scene.start()
    assert scene.metric("gpuscape_api_writes_total", object=kind) == 1
    assert scene.metric("gpuscape_keys_left_alone", object=kind) == 0
    assert scene.metric("gpuscape_keys_refused", object=kind) == 0
    scene.api.refuse("theirs", lambda call: call.resource is resource and COUNT in str(call.body))
    scene.set_desired("7")
    scene.run(MINUTE)
    assert scene.metric("gpuscape_keys_refused", object=kind) == 1


def test_keys_that_another_owner_holds_are_counted(scene: Scene) -> None:
    body = {"metadata": {"labels": {COUNT: "9"}}}
    scene.api.server.apply(NODES, NODE, body, manager="argocd")
    scene.start()
    assert scene.metric("gpuscape_keys_left_alone", object="Node") == 1


@pytest.mark.parametrize("sink", ["node", "nodefeature", "none"])
def test_what_follows_on_news_is_run_at_once(sink: str, tmp_path: Path) -> None:
    scene = Scene(sink=sink, ready=tmp_path / "driver-ready")
    feature = ["feature"] if sink == "nodefeature" else []
    asked = hastened(scene)
    scene.see()
    assert asked == ["causes", "lease", "node", *feature]
    asked.clear()
    scene.set_desired()
    assert asked == ["node", *feature]
    asked.clear()
    ticks = scene.cluster.ticks
    assert ticks.keys() == {"turn", "causes", "confine", "lease", "node", "events", *feature}
    now = scene.now
    assert ticks["lease"](now) == 5.0  # the policies were not tried yet
    assert ticks["events"](now) == 5.0
    assert ticks["causes"](now) == 1.0
    assert asked == []
    assert ticks["confine"](now) > 60.0
    assert asked == ["lease"]
    asked.clear()
    assert ticks["lease"](now) == 60.0
    assert asked == ["node", *feature, "pods"]
    asked.clear()
    ticks["lease"](now + 60.0)
    assert asked == []  # it was held before


def test_a_wish_to_clear_xids_that_is_obeyed_has_the_labels_decided_anew(scene: Scene) -> None:
    scene.see()
    asked = hastened(scene)
    scene.cluster.check_causes(scene.now)
    assert asked == []
    scene.obeys = True
    scene.cluster.check_causes(scene.now)
    assert asked == ["discover"]


def test_it_waits_for_its_turn_with_policies_and_writes(tmp_path: Path) -> None:
    for spread, confine in ((30.0, 30.0), (90.0, 45.0)):
        scene = Scene(spread=spread, ready=tmp_path / "driver-ready")
        ticks, now = scene.cluster.ticks, scene.now
        assert ticks["confine"](now) == confine
        assert ticks["confine"](now + confine - 1) == 1.0
        assert scene.api.calls == []
        assert ticks["confine"](now + confine) > 60.0
        assert ticks["lease"](now) == spread
        assert ticks["lease"](now + spread - 1) == 1.0


def test_what_becomes_of_a_mig_layout_is_shown_on_the_node(tmp_path: Path) -> None:
    """Asked for nothing it says so within the first write; a plan names the pods on the GPU."""
    scene = Scene(layouts=True, ready=tmp_path / "driver-ready")
    assert scene.snapshot is not None
    first = scene.snapshot.gpus[0]
    assert first.uuid is not None
    off = Mode(current=False, pending=False)
    h100 = mig_gpu("h100-sxm5-80gb", uuid=first.uuid, mode=off, resetless=True)
    scene.mig_read = (replace(h100, bus_id=first.bus_id),)
    scene.kubelet.held["train"] = 0

    scene.start()
    assert status_of(scene).phase == "idle"
    assert scene.metric("gpuscape_api_writes_total", object="Node") == 1

    scene.see(annotations={keys.MIG_LAYOUT: '{"0": {"1g.10gb": 7}}'})
    scene.run(MINUTE)
    found = status_of(scene)
    assert (found.phase, found.pods) == ("planned", ("jobs/train",))
    assert found.gpus == (GpuChangeStatus(gpu=0, create=7, mig=True),)
    assert "MigLayoutPlanned" in {it["reason"] for it in scene.api.server.objects(EVENTS)}
    assert scene.metric("gpuscape_api_writes_total", object="Node") == 2


class Enforcing:
    """An agent that changes layouts where it has a permit; its actuator does not manage to."""

    def __init__(self, tmp_path: Path) -> None:
        self.tasks: list[ActuatorTask] = []
        self._jobs: list[Callable[[], None]] = []
        enforce = EnforcePorts(
            ask=self._ask,
            closed=lambda: True,
            load=lambda: "boot",
            start=self._jobs.append,
        )
        self.scene = Scene(layouts=True, enforce=enforce, ready=tmp_path / "driver-ready")
        assert self.scene.snapshot is not None
        first = self.scene.snapshot.gpus[0]
        assert first.uuid is not None
        off = Mode(current=False, pending=False)
        h100 = mig_gpu("h100-sxm5-80gb", uuid=first.uuid, mode=off, resetless=True)
        self.scene.mig_read = (replace(h100, bus_id=first.bus_id),)

    def _ask(self, task: ActuatorTask) -> ActuatorAnswer:
        self.tasks.append(task)
        if isinstance(task, StateRequest):
            return StateAnswer()
        if isinstance(task, ApplyRequest):
            assert self.scene.held[-1] == (CAUSE,)
        return ChangeAnswer(change=task.change, outcome=Outcome.ROLLED_BACK, reason="it would not")

    def work(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.scene.run(1)
            self.scene.see()
            while self._jobs:
                self._jobs.pop(0)()

    def wish(self) -> None:
        self.scene.start()
        self.scene.see(annotations={keys.MIG_LAYOUT: '{"0": {"1g.10gb": 7}}'})
        self.work(MINUTE)

    def request(self) -> mig_request_annotation.MigRequestAnnotation | None:
        text = self.scene.node()["annotations"].get(keys.MIG_REQUEST)
        return None if text is None else mig_request_annotation.decode(text)

    def permit(self, request: str) -> None:
        permit = MigPermitAnnotation(v=2, request=request, phase=PermitPhase.PROCEED)
        self.scene.see(annotations={keys.MIG_PERMIT: mig_permit_annotation.encode(permit)})
        self.work(MINUTE)

    def changes(self) -> list[str]:
        return [one.change for one in self.tasks if isinstance(one, ApplyRequest)]


def test_without_the_policy_on_permits_no_request_goes_out_and_no_permit_is_acted_on(
    tmp_path: Path,
) -> None:
    """And as soon as the policy holds, all goes its way."""
    on = Enforcing(tmp_path)
    on.scene.policies.holding.discard(names.MIG_PERMIT)
    on.wish()
    assert on.request() is None
    assert status_of(on.scene).phase == "waiting"
    assert on.scene.metric("gpuscape_confinement_enforced", policy=names.MIG_PERMIT) == 0
    assert on.scene.metric("gpuscape_confinement_enforced", policy=names.AGENT_NODE) == 1
    assert COUNT in on.scene.node()["labels"], "what that policy does not judge is written"
    on.permit(status_of(on.scene).request)
    assert on.changes() == []

    on.scene.see(annotations={keys.MIG_PERMIT: None})
    on.scene.policies.holding.add(names.MIG_PERMIT)
    on.work(1300)
    asked = on.request()
    assert asked is not None
    on.permit(asked.request)
    assert on.changes() == [asked.request]


def test_a_permit_that_stands_while_the_policy_goes_keeps_its_request(tmp_path: Path) -> None:
    """Else the coordinator would take the request for given up, and its cordon would come off
    while the agent may have begun."""
    on = Enforcing(tmp_path)
    on.wish()
    asked = on.request()
    assert asked is not None
    on.scene.policies.holding.discard(names.MIG_PERMIT)
    on.scene.cluster.confine(on.scene.now)
    permit = MigPermitAnnotation(v=2, request=asked.request, phase=PermitPhase.CORDONED)
    on.scene.see(annotations={keys.MIG_PERMIT: mig_permit_annotation.encode(permit)})
    on.work(5)
    assert on.request() == asked
    assert on.changes() == []


def test_a_node_that_was_seen_before_the_policies_were_tried_is_seen_again_then(
    tmp_path: Path,
) -> None:
    """The watch need not show it once more."""
    on = Enforcing(tmp_path)
    on.scene.start()

    assert status_of(on.scene).phase == "idle"


def test_an_agent_that_only_observes_does_not_try_the_policy_on_permits(tmp_path: Path) -> None:
    scene = Scene(layouts=True, ready=tmp_path / "driver-ready")
    scene.policies.holding.discard(names.MIG_PERMIT)
    scene.start()

    assert not any(
        keys.MIG_PERMIT in str(call.body) for call in scene.api.calls if call.verb == "patch"
    )


def test_a_change_with_leave_closes_the_handles_and_opens_them_again(tmp_path: Path) -> None:
    """The coordinator's permit on the Node is enough; the state's label goes with the status."""
    on = Enforcing(tmp_path)
    it = on.scene
    on.wish()
    asked = on.request()
    assert asked is not None
    assert (asked.gpus, asked.modes) == ((0,), True)
    assert it.node()["labels"][keys.MIG_CONFIG_STATE] == "pending"
    on.permit(asked.request)

    assert on.changes() == [asked.request]
    assert it.held[-1] == ()
    found = status_of(it)
    assert (found.phase, found.request, found.outcome) == ("failed", asked.request, "rolled-back")
    assert keys.MIG_REQUEST not in it.node()["annotations"]
    assert it.node()["labels"][keys.MIG_CONFIG_STATE] == "failed"
    assert it.metric("gpuscape_mig_phase", phase="failed") == 1
    assert it.metric("gpuscape_mig_requests_ended_total", outcome="rolled-back") == 1


def test_a_status_that_nobody_looks_after_any_more_is_removed(scene: Scene) -> None:
    scene.see(annotations={keys.MIG_STATUS: '{"v":1,"phase":"planned"}'})
    scene.start()
    assert keys.MIG_STATUS not in scene.node()["annotations"]


def status_of(scene: Scene) -> MigStatusAnnotation:
    found = mig_status_annotation.decode(scene.node()["annotations"][keys.MIG_STATUS])
    assert found is not None
    return found


def test_labels_that_a_store_lost_when_it_was_put_back_come_back_with_the_watch(
    scene: Scene,
) -> None:
    backup = scene.api.server.backup()
    scene.start()
    assert scene.node()["labels"][COUNT] == "2"
    scene.cluster.on_watch_event(WatchLost(error=Unreachable("reset")))
    scene.api.server.restore(backup)
    assert "labels" not in scene.node()
    assert scene.metric("gpuscape_source_up", source="kubernetes") == 0

    scene.cluster.on_watch_event(WatchConnected())
    scene.see()
    scene.run(2 * MINUTE)

    assert scene.node()["labels"][COUNT] == "2"
    assert keys.TOPOLOGY in scene.node()["annotations"]
    assert scene.shown().ok == "3"
    assert scene.metric("gpuscape_source_up", source="kubernetes") == 1


def known_gpus(count: int, boot: str) -> dict[str, str]:
    """The annotation of so many GPUs."""
    bus_ids = [build.gpu(place).bus_id for place in range(count)]
    known = known_gpus_annotation.known_gpus_of_boot(boot, bus_ids, count)
    return {keys.KNOWN_GPUS: known_gpus_annotation.encode(known)}


def test_nothing_is_written_of_a_snapshot_that_lacks_what_the_node_knew(tmp_path: Path) -> None:
    """It may have a GPU less; what is decided next has the Node's, and is written."""
    early = NodeDecision(labels={COUNT: Value(text="7")}, annotations={}, awaits_record=True)
    scene = Scene(ready=tmp_path / "none")
    scene.see()
    scene.cluster.set_desired(early)
    scene.run()
    assert COUNT not in (scene.node().get("labels") or {})
    scene.set_desired("8")
    scene.run()
    assert scene.node()["labels"][COUNT] == "8"


@pytest.mark.parametrize(
    ("sink", "boot", "count", "notes"),
    [
        ("node", OTHER_BOOT, 3, ["this Node has 2 GPUs, and had 3 before it was booted"]),
        ("nodefeature", OTHER_BOOT, 3, ["this Node has 2 GPUs, and had 3 before it was booted"]),
        ("none", OTHER_BOOT, 3, []),
        ("node", OTHER_BOOT, 2, []),
        ("node", BOOT, 3, []),
    ],
)
def test_another_number_of_gpus_after_a_boot_is_an_event_and_replaces_the_old_one(
    tmp_path: Path, sink: str, boot: str, count: int, notes: list[str]
) -> None:
    scene = Scene(ready=tmp_path / "none", sink=sink)
    assert scene.snapshot is not None
    scene.see(annotations=known_gpus(count, boot))
    for _ in range(3):
        scene.set_desired()
        scene.run()
    found = [it for it in scene.api.server.objects(EVENTS) if it["reason"] == "GPUCountChanged"]
    assert [it["note"].partition(":")[0] for it in found] == notes
    assert {it["type"] for it in found} <= {"Warning"}
    written = scene.node()["annotations"]
    now = known_gpus(2, BOOT) if sink != "none" else known_gpus(count, boot)
    assert {keys.KNOWN_GPUS: written[keys.KNOWN_GPUS]} == now
