# SPDX-License-Identifier: Apache-2.0
"""The startup taint goes when the node's first layout is there, and not before."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api import keys, mig_status_annotation, names
from api.mig_status_annotation import MigStatusAnnotation, RequestSource, desired_digest
from fleet.policy.fleet_policy_sync import KEY, FleetPolicySync
from fleet.startup.startup_taint import StartupNode, StartupWait, startup_wait
from fleet.startup.startup_taint_remover import WRITES_A_TICK, StartupTaintRemover
from kube.api import NODES, Object
from kube.api_errors import Conflict, Unreachable
from kube.informer import CacheSynced, ObjectGone, ObjectSeen
from kube.objects.typed_object import Metadata
from tests.fakes.api import FakeApi
from tests.log_lines import log_lines, whys

PENDING = {"key": keys.MIG_LAYOUT_PENDING, "effect": "NoSchedule"}
OTHER = {"key": "example.com/kept", "effect": "NoExecute", "value": "x"}
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)
LAYOUT = "all-1g.10gb"
POLICY = """\
version: v1
layouts:
- {name: small, nodes: pool=a, layout: all-1g.10gb}
"""


def said(
    phase: str, text: str = "", source: RequestSource = RequestSource.ANNOTATION, **more: Any
) -> str:
    """A status as the agent writes it; ``text``: of what it has judged."""
    wish = desired_digest(source, text) if text else ""
    status = MigStatusAnnotation(v=2, phase=phase, desired_digest=wish, **more)
    return mig_status_annotation.encode(status)


def metadata(
    status: str | None = None,
    layout: str | None = None,
    label: str | None = None,
    capable: str = "true",
    **notes: str,
) -> dict[str, Any]:
    annotations = {keys.MIG_STATUS: status, keys.MIG_LAYOUT: layout, **notes}
    labels = {keys.MIG_CONFIG: label, keys.MIG_CAPABLE: capable}
    return {
        "name": "a1",
        "labels": {key: it for key, it in labels.items() if it is not None},
        "annotations": {key: it for key, it in annotations.items() if it is not None},
    }


LONG = '{"0": {"1g.10gb": 7}}' + " " * 300
BY_LABEL = RequestSource.LABEL
READY = {
    "the layout of the annotation": metadata(said("unchanged", LAYOUT), LAYOUT),
    "the layout of the label": metadata(said("unchanged", LAYOUT, BY_LABEL), label=LAYOUT),
    "the annotation's, which wins": metadata(said("unchanged", LAYOUT), LAYOUT, label="x"),
    "a long one": metadata(said("unchanged", LONG), LONG),
    "nothing is asked for": metadata(said("idle")),
    "no GPU has MIG": metadata(capable="false"),
}
NOT_READY = {
    "no word of the agent": metadata(layout=LAYOUT),
    "no word of the agent, and nothing asked": metadata(),
    "a damaged status": metadata("{", LAYOUT),
    "a damaged status without MIG": metadata("{", capable="false"),
    "a layout for GPUs without MIG": metadata(layout=LAYOUT, capable="false"),
    "idle while something is asked": metadata(said("idle"), LAYOUT),
    "another layout": metadata(said("unchanged", "all-2g.20gb"), LAYOUT),
    "another that begins alike": metadata(said("unchanged", LONG), LONG + "."),
    "the label's, but the annotation counts": metadata(
        said("unchanged", LAYOUT, BY_LABEL), LAYOUT, label=LAYOUT
    ),
    "unchanged, of no known layout": metadata(said("unchanged"), LAYOUT),
    "unchanged from before, nothing asked": metadata(said("unchanged", LAYOUT)),
    "a label that is not obeyed": metadata(said("unadopted", unadopted=LAYOUT), label=LAYOUT),
    "a permit": metadata(said("unchanged", LAYOUT), LAYOUT, **{keys.MIG_PERMIT: "{}"}),
    "a request": metadata(said("unchanged", LAYOUT), LAYOUT, **{keys.MIG_REQUEST: "{}"}),
    **{
        f"phase {phase}": metadata(said(phase, LAYOUT), LAYOUT)
        for phase in (
            "planned",
            "waiting",
            "changing",
            "failed",
            "stuck",
            "refused",
            "unread",
            "new",
        )
    },
}


@pytest.mark.parametrize("node", READY.values(), ids=READY)
def test_it_goes_with(node: dict[str, Any]) -> None:
    assert startup_wait(Metadata.from_object(node), None) is StartupWait.READY


@pytest.mark.parametrize("node", NOT_READY.values(), ids=NOT_READY)
def test_it_stays_with(node: dict[str, Any]) -> None:
    assert startup_wait(Metadata.from_object(node), None) is not StartupWait.READY


@pytest.mark.parametrize(
    ("case", "wait"),
    [
        ("no word of the agent", StartupWait.NO_AGENT),
        ("no word of the agent, and nothing asked", StartupWait.NO_AGENT),
        ("a damaged status without MIG", StartupWait.NO_AGENT),
        ("a layout for GPUs without MIG", StartupWait.NO_AGENT),
        ("idle while something is asked", StartupWait.NOT_JUDGED),
        ("another layout", StartupWait.NOT_JUDGED),
        ("unchanged from before, nothing asked", StartupWait.NOT_JUDGED),
        ("a label that is not obeyed", StartupWait.UNADOPTED),
        ("a permit", StartupWait.CHANGE),
        ("a request", StartupWait.CHANGE),
        ("phase planned", StartupWait.CHANGE),
        ("phase waiting", StartupWait.CHANGE),
        ("phase changing", StartupWait.CHANGE),
        ("phase failed", StartupWait.FAILED),
        ("phase stuck", StartupWait.STUCK),
        ("phase refused", StartupWait.REFUSED),
        ("phase unread", StartupWait.UNREAD),
        ("phase new", StartupWait.OTHER),
    ],
)
def test_the_reason_is_the_nodes_own(case: str, wait: StartupWait) -> None:
    assert startup_wait(Metadata.from_object(NOT_READY[case]), None) is wait


def test_a_request_of_a_node_without_a_status_is_a_change() -> None:
    asked = metadata(layout=LAYOUT, **{keys.MIG_REQUEST: "{}"})

    assert startup_wait(Metadata.from_object(asked), None) is StartupWait.CHANGE


@pytest.mark.parametrize("node", READY.values(), ids=READY)
@pytest.mark.parametrize("wait", [StartupWait.POLICY_DUE, StartupWait.POLICY_UNKNOWN])
def test_it_stays_while_the_policy_may_say_more(node: dict[str, Any], wait: StartupWait) -> None:
    assert startup_wait(Metadata.from_object(node), wait) is wait


class Fleet:
    """A cluster with its policy, policy sync and taint remover, as the coordinator wires them."""

    def __init__(self) -> None:
        self.api = FakeApi(manager=names.COORDINATOR)
        self.leads = True
        self.policy = FleetPolicySync(self.api, leads=lambda: self.leads)
        self.now = NOW
        self.shown: list[Collection[StartupNode]] = []
        self.remover = StartupTaintRemover(
            self.api,
            self.policy.startup_wait,
            leads=lambda: self.leads,
            shows=self.shown.append,
            wall=lambda: self.now,
        )

    def node(self, name: str, meta: dict[str, Any], *taints: Object) -> None:
        taints = taints or (OTHER, PENDING, CORDON)
        body = {"metadata": meta | {"name": name}, "spec": {"taints": list(taints)}}
        self.api.server.create(NODES, body)
        self.see(name)

    def edit(self, name: str, patch: Object) -> None:
        """By somebody else; the watch shows it."""
        self.api.server.patch(NODES, name, patch)
        self.see(name)

    def see(self, name: str) -> None:
        event = ObjectSeen(object=self.api.server.get(NODES, name))
        self.policy.on_node(event)
        self.remover.on_node(event)

    def read_policy(self, text: str | None) -> None:
        body = {"metadata": {"name": names.MIG_POLICY}, "data": {KEY: text}}
        gone = ObjectGone(namespace="gpuscape", name=names.MIG_POLICY, uid="u")
        self.policy.on_config_map(gone if text is None else ObjectSeen(object=body))
        self.policy.on_config_map(CacheSynced())

    def taints(self, name: str) -> list[Object]:
        found: list[Object] = self.api.server.get(NODES, name)["spec"].get("taints") or []
        return found

    @property
    def patches(self) -> int:
        return sum(call.verb == "patch" for call in self.api.calls)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def bare(fleet: Fleet) -> Fleet:
    """Without a policy, which is known."""
    fleet.read_policy(None)
    fleet.policy.tick()
    return fleet


DONE = metadata(said("unchanged", LAYOUT), LAYOUT)


def test_this_taint_goes_and_all_others_stay(bare: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    bare.node("a1", DONE)
    bare.node("a2", DONE, PENDING, PENDING | {"effect": "NoExecute"})
    bare.node("a3", metadata(layout=LAYOUT))
    bare.node("a4", DONE, OTHER)
    bare.remover.tick()
    assert bare.taints("a1") == [OTHER, CORDON]
    assert bare.taints("a2") == []
    assert PENDING in bare.taints("a3")
    assert [(one.node, one.wait) for one in bare.remover.waiting] == [("a3", StartupWait.NO_AGENT)]
    assert bare.shown == [bare.remover.waiting]
    assert bare.patches == 2
    bare.remover.tick()
    assert bare.patches == 2
    removed = [it for _, message, it in log_lines(caplog) if message == "startup taint removed"]
    assert removed == [{"node": "a1"}, {"node": "a2"}]


def test_before_the_policy_is_read_no_taint_goes(fleet: Fleet) -> None:
    fleet.node("a1", DONE)
    fleet.remover.tick()
    fleet.read_policy(None)
    fleet.remover.tick()
    assert fleet.patches == 0
    fleet.policy.tick()
    fleet.remover.tick()
    assert fleet.taints("a1") == [OTHER, CORDON]


def test_a_node_of_the_policy_waits_for_that_layout_though_it_asked_for_none(fleet: Fleet) -> None:
    fleet.read_policy(POLICY)
    new = metadata(said("idle"))
    new["labels"]["pool"] = "a"
    fleet.node("a1", new)
    fleet.remover.tick()
    fleet.policy.tick()
    fleet.see("a1")
    fleet.remover.tick()
    assert PENDING in fleet.taints("a1")
    fleet.edit("a1", {"metadata": {"annotations": {keys.MIG_STATUS: said("unchanged", LAYOUT)}}})
    fleet.remover.tick()
    assert fleet.taints("a1") == [OTHER, CORDON]


def test_a_policy_with_a_mistake_keeps_the_taints(fleet: Fleet) -> None:
    fleet.read_policy("layouts: [")
    fleet.policy.tick()
    fleet.node("a1", DONE)
    fleet.remover.tick()
    assert PENDING in fleet.taints("a1")
    fleet.read_policy(POLICY)
    fleet.policy.tick()
    fleet.remover.tick()
    assert fleet.taints("a1") == [OTHER, CORDON]


@pytest.mark.parametrize(
    "text",
    [
        POLICY + "paused: true\n",
        POLICY + "- {name: large, nodes: pool in (a), layout: all-2g.20gb}\n",
    ],
    ids=["paused", "entries disagree"],
)
def test_what_the_policy_has_not_written_yet_keeps_the_taint(fleet: Fleet, text: str) -> None:
    fleet.read_policy(text)
    new = metadata(said("idle"))
    new["labels"]["pool"] = "a"
    fleet.node("a1", new)
    fleet.policy.tick()
    fleet.remover.tick()
    assert fleet.patches == 0


def test_an_edit_of_the_policy_counts_before_it_is_carried_out(bare: Fleet) -> None:
    new = metadata(said("idle"))
    new["labels"]["pool"] = "a"
    bare.node("a1", new)
    bare.read_policy(POLICY)
    bare.remover.tick()
    assert PENDING in bare.taints("a1")


def test_only_the_coordinator_that_leads_takes_it_off(bare: Fleet) -> None:
    bare.node("a1", DONE)
    bare.leads = False
    bare.remover.tick()
    assert bare.patches == 0
    bare.leads = True
    bare.api.before("get", lambda _call: setattr(bare, "leads", False), times=1)
    bare.node("a2", DONE)
    bare.remover.tick()
    assert bare.patches == 1


def test_what_changed_since_it_was_seen_is_judged_anew(bare: Fleet) -> None:
    bare.node("a1", DONE)
    asked = {"metadata": {"annotations": {keys.MIG_LAYOUT: "all-2g.20gb"}}}
    bare.api.server.patch(NODES, "a1", asked)
    bare.remover.tick()
    assert PENDING in bare.taints("a1")
    assert bare.patches == 0


def test_a_taint_that_came_meanwhile_is_not_lost(bare: Fleet) -> None:
    bare.node("a1", DONE, PENDING)

    def taint(_call: object) -> None:
        bare.api.server.patch(NODES, "a1", {"spec": {"taints": [PENDING, OTHER]}})

    bare.api.before("patch", taint, times=1)
    bare.remover.tick()
    assert bare.taints("a1") == [PENDING, OTHER]
    bare.remover.tick()
    assert bare.taints("a1") == [OTHER]


def test_what_the_api_does_not_take_is_tried_again_and_logged_once(
    bare: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    bare.node("a1", DONE)
    bare.api.fail("patch", Unreachable("down"), times=2)
    bare.remover.tick()
    bare.remover.tick()
    assert whys(caplog, "startup taint not removed") == ["down"]
    bare.api.fail("get", Conflict("somebody else"), times=1)
    bare.remover.tick()
    bare.remover.tick()
    assert bare.taints("a1") == [OTHER, CORDON]


def test_a_node_that_is_gone_is_forgotten(bare: Fleet) -> None:
    bare.node("a1", metadata())
    bare.remover.on_node(ObjectGone(namespace=None, name="a1", uid="u"))
    assert bare.remover.waiting == ()
    bare.node("a2", DONE)
    bare.api.server.delete(NODES, "a2")
    bare.remover.tick()
    assert bare.remover.waiting == ()


def test_a_storm_of_new_nodes_is_no_storm_of_writes(bare: Fleet) -> None:
    for number in range(WRITES_A_TICK + 1):
        bare.node(f"n{number:02}", DONE)
    bare.remover.tick()
    assert bare.patches == WRITES_A_TICK
    bare.remover.tick()
    assert bare.remover.waiting == ()


# for how long


def fresh(since: str | None, **taint: str) -> Object:
    """A Node with the taint, created then."""
    meta = metadata() | {"creationTimestamp": since}
    return {"metadata": meta, "spec": {"taints": [OTHER, PENDING | taint]}}


@pytest.mark.parametrize(
    ("node", "seconds"),
    [
        (fresh("2027-01-15T07:00:00Z"), 3600),
        (fresh("2027-01-14T08:00:00Z", timeAdded="2027-01-15T07:59:00Z"), 60),
        (fresh("2027-01-15T09:00:00Z"), 0),
        (fresh(None), 0),
        (fresh("last week"), 0),
        (fresh("2027-01-14T08:00:00Z", timeAdded="soon"), 0),
    ],
    ids=["created", "the taint's own time", "from the future", "none", "damaged", "damaged taint"],
)
def test_a_taint_counts_from_its_own_time_or_the_nodes_creation(
    fleet: Fleet, node: Object, seconds: float
) -> None:
    fleet.remover.on_node(ObjectSeen(object=node))
    assert [one.seconds for one in fleet.remover.waiting] == [seconds]
    fleet.now += timedelta(seconds=30)
    fleet.remover.on_node(ObjectSeen(object=node))
    (later,) = fleet.remover.waiting
    assert later.seconds == (0 if "T09" in str(node["metadata"]) else seconds + 30)


def test_a_taint_that_comes_to_a_node_that_was_seen_without_it_counts_from_then(
    fleet: Fleet,
) -> None:
    old = fresh("2026-01-15T08:00:00Z")
    bare = old | {"spec": {"taints": [OTHER]}}
    fleet.remover.on_node(ObjectSeen(object=bare))
    fleet.remover.on_node(ObjectSeen(object=old))
    fleet.now += timedelta(seconds=9)
    fleet.remover.on_node(ObjectSeen(object=old))
    assert [one.seconds for one in fleet.remover.waiting] == [9]


def test_a_node_that_is_made_anew_under_its_name_counts_from_its_creation(fleet: Fleet) -> None:
    new = fresh("2027-01-15T07:59:00Z")
    fleet.remover.on_node(ObjectSeen(object=new | {"spec": {}}))
    fleet.remover.on_node(ObjectGone(namespace=None, name="a1", uid="u"))
    fleet.remover.on_node(ObjectSeen(object=new))
    assert [one.seconds for one in fleet.remover.waiting] == [60]


def test_one_that_does_not_lead_shows_no_node(bare: Fleet) -> None:
    bare.node("a1", metadata())
    bare.leads = False
    bare.remover.tick()
    assert bare.shown == [()]


def test_what_the_api_does_not_take_is_shown_as_ready(bare: Fleet) -> None:
    bare.node("a1", DONE)
    bare.api.fail("patch", Unreachable("down"), times=1)
    bare.remover.tick()
    assert [one.wait for one in bare.shown[-1]] == [StartupWait.READY]
    bare.remover.tick()
    assert bare.shown[-1] == ()


def test_of_two_such_taints_the_older_counts(fleet: Fleet) -> None:
    node = fresh(None, timeAdded="2027-01-15T07:59:00Z")
    node["spec"]["taints"].append(PENDING | {"timeAdded": "2027-01-15T07:58:00Z"})
    fleet.remover.on_node(ObjectSeen(object=node))
    assert [one.seconds for one in fleet.remover.waiting] == [120]
