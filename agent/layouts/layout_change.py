# SPDX-License-Identifier: Apache-2.0
"""The life of a request for a change of MIG layouts, from the wish to its one end.

What the Node shows outlives an agent, and what the actuator's journal has outlives both; the rest
is worked out anew at each step. Safety: the actuator is asked for a change only with leave for the
present request, and after it has said that it has not begun that one; what it has begun is brought
to its end, whatever is wished by then. Its one other task is ``restore``, which brings back what a
boot took, and ends what was interrupted. A request ends once; one that is held may end otherwise
later. The next one begins when the Node shows the end of the one before.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final, assert_never

from agent.layouts.retry_times import (
    ASK_SECONDS,
    FAILED_SECONDS,
    GIVEN_UP,
    REFUSED_SECONDS,
    Retry,
    ladder,
    retry_of,
)
from agent.layouts.shown_request import Leave, ShownRequest
from agent.layouts.wanted_change import Judgement, WantedChange, is_in_the_way
from api.actuator_messages import (
    ActuatorAnswer,
    ActuatorRefusal,
    ApplyRequest,
    ChangeAnswer,
    ChangeEnd,
    KnownChange,
    RefusalAnswer,
    RestoreRequest,
    StateAnswer,
    StateRequest,
    UseAnswer,
)
from api.mig_status_annotation import RequestEnd

log = logging.getLogger(__name__)

RUNNING_SECONDS: Final = 5.0
"""Between two looks at a change that another agent began."""
HELD_SECONDS: Final = 30.0
"""Between two looks whether a person has ended a change that is held."""
HELD_COMMAND: Final = "kubectl exec POD -c actuator -- gpuscape mig restore"

_ENDS: Final = {
    ChangeEnd.APPLIED: RequestEnd.APPLIED,
    ChangeEnd.UNCHANGED: RequestEnd.APPLIED,
    ChangeEnd.PREVIOUS: RequestEnd.PREVIOUS,
    ChangeEnd.HELD: RequestEnd.HELD,
    ChangeEnd.REFUSED: RequestEnd.REFUSED,
}
_PASSING: Final = frozenset(
    {
        ActuatorRefusal.BUSY,
        ActuatorRefusal.STOPPING,
        ActuatorRefusal.CROWDED,
        ActuatorRefusal.SLOW,
    }
)

_NO_KEY: Final = object()

ActuatorTask = StateRequest | RestoreRequest | ApplyRequest


class LayoutChange:
    """The newest request of one node, and what is to be asked of the actuator for it."""

    def __init__(
        self,
        shown: ShownRequest,
        *,
        new_id: Callable[[], str],
        now: float,
        failed_for_seconds: float = 0.0,
        asked_for_seconds: float = 0.0,
        wait_seconds: float = math.inf,
    ) -> None:
        """Go on from what the Node shows; ``now`` is by the clock of the steps.

        ``failed_for_seconds``: how long ago a change has failed, where the Node shows that, and
        ``asked_for_seconds`` how long ago one that is open was asked for; ``wait_seconds``: for
        leave.
        """
        self.request = shown.request
        self.end = shown.end
        self.end_reason = ""
        self.drift = shown.drift
        """The open request repairs what somebody else has changed."""
        self.reached = shown.reached
        """Layouts that the GPUs had since they were asked for: to have them again is a repair."""
        self.asked_at = now - asked_for_seconds
        """When the newest request was first asked for."""
        self._wait_seconds = wait_seconds
        self._plan = shown.plan
        self._new_id = new_id
        self.open_change: WantedChange | None = None
        """Of the request that is open, as it was judged last; None where that is not known yet."""
        self.problem = ""
        """Why the actuator cannot be asked."""
        self.runs = False
        """The actuator changes the GPUs for this request, or restores them."""
        self._unsure = bool(shown.request) and not shown.end
        self._gone = False
        """Leave was seen."""
        self._asked: ActuatorTask | None = None
        self._todo: RestoreRequest | None = None
        self._tried = ""
        """A change of somebody else that was to be ended first."""
        self._doubt = ""
        """Why the actuator did not begin, as it said."""
        self._asks_at = now
        self._asks_failed = 0
        self._restored = self._restoring = ""
        self.changes = 0
        """How often the GPUs may have changed: what was read with fewer is stale."""
        self._key: object = _NO_KEY
        self._drifts = 0
        self._seen_unchanged = shown.end == RequestEnd.APPLIED
        self._failures = int(shown.end == RequestEnd.PREVIOUS)
        self._refusals = int(shown.end == RequestEnd.REFUSED)
        self.retry = retry_of(shown.end, now, failed_for_seconds)

    @property
    def is_open(self) -> bool:
        """There is a request that has not ended."""
        return bool(self.request) and not self.end

    @property
    def wants_gpus(self) -> bool:
        """The agent's handles of NVML have to be closed."""
        return self.runs or isinstance(self._asked, ApplyRequest | RestoreRequest)

    @property
    def is_believed(self) -> bool:
        """The actuator has read the layout back, and nobody has read the GPUs since."""
        return self.end == RequestEnd.APPLIED and not self._seen_unchanged and self.retry is None

    def is_of(self, plan: str) -> bool:
        """Whether the newest request is, or was, for these layouts."""
        return bool(self.request) and self._plan == plan

    def step(
        self,
        now: float,
        judged: Judgement | None,
        *,
        shown: ShownRequest,
        leave: Leave,
        load: str,
    ) -> ActuatorTask | None:
        """What to ask the actuator now; None while an answer is waited for, and for nothing.

        ``judged`` None: it is not known now what is wished, or what the GPUs have. ``shown``: what
        the Node shows now; ``leave``: for this request; ``load``: of the driver.
        """
        self._note(judged)
        if leave is Leave.GO and self.is_open and not self._gone:
            self._gone = self._unsure = True
            self._asks_at = now
        if self._asked is None:
            self._asked = self._next(now, judged, shown, load)
        else:
            return None
        return self._asked

    def answered(self, answer: ActuatorAnswer | str, now: float) -> None:
        """Take the answer to what was asked; text: there was none, and why."""
        asked, self._asked = self._asked, None
        if isinstance(asked, ApplyRequest | RestoreRequest):
            self.changes += 1
        match asked, answer:
            case _, str():
                self._unsure = self._unsure or self.is_open
                self.runs = False
                self._ask_later(answer, now)
            case StateRequest(), StateAnswer():
                self._take_state(answer, now)
            case ApplyRequest(), ChangeAnswer():
                self._finish(_ENDS[answer.end], answer.reason, now)
            case ApplyRequest(), RefusalAnswer():
                self._unsure = True
                if answer.refusal not in _PASSING:
                    self._doubt = answer.reason
                    self._asks_at = now
                else:
                    self._ask_later(answer.reason, now)
            case RestoreRequest(), ChangeAnswer() | RefusalAnswer():
                self._take_restored(asked, answer, now)
            case _, RefusalAnswer():
                self.runs = False
                self._ask_later(answer.reason, now)
            case _, StateAnswer() | UseAnswer() | ChangeAnswer():
                self._ask_later("the actuator answers something else than was asked", now)
            case _:
                assert_never(answer)

    # what comes next

    def _next(
        self, now: float, judged: Judgement | None, shown: ShownRequest, load: str
    ) -> ActuatorTask | None:
        if self.is_open and not self._unsure and self._todo is None:
            if judged is not None and not self._goes_on(judged):
                self._finish(RequestEnd.CANCELLED, "something else is asked for", now)
                return None
            if not self._gone and now - self.asked_at > self._wait_seconds:
                self._finish(RequestEnd.EXPIRED, GIVEN_UP.why, now)
                return None
            if judged is not None and self._gone and judged.change is not None:
                return judged.change.apply_request(self.request)
            return None
        if now < self._asks_at:
            return None
        if self._todo is not None:
            todo, self._todo = self._todo, None
            return todo
        if self._unsure or self.runs:
            return StateRequest(change=self.request or None)
        if judged is None or judged.changes != self.changes:
            return self._held_look(now)
        if judged.change is None or (
            self.end == RequestEnd.HELD and self.is_of(judged.change.plan)
        ):
            return self._held_look(now)
        return self._begin(now, judged.change, shown, load)

    def _goes_on(self, judged: Judgement) -> bool:
        if judged.change is None or judged.change.plan != self._plan:
            return False
        self.open_change = judged.change
        return True

    def _held_look(self, now: float) -> ActuatorTask | None:
        """A person may end what is held; nobody tells the agent."""
        if self.end != RequestEnd.HELD:
            return None
        self._asks_at = now + HELD_SECONDS
        return StateRequest(change=self.request)

    def _begin(
        self, now: float, change: WantedChange, shown: ShownRequest, load: str
    ) -> ActuatorTask | None:
        """The next request, if it is time for it; what a boot took comes back first."""
        if self.request and (shown.request, shown.end) != (self.request, self.end):
            return None
        if self.end == RequestEnd.APPLIED and self.is_of(change.plan) and self.retry is None:
            self._drifted(now)
        if self.retry is not None and now < self.retry.at and self.is_of(change.plan):
            return None
        if self._restored != load:
            self._restoring = load
            return StateRequest(change=self.request or None)
        log.info("MIG change requested", extra={"asked": change.asked, "plan": change.plan})
        self.request, self.end, self.end_reason = self._new_id(), "", ""
        self._plan, self.open_change, self.retry = change.plan, change, None
        self.drift, self.asked_at = change.plan == self.reached, now
        self._gone = self._unsure = False
        self._tried = self._doubt = self.problem = ""
        self._seen_unchanged = False
        return None

    def _drifted(self, now: float) -> None:
        """What was applied is not there: once it was, somebody has changed it since."""
        if self._seen_unchanged:
            log.warning("MIG layout drifted", extra={"request": self.request})
            why, wait = "another program changed the layout", ladder(REFUSED_SECONDS, self._drifts)
            self._drifts += 1
        else:
            self._failures += 1
            why = "the layout was applied, and the GPUs do not have it"
            wait = ladder(FAILED_SECONDS, self._failures)
        self.retry = Retry(why=why, at=now + wait)

    def _note(self, judged: Judgement | None) -> None:
        """Another wish is judged without what came of those before."""
        if judged is None:
            return
        if self._key is not _NO_KEY and judged.key != self._key:
            self._failures = self._refusals = self._drifts = 0
            self.retry = None
        self._key = judged.key
        if judged.key is None or (judged.plan and judged.plan != self.reached):
            self.reached = ""
        if judged.unchanged and judged.changes == self.changes:
            self._seen_unchanged = True
            self._failures = self._refusals = 0
            self.reached = judged.plan

    # what the actuator says

    def _take_state(self, state: StateAnswer, now: float) -> None:
        if state.problem:
            self._ask_later(state.problem, now)
            return
        self._asks_failed, self.problem = 0, ""
        self.runs = state.running is not None
        if state.running is not None:
            self._asks_at = now + RUNNING_SECONDS
            return
        if self.is_open:
            self._take_open(state, now)
        elif self.end == RequestEnd.HELD and state.named is not None:
            self._take_held(state.named, now)
        elif self._restored != self._restoring:
            self._todo = self._restore_of(state.open)

    def _take_open(self, state: StateAnswer, now: float) -> None:
        """What became of the request that is open."""
        end = _end(state.named)
        if end is not None:
            self._finish(end, "" if state.named is None else state.named.reason, now)
        elif state.named is not None:
            self._todo = RestoreRequest(change=self.request)
        elif self._doubt:
            self._finish(RequestEnd.REFUSED, self._doubt, now)
        elif state.open is not None and self._gone and is_in_the_way(state.open, self.open_change):
            if self._tried == state.open.change:
                why = f"the change {state.open.change} has not ended: {state.open.reason}"
                self._finish(RequestEnd.REFUSED, why, now)
            else:
                self._tried = state.open.change
                self._todo = RestoreRequest(change=state.open.change)
        else:
            self._unsure = False

    def _restore_of(self, open_change: KnownChange | None) -> RestoreRequest:
        """Before a request: what is interrupted ends, what a boot took comes back."""
        if open_change is None or open_change.end is not None:
            return RestoreRequest(change=self._new_id())
        return RestoreRequest(change=open_change.change)

    def _take_restored(
        self, asked: RestoreRequest, answer: ChangeAnswer | RefusalAnswer, now: float
    ) -> None:
        if isinstance(answer, RefusalAnswer):
            self._ask_later(answer.reason, now)
            return
        self._asks_failed, self.problem = 0, ""
        if not self.is_open:
            self._restored = self._restoring
        elif asked.change == self.request and answer.end not in (
            ChangeEnd.REFUSED,
            ChangeEnd.UNCHANGED,
        ):
            self._finish(_ENDS[answer.end], answer.reason, now)
        elif asked.change == self.request:
            self._ask_later(answer.reason, now)
        else:
            self._unsure = True

    # ends

    def _finish(self, end: RequestEnd, reason: str, now: float) -> None:
        log.info("MIG request ended", extra=self._facts(end) | {"why": reason})
        self.end, self.end_reason, self.open_change = end, reason, None
        self._gone = self._unsure = self.runs = False
        self._todo, self._doubt, self.problem = None, "", ""
        self._asks_at = now
        self.changes += 1
        self.retry = None
        if end is RequestEnd.PREVIOUS:
            self._failures += 1
            self.retry = Retry(why=reason, at=now + ladder(FAILED_SECONDS, self._failures))
        elif end is RequestEnd.REFUSED:
            self._refusals += 1
            self.retry = Retry(why=reason, at=now + ladder(REFUSED_SECONDS, self._refusals))
        elif end is RequestEnd.EXPIRED:
            self.retry = GIVEN_UP
        elif end is RequestEnd.APPLIED:
            self._seen_unchanged = False
            self.reached = self.reached or self._plan  # a late change for an earlier wish keeps it

    def _take_held(self, named: KnownChange, now: float) -> None:
        """Whether a person has ended it; the same layouts are tried again after the usual time."""
        end = _end(named)
        if end is not None and end is not RequestEnd.HELD:
            self._finish(end, f"ended by hand: {named.reason}" if named.reason else "", now)
        else:
            self.end_reason = named.reason

    def _ask_later(self, why: str, now: float) -> None:
        self._asks_failed += 1
        self.problem = why
        self._asks_at = now + ladder(ASK_SECONDS, self._asks_failed)

    def _facts(self, end: str) -> dict[str, object]:
        return {"request": self.request, "plan": self._plan, "end": str(end)}


def _end(known: KnownChange | None) -> RequestEnd | None:
    return None if known is None or known.end is None else _ENDS[known.end]
