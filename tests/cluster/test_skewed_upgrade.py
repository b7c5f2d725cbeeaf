# SPDX-License-Identifier: Apache-2.0
"""Agents and coordinator one release apart, upgraded and rolled back in each phase of a MIG change.

The program is replaced while the change stands in the phase. The judge reads the API server, its
audit log and the simulator's state file, and shares no code with the product.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from api import names
from tests import previous_tree
from tests.agent.agent_process import GPUSCAPE
from tests.cluster.agents import Site
from tests.cluster.mig_nodes import install_coordinator
from tests.cluster.upgraded_node import (
    BYSTANDER_START,
    MOST_SECONDS,
    ChangePhase,
    Upgraded,
    UpgradedNode,
    upgraded_node,
)
from tests.controlplane.plane import Object
from tests.judge.ended_change import AFTER, instances, is_settled, leftovers

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

REFUSED: Final = (403, 422)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One program goes from one release to another, while the other program stays as it is."""

    upgraded: Upgraded
    is_rollback: bool = False

    def __str__(self) -> str:
        return f"{self.upgraded}-{'rollback' if self.is_rollback else 'upgrade'}"


MOVES: Final = tuple(
    Move(upgraded=upgraded, is_rollback=is_rollback)
    for upgraded in Upgraded
    for is_rollback in (False, True)
)


@pytest.fixture(scope="module")
def release_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its program."""
    return previous_tree.release_program(tmp_path_factory.mktemp("release") / "tree")


@pytest.fixture(scope="module")
def installed(site: Site) -> Site:
    """Roles and policies of this tree, as an upgrade has them before the first new program."""
    install_coordinator(site)
    return site


@pytest.fixture
def changing(installed: Site, tmp_path: Path) -> Iterator[UpgradedNode]:
    """A node whose programs the test starts."""
    with upgraded_node(installed, tmp_path) as made:
        yield made


@pytest.mark.parametrize("phase", ChangePhase)
@pytest.mark.parametrize("move", MOVES, ids=str)
def test_a_change_that_is_open_while_one_program_is_replaced_ends_and_leaves_nothing(
    changing: UpgradedNode, release_before: Path, move: Move, phase: ChangePhase
) -> None:
    first, second = release_before, GPUSCAPE
    if move.is_rollback:
        first, second = second, first
    mark, site = changing.site.plane.mark(), changing.site
    birth = instances(changing.on.simulation.state_file)["1g.5gb", BYSTANDER_START]
    for program in Upgraded:
        changing.start(program, first)
    changing.stop_in(phase)

    changing.end(move.upgraded)
    changing.start(move.upgraded, second)
    changing.release(phase)

    last = time.monotonic() + MOST_SECONDS
    while open_ends := unfinished(changing):
        assert time.monotonic() < last, open_ends
        time.sleep(0.2)
    found = instances(changing.on.simulation.state_file)
    is_killed_in_change = (move.upgraded, phase) == (Upgraded.AGENT, ChangePhase.CHANGING)
    assert is_killed_in_change or sorted(found) == sorted(AFTER)
    assert found["1g.5gb", BYSTANDER_START] == birth
    pods = f"/api/v1/namespaces/default/pods/{changing.bystander}"
    assert "deletionTimestamp" not in site.plane.demand("GET", pods)["metadata"]
    for account in (names.AGENT, names.COORDINATOR):
        events = site.plane.audit(since=mark, user=names.username(account, site.namespace))
        assert [it for it in events if is_loss_of_a_pod(it)] == []
        assert [it for it in events if is_refused(it)] == []


def unfinished(changing: UpgradedNode) -> list[str]:
    """What is not as it has to be at the end."""
    site = changing.site
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{site.namespace}/leases"
    node = site.node(changing.name)
    found = list(leftovers(node, site.plane.demand("GET", leases)["items"]))
    places = instances(changing.on.simulation.state_file)
    if not is_settled(node, places):
        found.append(f"{changing.notes()} with {places}")
    return found


def is_loss_of_a_pod(event: Object) -> bool:
    """Whether a pod was deleted or evicted, or was to be."""
    reference = event["objectRef"]
    is_eviction = reference.get("subresource") == "eviction"
    return reference["resource"] == "pods" and (is_eviction or "delete" in event["verb"])


def is_refused(event: Object) -> bool:
    """Whether a role or a policy refused a request that was no trial."""
    code = event["responseStatus"]["code"]
    return code in REFUSED and "dryRun" not in event["requestURI"]
