# SPDX-License-Identifier: Apache-2.0
"""State of a node's newest request for a change of MIG layouts, and the steps between states. Pure.

What the Node shows outlives an agent, and the actuator's journal outlives both; the rest is worked
out anew after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from agent.layouts import gpu_outcomes
from agent.layouts.desired_change import DesiredChange
from agent.layouts.gpu_outcomes import GpuOutcomes
from agent.layouts.retry_times import FAILED_SECONDS, GIVEN_UP, REFUSED_SECONDS, Retry, ladder
from agent.layouts.shown_request import ShownRequest
from api.actuator.actuator_messages import ApplyRequest, RestoreRequest, StateRequest
from api.mig_outcome import GpuOutcome, Outcome

NOT_EVALUATED: Final = object()
"""Key of the desired layout before the first evaluation."""

ActuatorTask = StateRequest | RestoreRequest | ApplyRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestState:
    """The newest request and its outcome."""

    id: str = ""
    """Empty where there was none."""
    plan: str = ""
    """Digest of its layouts."""
    outcome: str = ""
    """Empty while the request is open."""
    reason: str = ""
    """Reason of the outcome."""
    outcomes: GpuOutcomes = ()
    """Outcome on each GPU; empty unless it failed on one."""
    drift: bool = False
    """Whether the open request repairs what another program has changed."""
    requested_at: float
    """When the request was first made."""
    change: DesiredChange | None = None
    """The open request's change by the newest evaluation; None where that is not known yet."""
    permit_seen: bool = False
    """Whether the permit ``proceed`` was seen."""
    may_have_begun: bool = False
    """Whether the actuator may have begun it: its state is read first."""
    awaits_boot: str = ""
    """File that asks for the boot for which the actuator waits; empty where it waits for none."""
    refusal: str = ""
    """Reason that the actuator gave for not beginning it."""
    blocking_change: str = ""
    """Id of another change that the actuator had to end first."""

    @property
    def is_open(self) -> bool:
        """There is a request that has not ended."""
        return bool(self.id) and not self.outcome

    def is_of(self, plan: str) -> bool:
        """Whether the request is, or was, for these layouts."""
        return bool(self.id) and self.plan == plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeState:
    """The newest request of one node, and all that decides on the actuator's next task for it."""

    request: RequestState
    ask_at: float
    """Start of the actuator's next task, as far as it depends on earlier answers."""
    runs: bool = False
    """The actuator changes the GPUs for the request, or restores them."""
    pending_task: ActuatorTask | None = None
    """The actuator's task whose answer is outstanding."""
    next_restore: str | None = None
    """Id of the change that it restores next; empty for a new one, None for no restore."""
    failed_asks: int = 0
    problem: str = ""
    """Why the actuator does not answer."""
    no_reboot: str = ""
    """Why the actuator cannot ask for a boot, where its settings allow one."""
    refused: str = ""
    """Why the next request is not made."""
    restored_load: str = ""
    """Load of the driver for which the actuator has restored what a boot took."""
    restoring_load: str = ""
    """Load of the driver for which it is to restore that."""
    stuck: GpuOutcomes = ()
    """GPUs on which a change is stuck, of the newest request or of an earlier one."""

    key: object = NOT_EVALUATED
    """Key of the desired layout of the newest evaluation."""
    failures: int = 0
    """Failures, refusals and drifts are counted since the layout is desired."""
    refusals: int = 0
    drifts: int = 0
    retry: Retry | None = None
    """The retry that follows from them."""
    reached: str = ""
    """Digest of layouts that the GPUs have had: to have them again is a repair."""
    seen_unchanged: bool = False
    """The GPUs were read with the desired layout since the newest request."""
    changes: int = 0
    """Number of times that the GPUs may have changed: readings made with fewer are stale."""

    @property
    def needs_closed_handles(self) -> bool:
        """The agent's handles of NVML have to be closed."""
        return self.runs or isinstance(self.pending_task, ApplyRequest | RestoreRequest)

    @property
    def is_believed(self) -> bool:
        """The actuator has read the layout back, and nobody has read the GPUs since."""
        is_applied = self.request.outcome == Outcome.APPLIED
        return is_applied and not self.seen_unchanged and self.retry is None

    def with_request(self, **values: Any) -> ChangeState:
        """The state with other values of its request."""
        return replace(self, request=replace(self.request, **values))


_EARLIER: Final[Mapping[str, str]] = {
    Outcome.ROLLED_BACK: "the change before failed",
    Outcome.REFUSED: "the actuator refused",
}
"""Why an outcome that the Node shows delays the next request."""


def first_state(
    shown: ShownRequest,
    *,
    now: float,
    failed_for_seconds: float = 0.0,
    open_for_seconds: float = 0.0,
) -> ChangeState:
    """State after a start of the agent, from what the Node shows.

    ``failed_for_seconds``: how long ago a change has failed, where the Node shows that, and
    ``open_for_seconds`` how long ago an open one was requested.
    """
    state = ChangeState(
        request=RequestState(
            id=shown.request,
            plan=shown.plan,
            outcome=shown.outcome,
            drift=shown.drift,
            requested_at=now - open_for_seconds,
            may_have_begun=bool(shown.request) and not shown.outcome,
            outcomes=_shown_outcomes(shown),
        ),
        ask_at=now,
        stuck=gpu_outcomes.stuck(shown.outcomes),
        reached=shown.reached,
        seen_unchanged=shown.outcome == Outcome.APPLIED,
    )
    is_failed = shown.outcome == Outcome.ROLLED_BACK
    ended_at = now - (min(failed_for_seconds, FAILED_SECONDS[0]) if is_failed else 0.0)
    return _with_retry(state, shown.outcome, _EARLIER.get(shown.outcome, ""), ended_at)


def _shown_outcomes(shown: ShownRequest) -> GpuOutcomes:
    """Outcomes of the request itself: without GPUs that are stuck since an earlier one.

    Of a stuck request all are taken; the actuator's next answer about it replaces them.
    """
    if shown.outcome == Outcome.STUCK:
        return shown.outcomes
    is_failed = shown.outcome == Outcome.ROLLED_BACK
    return tuple(gpu for gpu in shown.outcomes if is_failed and gpu.outcome != Outcome.STUCK)


def after_outcome(
    state: ChangeState,
    outcome: Outcome,
    reason: str,
    now: float,
    outcomes: Sequence[GpuOutcome] = (),
) -> ChangeState:
    """The request has ended: its retry follows from the outcome.

    ``outcomes``: those of its GPUs, where it was begun and the actuator reports them.
    """
    state = state.with_request(
        outcome=outcome,
        reason=reason,
        outcomes=gpu_outcomes.of_request(outcomes),
        change=None,
        permit_seen=False,
        may_have_begun=False,
        awaits_boot="",
        refusal="",
    )
    state = replace(
        state,
        runs=False,
        next_restore=None,
        problem="",
        ask_at=now,
        stuck=gpu_outcomes.still_stuck(state.stuck, outcomes),
        changes=state.changes + 1,
    )
    if outcome is Outcome.APPLIED:  # a late change for earlier layouts keeps what was reached
        state = replace(state, seen_unchanged=False, reached=state.reached or state.request.plan)
    return _with_retry(state, outcome, reason, now)


def _with_retry(state: ChangeState, outcome: str, why: str, now: float) -> ChangeState:
    match outcome:
        case Outcome.ROLLED_BACK:
            return with_failure(state, why, now)
        case Outcome.REFUSED:
            refusals = state.refusals + 1
            retry = Retry(why=why, not_before=now + ladder(REFUSED_SECONDS, refusals))
            return replace(state, refusals=refusals, retry=retry)
        case _:
            return replace(state, retry=GIVEN_UP if outcome == Outcome.EXPIRED else None)


def with_failure(state: ChangeState, why: str, now: float) -> ChangeState:
    """The change has failed once more, and is tried again later."""
    failures = state.failures + 1
    retry = Retry(why=why, not_before=now + ladder(FAILED_SECONDS, failures))
    return replace(state, failures=failures, retry=retry)
