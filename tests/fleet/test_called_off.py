# SPDX-License-Identifier: Apache-2.0
"""People who call off a change get their node back as it was.

The command is the one that docs/mig.md has. Nodes are judged by what stands in the API server.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from api import keys, names
from fleet.rollout_settings import RolloutSettings
from kube.api import LEASES
from tests.fleet.simulated_fleet import Cluster, Killed
from tests.fleet.test_rollouts import assert_clean, is_at_rest

PAGE: Final = Path(__file__).parents[2] / "docs" / "mig.md"
TERMS: Final = RolloutSettings(
    canary_seconds=10.0, retry_seconds=10.0, settle_seconds=20.0, called_off_seconds=600.0
)
SOON: Final = 10.0
"""Seconds within which a coordinator that works puts everything back."""
TAKEOVER: Final = 60.0
"""The same where another one has to take over first."""
GUARDS: Final = {names.SCALE_DOWN_GUARDS[0]: "false"}


def command_of_the_page() -> str:
    """Key of the annotation that the page says to remove, to call off a change."""
    (row,) = re.findall(r"^\| call off a change[^|]*\|(.*)\|$", PAGE.read_text("utf-8"), re.M)
    (key,) = re.findall(r"kubectl annotate node NODE (\S+)-`", row)
    return str(key)


def call_off(cluster: Cluster, name: str = "n0") -> None:
    """As the page says."""
    cluster.edit(name, {"metadata": {"annotations": {command_of_the_page(): None}}})


def condition(cluster: Cluster, name: str = "n0") -> dict[str, Any]:
    """What a change may touch, as it stands on the Node."""
    node = cluster.node(name)
    notes = node["metadata"].get("annotations") or {}
    agents = (keys.MIG_STATUS, keys.MIG_REQUEST, keys.MIG_LAYOUT)
    return {
        "cordoned": cluster.is_cordoned(name),
        "labels": node["metadata"]["labels"],
        "annotations": {it: value for it, value in notes.items() if it not in agents},
        "taints": node["spec"].get("taints", []) if "spec" in node else [],
    }


def in_phase(phase: str, terms: RolloutSettings = TERMS) -> tuple[Cluster, dict[str, Any]]:
    """A node whose change is in this phase, and its condition before."""
    cluster = Cluster(nodes=1, terms=terms)
    cluster.edit("n0", {"metadata": {"annotations": GUARDS}})
    before = condition(cluster)
    cluster.wish("sevenths")
    reach(cluster, phase)
    return cluster, before


def reach(cluster: Cluster, phase: str) -> None:
    """Until the permit says so."""
    cluster.pass_until(
        lambda: f'"phase":"{phase}"' in cluster.notes("n0").get(keys.MIG_PERMIT, ""), within=700
    )


def restart(cluster: Cluster) -> None:
    """SIGKILL of the coordinator; another one starts."""
    cluster.start_coordinator()


def test_a_node_is_as_it_was_at_once_where_the_change_has_not_begun() -> None:
    cluster, before = in_phase("cordoned")

    call_off(cluster)
    cluster.pass_time(SOON)

    assert condition(cluster) == before
    assert not cluster.open_leases()
    assert cluster.agents["n0"].layout == "whole"


def test_a_node_is_as_it_was_after_the_end_where_the_change_has_begun() -> None:
    cluster, before = in_phase("proceed")
    cluster.pass_until(lambda: bool(cluster.agents["n0"].changes_until), within=10)

    call_off(cluster)
    cluster.pass_time(SOON)
    assert cluster.is_cordoned("n0"), "its GPUs are being changed"
    cluster.pass_until(lambda: not cluster.open_leases(), within=120)

    assert condition(cluster) == before
    assert cluster.agents["n0"].layout == "sevenths"


@pytest.mark.parametrize("phase", ["cordoned", "proceed"])
@pytest.mark.parametrize("dead", ["before", "after"])
def test_a_coordinator_that_starts_later_gives_the_node_back_as_well(phase: str, dead: str) -> None:
    """Whether the last one saw the permit go or not."""
    cluster, before = in_phase(phase)
    if phase == "proceed":
        cluster.pass_until(lambda: bool(cluster.agents["n0"].changes_until), within=10)
    if dead == "before":
        restart(cluster)
    call_off(cluster)
    if dead == "after":
        restart(cluster)

    cluster.pass_until(lambda: not cluster.open_leases(), within=TAKEOVER + 120)
    assert condition(cluster) == before


def test_a_coordinator_killed_at_its_hold_leaves_a_cordon_that_is_known_to_be_ours() -> None:
    cluster = Cluster(nodes=1, terms=TERMS)
    before = condition(cluster)

    def kill(verb: str, done: bool) -> None:
        if verb == "patch" and done and keys.MIG_PERMIT in cluster.notes("n0"):
            cluster.on_call = lambda _verb, _done: None
            call_off(cluster)
            raise Killed

    cluster.on_call = kill
    cluster.wish("sevenths")
    cluster.pass_until(lambda: cluster.starts == 2, within=60)
    cluster.pass_until(lambda: not cluster.open_leases(), within=TAKEOVER)
    assert condition(cluster) == before


def test_the_lease_with_the_record_is_deleted_as_well_and_the_cordon_still_goes() -> None:
    cluster, before = in_phase("cordoned")
    (lease,) = cluster.open_leases()

    cluster.server.delete(LEASES, lease["metadata"]["name"], names.NAMESPACE)
    call_off(cluster)
    cluster.pass_time(SOON)

    assert not cluster.is_cordoned("n0")
    assert condition(cluster)["annotations"].keys() <= {
        *before["annotations"],
        *names.SCALE_DOWN_GUARDS,
    }


def test_a_change_that_was_called_off_comes_later_and_can_be_called_off_again() -> None:
    cluster, before = in_phase("cordoned")

    call_off(cluster)
    cluster.pass_time(TERMS.called_off_seconds - SOON)
    assert condition(cluster) == before
    reach(cluster, "cordoned")
    call_off(cluster)
    cluster.pass_time(TERMS.called_off_seconds - SOON)
    assert condition(cluster) == before

    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=300)
    assert condition(cluster) == before


def test_a_change_that_was_called_off_lets_other_nodes_go_on() -> None:
    cluster = Cluster(nodes=3, terms=TERMS)
    cluster.wish("sevenths")
    cluster.pass_until(lambda: bool(cluster.open_leases()), within=30)
    (held,) = [it for it in cluster.agents if cluster.is_cordoned(it)]

    call_off(cluster, held)
    others = [it for name, it in cluster.agents.items() if name != held]
    cluster.pass_until(
        lambda: all(it.layout == "sevenths" for it in others), within=TERMS.called_off_seconds
    )
    assert cluster.agents[held].layout == "whole"


@pytest.mark.parametrize("phase", ["cordoned", "proceed"])
def test_a_request_that_is_replaced_at_the_same_time_leaves_nothing_of_the_old_one(
    phase: str,
) -> None:
    cluster, before = in_phase(phase)

    call_off(cluster)
    cluster.wish("halves")
    cluster.pass_until(lambda: is_at_rest(cluster, "halves"), within=2 * TERMS.called_off_seconds)
    assert condition(cluster) == before


def keep(cluster: Cluster) -> None:
    """An admin wants the cordon."""
    cluster.annotate("n0", keep_cordoned="")


def uncordon_and_cordon(cluster: Cluster) -> None:
    """An admin takes our cordon off, and puts on one of his own, while the coordinator looks."""
    cluster.cordon("n0", on=False)
    cluster.replica.sync()
    cluster.run_coordinator()
    cluster.cordon("n0")


@pytest.mark.parametrize("phase", ["cordoned", "proceed"])
@pytest.mark.parametrize("wants_it", [keep, uncordon_and_cordon])
def test_a_cordon_that_an_admin_wants_stays_and_is_his_from_then_on(
    phase: str, wants_it: Callable[[Cluster], None]
) -> None:
    cluster, before = in_phase(phase, replace(TERMS, called_off_seconds=100_000))

    wants_it(cluster)
    call_off(cluster)
    cluster.pass_until(lambda: not cluster.open_leases(), within=TERMS.end_seconds + 60)
    cluster.annotate("n0", keep_cordoned=None)
    cluster.pass_time(60)

    assert condition(cluster) == before | {"cordoned": True}


def test_a_go_that_its_agent_never_saw_is_undone_when_a_change_would_be_over() -> None:
    cluster = Cluster(nodes=1, terms=replace(TERMS, end_seconds=100))
    before = condition(cluster)
    cluster.wish("sevenths")
    cluster.pass_until(lambda: cluster.is_cordoned("n0"), within=60)
    cluster.agents["n0"].is_away = True
    reach(cluster, "proceed")

    call_off(cluster)
    cluster.pass_time(90)
    assert cluster.is_cordoned("n0"), "its agent may have seen it"
    cluster.pass_time(30)
    assert condition(cluster) == before
    assert not cluster.open_leases()


def test_a_go_that_is_removed_before_anybody_noted_it_counts_as_begun() -> None:
    """Who removes it at once does not have the node given to pods while its GPUs change."""
    cluster, before = in_phase("cordoned")
    cluster.agents["n0"].change_seconds = 3 * TAKEOVER  # another coordinator acts meanwhile

    def remove(verb: str, done: bool) -> None:
        if (
            verb == "patch"
            and done
            and '"phase":"proceed"' in cluster.notes("n0").get(keys.MIG_PERMIT, "")
        ):
            cluster.on_call = lambda _verb, _done: None
            cluster.run_nodes()  # the agent acts on it
            call_off(cluster)
            raise Killed

    cluster.on_call = remove
    cluster.pass_until(lambda: cluster.starts == 2, within=60)
    agent = cluster.agents["n0"]
    while agent.changes_until:
        assert cluster.is_cordoned("n0")
        cluster.pass_time(2)
    cluster.pass_until(lambda: not cluster.open_leases(), within=TAKEOVER)
    assert condition(cluster) == before
    assert agent.layout == "sevenths"


def test_what_is_called_off_breaks_no_rule() -> None:
    cluster, _ = in_phase("cordoned")
    call_off(cluster)
    cluster.edit("n0", {"metadata": {"annotations": dict.fromkeys(GUARDS)}})
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=1200)
    assert_clean(cluster)
