# SPDX-License-Identifier: Apache-2.0
"""The interface through which a change of MIG layouts reads and changes the machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from base.errors import GpuscapeError
from discovery.mig_state import MigGpu
from mig.steps import MigStep
from mig.users.device_users import DeviceUsers


class StepFailed(GpuscapeError):
    """The driver refused a step, or the state could not be read."""

    def __init__(self, why: str, *, passes: bool = False, needs_reset: bool = False) -> None:
        """``passes``: the cause may disappear within seconds, such as a process that ends.

        ``needs_reset``: the step lacks a reset of the GPU, which the driver does not make.
        """
        super().__init__(why)
        self.passes = passes
        self.needs_reset = needs_reset


RESET_PATIENCE_SECONDS: Final = 40.0
"""Time for which the resets of a process wait: a monitor's pod that is being removed has 30 s to
end. All GPUs share it, since one program may have all of them open."""


class MigWorld(Protocol):
    """The GPUs of this node."""

    reset_patience_seconds: float
    """Time for which resets may still wait for programs that have GPUs open, all GPUs together."""
    unread: dict[str, str]
    """Bus id to reason of the GPUs that their last observation left out."""

    def observe(self, gpus: Collection[str] = ()) -> Sequence[MigGpu]:
        """All GPUs, or those with these UUIDs, read now; without GPUs that cannot be read whole.

        Raises StepFailed where the driver does not answer at all.
        """

    def device_users(self) -> DeviceUsers:
        """Device users of the GPUs that were observed last, read now.

        Raises StepFailed where that cannot be known.
        """

    def perform(self, step: MigStep) -> None:
        """Take a step. Raises StepFailed; whether it took effect is then not known."""

    def why_together(self) -> str:
        """Why no GPU here can be reset alone; empty where each one can."""

    def reset_by_smi(self, modes: Mapping[str, bool], note: Callable[[], None]) -> None:
        """Have nvidia-smi reset GPUs in one command, for modes by UUID.

        ``note`` is called just before it begins, and may raise StepFailed. Raises StepFailed where
        a GPU does not have its mode then.
        """

    def leave_mode(self, gpu: str, *, on: bool) -> bool:
        """Ask for a MIG mode of an observed GPU that comes with the next boot.

        False where it holds at once. Raises StepFailed; the mode does not wait then.
        """

    def reopen(self) -> None:
        """End the session with the driver, and begin another. Raises StepFailed."""

    def pause(self, seconds: float) -> None:
        """Wait before a failed step is tried again."""

    def boot(self) -> str:
        """The kernel's boot id."""

    def driver_load(self) -> str:
        """Id of the driver's load: it changes with each boot and load, which destroy instances."""

    def now(self) -> str:
        """Current time in RFC 3339."""
