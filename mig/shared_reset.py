# SPDX-License-Identifier: Apache-2.0
"""GPUs that are reset in one command or not at all, and the requests that this allows. Pure.

Source: nvidia-smi(1), ``--gpu-reset``: without Fabric Manager all GPUs that NVLinks join.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from discovery.mig_state import MigGpu
from mig.planner import MigRefusal, Obstacle, ObstacleKind


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedReset:
    """How the GPUs of a machine are reset."""

    why: str = ""
    """Why no GPU is reset alone; empty where each one is."""
    is_allowed: bool = False
    """Whether all of them may be reset in one command."""

    def refusal(
        self, gpus: Sequence[MigGpu], switched: Collection[str], unread: Iterable[str]
    ) -> MigRefusal | None:
        """Why the modes of these GPUs, by UUID, cannot be switched; None where they can.

        None is reset for another one's sake, so all have to be switched. ``gpus``: all of the
        machine that could be read; ``unread``: bus ids of the others.
        """
        if not self.why or not switched:
            return None
        others = [gpu.bus_id for gpu in gpus if gpu.uuid not in switched] + list(unread)
        if self.is_allowed and not others:
            return None
        also = f" and request another mode of GPU {', '.join(others)} too" if others else ""
        detail = f"{self.why}, or allow mig-reset{also}"
        needed = Obstacle(kind=ObstacleKind.RESET_NEEDED, gpu=None, detail=detail)
        return MigRefusal(obstacles=(needed,))


ONE_BY_ONE: Final = SharedReset()
