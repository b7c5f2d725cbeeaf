# SPDX-License-Identifier: Apache-2.0
"""GPUs of a node in memory that outlive a killed change, and what can be made to go wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from actuator.mig_world import RESET_PATIENCE_SECONDS, StepFailed
from discovery.mig_state import MigGpu
from discovery.model import Mode
from mig.steps import MigStep
from mig.users.device_users import DeviceUser, DeviceUsers, MigPart, UserKind
from tests.mig.naive_gpu import NaiveGpu, RefusedStep


class Killed(BaseException):
    """The process is gone: nothing catches it."""


@dataclass
class Hardware:
    """The GPUs themselves."""

    gpus: list[NaiveGpu]
    held: dict[tuple[str, str, int], str] = field(default_factory=dict)
    """GPU, profile and start of an instance to the pod that holds it."""
    used: dict[str, str] = field(default_factory=dict)
    """GPU to a program that uses it as a whole."""
    lost: set[str] = field(default_factory=set)
    destroyed: list[tuple[str, int]] = field(default_factory=list)
    loads: int = 1
    """How often the driver was loaded."""

    def reboot(self) -> None:
        """No instance is left, nor the mode where the GPU does not keep it."""
        self.loads += 1
        for one in self.gpus:
            if one.gpu.mode is None:
                continue
            mode = Mode(current=False, pending=False) if one.gpu.resetless else one.gpu.mode
            one.gpu = replace(one.gpu, instances=(), mode=mode)

    @classmethod
    def of(cls, gpus: Iterable[MigGpu]) -> Hardware:
        """GPUs in this state."""
        return cls([NaiveGpu(gpu) for gpu in gpus])

    def seen(self) -> tuple[MigGpu, ...]:
        """As the driver reports them."""
        return tuple(one.gpu for one in self.gpus if one.gpu.uuid not in self.lost)


class Effects:
    """Counts effects, and ends the process before or after one of them."""

    def __init__(self, kill_at: int | None = None) -> None:
        """``kill_at``: 2n is before effect n, 2n + 1 after it."""
        self.count = 0
        self._kill_at = kill_at

    def __call__(self) -> Iterator[None]:
        """Around one effect."""
        moment = 2 * self.count
        self.count += 1
        if moment == self._kill_at:
            raise Killed
        yield
        if moment + 1 == self._kill_at:
            raise Killed


@dataclass
class PlayedWorld:
    """The world of one process."""

    hardware: Hardware
    effects: Effects = field(default_factory=Effects)
    fails: dict[int, StepFailed] = field(default_factory=dict)
    """Which step, counted from 0, fails without an effect, and how."""
    lies: dict[int, StepFailed | None] = field(default_factory=dict)
    """Which step has its effect and fails all the same; None: has none and succeeds."""
    loses: dict[int, str] = field(default_factory=dict)
    """Which step is the last thing that a GPU sees."""
    grabs: dict[int, tuple[str, str, int]] = field(default_factory=dict)
    """Before which step a pod takes an instance."""
    taken: list[MigStep] = field(default_factory=list)
    paused: float = 0.0
    reset_patience_seconds: float = RESET_PATIENCE_SECONDS
    unread: dict[str, str] = field(default_factory=dict)

    def observe(self, gpus: Collection[str] = ()) -> Sequence[MigGpu]:
        """Those that are not lost."""
        return tuple(one for one in self.hardware.seen() if not gpus or one.uuid in gpus)

    def device_users(self) -> DeviceUsers:
        """Pods on the instances that they hold, programs on whole GPUs."""
        whole = {
            MigPart(gpu, None): frozenset({DeviceUser(UserKind.PROCESS, program)})
            for gpu, program in self.hardware.used.items()
        }
        return whole | {
            MigPart(gpu.uuid, one.id): frozenset({DeviceUser(UserKind.POD, pod)})
            for gpu in self.hardware.seen()
            for one in gpu.instances
            if (pod := self.hardware.held.get((gpu.uuid, one.profile, one.start))) is not None
        }

    def perform(self, step: MigStep) -> None:
        """On the hardware, unless it is to fail."""
        number = len(self.taken)
        self.taken.append(step)
        for _ in self.effects():
            if number in self.loses:
                self.hardware.lost.add(self.loses[number])
                raise StepFailed("NVML_ERROR_GPU_IS_LOST")
            if number in self.fails:
                raise self.fails[number]
            if number not in self.lies or self.lies[number] is not None:
                self._take(step)
            lie = self.lies.get(number)
            if lie is not None:
                raise lie
        if number in self.grabs:
            self.hardware.held[self.grabs[number]] = "ns/late"

    def why_together(self) -> str:
        """It has no NVSwitches."""
        return ""

    def reset_by_smi(self, modes: Mapping[str, bool], note: Callable[[], None]) -> None:
        """It has no nvidia-smi."""
        raise StepFailed(f"{modes}: {note}")

    def leave_mode(self, gpu: str, *, on: bool) -> bool:
        """It has no boot."""
        raise StepFailed(f"{gpu}: {on}")

    def reopen(self) -> None:
        """Nothing is held open."""

    def pause(self, seconds: float) -> None:
        """Time passes at once."""
        self.paused += seconds

    def boot(self) -> str:
        """Always the same."""
        return "boot-1"

    def driver_load(self) -> str:
        """Of the hardware."""
        return f"load-{self.hardware.loads}"

    def now(self) -> str:
        """Always the same."""
        return "2026-11-23T10:00:00Z"

    def _take(self, step: MigStep) -> None:
        gpu = next(one for one in self.hardware.gpus if one.gpu.uuid == step.gpu)
        before = {one.id: one for one in gpu.gpu.instances}
        try:
            gpu.take(step)
        except RefusedStep as error:
            raise StepFailed(str(error)) from error
        for gone in before.keys() - {one.id for one in gpu.gpu.instances}:
            key = (step.gpu, before[gone].profile, before[gone].start)
            if key in self.hardware.held:
                raise AssertionError(f"a busy instance was destroyed: {key}")
            self.hardware.destroyed.append((step.gpu, before[gone].start))
