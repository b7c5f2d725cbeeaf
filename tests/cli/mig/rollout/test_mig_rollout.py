# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig rollout``: what it writes to which Nodes, and to the coordinator's Lease."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api import keys, mig_status_annotation, names
from api.mig_status_annotation import MigPhase, MigStatusAnnotation
from cli.mig.rollout import chosen_nodes, coordinator_switch
from fleet.mig_node import DrainMode
from kube.api import LEASES, NODES
from kube.api_errors import AdmissionRefused, Conflict
from tests.cli.conftest import Run
from tests.fakes.api import Call, FakeApi


class Cluster(FakeApi):
    """A cluster, and commands that are done with it."""

    def close(self) -> None:
        """As the real client's."""
        self.end_watches()

    def with_node(self, name: str, *, phase: str = "idle", **annotations: str) -> None:
        status = MigStatusAnnotation(v=2, phase=phase)
        written = {f"gpuscape.io/{key.replace('_', '-')}": it for key, it in annotations.items()}
        if phase:
            written[keys.MIG_STATUS] = mig_status_annotation.encode(status)
        meta = {"name": name, "labels": {"pool": "a"}, "annotations": written}
        self.server.create(NODES, {"metadata": meta})

    def annotations(self, name: str) -> dict[str, str]:
        """Those of a Node that people write."""
        found = self.server.get(NODES, name)["metadata"].get("annotations") or {}
        return {
            key.removeprefix("gpuscape.io/"): text
            for key, text in found.items()
            if key != keys.MIG_STATUS
        }

    @property
    def patches(self) -> list[Call]:
        return [call for call in self.calls if call.verb == "patch"]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Nodes that ask for nothing, for a layout, and one that cannot."""
    made = Cluster(manager="gpuscape-mig-rollout")
    made.with_node("free")
    made.with_node("used", mig_layout="old")
    made.with_node("same", mig_layout="all-balanced")
    made.with_node("bare", phase="")
    made.with_node("flat")
    made.server.patch(NODES, "flat", {"metadata": {"labels": {keys.MIG_CAPABLE: "false"}}})
    made.with_node("else")
    made.server.patch(NODES, "else", {"metadata": {"labels": {"pool": "b"}}})
    for module in (chosen_nodes, coordinator_switch):
        monkeypatch.setattr(module, "kubeconfig_client", lambda *_: made)
    return made


def done(run: Run, *arguments: str, code: int = 0) -> str:
    result = run("mig", "rollout", *arguments)
    assert result.exit_code == code, result.output
    return result.output


def test_a_start_writes_the_layout_to_the_chosen_nodes_and_keeps_what_was_there(
    cluster: Cluster, run: Run
) -> None:
    text = done(run, "start", "all-balanced", "-l", "pool=a", "--yes")
    assert "Nodes written: 3." in text
    assert "gpuscape mig nodes -l 'pool=a'" in text
    assert cluster.annotations("free") == {"mig-layout": "all-balanced", "mig-layout-before": ""}
    assert cluster.annotations("used") == {"mig-layout": "all-balanced", "mig-layout-before": "old"}
    assert cluster.annotations("same") == {"mig-layout": "all-balanced"}
    assert cluster.annotations("flat") == cluster.annotations("else") == {}
    assert {call.name for call in cluster.patches} == {"free", "used", "bare"}


def test_what_a_person_should_know_stands_beside_the_node(cluster: Cluster, run: Run) -> None:
    cluster.with_node("plans", phase=MigPhase.PLANNED)
    cluster.with_node("away")
    cluster.server.patch(NODES, "away", {"spec": {"unschedulable": True}})
    words = ("start", "all-balanced", "-l", "pool=a", "--yes", "-o", "json")
    found = {one["node"]: one for one in json.loads(done(run, *words))["nodes"]}
    assert found["bare"]["note"] == "no agent manages MIG there"
    assert found["plans"]["note"] == "its agent only plans (mig-mode observe)"
    assert found["away"]["note"] == "cordoned by somebody else: it waits until it is uncordoned"
    assert found["flat"]["note"] == "left out: none of its GPUs has MIG"
    assert (found["flat"]["changes"], found["same"]["changes"]) == (False, False)
    assert found["used"] == {
        "node": "used",
        "desired": "old",
        "then": "all-balanced",
        "changes": True,
        "note": None,
    }


def test_undo_asks_for_what_was_asked_for_before(cluster: Cluster, run: Run) -> None:
    done(run, "start", "all-balanced", "-l", "pool=a", "--yes")
    text = done(run, "undo", "-l", "pool=a", "--yes")
    assert "the GPUs stay as they are" in text
    assert "left out: no rollout has written its layout" in text
    assert cluster.annotations("free") == {}
    assert cluster.annotations("used") == {"mig-layout": "old"}
    assert cluster.annotations("same") == {"mig-layout": "all-balanced"}
    assert "Nothing to write" in done(run, "undo", "-l", "pool=a", "--yes")


@pytest.mark.parametrize("drain", [mode.value for mode in DrainMode])
def test_each_way_to_drain_is_written_too_where_it_is_asked_for(
    cluster: Cluster, run: Run, drain: str
) -> None:
    done(run, "start", "all-balanced", "--node", "same", "--drain", drain, "--yes")
    assert cluster.annotations("same") == {"mig-layout": "all-balanced", "drain": drain}


def test_a_dry_run_asks_the_server_and_writes_nothing(cluster: Cluster, run: Run) -> None:
    text = done(run, "start", "all-balanced", "-l", "pool=a", "--dry-run")
    assert "would take all 3 writes; nothing was written" in text
    assert all(call.dry_run for call in cluster.patches)
    assert len(cluster.patches) == 3
    assert cluster.annotations("free") == {}


def test_a_node_that_changed_meanwhile_is_judged_anew(cluster: Cluster, run: Run) -> None:
    """Else what somebody asked for in between would not be there to come back to."""

    def meddle(_call: Call) -> None:
        patch = {"metadata": {"annotations": {keys.MIG_LAYOUT: "between"}}}
        cluster.server.patch(NODES, "free", patch)

    cluster.before("patch", meddle, times=1)
    done(run, "start", "all-balanced", "--node", "free", "--yes")
    assert cluster.annotations("free")["mig-layout-before"] == "between"


def test_nodes_that_cannot_be_written_are_named_after_all_others(
    cluster: Cluster, run: Run
) -> None:
    cluster.fail("patch", AdmissionRefused("patch nodes/bare: no", policy="p"), times=1)
    text = done(run, "start", "all-balanced", "-l", "pool=a", "--yes", code=7)
    assert "2 of 3 Nodes written; run it again for the others:" in text
    assert "bare: patch nodes/bare: no" in text
    assert cluster.annotations("used")["mig-layout"] == "all-balanced"


def test_a_node_that_changes_all_the_time_is_given_up(cluster: Cluster, run: Run) -> None:
    cluster.fail("patch", Conflict("patch nodes/free: conflict"), times=99)
    assert "Node free changes too often" in done(
        run, "start", "all-balanced", "--node", "free", "--yes", code=3
    )


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["start", "x"], "name Nodes with --node, or select them with -l"),
        (["start", "x", "-l", " "], "name Nodes with --node"),
        (["undo"], "name Nodes with --node"),
        (["start", "off", "-l", "pool=a"], "LAYOUT:1: a layout goes with GPUs"),
        (["start", '{"0": {"1g.5gb": -1}}', "-l", "pool=a"], "LAYOUT:1: 0.1g.5gb"),
        (["start", "x", "--node", "nobody"], "there is no node nobody"),
        (["start", "x", "-l", "pool=c"], "no Node is selected by pool=c"),
        (["start", "x", "-l", "pool=a"], "no terminal for the question: add --yes"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    cluster: Cluster, run: Run, words: list[str], why: str
) -> None:
    assert why in done(run, *words, code=2)
    assert cluster.patches == []


def lease(cluster: Cluster) -> dict[str, Any]:
    found = cluster.server.get(LEASES, names.COORDINATOR_LEASE, names.NAMESPACE)
    annotations: dict[str, Any] = found["metadata"].get("annotations") or {}
    return annotations


def test_pause_and_resume_switch_the_coordinator(cluster: Cluster, run: Run) -> None:
    notes = {keys.MIG_ROLLOUTS: '{"v":1}'}
    body = {"metadata": {"name": names.COORDINATOR_LEASE, "annotations": notes}, "spec": {}}
    cluster.server.create(LEASES, body, names.NAMESPACE)
    assert "no further node begins" in done(run, "pause")
    assert lease(cluster) == notes | {keys.MIG_PAUSED: "true"}
    done(run, "resume")
    assert lease(cluster) == notes
    done(run, "resume", "--after-failures")
    assert lease(cluster) == {}


@pytest.mark.usefixtures("cluster")
def test_a_namespace_without_a_coordinator_is_named(run: Run) -> None:
    assert "there is no Lease coordinator in namespace elsewhere" in done(
        run, "pause", "-n", "elsewhere", code=2
    )
