# SPDX-License-Identifier: Apache-2.0
"""What operators see of a fleet's changes: steps, waits, the policy; as values and as metrics."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from api.mig_outcome import Outcome
from api.mig_status_annotation import MigStatusAnnotation, RequestSource
from fleet.figures.change_steps import ChangeStep, change_facts, step_of
from fleet.figures.coordinator_metrics import CoordinatorMetrics
from fleet.figures.fleet_figures import Figures, figures, oldest_waits
from fleet.mig_node import MigNode, UnavailableReason
from fleet.policy.assigned_layouts import Assignment
from fleet.policy.fleet_policy_sync import PolicyState
from fleet.rollback_record import RollbackRecord
from fleet.rollout_memory import EMPTY, NodeEnd, UnreportedEnd, with_end
from fleet.rollout_settings import RolloutSettings, parse_windows
from fleet.slot_gate import GateDecision, WaitReason
from fleet.slot_lease import PARKING, SlotLease
from fleet.startup.startup_taint import StartupNode, StartupWait
from tests import exposition, promlint
from tests.fleet.simulated_fleet import Cluster
from tests.fleet.test_slot_gate import NOW, asking, record, view

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text("utf-8")
AT = int(NOW)
OPEN = msgspec.structs.replace(record("n1"), taken_at=AT - 100)
CORDONED = msgspec.structs.replace(OPEN, cordoned_at=AT - 90)
GONE = msgspec.structs.replace(CORDONED, drain_at=AT - 80, proceed_at=AT - 60)


def ended(end: str) -> MigNode:
    status = MigStatusAnnotation(
        v=2, phase="stuck", source=RequestSource.ANNOTATION, request=OPEN.request, outcome=end
    )
    return replace(asking("n1"), request=None, status=status)


@pytest.mark.parametrize(
    ("kept", "number", "node", "expected"),
    [
        (OPEN, 0, asking("n1"), (ChangeStep.TAKEN, 100)),
        (CORDONED, 0, asking("n1"), (ChangeStep.CORDONED, 90)),
        (
            msgspec.structs.replace(CORDONED, drain_at=AT - 80),
            0,
            asking("n1"),
            (ChangeStep.DRAINING, 80),
        ),
        (
            msgspec.structs.replace(CORDONED, drain="cordon"),
            0,
            asking("n1"),
            (ChangeStep.WAITING, 90),
        ),
        (
            msgspec.structs.replace(GONE, drain="cordon"),
            0,
            asking("n1"),
            (ChangeStep.CHANGING, 60),
        ),
        (GONE, 0, asking("n1"), (ChangeStep.CHANGING, 60)),
        (GONE, PARKING, ended(Outcome.STUCK), (ChangeStep.STUCK, 60)),
        (GONE, PARKING, asking("n1"), (ChangeStep.LATE, 60)),
        (GONE, PARKING, None, (ChangeStep.LATE, 60)),
        (
            msgspec.structs.replace(GONE, outcome=Outcome.APPLIED, restarted_at=AT - 20),
            0,
            asking("n1"),
            (ChangeStep.REGISTERING, 20),
        ),
        (
            msgspec.structs.replace(GONE, outcome=Outcome.ROLLED_BACK),
            PARKING,
            asking("n1"),
            (ChangeStep.REGISTERING, 60),
        ),
    ],
)
def test_a_record_says_at_which_step_its_node_is_and_since_when(
    kept: RollbackRecord, number: int, node: MigNode | None, expected: tuple[ChangeStep, int]
) -> None:
    step, since = step_of(SlotLease(number=number, version="1", record=kept), kept, node)

    assert (step, AT - since) == expected


def test_one_line_about_a_change_says_for_how_long_it_was_at_what() -> None:
    assert change_facts(msgspec.structs.replace(GONE, restarts=2), NOW + 0.9) == {
        "desired": "annotation:a",
        "drain": "wait",
        "seconds": 100,
        "restarts": 2,
        "cordoned_seconds": 90,
        "permitted_seconds": 60,
    }
    assert change_facts(OPEN, NOW).keys().isdisjoint({"cordoned_seconds", "permitted_seconds"})


# waits


def since(node: MigNode, text: str) -> MigNode:
    """The node with a request that was made then."""
    assert node.request is not None
    return replace(node, request=msgspec.structs.replace(node.request, since=text))


def test_the_oldest_wait_of_each_reason_counts_from_the_request() -> None:
    """It is 2027-01-15T08:00:00Z."""
    nodes = {
        "n1": since(asking("n1"), "2027-01-15T07:00:00Z"),
        "n2": since(asking("n2"), "2027-01-15T06:00:00Z"),
        "n3": since(asking("n3"), "2027-01-15T09:00:00Z"),
        "n4": since(asking("n4"), "2027-01-14T08:00:00Z"),
    }
    waiting = {"n1": WaitReason.NOT_IDLE, "n2": WaitReason.NOT_IDLE, "n3": WaitReason.SLOT}

    assert oldest_waits(nodes, waiting, NOW) == {WaitReason.NOT_IDLE: 7200, WaitReason.SLOT: 0}


@pytest.mark.parametrize("text", ["", "last week", "0001-01-01T00:00:00"])
def test_a_request_whose_time_cannot_be_read_counts_as_new(text: str) -> None:
    nodes = {"n1": since(asking("n1"), text)}

    (seconds,) = oldest_waits(nodes, {"n1": WaitReason.SLOT}, NOW).values()

    assert seconds >= 0
    assert not seconds or text.startswith("0001")


# figures


def shown(found: Figures) -> dict[str, float]:
    """The metrics of a coordinator that leads, by name and the labels' values."""
    metrics = CoordinatorMetrics("1")
    metrics.shows(found)
    return series(metrics)


def series(metrics: CoordinatorMetrics) -> dict[str, float]:
    return {
        "/".join((name.removeprefix("gpuscape_coordinator_"), *(text for _, text in labels))): value
        for (name, labels), value in exposition.series(metrics.render()).items()
    }


POLICY = PolicyState(
    revision="ab12", problem="line 3", is_paused=True, nodes={Assignment.DISPUTED: 2}
)


def test_a_view_in_numbers() -> None:
    """One node has a slot, two are parked, two wait; a rollout is stopped."""
    memory = EMPTY
    for number in range(2):
        end = NodeEnd(
            rollout="annotation:a", uid=f"{number}", request="0" * 16, outcome=Outcome.ROLLED_BACK
        )
        memory = with_end(memory, end, AT)
    slots = (
        SlotLease(number=0, version="1", holder="n1", record=GONE),
        SlotLease(number=1, version="1"),
        SlotLease(number=PARKING, version="1", record=msgspec.structs.replace(OPEN, node="n2")),
        SlotLease(number=PARKING + 1, version="1", record=msgspec.structs.replace(OPEN, node="n5")),
    )
    seen = view(
        asking("n1"),
        since(asking("n3"), "2027-01-15T07:59:53Z"),
        asking("n4", away=UnavailableReason.REBOOT),
        slots=slots,
    )
    decision = GateDecision(take=(), waiting={"n3": WaitReason.BREAKER, "n4": WaitReason.REBOOT})

    found = figures(
        replace(seen, memory=memory, is_paused=True),
        decision,
        RolloutSettings(slots=2, long_wait_seconds=5.0),
        policy=POLICY,
        now=NOW,
    )

    given = shown(found)
    assert (given["slots"], given["slots_used"], given["parked_nodes"]) == (2, 1, 2)
    assert (given["stopped_rollouts"], given["paused"], given["window_open"]) == (1, 1, 1)
    assert given["waiting_nodes/breaker"] == given["waiting_nodes/reboot"] == 1
    assert given["oldest_wait_seconds/breaker"] == 7 > given["long_wait_seconds"] == 5
    assert given["oldest_wait_seconds/slot"] == given["waiting_nodes/slot"] == 0
    assert given["change_step_seconds/n1/mig-slot-0/changing"] == 60
    assert given["change_step_seconds/n2/mig-slot-1000/late"] == 100
    assert given["policy_info/ab12"] == given["policy_refused"] == given["policy_paused"] == 1
    assert (given["policy_nodes/disputed"], given["policy_nodes/due"]) == (2, 0)


@pytest.mark.parametrize(("hours", "is_open"), [("07:00-09:00", 1), ("09:00-10:00", 0)])
def test_whether_the_window_is_open_is_shown(hours: str, is_open: float) -> None:
    """It is eight."""
    found = figures(
        view(),
        GateDecision(take=(), waiting={}),
        RolloutSettings(windows=parse_windows(hours)),
        policy=None,
        now=NOW,
    )

    assert shown(found)["window_open"] == is_open


def test_nodes_with_the_startup_taint_are_counted_by_reason_with_the_age_of_the_oldest() -> None:
    metrics = CoordinatorMetrics("1")
    assert series(metrics)["startup_taint_nodes/refused"] == 0

    metrics.shows_startup(
        [
            StartupNode(node="n1", wait=StartupWait.REFUSED, seconds=5.0),
            StartupNode(node="n2", wait=StartupWait.REFUSED, seconds=7.0),
            StartupNode(node="n3", wait=StartupWait.STUCK, seconds=1.0),
        ]
    )

    given = series(metrics)
    assert (given["startup_taint_nodes/refused"], given["startup_taint_nodes/stuck"]) == (2, 1)
    assert given["startup_taint_oldest_seconds/refused"] == 7
    assert given["startup_taint_oldest_seconds/stuck"] == 1
    assert sum(it for name, it in given.items() if name.startswith("startup_taint_nodes")) == 3
    metrics.shows_startup(())
    given = series(metrics)
    assert not any(it for name, it in given.items() if name.startswith("startup_taint"))


PREFIX = "gpuscape_coordinator_"


def everything() -> dict[str, exposition.Family]:
    """The coordinator's families with a series in each."""
    metrics = CoordinatorMetrics("1")
    steps: dict[tuple[str, ...], float] = {("n1", "mig-slot-0", ChangeStep.TAKEN.value): 1.0}
    metrics.shows({"change_step_seconds": steps, "policy_info": {(POLICY.revision,): 1}})
    return {
        name: family
        for name, family in exposition.parse(metrics.render()).items()
        if name.startswith(PREFIX)
    }


@pytest.mark.parametrize("family", everything().values(), ids=lambda it: it.name)
def test_a_name_follows_prometheus_conventions(family: exposition.Family) -> None:
    assert promlint.problems(family) == []


def test_the_page_has_each_family_with_its_type_and_each_value_of_its_labels() -> None:
    """Values of labels that are words of ours."""
    rows = re.findall(rf"^\| `({PREFIX}\w+)` \| (\w+) \| (.*) \|$", PAGE, re.MULTILINE)
    text = {name: words for name, _, words in rows}

    assert {name: kind for name, kind, _ in rows} == {
        name: family.kind for name, family in everything().items()
    }
    words: dict[str, Iterable[str]] = {
        "change_step_seconds": ChangeStep,
        "changes_total": (*Outcome, *UnreportedEnd),
        "policy_nodes": Assignment,
        "startup_taint_nodes": StartupWait,
        "waiting_nodes": WaitReason,
    }
    for name, values in words.items():
        assert set(re.findall(r"`([\w-]+)`", text[f"{PREFIX}{name}"])) >= set(values), name


def test_a_coordinator_that_stands_by_says_nothing_of_the_fleet() -> None:
    metrics = CoordinatorMetrics("1")
    step = figures(
        view(asking("n1"), slots=(SlotLease(number=0, version="1", holder="n1", record=GONE),)),
        GateDecision(take=(), waiting={"n1": WaitReason.SLOT}),
        RolloutSettings(),
        policy=POLICY,
        now=NOW,
    )
    fresh = series(metrics)
    metrics.shows(step)
    assert series(metrics) != fresh

    metrics.stands_by()

    own = "process_"
    assert {name: it for name, it in series(metrics).items() if not name.startswith(own)} == {
        name: it for name, it in fresh.items() if not name.startswith(own)
    }


def test_the_coordinator_shows_what_it_does_and_logs_one_line_about_each_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that waits for its pods, and one that changes."""
    caplog.set_level(logging.INFO)
    cluster = Cluster(nodes=2, terms=RolloutSettings(slots=1))
    cluster.bind_pod("n1", "job", blocking=True)
    cluster.wish("sevenths")

    cluster.pass_until(lambda: bool(cluster.agents["n0"].changes_until), within=120)
    cluster.pass_time(4)
    during = series(cluster.metrics)
    cluster.pass_until(lambda: not cluster.open_leases(), within=200)
    cluster.pass_time(3600)

    steps = {name for name in during if name.startswith("change_step_seconds")}
    assert steps == {"change_step_seconds/n0/mig-slot-0/changing"}
    after = series(cluster.metrics)
    assert not any(name.startswith("change_step_seconds") for name in after)
    assert after["waiting_nodes/not-idle"] == 1
    (line,) = (it for it in caplog.records if it.message == "MIG slot freed")
    facts = vars(line)
    assert (facts["node"], facts["desired"], facts["outcome"]) == (
        "n0",
        "annotation:sevenths",
        "applied",
    )
    assert facts["seconds"] >= facts["cordoned_seconds"] > facts["permitted_seconds"] > 0
