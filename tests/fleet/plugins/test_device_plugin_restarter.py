# SPDX-License-Identifier: Apache-2.0
"""Device plugins that started before their node's MIG devices were there are restarted, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from api import keys, mig_permit_annotation, mig_status_annotation
from api.mig_permit_annotation import MigPermitAnnotation, PermitPhase
from api.mig_status_annotation import MigPhase, MigStatusAnnotation
from fleet import slot_lease
from fleet.fleet_cache import FleetCache
from fleet.leadership import Leadership
from fleet.plugins.device_plugin_restarter import RESTARTS_A_TICK, DevicePluginRestarter
from fleet.plugins.unlisted_devices import UnlistedDevices
from fleet.rollback_record import RollbackRecord
from fleet.rollout_settings import RolloutSettings
from kube.api import LEASES, NODES, PODS
from kube.api_errors import BudgetRefused, Forbidden
from tests.fakes.api import Call, FakeApi
from tests.fleet.simulated_fleet import TERMS as POD_TERMS
from tests.fleet.simulated_fleet import agent_notes, show

FOUND = datetime(2026, 11, 25, 8, 0, 0, tzinfo=UTC)
BEFORE, AFTER = "2026-11-25T07:59:50Z", "2026-11-25T08:00:10Z"
WANTED = {"nvidia.com/mig-1g.10gb": 7}
READY = [{"type": "Ready", "status": "True"}]


def status(**more: Any) -> str:
    """An agent's: the layout is there."""
    values = {
        "phase": MigPhase.UNCHANGED,
        "allocatable": WANTED,
        "current_since": "2026-11-25T08:00:00Z",
    }
    return mig_status_annotation.encode(MigStatusAnnotation(v=2, **{**values, **more}))


@dataclass
class Fleet:
    """A cluster, and the restarter of the coordinator that leads."""

    api: FakeApi = field(default_factory=lambda: FakeApi(manager="gpuscape-coordinator"))
    events: list[str] = field(default_factory=list)
    shown: Mapping[str, UnlistedDevices] = field(default_factory=dict)
    now: float = FOUND.timestamp()
    leads: bool = True

    def __post_init__(self) -> None:
        self.people = FakeApi(server=self.api.server, manager="kubelet")
        self.api.server.add_namespace("kube-system")
        self.api.server.add_namespace("gpuscape")
        self.begin()

    def begin(self) -> None:
        """A new coordinator, which knows nothing."""
        self.cache, self.seen = FleetCache(POD_TERMS), 0
        self.leadership = Leadership(self.api, identity="x", clock=lambda: self.now)
        self.restarter = DevicePluginRestarter(
            self.api,
            self.cache,
            self.leadership,
            terms=RolloutSettings(),
            events=self,
            shows=self._shows,
            wall=lambda: datetime.fromtimestamp(self.now, UTC),
        )

    def record(self, regarding: Mapping[str, str], *, reason: str, **_: Any) -> None:
        self.events.append(f"{regarding['name']} {reason}")

    def _shows(self, found: Mapping[str, UnlistedDevices]) -> None:
        self.shown = found

    def add_node(
        self, name: str = "n", *, listed: Mapping[str, int] | None = None, said: str | None = None
    ) -> None:
        """A Node whose layout is there, with a plugin that started before."""
        notes = {keys.MIG_STATUS: said or status()}
        self.people.create(NODES, {"metadata": {"name": name, "annotations": notes}})
        self.lists(name, {} if listed is None else listed)
        self.add_plugin(name, BEFORE)

    def lists(self, name: str, amounts: Mapping[str, int]) -> None:
        texts = {it: str(count) for it, count in amounts.items()}
        conditions = [{"type": "Ready", "status": "True"}]
        wrote = {"status": {"capacity": texts, "conditions": conditions}}
        self.api.server.patch(NODES, name, wrote, status=True)

    def add_plugin(self, node: str, *started: str, name: str = "plugin") -> None:
        """A pod of it, with a container for each start."""
        pod = {
            "metadata": {"name": f"{name}-{node}", "labels": {"app": "device-plugin"}},
            "spec": {"nodeName": node, "containers": [{"name": "c"}]},
        }
        self.people.create(PODS, pod, namespace="kube-system")
        running = [{"name": "c", "state": {"running": {"startedAt": it}}} for it in started]
        wrote = {"phase": "Running", "conditions": READY, "containerStatuses": running}
        self.api.server.patch(PODS, f"{name}-{node}", {"status": wrote}, "kube-system", status=True)

    def annotate(self, name: str, **notes: str | None) -> None:
        found = {f"gpuscape.io/{key.replace('_', '-')}": text for key, text in notes.items()}
        self.people.patch(NODES, name, {"metadata": {"annotations": found}})

    def pass_seconds(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 5
            if self.leads:
                self.leadership.beat(self.now)
            self.seen = show(self.api.server, self.cache, self.seen)
            self.restarter.tick()

    @property
    def evicted(self) -> list[str]:
        return [name for _, name in self.api.evictions()]


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_a_plugin_that_started_before_the_layout_was_back_is_restarted(fleet: Fleet) -> None:
    fleet.add_node()
    fleet.pass_seconds(55)
    assert fleet.evicted == []
    fleet.pass_seconds(15)
    assert fleet.evicted == ["plugin-n"]
    assert fleet.events == ["n DevicePluginRestarted"]


def test_the_next_one_is_left_alone_whatever_it_lists(fleet: Fleet) -> None:
    fleet.add_node()
    fleet.pass_seconds(70)
    fleet.api.server.delete(PODS, "plugin-n", "kube-system")
    fleet.add_plugin("n", AFTER, name="next")
    fleet.pass_seconds(3600)
    fleet.begin()  # nor does a new coordinator begin again
    fleet.pass_seconds(3600)
    assert fleet.evicted == ["plugin-n"]
    assert fleet.events[1:] == ["n DevicePluginNotRegistered"] * 2
    assert [it.plugins for it in fleet.shown.values()] == [()]


def test_a_node_that_offers_its_layout_again_is_over(fleet: Fleet) -> None:
    fleet.add_node()
    fleet.pass_seconds(70)
    fleet.lists("n", WANTED)
    fleet.pass_seconds(120)
    assert fleet.shown == {}
    assert fleet.evicted == ["plugin-n"]


def test_a_plugin_that_lists_its_devices_in_time_is_left_alone(fleet: Fleet) -> None:
    fleet.add_node()
    fleet.pass_seconds(50)
    fleet.lists("n", WANTED)
    fleet.pass_seconds(600)
    assert fleet.evicted == fleet.events == []


@pytest.mark.parametrize(
    "listed", [WANTED, {**WANTED, "nvidia.com/gpu": 4}, {"nvidia.com/mig-1g.10gb": 14}]
)
def test_a_node_that_lists_as_much_or_more_is_left_alone(
    fleet: Fleet, listed: Mapping[str, int]
) -> None:
    """Shared devices are listed several times over."""
    fleet.add_node(listed=listed)
    fleet.pass_seconds(600)
    assert fleet.evicted == []


@pytest.mark.parametrize(
    "said",
    [
        status(allocatable={}),
        status(phase=MigPhase.WAITING),
        status(phase=MigPhase.UNREAD),
        status(current_since=""),
        status(current_since="yesterday"),
        '{"v":1',
    ],
)
def test_what_is_not_known_restarts_nothing(fleet: Fleet, said: str) -> None:
    fleet.add_node(said=said)
    fleet.pass_seconds(600)
    assert fleet.evicted == []


def test_a_plugin_has_a_minute_to_list_its_devices_after_the_restart(fleet: Fleet) -> None:
    fleet.add_node()
    fleet.pass_seconds(65)
    fleet.api.server.delete(PODS, "plugin-n", "kube-system")
    fleet.add_plugin("n", AFTER, name="next")
    fleet.pass_seconds(50)
    assert fleet.events == ["n DevicePluginRestarted"]
    fleet.pass_seconds(15)
    assert fleet.events == ["n DevicePluginRestarted", "n DevicePluginNotRegistered"]


def test_a_container_beside_the_plugin_that_started_later_changes_nothing(fleet: Fleet) -> None:
    fleet.add_node()
    fleet.api.server.delete(PODS, "plugin-n", "kube-system")
    fleet.add_plugin("n", AFTER, BEFORE, name="two")
    fleet.pass_seconds(70)
    assert fleet.evicted == ["two-n"]


def test_a_node_whose_change_is_not_undone_yet_is_left_to_that(fleet: Fleet) -> None:
    fleet.add_node()
    record = RollbackRecord(v=2, node="n", uid="u", request="0" * 16)
    fleet.people.create(LEASES, slot_lease.new_lease(0, record, FOUND), namespace="gpuscape")
    fleet.pass_seconds(600)
    assert fleet.evicted == []


def test_a_node_in_change_or_away_is_left_to_others(fleet: Fleet) -> None:
    for name in ("asks", "permitted", "away"):
        fleet.add_node(name)
    asks = agent_notes("0" * 16, "sevenths", "unchanged")[keys.MIG_REQUEST]
    permit = MigPermitAnnotation(v=2, request="0" * 16, phase=PermitPhase.PROCEED)
    fleet.annotate("asks", mig_request=asks)
    fleet.annotate("permitted", mig_permit=mig_permit_annotation.encode(permit))
    gone = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    fleet.api.server.patch(NODES, "away", gone, status=True)
    fleet.pass_seconds(600)
    assert fleet.evicted == []


def test_one_that_does_not_lead_and_one_that_is_paused_restart_nothing(fleet: Fleet) -> None:
    fleet.add_node()
    fleet.leads = False
    fleet.pass_seconds(600)
    assert fleet.evicted == []
    fleet.leads = True
    fleet.pass_seconds(10)
    paused = {"metadata": {"annotations": {keys.MIG_PAUSED: "true"}}}
    fleet.people.patch(LEASES, "coordinator", paused, namespace="gpuscape")
    fleet.pass_seconds(600)
    assert fleet.evicted == []
    assert [*fleet.shown] == ["n"]
    running = {"metadata": {"annotations": {keys.MIG_PAUSED: None}}}
    fleet.people.patch(LEASES, "coordinator", running, namespace="gpuscape")
    fleet.pass_seconds(120)
    assert fleet.evicted == ["plugin-n"]


@pytest.mark.parametrize("refusal", [BudgetRefused("no"), Forbidden("no")])
def test_an_eviction_that_is_refused_is_tried_again_later(
    fleet: Fleet, refusal: BudgetRefused | Forbidden
) -> None:
    fleet.add_node()
    fleet.api.fail("evict", refusal, times=3)
    fleet.pass_seconds(100)
    assert len(fleet.evicted) == 2
    fleet.pass_seconds(100)
    assert len(fleet.evicted) == 4
    assert fleet.events == ["n DevicePluginRestarted"]


def test_a_node_is_judged_again_just_before(fleet: Fleet) -> None:
    fleet.add_node()
    fleet.pass_seconds(55)

    def heal(_: Call) -> None:
        fleet.lists("n", WANTED)

    fleet.api.before("get", heal, resource=NODES)
    fleet.pass_seconds(60)
    assert fleet.evicted == []


def test_a_plugin_that_is_still_leaving_is_waited_for(fleet: Fleet) -> None:
    fleet.add_node()
    fleet.api.server.mark_deleted(PODS, "plugin-n", "kube-system")
    fleet.pass_seconds(600)
    assert fleet.events == fleet.evicted == []


def test_of_a_whole_fleet_some_are_restarted_at_a_time(fleet: Fleet) -> None:
    for number in range(25):
        fleet.add_node(f"n{number}")
    fleet.pass_seconds(55)
    counts = []
    for _ in range(4):
        fleet.pass_seconds(5)
        counts.append(len(fleet.evicted))
    assert counts == [0, RESTARTS_A_TICK, 2 * RESTARTS_A_TICK, 25]
