# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig nodes``: the Nodes' layouts as a table, as lines that follow, and as documents."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from api import keys, mig_permit_annotation, mig_status_annotation, names
from api.mig_outcome import Outcome
from api.mig_permit_annotation import MigPermitAnnotation, PermitPhase
from api.mig_status_annotation import (
    GpuChangeStatus,
    GpuOutcomeStatus,
    MigPhase,
    MigStatusAnnotation,
    RequestSource,
    desired_digest,
)
from cli import terminal
from cli.mig.cluster import mig_nodes
from fleet import rollout_memory
from fleet.rollout_memory import NodeEnd
from fleet.status.node_layout import node_layout
from kube import lease as leases
from kube.api import LEASES, NODES
from kube.api_errors import Forbidden
from kube.objects.node import Node
from tests.cli.conftest import Run
from tests.fakes.api import FakeApi

SINCE = "2026-11-23T20:12:41Z"
PENDING = keys.MIG_LAYOUT_PENDING
R = "00112233445566ff"


class Cluster(FakeApi):
    """A cluster, and a command that is done with it."""

    def close(self) -> None:
        """As the real client's."""
        self.end_watches()

    def with_node(
        self,
        name: str,
        status: MigStatusAnnotation | str | None = None,
        *,
        wish: str | None = None,
        permit: MigPermitAnnotation | None = None,
        unschedulable: bool = False,
        labels: dict[str, str] | None = None,
        taint: str = "",
    ) -> None:
        if isinstance(status, MigStatusAnnotation):
            status = mig_status_annotation.encode(status)
        written = {
            keys.MIG_LAYOUT: wish,
            keys.MIG_STATUS: status,
            keys.MIG_PERMIT: None if permit is None else mig_permit_annotation.encode(permit),
        }
        there = {key: text for key, text in written.items() if text is not None}
        meta: dict[str, Any] = {"name": name, "annotations": there, "labels": labels or {}}
        spec: dict[str, Any] = {"unschedulable": True} if unschedulable else {}
        if taint:
            spec["taints"] = [{"key": taint, "effect": "NoSchedule"}]
        self.server.create(NODES, {"metadata": meta, "spec": spec})


def status(phase: MigPhase, reason: str = "", **more: Any) -> MigStatusAnnotation:
    return MigStatusAnnotation(v=2, phase=phase, since=SINCE, reason=reason, **more)


WAITING = status(
    MigPhase.WAITING,
    "pods hold what goes",
    gpus=(
        GpuChangeStatus(gpu=4, keep=1, destroy=3, create=2),
        GpuChangeStatus(gpu=5, keep=2, destroy=1, create=1),
    ),
    pods=("team/a", "team/b"),
    more_pods=2,
    request=R,
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Four nodes with something to say, one without."""
    made = Cluster()
    hold = MigPermitAnnotation(v=2, request=R, phase=PermitPhase.CORDONED, owns_cordon=True)
    made.with_node("as", status(MigPhase.UNCHANGED), wish="all-balanced", labels={"pool": "x"})
    long = '{"all": {"1g.10gb": 7},\n "4": {"3g.20gb": 2}}'
    made.with_node("in", WAITING, wish=long, permit=hold, unschedulable=True)
    made.with_node("new", labels={keys.MIG_CONFIG: "all-1g.5gb", "pool": "x"})
    made.with_node("bad", "{")
    made.with_node("cpu", labels={"pool": "x"})
    monkeypatch.setattr(mig_nodes, "kubeconfig_client", lambda *_: made)
    return made


def printed(run: Run, *arguments: str, code: int = 0) -> str:
    result = run("mig", "nodes", *arguments)
    assert result.exit_code == code, result.output
    return result.output


def rows(text: str) -> dict[str, list[str]]:
    """Node to the cells behind it, which are two spaces apart."""
    lines = text.split("\n\n")[0].splitlines()[1:]
    return {
        line.split()[0]: [cell.strip() for cell in line.split("  ") if cell][1:] for line in lines
    }


@pytest.mark.usefixtures("cluster")
def test_each_node_that_has_to_do_with_mig_has_a_row(run: Run) -> None:
    text = printed(run)
    assert list(rows(text)) == ["as", "bad", "in", "new"]
    assert rows(text)["as"][:4] == ["all-balanced", "unchanged", SINCE, "-"]
    layout, phase, since, slot, pods, why = rows(text)["in"]
    assert (layout, phase, since) == ('{"all": {"1g.10gb": 7}, "4": {"3g.20gb"…', "waiting", SINCE)
    assert (slot, pods) == ("cordoned", "team/a, team/b and 2 more")
    assert why == "pods hold what goes"
    assert "annotation gpuscape.io/mig-status is damaged" in text
    assert "no agent that manages MIG has evaluated it" in text
    assert text.splitlines()[-1] == ("4 nodes: 2 no agent, 1 unchanged, 1 waiting; 1 with a slot")


def test_gpus_that_failed_stand_behind_the_phase(cluster: Cluster, run: Run) -> None:
    """Also one that is stuck since a change before; an older agent's status names none."""
    stuck = GpuOutcomeStatus(gpu=3, outcome="stuck", reason="it is lost")
    back = GpuOutcomeStatus(gpu=5, outcome="rolled-back")
    done = GpuOutcomeStatus(gpu=0, outcome="applied")
    states = {
        "s1": (status(MigPhase.STUCK, outcomes=(done, stuck, back)), "stuck (GPU 3 stuck, GPU 5"),
        "s2": (status(MigPhase.FAILED, outcomes=(done, back)), "failed (GPU 5 rolled-back)"),
        "s3": (status(MigPhase.WAITING, outcomes=(stuck,)), "waiting (GPU 3 stuck)"),
        "s4": (status(MigPhase.STUCK), "stuck"),
    }
    for name, (its_status, _) in states.items():
        cluster.with_node(name, its_status, wish="all-balanced")
    text = printed(run)
    for name, (_, phase) in states.items():
        assert rows(text)[name][1].startswith(phase)
    assert rows(text)["s4"][1] == "stuck"
    document = json.loads(printed(run, "s1", "-o", "json"))
    assert document["nodes"][0]["status"]["outcomes"][1] == {
        "gpu": 3,
        "outcome": "stuck",
        "reason": "it is lost",
    }


def lease(cluster: Cluster, *, holder: str = "c-0", ago: float = 5.0, **notes: str) -> None:
    """The coordinator's, renewed so many seconds ago."""
    at = datetime.fromtimestamp(time.time() - ago, UTC)
    body = leases.lease_object(
        names.COORDINATOR_LEASE,
        holder=holder,
        duration_seconds=30,
        wall_time=at,
        annotations={f"gpuscape.io/mig-{key}": text for key, text in notes.items()},
    )
    cluster.server.create(LEASES, body, namespace=names.NAMESPACE)


def failures(*ends: Outcome) -> str:
    """The memory of a rollout that is asked for all-balanced."""
    memory = rollout_memory.EMPTY
    for number, end in enumerate(ends):
        made = NodeEnd(
            rollout="annotation:all-balanced", uid=f"{number}", request="0" * 16, outcome=end
        )
        memory = rollout_memory.with_end(memory, made, 1)
    return rollout_memory.encode(memory)


def notes(run: Run, *arguments: str) -> list[str]:
    """The lines between the table and the summary."""
    return printed(run, *arguments).split("\n\n")[1].splitlines()[:-1]


BAD, GOOD = Outcome.ROLLED_BACK, Outcome.APPLIED


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ({}, []),
        ({"holder": ""}, ["no coordinator acts"]),
        ({"ago": 900.0}, ["the coordinator c-0 has not renewed its Lease for 90"]),
        ({"paused": "true"}, ["paused by an admin"]),
        ({"paused": "false"}, []),
        ({"rollouts": failures(GOOD)}, []),
        (
            {"rollouts": failures(BAD, GOOD, BAD, BAD)},
            [
                "desired by annotation:all-balanced: 1 succeeded, 3 failed, the last 2 in a row",
                "to continue a rollout that failures have stopped",
            ],
        ),
        ({"rollouts": "{", "paused": "true"}, ["coordinator not known", "paused by an admin"]),
    ],
)
def test_what_keeps_all_nodes_waiting_stands_above_the_last_line(
    cluster: Cluster, run: Run, there: dict[str, Any], expected: list[str]
) -> None:
    lease(cluster, **there)

    found = notes(run)

    assert [line[: len(begins)] for line, begins in zip(found, expected, strict=True)] == expected


def test_nodes_that_are_all_as_asked_wait_for_nobody(cluster: Cluster, run: Run) -> None:
    lease(cluster, holder="", paused="true")

    assert notes(run, "as") == []


def test_without_a_lease_or_the_right_to_read_it_the_nodes_are_shown_all_the_same(
    cluster: Cluster, run: Run
) -> None:
    assert "no coordinator acts" in notes(run)[0]

    cluster.fail("get", Forbidden("get leases: forbidden"), times=None)
    assert notes(run) == ["coordinator not known: get leases: forbidden"]


def test_json_has_the_coordinator_too(cluster: Cluster, run: Run) -> None:
    lease(cluster, paused="true", rollouts=failures(BAD))

    found = json.loads(printed(run, "-o", "json"))["coordinator"]

    assert (found["holder"], found["paused"], found["problem"]) == ("c-0", True, None)
    assert found["rollouts_with_failures"] == [
        {"desired": "annotation:all-balanced", "succeeded": 0, "failed": 1, "failed_in_row": 1}
    ]


@pytest.mark.usefixtures("cluster")
def test_wide_has_the_whole_layout_the_instances_and_the_cordon(run: Run) -> None:
    cells = rows(printed(run, "-o", "wide"))["in"]
    assert cells[0] == '{"all": {"1g.10gb": 7}, "4": {"3g.20gb": 2}}'
    assert cells[4:9] == ["4,5", "3", "4", "3", "yes"]


@pytest.mark.usefixtures("cluster")
def test_json_has_everything_that_the_node_says(run: Run) -> None:
    found = {one["node"]: one for one in json.loads(printed(run, "-o", "json"))["nodes"]}
    assert found["in"]["status"]["request"] == found["in"]["permit"]["request"] == R
    assert found["in"]["permit"]["phase"] == "cordoned"
    assert (found["in"]["settled"], found["in"]["cordoned"]) == (False, True)
    assert (found["as"]["settled"], found["as"]["desired"]) == (True, "all-balanced")
    assert "is damaged" in found["bad"]["problem"]


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("words", "nodes"),
    [
        (["-l", "pool=x"], ["as", "new"]),
        (["-l", "pool!=x"], ["bad", "in"]),
        (["in", "as"], ["as", "in"]),
        (["--unsettled"], ["bad", "in", "new"]),
        (["--unsettled", "-l", "pool"], ["new"]),
    ],
)
def test_nodes_are_chosen_by_name_label_and_whether_they_are_as_asked(
    run: Run, words: list[str], nodes: list[str]
) -> None:
    assert list(rows(printed(run, *words))) == nodes


@pytest.mark.usefixtures("cluster")
def test_the_exit_code_says_whether_every_layout_is_there(run: Run) -> None:
    printed(run, "--exit-code", code=1)
    printed(run, "as", "--exit-code")
    printed(run, "cpu", "--exit-code")


def test_a_layout_is_not_there_while_the_node_still_has_its_slot(cluster: Cluster) -> None:
    """The change is done, and the node still cordoned."""
    go = MigPermitAnnotation(v=2, request=R, phase=PermitPhase.PROCEED, owns_cordon=True)
    cluster.with_node("late", status(MigPhase.UNCHANGED), wish="x", permit=go)
    found = node_layout(Node.from_object(cluster.server.get(NODES, "late")))
    assert found is not None
    assert not found.is_settled
    assert found.slot == "proceed"


X, OLD = desired_digest(RequestSource.ANNOTATION, "x"), desired_digest(RequestSource.LABEL, "x")
LABEL, ADOPT = keys.MIG_CONFIG, keys.MIG_ADOPT


@pytest.mark.parametrize(
    ("shown", "wish", "labels", "settled"),
    [
        (status(MigPhase.UNCHANGED, desired_digest=X), "x", {}, True),
        (status(MigPhase.UNCHANGED, desired_digest=X), "x", {LABEL: "y", ADOPT: "never"}, True),
        (status(MigPhase.UNCHANGED, desired_digest=X), "y", {}, False),
        (status(MigPhase.UNCHANGED, desired_digest=X), None, {}, False),
        (status(MigPhase.UNCHANGED, desired_digest=X), None, {LABEL: "x"}, False),
        (status(MigPhase.UNCHANGED, desired_digest=OLD), None, {LABEL: "x"}, True),
        (status(MigPhase.UNCHANGED, desired_digest=OLD), None, {LABEL: "x", ADOPT: "never"}, False),
        (status(MigPhase.UNCHANGED), None, {LABEL: "x", ADOPT: "never"}, False),
        (status(MigPhase.UNCHANGED), "x", {}, True),
        (status(MigPhase.IDLE), None, {}, True),
        (status(MigPhase.IDLE), None, {LABEL: "x", ADOPT: "never"}, True),
        (status(MigPhase.IDLE), "x", {}, False),
        (status(MigPhase.IDLE), None, {LABEL: "x"}, False),
        (status(MigPhase.UNADOPTED, unadopted="x"), None, {LABEL: "x"}, True),
        (status(MigPhase.UNADOPTED, unadopted="x"), None, {LABEL: "y"}, False),
        (status(MigPhase.UNADOPTED, unadopted="x"), "y", {LABEL: "x"}, False),
    ],
)
def test_what_the_agent_said_before_the_node_asked_settles_nothing(
    shown: MigStatusAnnotation, wish: str | None, labels: dict[str, str], *, settled: bool
) -> None:
    cluster = Cluster()
    cluster.with_node("a", shown, wish=wish, labels=labels)
    found = node_layout(Node.from_object(cluster.server.get(NODES, "a")))
    assert found is not None
    assert found.is_settled == settled
    assert (found.phase == "unjudged") is not settled
    assert ("has not evaluated" in found.why) is not settled


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nobody"], "there is no node nobody"),
        (["-l", "a b"], "label selector: 'a b'"),
        (["--watch", "-o", "json"], "--watch prints lines of a table"),
        (["--watch", "--exit-code"], "--watch prints lines of a table"),
    ],
)
def test_bad_input_is_refused_by_name(run: Run, words: list[str], why: str) -> None:
    assert why in printed(run, *words, code=2)


def test_a_cluster_that_may_not_be_read_is_named(cluster: Cluster, run: Run) -> None:
    cluster.fail("watch", Forbidden("watch nodes: forbidden"), times=None)
    text = printed(run, "--timeout", "1", code=4)
    assert "the cluster was not read within 1 s: watch nodes: forbidden" in text


def test_a_watch_has_a_line_for_each_change_and_ends_with_ctrl_c(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    first = threading.Event()

    def note(text: str) -> None:
        lines.append(text)
        first.set()
        if "gone" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(terminal, "note", note)

    def edit() -> None:
        first.wait(10)
        done = mig_status_annotation.encode(status(MigPhase.UNCHANGED))
        cluster.server.patch(NODES, "cpu", {"metadata": {"labels": {"else": "x"}}})
        cluster.server.patch(NODES, "in", {"metadata": {"annotations": {keys.MIG_STATUS: done}}})
        cluster.server.delete(NODES, "bad")

    editor = threading.Thread(target=edit)
    editor.start()
    printed(run, "--watch")
    editor.join()
    changed, gone = (line.split("  ") for line in lines if line.startswith(("in ", "bad ")))
    assert (changed[0], changed[2]) == ("in", "unchanged")
    assert gone == ["bad", "the Node is gone"]
    assert not any(line.startswith("cpu") for line in lines)


def test_a_layout_that_another_program_has_changed_is_marked(cluster: Cluster, run: Run) -> None:
    one, other = f"{1:016x}", f"{2:016x}"
    cluster.with_node("lost", status(MigPhase.WAITING, plan=one, reached=one), wish="a")
    cluster.with_node("anew", status(MigPhase.WAITING, plan=one, reached=other), wish="a")
    shown = rows(printed(run))
    assert (shown["lost"][1], shown["anew"][1]) == ("waiting (drift)", "waiting")
    found = json.loads(printed(run, "lost", "anew", "-o", "json"))["nodes"]
    assert {it["node"]: it["drift"] for it in found} == {"lost": True, "anew": False}


def test_a_device_plugin_that_lists_too_little_is_named(cluster: Cluster, run: Run) -> None:
    offers = {"nvidia.com/mig-1g.10gb": 7, "nvidia.com/mig-3g.40gb": 1}
    there = MigStatusAnnotation(v=2, phase=MigPhase.UNCHANGED, allocatable=offers)
    cluster.with_node("late", there)
    listed = {"status": {"capacity": {"nvidia.com/mig-1g.10gb": "8", "nvidia.com/gpu": "1"}}}
    cluster.server.patch(NODES, "late", listed, status=True)
    assert "the device plugin does not list all of nvidia.com/mig-3g.40gb" in printed(run, "late")
    (found,) = json.loads(printed(run, "late", "-o", "json"))["nodes"]
    assert found["unlisted"] == ["nvidia.com/mig-3g.40gb"]
    cluster.server.patch(NODES, "late", {"status": {"capacity": _texts(offers)}}, status=True)
    assert "does not list" not in printed(run, "late")


def _texts(amounts: dict[str, int]) -> dict[str, str]:
    return {name: str(count) for name, count in amounts.items()}


def test_a_node_that_keeps_pods_away_until_its_first_layout_is_shown_whatever_it_asks(
    cluster: Cluster, run: Run
) -> None:
    cluster.with_node("fresh", taint=PENDING)
    cluster.with_node("denied", status(MigPhase.REFUSED, "no plan"), wish="x", taint=PENDING)
    cluster.with_node("else", taint="example.com/other")

    rows = printed(run, "fresh", "denied", "as", "-o", "wide").splitlines()
    found = json.loads(printed(run, "fresh", "denied", "as", "-o", "json"))["nodes"]

    column = rows[0].split().index("TAINT")
    assert [row.split()[0] for row in rows if "pods kept away" in row] == ["denied", "fresh"]
    assert next(row for row in rows if row.startswith("fresh")).split()[column] == "yes"
    assert next(row for row in rows if row.startswith("as")).split()[column] == "no"
    assert any("no plan; pods kept away by the startup taint" in row for row in rows)
    assert rows[-1].endswith("0 with a slot, 2 with the startup taint")
    assert {one["node"]: one["startup_taint"] for one in found} == {
        "as": False,
        "fresh": True,
        "denied": True,
    }
    assert "else" not in printed(run)


def test_the_startup_taint_alone_is_no_layout_that_is_missing(cluster: Cluster, run: Run) -> None:
    cluster.with_node("fresh", taint=PENDING)
    cluster.with_node("ready", status(MigPhase.UNCHANGED), wish="x", taint=PENDING)
    cluster.with_node("behind", status(MigPhase.REFUSED), wish="x", taint=PENDING)

    assert run("mig", "nodes", "fresh", "ready", "--exit-code").exit_code == 0
    assert run("mig", "nodes", "behind", "--exit-code").exit_code == 1
