# SPDX-License-Identifier: Apache-2.0
"""Status annotation and state label of a Node whose layouts are enforced. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from agent.layouts import gpu_outcomes
from agent.layouts.change_state import ChangeState
from agent.layouts.planned_request import in_use
from agent.layouts.retry_times import Retry
from api import keys, names
from api.key_kinds import KeyLocation
from api.mig_outcome import Outcome
from api.mig_status_annotation import (
    MOST_REASON,
    TRIED_AGAIN_AT,
    MigPhase,
    MigStatusAnnotation,
    with_fitting_outcomes,
)
from base.text.number_ranges import number_ranges
from base.text.safe_text import short_line
from labelers.decision import Absent, Decision, Decisions, Keep, Value
from labelers.node_patch import writers

STUCK_COMMAND: Final = "kubectl exec POD -c actuator -- gpuscape mig restore"

_STATES: Final[Mapping[str, str]] = {
    MigPhase.WAITING: "pending",
    MigPhase.CHANGING: "pending",
    MigPhase.REBOOTING: "rebooting",
    MigPhase.UNCHANGED: "success",
    MigPhase.FAILED: "failed",
    MigPhase.STUCK: "failed",
    MigPhase.REFUSED: "failed",
}
_BY_OUTCOME: Final[Mapping[str, MigPhase]] = {
    Outcome.ROLLED_BACK: MigPhase.FAILED,
    Outcome.REFUSED: MigPhase.REFUSED,
    Outcome.EXPIRED: MigPhase.REFUSED,
}
_MOST_NOTE: Final = 160
"""Characters about GPUs that are stuck since earlier requests."""
_RESTORING: Final = (
    "before the change the actuator restores what a boot took, and ends what was interrupted"
)

_WAITS_FOR_BOOT: Final = "waits for a boot of the node, which the file {file} requests"


def status_with_change(
    state: ChangeState,
    evaluated: MigStatusAnnotation | None,
    shown: MigStatusAnnotation | None,
    retry_time: Callable[[Retry], str],
) -> MigStatusAnnotation | None:
    """The status of the evaluation, with the state of the request; None: the shown one may stay.

    ``evaluated`` None: there is none yet; ``shown``: the Node's status; ``retry_time``: the retry's
    time of day.
    """
    request = state.request
    if evaluated is None:
        if shown is None or (shown.request, shown.outcome) == (request.id, request.outcome):
            return None
        evaluated, phase, reason = replace(shown, since=""), shown.phase, shown.reason
    else:
        is_planned = evaluated.phase == MigPhase.PLANNED
        if is_planned and state.is_believed and request.is_of(evaluated.plan):
            evaluated = replace(
                evaluated, phase=MigPhase.UNCHANGED, reason="", gpus=(), pods=(), more_pods=0
            )
        phase, reason, end = _phase(state, evaluated, retry_time)
        room = MOST_REASON - len(end)
        reason = short_line(reason, room)
        if phase != MigPhase.STUCK:
            reason = _with_stuck_gpus(state, reason, room)
        reason += end
    is_there = phase in (MigPhase.UNCHANGED, MigPhase.IDLE, MigPhase.UNADOPTED)
    status = replace(
        evaluated,
        phase=phase,
        reason=reason,
        request=request.id,
        outcome=request.outcome,
        outcomes=_outcomes(state),
        reached="" if is_there else state.reached,
    )
    return with_fitting_outcomes(status)


def state_label(status: MigStatusAnnotation, metadata: Mapping[str, Any]) -> Decisions:
    """The state in the words of NVIDIA's MIG manager; of a status without one it stays."""
    if status.phase in (MigPhase.IDLE, MigPhase.UNADOPTED):
        return {keys.MIG_CONFIG_STATE: _own_state_gone(metadata)}
    state = _STATES.get(status.phase)
    return {} if state is None else {keys.MIG_CONFIG_STATE: Value(text=state)}


def _phase(
    state: ChangeState, evaluated: MigStatusAnnotation, retry_time: Callable[[Retry], str]
) -> tuple[str, str, str]:
    """Phase of the change, its reason, and the reason's end, which is never cut.

    Those of the evaluation where no change is under way.
    """
    request, problem, retry = state.request, state.problem, state.retry
    is_planned = evaluated.phase == MigPhase.PLANNED
    if request.is_open and state.needs_closed_handles:
        return MigPhase.CHANGING, problem, ""
    if request.is_open and request.awaits_boot:
        # the evaluation sees a mode that waits, and refuses the layout for it
        return MigPhase.REBOOTING, problem or _WAITS_FOR_BOOT.format(file=request.awaits_boot), ""
    if request.is_open and is_planned:
        return MigPhase.WAITING, problem or _waits_for(state, evaluated), ""
    if request.outcome == Outcome.STUCK and request.is_of(evaluated.plan):
        cause = request.reason or "neither layout could be reached"
        return MigPhase.STUCK, cause, f": remove the cause, then run {STUCK_COMMAND}"
    if not is_planned:
        return evaluated.phase, evaluated.reason, ""
    if retry is not None and request.is_of(evaluated.plan):
        phase = _BY_OUTCOME.get(request.outcome, MigPhase.FAILED)
        is_last = math.isinf(retry.not_before)
        return phase, retry.why, "" if is_last else f"{TRIED_AGAIN_AT}{retry_time(retry)}"
    if state.needs_closed_handles:
        return MigPhase.PLANNED, _RESTORING, ""
    if state.refused:
        return MigPhase.REFUSED, state.refused, ""
    return MigPhase.PLANNED, problem or evaluated.reason, ""


def _outcomes(state: ChangeState) -> gpu_outcomes.GpuOutcomes:
    """Outcomes of the request's GPUs, and GPUs that are stuck since earlier requests."""
    return gpu_outcomes.merged((*state.stuck, *state.request.outcomes))


def _with_stuck_gpus(state: ChangeState, reason: str, room: int) -> str:
    """The reason of a phase that says nothing of them, with the stuck GPUs before it.

    The reason stays whole, since it may have a command; where there is no room the GPUs stand in
    ``outcomes`` alone.
    """
    stuck = gpu_outcomes.stuck(_outcomes(state))
    causes = "; ".join(
        f"GPU {gpu.gpu} is stuck: {gpu.reason or 'neither layout could be reached'}"
        for gpu in stuck
    )
    indices = number_ranges((gpu.gpu for gpu in stuck), separator=", ")
    notes = (f"{short_line(causes, _MOST_NOTE)} (run {STUCK_COMMAND})", f"GPU {indices} is stuck")
    texts = ("; ".join(filter(None, (note, reason))) for note in notes if stuck)
    return next((text for text in texts if len(text) <= room), reason)


def _waits_for(state: ChangeState, evaluated: MigStatusAnnotation) -> str:
    request = state.request
    why = "another program changed the layout, so no pod is evicted: " if request.drift else ""
    if request.change is not None and request.change.programs:
        return f"{why}{in_use(request.change.programs)}"
    if evaluated.pods:
        return f"{why}it waits until the pods that use what would be destroyed have ended"
    return f"{why}it waits for the coordinator"


def _own_state_gone(metadata: Mapping[str, Any]) -> Decision:
    """The state's label is removed, and left alone where it is another manager's."""
    owners = writers(metadata, KeyLocation.NODE_LABEL, keys.MIG_CONFIG_STATE)
    if names.AGENT in owners:
        return Absent(reason="no layout is desired")
    return Keep(reason="another program has written it")
