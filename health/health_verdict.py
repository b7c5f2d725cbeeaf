# SPDX-License-Identifier: Apache-2.0
"""Health of a GPU or node, from best to worst, and the cause that a table gives for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Health(IntEnum):
    """Health of a GPU or node, from best to worst."""

    HEALTHY = 0
    UNKNOWN = 1
    DEGRADED = 2  # works, and needs attention
    UNHEALTHY = 3  # work on it fails, or will

    @property
    def word(self) -> str:
        """The health as a label value."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthVerdict:
    """Health of a GPU or node with its cause."""

    health: Health
    reason: str = ""
    """Short word, legal as a label value; empty when healthy."""
    bus_id: str | None = None
    """Bus id of the GPU that the verdict is about; None for the whole node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCause:
    """A row of a health table: while it holds, the GPU or node is no better than ``health``."""

    reason: str
    """Short word, legal as a label value."""
    health: Health
    meaning: str
    source: str
    fix: str
    """What an admin does, as a sentence."""
    page: str
    """Path of the page that says more, from ``docs/``."""
