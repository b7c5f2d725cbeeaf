# SPDX-License-Identifier: Apache-2.0
"""The life of a request for a MIG change in any order of events: whatever dies, each has one end.

Agent, actuator, coordinator and admin act in turn; agent and actuator die anywhere between.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from agent.layouts.change_state import ActuatorTask
from agent.layouts.desired_layout import DesiredLayout
from agent.layouts.shown_request import ShownRequest
from api.actuator.actuator_messages import (
    ActuatorAnswer,
    ApplyRequest,
    RestoreRequest,
)
from api.mig_outcome import Outcome
from api.mig_permit_annotation import PermitPhase
from tests.agent.layouts.change_steps import PlayedChange
from tests.agent.layouts.played_actuator import NOBODY, PlayedActuator, wanted

DISTURBANCES = (
    "agent_dies",
    "actuator_restarts",
    "actuator_dies",
    "answer_is_lost",
    "machine_boots",
    "admin_asks_for_nothing",
    "admin_asks_for_another",
)
ROUNDS = 36
ENDS = (Outcome.APPLIED, Outcome.ROLLED_BACK, Outcome.STUCK, Outcome.REFUSED)


class AnyLife(RuleBasedStateMachine):
    """One node; time passes by rules alone."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.ids = (f"{at:016x}" for at in count(1))
        self.actuator = PlayedActuator()
        self.load = "boot-1"
        self.wait_seconds = math.inf
        self.wish: str | None = None
        self.shown = ShownRequest()
        self.request: str | None = None
        """In the annotation mig-request."""
        self.permit: tuple[str, PermitPhase] | None = None
        self.ends: dict[str, list[str]] = {}
        self.reached: str | None = None
        """The wish, once the Node shows that the GPUs have had what is wished."""
        self.change: PlayedChange | None = None
        self.asked: ActuatorTask | None = None
        self.began = 0

    # the agent

    @rule()
    def agent_steps(self) -> None:
        """It starts if there is none, reads, and goes on by one step; then its patch is taken."""
        if self.change is None:
            self.change = PlayedChange(
                self.shown,
                new_id=lambda: next(self.ids),
                now=self.now,
                wait_seconds=self.wait_seconds,
            )
            self.asked = None
        change, before = self.change, self.change.request
        permit = None
        if self.permit is not None and self.permit[0] == change.request:
            permit = self.permit[1]
        task = change.step(
            self.now, self._judged(change), shown=self.shown, permit=permit, load=self.load
        )
        if change.request != before and self.reached is not None:
            assert change.drift, "a repair that may evict"
        if task is None:
            return
        assert self.asked is None
        self._check_task(task)
        answer = self.actuator.ask(task)
        self._check_begun()
        if answer is None:
            self.asked = task
        else:
            change.answered(answer, self.now)
            assert not (isinstance(answer, str) and change.wants_gpus)

    @rule()
    def patch_is_taken(self) -> None:
        """The Node shows what the agent wants it to show: both keys in one patch."""
        if self.change is None:
            return
        change = self.change
        before = self.shown
        if change.request:
            plan = before.plan if before.request == change.request else ""
            if change.open_change is not None:
                plan = change.open_change.plan
            self.shown = ShownRequest(
                request=change.request,
                plan=plan,
                outcome=change.outcome,
                drift=change.is_open and change.drift,
                reached=change.reached,
            )
        else:
            self.shown = replace(self.shown, reached=change.reached)
        if self.wish is not None and self.shown.reached == self.wish:
            self.reached = self.wish
        self.request = change.request if change.is_open else None
        if before.request != self.shown.request and before.request:
            assert self.ends.get(before.request), "replaced before its end was shown"
        if self.shown.outcome and (before.request, before.outcome) != (
            self.shown.request,
            self.shown.outcome,
        ):
            self.ends.setdefault(self.shown.request, []).append(self.shown.outcome)
            self._check_end(self.shown.request, self.shown.outcome)

    @rule()
    def agent_dies(self) -> None:
        """What it had asked goes on; nobody hears the answer."""
        self.change, self.asked = None, None

    @rule(times=st.integers(1, 4))
    def agent_and_coordinator_work(self, times: int) -> None:
        """Undisturbed for a while; what the actuator does goes on."""
        for _ in range(times):
            self.agent_steps()
            self.patch_is_taken()
            if self.request is not None and not self.shown.outcome:
                self.coordinator_permits(go=True)
            if self.permit is not None:
                self.coordinator_undoes()

    def life(self, how: Outcome, disturbed: Mapping[int, str], *, slow: bool) -> None:
        """One wish, then another, in rounds of everybody's work, and what happens between."""
        runs_since = None
        for at in range(ROUNDS):
            if at in (0, ROUNDS // 2):
                self.wish, self.reached = "a" if at == 0 else "b", None
            self.agent_steps()
            self.patch_is_taken()
            if at in disturbed:
                getattr(self, disturbed[at])()
            if self.request is not None and not self.shown.outcome and (not slow or at % 3 == 0):
                self.coordinator_permits(go=self.permit is not None)
            if self.permit is not None:
                self.coordinator_undoes()
            if self.actuator.running is None:
                runs_since = None
            elif runs_since is None:
                runs_since = at
            elif at - runs_since >= 1 + slow:
                self.change_ends(how)
                runs_since = None
            self.each_request_has_one_end()
            self.handles_are_given_back()
            self.time_passes(3.0)
        self.teardown()

    @rule(
        how=st.sampled_from(ENDS),
        disturbed=st.dictionaries(st.integers(0, 30), st.sampled_from(DISTURBANCES), max_size=5),
        slow=st.booleans(),
    )
    def whole_life(self, how: Outcome, disturbed: dict[int, str], slow: bool) -> None:
        self.life(how, disturbed, slow=slow)

    # the others

    @rule(how=st.sampled_from(ENDS))
    @precondition(lambda self: self.actuator.running is not None)
    def change_ends(self, how: Outcome) -> None:
        restored = self.actuator.open is None
        running = self.actuator.running
        answer = self.actuator.end(Outcome.APPLIED if restored else how)
        self._answer(running, answer)

    @rule()
    def actuator_dies(self) -> None:
        self.actuator.kill()
        self._answer(None if self.asked is None else _name(self.asked), NOBODY)

    @rule()
    def actuator_starts(self) -> None:
        if not self.actuator.alive:
            self.actuator.start()

    @rule()
    def actuator_restarts(self) -> None:
        self.actuator_dies()
        self.actuator_starts()

    @rule()
    def admin_asks_for_nothing(self) -> None:
        self.wish = self.reached = None

    @rule()
    def admin_asks_for_another(self) -> None:
        self.wish, self.reached = "b" if self.wish == "a" else "a", None

    @rule()
    def person_restores(self) -> None:
        """What was held goes back."""
        if self.actuator.alive and self.actuator.open is not None and not self.actuator.running:
            self.actuator.running = self.actuator.open.change
            self.actuator.end(Outcome.ROLLED_BACK)

    @rule()
    def answer_is_lost(self) -> None:
        """It takes too long: the change goes on."""
        if self.asked is not None:
            self._answer(_name(self.asked), "no answer in time")

    @rule()
    def machine_boots(self) -> None:
        self.agent_dies()
        self.actuator.boot()
        self.load = f"boot-{next(self.ids)}"

    @rule(go=st.booleans())
    @precondition(lambda self: self.request is not None and not self.shown.outcome)
    def coordinator_permits(self, go: bool) -> None:
        """It never takes go back before the end."""
        assert self.request is not None
        if self.permit != (self.request, PermitPhase.PROCEED):
            self.permit = self.request, PermitPhase.PROCEED if go else PermitPhase.CORDONED

    @rule()
    @precondition(lambda self: self.permit is not None)
    def coordinator_undoes(self) -> None:
        """When the request has ended, or nothing names it any more."""
        assert self.permit is not None
        named = self.shown.request == self.permit[0] and not self.shown.outcome
        if not named and self.request != self.permit[0] and self.shown.outcome != Outcome.STUCK:
            self.permit = None

    @rule(seconds=st.sampled_from([1.0, 10.0, 400.0, 90_000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def each_request_has_one_end(self) -> None:
        """One that is held may end otherwise, once a person has ended it."""
        for ends in self.ends.values():
            assert len([one for one in ends if one != Outcome.STUCK]) <= 1, self.ends
            assert ends.count(Outcome.STUCK) <= 1
            assert Outcome.STUCK not in ends[1:]

    @invariant()
    def handles_are_given_back(self) -> None:
        """They are closed only while something is asked, or known to run."""
        if self.change is not None and self.change.wants_gpus:
            assert isinstance(self.asked, ApplyRequest | RestoreRequest) or self.change.runs

    def teardown(self) -> None:
        """Left alone, with everybody alive, it comes to rest: as wished, failed, or held."""
        self.actuator_starts()
        for _ in range(60):
            self.time_passes(400.0)
            if self.actuator.running is not None:
                self.change_ends(Outcome.APPLIED)
            self.agent_steps()
            self.patch_is_taken()
            if self.request is not None and not self.shown.outcome:
                self.coordinator_permits(go=True)
            if self.permit is not None:
                self.coordinator_undoes()
        assert self.change is not None
        self.each_request_has_one_end()
        assert not self.change.wants_gpus
        if self.change.outcome == Outcome.STUCK:
            assert self.actuator.open is not None, "a person has ended it, and nobody noticed"
        if self.wish is not None and self.actuator.gpus != self.wish:
            waits = self.change.retry is not None or self.change.outcome == Outcome.STUCK
            assert waits, (self.change.request, self.change.outcome, self.change.problem)
        if self.wish is None:
            assert not self.change.is_open

    # parts

    def _judged(self, change: PlayedChange) -> DesiredLayout | None:
        if change.wants_gpus:
            return None
        differs = self.wish is not None and self.actuator.gpus != self.wish
        return DesiredLayout(
            key=self.wish,
            change=wanted(self.wish) if differs and self.wish is not None else None,
            unchanged=self.wish is not None and not differs,
            changes=change.changes,
            plan=self.wish or "",
        )

    def _answer(self, change: str | None, answer: ActuatorAnswer | str) -> None:
        """To the agent that asks for this change, if it still is there."""
        if self.asked is None or _name(self.asked) != change or self.change is None:
            return
        self.asked = None
        self.change.answered(answer, self.now)
        if isinstance(answer, str):
            assert not self.change.wants_gpus, "handles stay closed without an answer"

    def _check_end(self, request: str, end: str) -> None:
        """What the Node shows is what has become of the GPUs."""
        records = [*self.actuator.past, *([self.actuator.open] if self.actuator.open else [])]
        known = next((one.end for one in records if one.change == request), None)
        if end in (Outcome.CANCELLED, Outcome.REFUSED, Outcome.EXPIRED):
            assert request not in self.actuator.began, f"{end}, and it was begun"
        elif end != Outcome.STUCK:  # a person may have ended it since
            assert known == end

    def _check_task(self, task: ActuatorTask) -> None:
        if isinstance(task, ApplyRequest):
            assert self.permit == (task.change, PermitPhase.PROCEED), "asked without a permit"
            assert self.shown.request == task.change
            assert not self.shown.outcome

    def _check_begun(self) -> None:
        began = self.actuator.began
        assert len(began) == len(set(began)), "begun twice"


def _name(task: ActuatorTask) -> str | None:
    return task.change


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("slow", [False, True])
def test_whatever_happens_at_any_point_of_a_life_each_request_has_one_end(
    how: Outcome, slow: bool
) -> None:
    """Each disturbance at each point, and pairs of them drawn by a seed."""
    draw = Random(7)  # noqa: S311  # a test's choice
    singles = [{at: what} for at in range(ROUNDS) for what in DISTURBANCES]
    pairs = [
        {at: draw.choice(DISTURBANCES) for at in draw.sample(range(ROUNDS), 2)} for _ in range(400)
    ]
    ended = Counter[str]()
    for disturbed in [*singles, *pairs]:
        life = AnyLife()
        try:
            life.life(how, disturbed, slow=slow)
        except AssertionError as error:
            raise AssertionError(f"{how} {disturbed}: {error}") from error
        ended.update(one for ends in life.ends.values() for one in ends)
    assert ended[how] > 100
    assert ended["applied"] > 100 or how is Outcome.STUCK
    assert ended["cancelled"] > 10


def test_a_change_that_is_given_up_while_leave_comes_was_not_begun() -> None:
    """Each disturbance at each point, by a coordinator that is about as slow as the deadline."""
    ended = Counter[str]()
    for wait_seconds in (8.0, 11.0):
        for at in range(ROUNDS):
            for what in DISTURBANCES:
                life = AnyLife()
                life.wait_seconds = wait_seconds
                life.life(Outcome.APPLIED, {at: what}, slow=True)
                ended.update(one for ends in life.ends.values() for one in ends)
    assert ended["expired"] > 100
    assert ended["applied"] > 100


AnyLife.TestCase.settings = settings(max_examples=150, stateful_step_count=12, deadline=None)


def test_what_a_late_change_for_an_earlier_wish_takes_comes_back_as_a_repair() -> None:
    """It asks for "a" again, and the actuator ends that only after the wish is "b" once more."""
    life = AnyLife()
    life.life(Outcome.APPLIED, {}, slow=False)
    life.life(Outcome.ROLLED_BACK, {0: "agent_dies"}, slow=False)
    life.life(Outcome.APPLIED, {11: "actuator_dies"}, slow=True)
    assert life.actuator.gpus == life.wish == "b"


TestAnyLife = AnyLife.TestCase
