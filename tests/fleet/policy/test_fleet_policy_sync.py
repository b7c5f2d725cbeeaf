# SPDX-License-Identifier: Apache-2.0
"""The fleet policy carried out on Nodes, through mistakes, edits and failures."""

from __future__ import annotations

from typing import Any

import pytest

from api import keys, names
from fleet.policy import fleet_policy_sync
from fleet.policy.assigned_layouts import Assignment
from fleet.policy.fleet_policy_sync import KEY, FleetPolicySync
from kube.api import NODES
from kube.api_errors import Busy, Conflict, Unreachable
from kube.informer import CacheSynced, ObjectGone, ObjectSeen
from tests.fakes.api import Call, FakeApi

POLICY = """\
version: v1
layouts:
- {name: small, nodes: pool=a, layout: all-1g.10gb, drain: evict}
"""


class Fleet:
    """A cluster, and the policy sync of the coordinator that leads."""

    def __init__(self) -> None:
        self.api = FakeApi(manager="gpuscape-coordinator")
        self.leads = True
        self.policy_sync = FleetPolicySync(self.api, leads=lambda: self.leads)
        for name, pool in (("a1", "a"), ("a2", "a"), ("b1", "b")):
            self.node(name, pool)

    def node(self, name: str, pool: str = "a", **annotations: str) -> None:
        meta: dict[str, Any] = {"name": name, "labels": {"pool": pool}, "annotations": annotations}
        self.api.server.create(NODES, {"metadata": meta})

    def edit(self, name: str, key: str, text: str | None) -> None:
        """By a person; the watch shows it."""
        self.api.server.patch(NODES, name, {"metadata": {"annotations": {key: text}}})
        self.policy_sync.on_node(ObjectSeen(object=self.api.server.get(NODES, name)))

    def policy(self, text: str | None) -> None:
        """The ConfigMap has it now, and the watch shows it."""
        if text is None:
            self.policy_sync.on_config_map(
                ObjectGone(namespace="gpuscape", name=names.MIG_POLICY, uid="u")
            )
        else:
            body = {"metadata": {"name": names.MIG_POLICY}, "data": {KEY: text}}
            self.policy_sync.on_config_map(ObjectSeen(object=body))
        self.policy_sync.on_config_map(CacheSynced())

    def layouts(self) -> dict[str, str]:
        """Node to what it is asked for."""
        nodes = {name: self.api.server.get(NODES, name) for name in ("a1", "a2", "b1")}
        notes = {name: node["metadata"].get("annotations") or {} for name, node in nodes.items()}
        return {name: it[keys.MIG_LAYOUT] for name, it in notes.items() if keys.MIG_LAYOUT in it}

    @property
    def writes(self) -> list[Call]:
        return [call for call in self.api.calls if call.verb == "patch"]


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


SMALL = {"a1": "all-1g.10gb", "a2": "all-1g.10gb"}


def test_selected_nodes_get_their_layouts_once(fleet: Fleet) -> None:
    fleet.policy(POLICY)
    fleet.policy_sync.tick()
    assert fleet.layouts() == SMALL
    assert len(fleet.writes) == 2
    fleet.policy_sync.tick()
    assert len(fleet.writes) == 2
    assert fleet.policy_sync.drains == {"a1": "evict", "a2": "evict"}
    assert fleet.policy_sync.state.nodes == {Assignment.WRITTEN: 2}


def test_nothing_is_written_before_it_is_known_whether_there_is_a_policy(fleet: Fleet) -> None:
    fleet.policy_sync.on_config_map(ObjectSeen(object={"data": {KEY: POLICY}}))
    fleet.policy_sync.tick()
    assert fleet.layouts() == {}


def test_only_the_coordinator_that_leads_writes(fleet: Fleet) -> None:
    fleet.policy(POLICY)
    fleet.leads = False
    fleet.policy_sync.tick()
    assert fleet.layouts() == {}
    fleet.leads = True
    fleet.api.before("patch", lambda _call: setattr(fleet, "leads", False), times=1)
    fleet.policy_sync.tick()
    assert len(fleet.layouts()) == 1
    fleet.leads = True
    fleet.policy_sync.tick()
    assert fleet.layouts() == SMALL


def test_a_node_that_joins_or_comes_back_bare_gets_its_layout(fleet: Fleet) -> None:
    fleet.policy(POLICY)
    fleet.policy_sync.tick()
    fleet.edit("a1", keys.MIG_LAYOUT, None)
    fleet.node("a3")
    fleet.policy_sync.on_node(ObjectSeen(object=fleet.api.server.get(NODES, "a3")))
    fleet.policy_sync.tick()
    assert fleet.layouts() == SMALL
    notes = fleet.api.server.get(NODES, "a3")["metadata"]["annotations"]
    assert notes[keys.MIG_LAYOUT] == "all-1g.10gb"


@pytest.mark.parametrize("text", ["", "layouts: [", POLICY.replace("all-1g.10gb", "'off'")])
def test_a_mistake_keeps_everything_as_it_is_until_it_is_mended(fleet: Fleet, text: str) -> None:
    fleet.policy(POLICY)
    fleet.policy_sync.tick()
    fleet.policy(text)
    fleet.policy_sync.tick()
    fleet.edit("a1", keys.MIG_LAYOUT, None)
    fleet.policy_sync.tick()
    assert fleet.layouts() == {"a2": "all-1g.10gb"}
    assert names.MIG_POLICY in fleet.policy_sync.state.problem
    fleet.policy(POLICY)
    fleet.policy_sync.tick()
    assert (fleet.layouts(), fleet.policy_sync.state.problem) == (SMALL, "")


def test_a_pause_writes_nothing_and_the_policy_goes_on_afterwards(fleet: Fleet) -> None:
    fleet.policy(f"{POLICY}paused: true\n")
    fleet.policy_sync.tick()
    assert fleet.layouts() == {}
    assert fleet.policy_sync.state.is_paused
    fleet.policy(POLICY)
    fleet.policy_sync.tick()
    assert fleet.layouts() == SMALL


def test_layouts_stay_when_the_policy_goes(fleet: Fleet) -> None:
    fleet.policy(POLICY)
    fleet.policy_sync.tick()
    fleet.policy(None)
    fleet.policy_sync.tick()
    assert fleet.layouts() == SMALL
    assert fleet.policy_sync.drains == {}
    assert fleet.policy_sync.state.revision == ""


def test_what_a_person_writes_between_look_and_write_stays(fleet: Fleet) -> None:
    def meddle(_call: Call) -> None:
        patch = {"metadata": {"annotations": {keys.MIG_LAYOUT: "mine"}}}
        fleet.api.server.patch(NODES, "a1", patch)

    fleet.policy(POLICY)
    fleet.api.before("patch", meddle, times=1)
    for _ in range(3):
        fleet.policy_sync.tick()
    assert fleet.layouts() == {"a1": "mine", "a2": "all-1g.10gb"}


@pytest.mark.parametrize(
    "error", [Unreachable("away"), Busy("slow down"), Conflict("changed")], ids=lambda it: str(it)
)
@pytest.mark.parametrize("verb", ["get", "patch", "watch"])
def test_what_fails_is_done_later(fleet: Fleet, verb: str, error: Any) -> None:
    fleet.policy(POLICY)
    fleet.api.fail(verb, error, times=2)
    for _ in range(4):
        fleet.policy_sync.tick()
    assert fleet.layouts() == SMALL


def test_a_node_that_goes_in_between_is_forgotten(fleet: Fleet) -> None:
    fleet.policy(POLICY)
    fleet.api.before("get", lambda _call: _delete(fleet, "a1"), times=1)
    fleet.policy_sync.tick()
    assert fleet.policy_sync.state.nodes == {Assignment.WRITTEN: 1}
    fleet.policy_sync.on_node(ObjectGone(namespace=None, name="a2", uid="u"))
    assert fleet.policy_sync.state.nodes == {}


def _delete(fleet: Fleet, name: str) -> None:
    fleet.api.server.delete(NODES, name)


def test_a_large_fleet_is_written_in_parts(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_policy_sync, "WRITES_A_TICK", 1)
    fleet.policy(POLICY)
    fleet.policy_sync.tick()
    assert len(fleet.layouts()) == 1
    fleet.policy_sync.tick()
    assert fleet.layouts() == SMALL


def test_entries_that_disagree_are_reported_once(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    two = POLICY + "- {name: large, nodes: pool, layout: all-7g.80gb}\n"
    fleet.policy(two)
    for _ in range(3):
        fleet.policy_sync.tick()
        fleet.policy_sync.on_node(ObjectSeen(object=fleet.api.server.get(NODES, "a1")))
    assert fleet.layouts() == {"b1": "all-7g.80gb"}
    told = [it for it in caplog.records if it.message == "fleet policy disagrees"]
    assert sorted(it.node for it in told) == ["a1", "a2"]  # type: ignore[attr-defined]
    assert {it.entries for it in told} == {"small, large"}  # type: ignore[attr-defined]
