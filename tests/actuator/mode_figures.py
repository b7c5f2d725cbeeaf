# SPDX-License-Identifier: Apache-2.0
"""Figures of requests that switch MIG modes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class ModeFigures:
    """How requests ended."""

    requests: int = 0
    kills: int = 0
    boots: int = 0
    brought: int = 0
    """GPUs whose mode came with a boot that was asked for."""
    hung: int = 0
    given_up: int = 0
    switches: int = 0
    """GPUs that were to have another mode."""
    most_effects: int = 0
    most_seconds: float = 0.0
    ends: dict[str, int] = field(default_factory=dict)
    """Outcome and trouble of GPUs that requests named."""

    def join(self, other: ModeFigures) -> None:
        """Add up those of other requests."""
        for name in ("requests", "kills", "boots", "brought", "hung", "given_up", "switches"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.most_effects = max(self.most_effects, other.most_effects)
        self.most_seconds = max(self.most_seconds, other.most_seconds)
        for end, count in other.ends.items():
            self.ended(end, count)

    def ended(self, end: str, count: int = 1) -> None:
        """Count an end of GPUs."""
        self.ends[end] = self.ends.get(end, 0) + count
