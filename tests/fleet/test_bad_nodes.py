# SPDX-License-Identifier: Apache-2.0
"""A broken node and a stolen agent keep no other node from its layout."""

from __future__ import annotations

import pytest

from api import keys, mig_status_annotation
from api.mig_status_annotation import MigStatusAnnotation
from fleet.rollout_settings import RolloutSettings
from fleet.slot_lease import slot_of
from tests.fleet.bad_nodes import LIES, BadFleet, Lie, fails_at_once, is_applied_unseen, play
from tests.fleet.test_rollouts import annotate_lease

TERMS = RolloutSettings()
NODES, MANY = 6, 100
MOST_LOST_SECONDS = 400.0
"""That a broken node and a lie cost a fleet in all, however many nodes it has."""
MOST_RATIO = 1.2


@pytest.mark.parametrize("first", ["broken", "liar"])
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_all_other_nodes_change_and_soon(lie: Lie, first: str) -> None:
    """Both are the first two, so that they stand in the way of all others."""
    broken, liar = ("n0", "n1") if first == "broken" else ("n1", "n0")
    without = play(None, nodes=NODES - 2, terms=TERMS, broken="", liar="", within=3600)

    made = play(lie, nodes=NODES, terms=TERMS, broken=broken, liar=liar, within=3600)

    assert (made.changed, made.of) == (NODES - 2, NODES - 2)
    assert made.lies > 0
    assert made.seconds <= without.seconds + MOST_LOST_SECONDS
    assert made.faults == ()


@pytest.mark.long
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_98_of_100_nodes_change_in_at_most_six_fifths_of_the_time(lie: Lie) -> None:
    without = play(None, nodes=MANY - 2, terms=TERMS, broken="", liar="", within=10_000)

    made = play(lie, nodes=MANY, terms=TERMS, broken="n0", liar="n1", within=10_000)

    assert (made.changed, made.faults) == (MANY - 2, ())
    assert made.seconds <= MOST_RATIO * without.seconds


def test_two_patches_of_one_agent_change_nothing_for_the_others() -> None:
    """It has no slot, and none of the others waits for longer than without it."""
    without = play(None, nodes=4, terms=TERMS, broken="", liar="", within=3600)
    fleet = BadFleet(nodes=5, terms=TERMS, liar="n0", lie=lambda _: None)
    fleet.forge("waiting", request=fleet.new_request())
    fleet.forge("failed", "rolled-back")
    fleet.forge("waiting", request=fleet.new_request())
    fleet.forge("failed", "rolled-back")
    assert fleet.seconds(within=3600) <= without.seconds + 2


def test_an_agent_that_asks_while_its_admin_asks_for_nothing_gets_no_slot() -> None:
    fleet = BadFleet(nodes=1, terms=TERMS, liar="n0", lie=lambda _: None)
    fleet.annotate("n0", mig_layout=None)
    fleet.forge("waiting", request=fleet.new_request())
    status = MigStatusAnnotation(v=2, phase="waiting", request=fleet.agents["n0"].request)
    fleet.annotate("n0", mig_status=mig_status_annotation.encode(status))
    fleet.pass_time(300)
    assert not fleet.open_leases()
    assert not fleet.is_cordoned("n0")


def test_a_request_for_what_the_admin_asked_for_before_gets_no_slot() -> None:
    """Its end would count for the layout that is asked for now."""
    fleet = BadFleet(nodes=1, terms=TERMS, liar="n0", lie=lambda _: None)
    fleet.forge("waiting", request=fleet.new_request(), asked="halves")
    fleet.pass_time(300)
    assert not fleet.open_leases()


def test_an_agent_pushes_no_rollout_that_failed_out_of_the_memory() -> None:
    """Neither by names of its own, nor by as many ends as it likes."""
    fleet = BadFleet(nodes=5, terms=TERMS, liar="n4", lie=lambda _: None)
    for name in ("n0", "n1", "n2"):
        fleet.agents[name].ends = ["rolled-back"] * 100
    fleet.pass_until(lambda: _failed(fleet) >= 3, within=3600)
    stopped = fleet.leadership.memory
    for number in range(100):
        asked = f"annotation:other-{number}"
        fleet.forge("waiting", request=fleet.new_request(), asked=asked)
        fleet.pass_time(4)
        fleet.forge("failed", "rolled-back", asked=asked)
        fleet.pass_time(4)
    assert fleet.leadership.memory == stopped
    assert fleet.agents["n3"].layout == "whole"


def test_two_nodes_in_a_row_stop_a_rollout_for_a_while_and_three_for_good() -> None:
    fleet = BadFleet(nodes=6, terms=TERMS)
    for agent in fleet.agents.values():
        agent.ends = ["rolled-back"] * 100
    fleet.pass_until(lambda: _failed(fleet) == 2, within=300)
    assert sum(len(agent.done) for agent in fleet.agents.values()) == 2
    fleet.pass_time(TERMS.row_seconds - 10)
    assert sum(len(agent.done) for agent in fleet.agents.values()) == 2
    fleet.pass_until(lambda: _failed(fleet) == 3, within=300)
    fleet.pass_time(3 * 3600, step=10)
    assert sum(bool(agent.done) for agent in fleet.agents.values()) == 3

    annotate_lease(fleet, keys.MIG_ROLLOUTS, None)
    for agent in fleet.agents.values():
        agent.ends, agent.retry_at = [], 0.0
    fleet.pass_until(lambda: fleet.changed() == 6, within=4 * 3600, step=10)


def test_a_success_that_the_kubelet_does_not_show_proves_no_layout() -> None:
    """The next node goes alone too, and the canary's time begins with its success."""
    fleet = BadFleet(nodes=4, terms=RolloutSettings(slots=2), liar="n0", lie=is_applied_unseen)
    fleet.pass_until(lambda: _applied(fleet) == 1, within=300)
    assert not _proven_at(fleet)
    lied_at = fleet.now
    fleet.pass_until(lambda: _applied(fleet) == 2, within=300)
    assert _proven_at(fleet) > lied_at


def test_two_nodes_with_the_same_request_are_told_apart() -> None:
    """What one agent writes frees no slot, and drops no record, of a node whose id it copied."""
    fleet = BadFleet(nodes=2, terms=RolloutSettings(slots=2), liar="n1", lie=lambda _: None)
    fleet.agents["n0"].ends = ["stuck"]
    fleet.pass_until(lambda: fleet.is_cordoned("n0"), within=60)
    fleet.forge("waiting", request=fleet.agents["n0"].request)
    fleet.pass_until(lambda: bool(fleet.agents["n0"].done), within=120)
    fleet.forge("stuck", "stuck")
    fleet.pass_time(60)
    assert fleet.is_cordoned("n0")
    assert keys.MIG_PERMIT in fleet.notes("n0")
    records = [slot_of(lease).record for lease in fleet.open_leases()]
    assert "n0" in [record.node for record in records if record is not None]


def test_a_look_at_one_nodes_pods_lets_no_other_node_go() -> None:
    """A pod came behind the cordon, and the kubelet has not taken it; the liar's node is idle."""
    fleet = BadFleet(
        nodes=2, terms=RolloutSettings(slots=2, settle_seconds=30), liar="n1", lie=lambda _: None
    )
    fleet.wish("halves", "n1")
    fleet.pass_until(lambda: fleet.is_cordoned("n0"), within=60)
    fleet.forge("waiting", request=fleet.agents["n0"].request, asked="halves")
    fleet.bind_pod("n0", "late", blocking=False)
    fleet.await_kubelet("late")
    fleet.pass_until(lambda: '"phase":"proceed"' in fleet.permit(), within=120)
    fleet.pass_time(20)
    assert '"phase":"proceed"' not in fleet.notes("n0")[keys.MIG_PERMIT]


def test_slow_changes_leave_no_more_than_one_node_in_change_beside_the_slots() -> None:
    fleet = BadFleet(nodes=5, terms=RolloutSettings(canary_seconds=0))
    for agent in fleet.agents.values():
        agent.change_seconds = 800.0
    most = 0
    while fleet.changed() < 5:
        fleet.pass_time(10)
        most = max(most, sum(keys.MIG_PERMIT in fleet.notes(name) for name in fleet.agents))
    assert most == 2
    assert _failed(fleet) == 0


def test_an_agent_that_wipes_what_it_wrote_has_its_turns_still() -> None:
    """As long as the Node is there: else it would be the first in line each time."""
    fleet = BadFleet(nodes=1, terms=TERMS, liar="n0", lie=lambda _: None)
    fleet.forge("waiting", request=fleet.new_request())
    fleet.pass_until(lambda: bool(fleet.permit()), within=30)
    fleet.annotate("n0", mig_status=None, mig_request=None)
    fleet.pass_until(lambda: not fleet.open_leases(), within=60)
    fleet.pass_time(10)
    fleet.forge("waiting", request=fleet.new_request())
    fleet.pass_time(TERMS.retry_seconds - 20)
    assert not fleet.open_leases()
    fleet.pass_until(lambda: bool(fleet.permit()), within=60)


def test_a_lying_agent_is_honest_again_and_its_node_changes_too() -> None:
    fleet = BadFleet(nodes=3, terms=TERMS, liar="n0", lie=fails_at_once)
    fleet.pass_time(1200)
    fleet.liar = ""
    agent = fleet.agents["n0"]
    agent.closed, agent.asked = True, ""
    fleet.pass_until(lambda: fleet.changed() == 3, within=2 * 3600)


def _applied(fleet: BadFleet) -> int:
    return sum(counts.applied for counts in fleet.leadership.memory.rollouts.values())


def _proven_at(fleet: BadFleet) -> int:
    return max(counts.proven_at for counts in fleet.leadership.memory.rollouts.values())


def _failed(fleet: BadFleet) -> int:
    return sum(counts.failed for counts in fleet.leadership.memory.rollouts.values())
