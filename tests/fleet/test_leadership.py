# SPDX-License-Identifier: Apache-2.0
"""One coordinator acts: whatever fails, never two, and soon another one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from api import keys, names
from api.mig_outcome import Outcome
from fleet.leadership import DURATION_SECONDS, Leadership
from fleet.rollout_memory import EMPTY, NodeEnd, with_end
from kube.api import LEASES
from kube.api_errors import Busy, Conflict
from tests.fakes.api import Call, FakeApi, Server

AT = datetime(2026, 11, 20, 8, tzinfo=UTC)
END = NodeEnd(rollout="a", uid="u", request=f"{1:016x}", outcome=Outcome.STUCK)
MEMORY = with_end(EMPTY, END, 1000)


@dataclass
class Candidates:
    """Several on one server, with one clock."""

    count: int
    now: float = 1000.0
    server: Server = field(default_factory=Server)
    apis: list[FakeApi] = field(default_factory=list)
    made: list[Leadership] = field(default_factory=list)
    rolled_back: list[int] = field(default_factory=list)
    """Who has found that the store was put back."""

    def __post_init__(self) -> None:
        for number in range(self.count):
            self.apis.append(FakeApi(self.server, manager=names.COORDINATOR))
            self.made.append(self.candidate(number))

    def candidate(self, number: int) -> Leadership:
        return Leadership(
            self.apis[number],
            identity=f"pod-{number}",
            clock=lambda: self.now,
            wall=lambda: AT + timedelta(seconds=self.now),
            uniform=lambda _low, high: high,
            rolled_back=lambda: self.rolled_back.append(number),
        )

    def annotate(self, key: str, value: str | None) -> None:
        patch = {"metadata": {"annotations": {key: value}}}
        self.server.patch(LEASES, names.COORDINATOR_LEASE, patch, names.NAMESPACE)


def test_the_first_leads_and_the_next_goes_on_where_it_is_silent() -> None:
    of = Candidates(2)
    first, second = of.made
    first.beat(of.now)
    second.beat(of.now)
    assert (first.leads, second.leads) == (True, False)
    of.now += DURATION_SECONDS - 1
    second.beat(of.now)
    assert (first.leads, second.leads) == (False, False)
    of.now += 2
    second.beat(of.now)
    assert (first.leads, second.leads) == (False, True)
    first.beat(of.now)
    assert not first.leads


def test_one_that_leaves_is_followed_at_once() -> None:
    of = Candidates(2)
    first, second = of.made
    first.beat(of.now)
    second.beat(of.now)
    first.leave()
    assert not first.leads
    second.beat(of.now + 1)
    assert second.leads


def test_what_is_remembered_outlives_the_leader_and_a_person_may_delete_it() -> None:
    of = Candidates(2)
    first, second = of.made
    first.beat(of.now)
    first.remember(MEMORY)
    assert first.memory == MEMORY
    first.leave()
    second.beat(of.now)
    assert second.memory == MEMORY
    of.annotate(keys.MIG_ROLLOUTS, None)
    second.beat(of.now + 10)
    second.beat(of.now + 15)
    assert second.leads
    assert second.memory == EMPTY


def test_a_person_may_pause_and_damaged_memory_is_none() -> None:
    of = Candidates(1)
    (only,) = of.made
    only.beat(of.now)
    of.annotate(keys.MIG_PAUSED, "true")
    of.annotate(keys.MIG_ROLLOUTS, "{")
    for _ in range(2):
        only.beat(of.now)
    assert (only.leads, only.is_paused, only.memory) == (True, True, EMPTY)


def test_one_whose_lease_another_has_taken_acts_no_more() -> None:
    of = Candidates(1)
    (only,) = of.made
    only.beat(of.now)
    taken = {"spec": {"holderIdentity": "another"}}
    of.server.patch(LEASES, names.COORDINATOR_LEASE, taken, names.NAMESPACE)
    only.beat(of.now + 1)
    assert not only.leads


def test_only_the_leader_writes_the_memory() -> None:
    of = Candidates(2)
    first, second = of.made
    first.beat(of.now)
    second.beat(of.now)
    with pytest.raises(Conflict):
        second.remember(MEMORY)
    of.now += 25
    with pytest.raises(Conflict):
        first.remember(MEMORY)


@pytest.mark.parametrize("seed", range(20))
def test_two_never_act_at_once(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311  # a schedule, no secret
    of = Candidates(3)

    def weather(_: Call) -> None:
        if draw.random() < 0.2:
            raise draw.choice([Busy("503"), Conflict("409")])

    for api in of.apis:
        api.before("*", weather)
        api.after("*", weather)
    due = [of.now] * 3
    led = set[int]()
    for _ in range(1500):
        of.now += draw.uniform(0, 2)
        for number in range(3):
            if draw.random() < 0.002:
                of.made[number] = of.candidate(number)
            if of.now >= due[number]:
                frozen = 90 if draw.random() < 0.04 else 0
                due[number] = of.now + of.made[number].beat(of.now) + frozen
        leading = [number for number, each in enumerate(of.made) if each.leads]
        assert len(leading) <= 1
        led.update(leading)
    assert len(led) > 1


def test_who_leads_and_who_waits_find_a_store_that_was_put_back() -> None:
    of = Candidates(2)
    first, second = of.made
    first.beat(of.now)
    second.beat(of.now)
    backup = of.server.backup()
    for _ in range(3):
        of.now += 10
        first.beat(of.now)
        second.beat(of.now)
    assert of.rolled_back == []

    of.server.restore(backup)
    second.beat(of.now)
    assert of.rolled_back == [1]
    for _ in range(3):  # its first write meets a conflict, and it reads before the next
        of.now += 10
        first.beat(of.now)
        second.beat(of.now)

    assert of.rolled_back == [1, 0]
    assert first.leads
