# SPDX-License-Identifier: Apache-2.0
"""What a change of MIG layouts needs of the machine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from base.errors import GpuscapeError
from discovery.mig_state import MigGpu
from mig.holders import MigHolders
from mig.steps import MigStep


class StepFailed(GpuscapeError):
    """The driver refused a step, or the state could not be read."""

    def __init__(self, why: str, *, passes: bool = False) -> None:
        """``passes``: the cause may go away by itself within seconds, as a process that ends."""
        super().__init__(why)
        self.passes = passes


class MigWorld(Protocol):
    """The GPUs of this node."""

    def observe(self, gpus: Collection[str] = ()) -> Sequence[MigGpu]:
        """All of them, or those with these UUIDs, read now; what cannot be read whole is left out.

        Raises StepFailed where the driver does not answer at all.
        """

    def holders(self) -> MigHolders:
        """Who holds what on the GPUs that were observed last, read now.

        Raises StepFailed where that cannot be known.
        """

    def perform(self, step: MigStep) -> None:
        """Do one step. Raises StepFailed; whether it took effect is then not known."""

    def reopen(self) -> None:
        """End the session with the driver, and begin another. Raises StepFailed."""

    def pause(self, seconds: float) -> None:
        """Wait, before what failed is tried again."""

    def boot(self) -> str:
        """The kernel's boot id."""

    def driver_load(self) -> str:
        """What is another one after each boot and each load of the driver: instances are gone."""

    def now(self) -> str:
        """RFC 3339."""
