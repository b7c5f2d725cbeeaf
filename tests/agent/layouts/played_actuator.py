# SPDX-License-Identifier: Apache-2.0
"""An actuator in this process: the journal, one change at a time, and its end when a test says so.

It answers as :mod:`actuator.service.transactions` does, in whose tests that is checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.layouts.change_state import ActuatorTask
from agent.layouts.desired_change import DesiredChange
from api.actuator.actuator_messages import (
    ActuatorAnswer,
    ActuatorRefusal,
    ApplyRequest,
    ChangeAnswer,
    KnownChange,
    RefusalAnswer,
    RequestedInstance,
    RequestedLayout,
    RestoreRequest,
    StateAnswer,
    StateRequest,
)
from api.mig_outcome import Outcome

NOBODY = "nobody answers at the socket"


def wanted(plan: str) -> DesiredChange:
    """A change of one GPU; its only profile is the layout's name."""
    instance = RequestedInstance(profile=plan, compute=(1,))
    return DesiredChange(
        plan=plan,
        request_text=plan,
        layouts={"GPU-0": RequestedLayout(mig=True, instances=(instance,))},
        gpus=(0,),
        modes=False,
        pods=frozenset(),
        other_pods=frozenset(),
        programs=(),
        on_gpus=(),
        allocatable={},
        strategy=None,
    )


@dataclass
class Record:
    """A change in the journal."""

    change: str
    wanted: str
    """The layout, by its name."""
    end: Outcome | None = None


@dataclass
class PlayedActuator:
    """GPUs with one layout by its name, and who changes it."""

    gpus: str = "none"
    verified: str = "none"
    """What a boot takes, and ``restore`` brings back."""
    alive: bool = True
    running: str | None = None
    """A change, or ``restore`` for what a boot took."""
    open: Record | None = None
    past: list[Record] = field(default_factory=list)
    began: list[str] = field(default_factory=list)
    """Names of changes, each time that one is begun; without those that were then refused."""

    def ask(self, task: ActuatorTask) -> ActuatorAnswer | str | None:
        """The answer; None: it comes when the change has ended."""
        if not self.alive:
            return NOBODY
        if isinstance(task, StateRequest):
            return self._state(task.change)
        known = next((one for one in self.past if one.change == task.change), None)
        if known is None and self.open is not None and self.open.change == task.change:
            known = self.open if self.open.end and isinstance(task, ApplyRequest) else None
        if known is not None and known.end is not None:
            return ChangeAnswer(change=task.change, outcome=known.end, again=True)
        if self.running is not None:
            return RefusalAnswer(refusal=ActuatorRefusal.BUSY, reason="busy", change=self.running)
        goes_back = isinstance(task, RestoreRequest) and self.open and self.open.end
        if self.open is not None and self.open.change != task.change and not goes_back:
            return RefusalAnswer(
                refusal=ActuatorRefusal.CONFLICT, reason="conflict", change=self.open.change
            )
        if self.open is None and isinstance(task, ApplyRequest):
            [layout] = {one.instances[0].profile for one in task.desired.values()}
            self.open = Record(task.change, layout)
            self.began.append(task.change)
        self.running = task.change
        return None

    def end(self, how: Outcome) -> ActuatorAnswer:
        """What runs ends so, as far as it can."""
        assert self.running is not None
        change, self.running = self.running, None
        record = self.open
        if record is None:
            came = self.gpus != self.verified
            self.gpus = self.verified
            return ChangeAnswer(
                change=change, outcome=Outcome.APPLIED if came else Outcome.UNCHANGED
            )
        if record.end is Outcome.STUCK and how in (Outcome.APPLIED, Outcome.REFUSED):
            how = Outcome.ROLLED_BACK  # it is restored, and no restore is refused
        if how is Outcome.REFUSED:  # nothing was begun
            self.open = None
            self.began.remove(change)
            return ChangeAnswer(change=change, outcome=how, reason="in use")
        record.end = how
        if how is Outcome.STUCK:
            self.gpus = "none"
        else:
            self.open = None
            self.past.append(record)
            self.gpus = record.wanted if how is Outcome.APPLIED else self.verified
        self.verified = self.gpus
        return ChangeAnswer(change=change, outcome=how, reason=f"{how}")

    def kill(self) -> None:
        """SIGKILL, its worker too."""
        self.alive, self.running = False, None

    def start(self) -> None:
        """The next one goes on with what was interrupted, and takes back what is held."""
        self.alive = True
        if self.open is not None:
            self.running = self.open.change
        elif self.gpus != self.verified:
            self.running = "restore-at-start"

    def boot(self) -> None:
        """The machine starts anew."""
        self.kill()
        self.gpus = "none"

    def _state(self, change: str | None) -> StateAnswer:
        records = [*self.past, *(() if self.open is None else (self.open,))]
        named = next((one for one in records if one.change == change), None)
        return StateAnswer(
            running=self.running,
            open=None if self.open is None else _known(self.open),
            last=_known(self.past[-1]) if self.past else None,
            named=None if named is None else _known(named),
        )


def _known(record: Record) -> KnownChange:
    return KnownChange(
        change=record.change,
        origin="",
        started="2026-01-01T00:00:00Z",
        gpus=("GPU-0",),
        outcome=record.end,
        reason="" if record.end is None else f"{record.end}",
    )
