# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig why``: the lines of a Node in each state that its agent's own code has shown."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from api import keys
from api.actuator.actuator_messages import ChangeAnswer, StateAnswer
from api.mig_outcome import GpuOutcome, Outcome
from api.mig_permit_annotation import PermitPhase
from cli.mig.cluster import mig_why
from cli.mig.cluster.stage_text import span
from kube.api import CONFIG_MAPS, EVENTS, LEASES, NODES
from kube.api_errors import Forbidden, Unreachable
from tests.agent.layouts.test_enforced_layouts import EnforcingScene
from tests.agent.layouts.test_layout_watch import WANTED, Scene
from tests.cli.conftest import Run
from tests.cli.mig.cluster.told_nodes import LAYOUT, MANAGER, NODE, POD, ToldCluster

EXEC = f"kubectl -n gpuscape exec {POD} -c actuator -- gpuscape mig restore"
TOO_MANY = '{"0": {"1g.5gb": 9}}'
LOGS = f"kubectl -n gpuscape logs {POD} -c actuator --tail=50"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ToldCluster:
    made = ToldCluster()
    monkeypatch.setattr(mig_why, "kubeconfig_client", lambda *_: made)
    return made


def why(run: Run, *arguments: str, code: int = 0) -> str:
    """What the command prints about the node."""
    result = run("mig", "why", NODE, *arguments)
    assert result.exit_code == code, result.output
    return result.output


def document(run: Run) -> dict[str, Any]:
    """The same as a document."""
    found: dict[str, Any] = json.loads(why(run, "-o", "json"))
    return found


def now(found: Mapping[str, Any]) -> dict[str, Any]:
    """The stage at which it stands."""
    (stage,) = (it for it in found["stages"] if it["state"] == "now")
    assert stage["stage"] == found["stands_at"]
    return dict(stage)


def ended(how: Outcome | ChangeAnswer) -> dict[str, str]:
    """A Node whose change has ended so."""
    scene = EnforcingScene()
    scene.asks()
    scene.how = how
    scene.permit(PermitPhase.PROCEED)
    scene.run()
    del scene.node[keys.MIG_PERMIT]
    scene.see()
    return scene.node


def rolled_back() -> dict[str, str]:
    return ended(Outcome.ROLLED_BACK)


def actuator_refused() -> dict[str, str]:
    return ended(Outcome.REFUSED)


def stuck() -> dict[str, str]:
    return ended(Outcome.STUCK)


def expired() -> dict[str, str]:
    scene = EnforcingScene()
    scene.wait_seconds = 60
    scene.start()
    scene.asks()
    scene.run(120)
    return scene.node


def waiting() -> dict[str, str]:
    scene = EnforcingScene()
    scene.hold("job")
    scene.asks()
    scene.run(70)
    return scene.node


def actuator_silent() -> dict[str, str]:
    scene = EnforcingScene()
    scene.state = StateAnswer(problem="the journal is damaged")
    scene.ask(WANTED)
    scene.run(30)
    return scene.node


def observed() -> dict[str, str]:
    scene = Scene()
    scene.ask(WANTED)
    scene.run()
    return scene.node


def refused() -> dict[str, str]:
    scene = EnforcingScene()
    scene.ask(TOO_MANY)
    scene.run()
    return scene.node


def unread() -> dict[str, str]:
    scene = Scene()
    scene.failure = Unreachable("the driver does not answer")
    scene.ask(WANTED)
    scene.run()
    return scene.node


def not_evaluated() -> dict[str, str]:
    node = observed()
    return node | {LAYOUT: '{"0": {"3g.20gb": 2}}', keys.MIG_STATUS: _unchanged()}


def _unchanged() -> str:
    return '{"v":2,"phase":"unchanged","desired_digest":"00112233445566ff"}'


def no_agent() -> dict[str, str]:
    return {LAYOUT: WANTED}


def damaged() -> dict[str, str]:
    return {LAYOUT: WANTED, keys.MIG_STATUS: "{"}


def cancelled() -> dict[str, str]:
    scene = EnforcingScene()
    scene.asks()
    scene.ask(None)
    scene.run()
    return scene.node


def called_off() -> dict[str, str]:
    """An agent that changes, and whose permit a person has removed."""
    scene = EnforcingScene()
    scene.asks()
    scene.waits = True
    scene.permit(PermitPhase.PROCEED)
    scene.run(2)
    scene.jobs.pop(0)()  # the actuator's state; the change itself has no answer yet
    scene.run(2)
    del scene.node[keys.MIG_PERMIT]
    return scene.node


@pytest.mark.parametrize(
    ("made", "stage", "words", "kinds", "command"),
    [
        (
            cancelled,
            "desired",
            "no layout is desired: ",
            [],
            f"gpuscape mig rollout plan all-balanced --node {NODE}",
        ),
        (no_agent, "evaluated", "no agent that manages MIG", ["agent"], "-c agent --tail=50"),
        (damaged, "evaluated", "is damaged", [], f"annotate node {NODE} gpuscape.io/mig-status-"),
        (not_evaluated, "evaluated", "evaluates a desired layout", ["agent"], "-c agent"),
        (
            refused,
            "evaluated",
            "the layout is refused",
            ["layout"],
            f"kubectl -n gpuscape exec {POD} -c agent -- gpuscape mig plan {shlex.quote(TOO_MANY)}",
        ),
        (observed, "requested", "there is a plan", ["actuator"], f"logs {POD}"),
        (actuator_silent, "requested", "there is a plan", ["actuator"], f"logs {POD}"),
        (waiting, "slot", "it waits until the pods", ["pod"], "gpuscape.io/drain=evict"),
        (called_off, "changed", "the actuator changes GPU 0", [], LOGS),
        (rolled_back, "requested", "rolled-back", ["actuator"], LOGS),
        (actuator_refused, "requested", "refused", ["actuator"], LOGS),
        (expired, "requested", "expired", ["actuator"], LOGS),
        (stuck, "changed", "stuck: ", ["gpu"], EXEC),
    ],
)
def test_each_state_has_its_stage_whom_it_waits_for_and_the_next_command(
    run: Run,
    cluster: ToldCluster,
    made: Callable[[], dict[str, str]],
    stage: str,
    words: str,
    kinds: list[str],
    command: str,
) -> None:
    cluster.with_node(made())
    found = now(document(run))
    assert found["stage"] == stage
    assert words in found["text"]
    assert [it["kind"] for it in found["in_the_way"]] == kinds
    assert command in found["command"]
    text = why(run, "--exit-code", code=0 if made is cancelled else 1)
    assert f"Next: {found['command']}" in text
    for blocker in found["in_the_way"]:
        assert f"  {blocker['kind']}" in text


def test_the_reasons_are_the_agents_own(run: Run, cluster: ToldCluster) -> None:
    cluster.with_node(rolled_back())
    reason = json.loads(cluster.notes()[keys.MIG_STATUS])["reason"]
    found = now(document(run))
    assert [it["text"] for it in found["in_the_way"]] == [reason]
    assert found["next_attempt"] == reason.rpartition(" ")[2]
    assert f"Next attempt: {found['next_attempt']}" in why(run)


@pytest.mark.parametrize(
    ("how", "stage", "command"),
    [(Outcome.STUCK, "changed", EXEC), (Outcome.ROLLED_BACK, "requested", LOGS)],
)
def test_the_gpus_that_failed_are_in_the_way_one_by_one(
    run: Run, cluster: ToldCluster, how: Outcome, stage: str, command: str
) -> None:
    failed = {3: (how, "it is lost"), 5: (Outcome.ROLLED_BACK, "no room")}
    gpus = {0: (Outcome.APPLIED, ""), **failed}
    table = tuple(
        GpuOutcome(gpu=f"GPU-{index}", outcome=outcome, reason=reason, index=index)
        for index, (outcome, reason) in gpus.items()
    )
    cluster.with_node(ended(ChangeAnswer(change="x", outcome=how, outcomes=table)))
    found = now(document(run))
    assert (found["stage"], found["command"]) == (stage, command)
    assert [(it["name"], it["text"]) for it in found["in_the_way"] if it["kind"] == "gpu"] == [
        (str(index), f"{outcome}: {reason}") for index, (outcome, reason) in failed.items()
    ]
    assert f"  gpu 3: {how}: it is lost" in why(run)


def test_a_refused_layout_has_the_planners_reason(run: Run, cluster: ToldCluster) -> None:
    cluster.with_node(refused())
    (blocker,) = now(document(run))["in_the_way"]
    assert "GPU 0" in blocker["text"]
    assert "1g.5gb" in blocker["text"]


def test_who_wrote_the_layout_and_where_is_in_the_first_line(
    run: Run, cluster: ToldCluster
) -> None:
    cluster.with_node(waiting())
    first = document(run)["stages"][0]
    assert first["text"] == f"{WANTED} (annotation {LAYOUT}, written by {MANAGER})"
    assert first["state"] == "done"
    notes = {keys.MIG_POLICY: "inference/0123456789"}
    cluster.server.patch(NODES, NODE, {"metadata": {"annotations": notes}})
    assert "from the fleet policy's entry inference" in document(run)["stages"][0]["text"]


def test_a_label_that_is_not_obeyed_is_no_desired_layout(run: Run, cluster: ToldCluster) -> None:
    scene = Scene(label="all-balanced")
    scene.run()
    cluster.with_node(scene.node, scene.labels)
    found = now(document(run))
    assert found["stage"] == "desired"
    assert (
        found["command"] == f"kubectl label --overwrite node {NODE} gpuscape.io/mig-adopt=matching"
    )


def test_a_gpu_that_cannot_be_read_is_in_the_way(run: Run, cluster: ToldCluster) -> None:
    cluster.with_node(unread())
    found = now(document(run))
    assert found["stage"] == "evaluated"
    assert [it["kind"] for it in found["in_the_way"]] == ["gpu"]
    assert found["command"] == f"gpuscape doctor node {NODE}"


def test_a_layout_that_was_applied_is_done(run: Run, cluster: ToldCluster) -> None:
    cluster.with_node(ended(Outcome.APPLIED), capacity={"nvidia.com/mig-7g.40gb": "1"})
    found = document(run)
    assert found["stands_at"] is None
    assert found["settled"] is True
    assert {it["state"] for it in found["stages"]} == {"done", "unknown"}
    assert "Next:" not in why(run, "--exit-code")


def test_a_layout_that_the_device_plugin_does_not_list_is_not_allocatable(
    run: Run, cluster: ToldCluster
) -> None:
    cluster.with_node(ended(Outcome.APPLIED))
    found = now(document(run))
    assert found["stage"] == "allocatable"
    assert "nvidia.com/mig-7g.40gb" in found["text"]


def test_a_layout_that_was_there_needed_no_change(run: Run, cluster: ToldCluster) -> None:
    scene = EnforcingScene()
    scene.ask('{"0": {"1g.5gb": 1, "3g.20gb": 1}}')
    scene.run()
    there = {"nvidia.com/mig-1g.5gb": "1", "nvidia.com/mig-3g.20gb": "1"}
    cluster.with_node(scene.node, capacity=there)
    found = document(run)
    assert found["stands_at"] is None
    states = {it["stage"]: it["state"] for it in found["stages"]}
    assert states["evaluated"] == "done"
    assert states["slot"] == states["changed"] == states["uncordoned"] == "not-needed"


def test_the_keys_of_the_document_stay(run: Run, cluster: ToldCluster) -> None:
    cluster.with_node(waiting())
    found = document(run)
    assert list(found) == [
        *("node", "read_at", "desired", "desired_by", "phase", "outcome", "settled"),
        *("stands_at", "stages", "settings_known", "unread"),
    ]
    assert {tuple(it) for it in found["stages"]} == {
        (
            *("stage", "state", "text", "done_at", "seconds", "in_the_way", "next_attempt"),
            "command",
        )
    }
    assert [it["stage"] for it in found["stages"]] == [
        *("desired", "evaluated", "requested", "slot", "cordoned", "drained", "paused"),
        *("changed", "verified", "allocatable", "uncordoned"),
    ]


def test_what_may_not_be_read_names_verb_and_resource(run: Run, cluster: ToldCluster) -> None:
    cluster.with_node(waiting())
    for kind in (LEASES, EVENTS, NODES):
        cluster.fail("watch", Forbidden("forbidden: jane"), resource=kind, times=None)
    cluster.fail("get", Forbidden("forbidden: jane"), resource=CONFIG_MAPS, times=None)
    found = document(run)
    assert {(it["verb"], it["resource"]) for it in found["unread"]} >= {
        ("list and watch", "leases.coordination.k8s.io"),
        ("list and watch", "events.events.k8s.io"),
        ("list and watch", "nodes"),
        ("get", "configmaps"),
    }
    text = why(run)
    assert "you may not list and watch leases.coordination.k8s.io: forbidden: jane" in text
    assert now(found)["stage"] == "slot"


def test_a_node_that_may_not_be_read_or_is_not_there(run: Run, cluster: ToldCluster) -> None:
    assert "there is no node gpu-7" in why(run, code=2)
    cluster.fail("get", Forbidden("forbidden: jane"), resource=NODES)
    assert "you may not get nodes: forbidden: jane" in why(run, code=4)
    cluster.fail("get", Unreachable("refused"), resource=NODES)
    why(run, code=4)


def test_another_namespace_is_read_and_named(run: Run, cluster: ToldCluster) -> None:
    cluster.server.add_namespace("mig")
    cluster.with_node(waiting())
    found = now(json.loads(why(run, "-n", "mig", "-o", "json")))
    assert found["in_the_way"][0]["kind"] == "coordinator"
    assert found["command"].startswith("kubectl -n mig get pods")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.6, "1 min"), (61, "1 min 1 s"), (7200, "2 h"), (90061, "1 d 1 h")],
)
def test_a_span_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert span(seconds) == text
