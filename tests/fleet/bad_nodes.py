# SPDX-License-Identifier: Apache-2.0
"""Fleets in virtual time with a broken node and with one whose agent was stolen.

The stolen agent writes what an agent may write, its own Node's status and request, and nothing
else: it has no right to permits, cordons, layouts or Leases. The others are the honest models of
:mod:`tests.fleet.simulated_fleet`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from api import keys
from fleet.rollout_settings import RolloutSettings
from kube.api import Object
from tests.fleet.simulated_fleet import Cluster, SimulatedAgent, agent_notes, violations

LAYOUT: Final = "sevenths"


class BadFleet(Cluster):
    """One node always fails, and one agent lies; either may be missing."""

    def __init__(
        self,
        *,
        nodes: int,
        terms: RolloutSettings,
        seed: int = 0,
        broken: str = "",
        liar: str = "",
        lie: Lie | None = None,
    ) -> None:
        """``lie``: what the stolen agent does at each moment, called with this fleet."""
        self.broken, self.liar, self._lie = broken, liar, lie
        self.lies = 0
        super().__init__(nodes=nodes, terms=terms, seed=seed)
        if broken:
            self.agents[broken].ends = ["rolled-back"] * 1000
        self.wish(LAYOUT)

    def forge(
        self,
        phase: str,
        end: str = "",
        *,
        request: str = "",
        asked: str = LAYOUT,
        offers: Mapping[str, int] | None = None,
    ) -> None:
        """The stolen agent writes its status, and a request while that has no end."""
        agent = self.agents[self.liar]
        agent.request = request or agent.request
        notes = agent_notes(agent.request, asked, phase, end=end, offers=offers)
        self._publish_notes(agent, notes)
        self.lies += 1

    def new_request(self) -> str:
        """An id that nobody has."""
        return f"{self.draw.getrandbits(64):016x}"

    def good(self) -> list[SimulatedAgent]:
        """All honest nodes that work."""
        return [it for name, it in self.agents.items() if name not in (self.broken, self.liar)]

    def changed(self) -> int:
        """How many of those have their layout."""
        return sum(it.layout == LAYOUT and it.closed for it in self.good())

    def seconds(self, within: float) -> float:
        """Until all of them have it."""
        return self.pass_until(lambda: self.changed() == len(self.good()), within=within)

    def faults(self) -> list[str]:
        """What was ever done against the rules."""
        return list(violations(self))

    def _run_agent(self, agent: SimulatedAgent, node: Object, on_node: list[Object]) -> None:
        if agent.name != self.liar or self._lie is None:
            super()._run_agent(agent, node, on_node)

    def run_nodes(self) -> None:
        """The stolen agent needs no reason to write."""
        super().run_nodes()
        if self.liar and self._lie is not None:
            self._lie(self)

    def permit(self) -> str:
        """The text of the liar's permit; empty: none."""
        return self.notes(self.liar).get(keys.MIG_PERMIT, "")

    def failed_now(self) -> bool:
        """Whether the broken node has just failed, which every agent may read."""
        return '"outcome":"rolled-back"' in self.notes(self.broken).get(keys.MIG_STATUS, "")


Lie = Callable[[BadFleet], None]


def _asks(fleet: BadFleet) -> bool:
    """Have a request stand there; whether it had to be made."""
    if keys.MIG_REQUEST in fleet.notes(fleet.liar):
        return False
    fleet.forge("waiting", request=fleet.new_request())
    return True


def fails_at_once(fleet: BadFleet) -> None:
    """Failures without a slot: a request and its end, one after the other."""
    if not _asks(fleet):
        fleet.forge("failed", "rolled-back")


def fails_after_go(fleet: BadFleet) -> None:
    """A failure for each leave that it gets."""
    if not _asks(fleet) and '"phase":"proceed"' in fleet.permit():
        fleet.forge("failed", "rolled-back")


def fails_after_the_broken_one(fleet: BadFleet) -> None:
    """It asks when the broken node has failed, so that two fail one after the other."""
    if fleet.failed_now() or keys.MIG_REQUEST in fleet.notes(fleet.liar):
        fails_after_go(fleet)


def is_held(fleet: BadFleet) -> None:
    """Held for each leave, and then another request."""
    if not _asks(fleet) and '"phase":"proceed"' in fleet.permit():
        fleet.forge("stuck", "stuck")


def is_applied(fleet: BadFleet) -> None:
    """Success for each leave, and nothing is changed."""
    if not _asks(fleet) and '"phase":"proceed"' in fleet.permit():
        fleet.forge("unchanged", "applied")


def is_applied_unseen(fleet: BadFleet) -> None:
    """The same, and its request names nothing that the node would offer."""
    if keys.MIG_REQUEST not in fleet.notes(fleet.liar):
        fleet.forge("waiting", request=fleet.new_request(), offers={})
    elif '"phase":"proceed"' in fleet.permit():
        fleet.forge("unchanged", "applied", offers={})


def is_silent(fleet: BadFleet) -> None:
    """It asks, and does not answer go; once the slot is free it asks anew."""
    if not _asks(fleet) and '"phase":"proceed"' in fleet.permit() and not _has_slot(fleet):
        fleet.forge("waiting", request=fleet.new_request())


def changes_for_ever(fleet: BadFleet) -> None:
    """It answers go, and says no end; once the slot is free it asks anew."""
    if _asks(fleet) or '"phase":"proceed"' not in fleet.permit():
        return
    if _has_slot(fleet):
        fleet.forge("changing")
    else:
        fleet.forge("waiting", request=fleet.new_request())


def replaces_its_request(fleet: BadFleet) -> None:
    """Another request each time that it is held."""
    if not _asks(fleet) and fleet.permit():
        fleet.forge("waiting", request=fleet.new_request())


def asks_for_another_rollout(fleet: BadFleet) -> None:
    """A new name of a rollout for each failure."""
    if not _asks(fleet) and '"phase":"proceed"' in fleet.permit():
        fleet.forge("failed", "rolled-back", asked=f"{LAYOUT}-{fleet.lies}")


def copies_requests(fleet: BadFleet) -> None:
    """The id of another node's open request, and a failure for it."""
    for name in fleet.agents:
        other = fleet.agents[name]
        if name != fleet.liar and not other.closed and keys.MIG_PERMIT in fleet.notes(name):
            if fleet.agents[fleet.liar].request != other.request:
                fleet.forge("waiting", request=other.request)
            else:
                fleet.forge("failed", "rolled-back")
            return


def wipes_itself(fleet: BadFleet) -> None:
    """A failure for each leave, and then nothing of it stands on the Node."""
    if fleet.notes(fleet.liar).get(keys.MIG_STATUS) and not fleet.permit() and fleet.lies % 3 == 2:
        fleet.lies += 1
        empty = {keys.MIG_STATUS: None, keys.MIG_REQUEST: None}
        fleet.edit(fleet.liar, {"metadata": {"annotations": empty}})
    else:
        fails_after_go(fleet)


LIES: Final[Mapping[str, Lie]] = {
    "failures without a slot": fails_at_once,
    "a failure for each permit": fails_after_go,
    "a failure right after the broken node's": fails_after_the_broken_one,
    "stuck for each permit": is_held,
    "success without a change": is_applied,
    "success without a change, nothing allocatable": is_applied_unseen,
    "no answer to the permit": is_silent,
    "a change without an end": changes_for_ever,
    "another request at each cordon": replaces_its_request,
    "another rollout for each failure": asks_for_another_rollout,
    "another node's request": copies_requests,
    "its annotations removed": wipes_itself,
}
"""What the stolen agent does."""


def _has_slot(fleet: BadFleet) -> bool:
    return any(lease["spec"].get("holderIdentity") == fleet.liar for lease in fleet.open_leases())


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one fleet."""

    changed: int
    """Honest nodes that work and have their layout."""
    of: int
    seconds: float
    lies: int
    faults: tuple[str, ...]


def play(
    lie: Lie | None, *, nodes: int, terms: RolloutSettings, broken: str, liar: str, within: float
) -> Outcome:
    """One fleet, until all honest nodes that work have their layout, or for ``within`` seconds."""
    fleet = BadFleet(nodes=nodes, terms=terms, broken=broken, liar=liar, lie=lie)
    began = fleet.now
    while fleet.changed() < len(fleet.good()) and fleet.now - began < within:
        fleet.pass_time(2)
    return Outcome(
        changed=fleet.changed(),
        of=len(fleet.good()),
        seconds=fleet.now - began,
        lies=fleet.lies,
        faults=tuple(fleet.faults()),
    )
