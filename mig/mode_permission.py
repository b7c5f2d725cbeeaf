# SPDX-License-Identifier: Apache-2.0
"""Permission of a change to switch the MIG mode of GPUs that need a reset for it. Values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from api.mig_mode_change import NO_FALLBACK, ModeChange, ResetFallback


@dataclass(frozen=True, slots=True, kw_only=True)
class ModePermission:
    """What a plan may do about modes that change only with a reset."""

    by: ModeChange = ModeChange.OFF
    fallback: ResetFallback = NO_FALLBACK
    begun: frozenset[str] = frozenset()
    """UUIDs of the GPUs whose mode this change switches, or has begun to switch: a mode that waits
    there is its own. On other GPUs it is somebody else's."""


NO_RESETS: Final = ModePermission()
