# SPDX-License-Identifier: Apache-2.0
"""The desired layout of a Node by one reading of its GPUs. A value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.layouts.desired_change import DesiredChange


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredLayout:
    """The desired layout, evaluated by the GPUs as they were read."""

    key: object
    """Equal for equal requests; None where nothing is requested."""
    change: DesiredChange | None = None
    """The change to make; None where there is nothing to change, or no way to do it."""
    unchanged: bool = False
    """Whether the GPUs have the desired layout."""
    changes: int
    """Number of changes of the GPUs that were known when they were read."""
    plan: str = ""
    """Digest of the desired layouts; empty where it is not known."""
