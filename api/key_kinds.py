# SPDX-License-Identifier: Apache-2.0
"""What a key in the cluster is: its name, where it stands, who alone writes it, and its values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class KeyLocation(StrEnum):
    """The kind of object field that a key stands in."""

    NODE_LABEL = "node-label"
    NODE_ANNOTATION = "node-annotation"
    POD_ANNOTATION = "pod-annotation"
    LEASE_ANNOTATION = "lease-annotation"
    NODE_TAINT = "node-taint"


class Writer(StrEnum):
    """Who alone may write a key."""

    AGENT = "agent"
    COORDINATOR = "coordinator"
    ADMIN = "admin"
    USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key, or one family of keys that differ in a ``<placeholder>``."""

    name: str
    """The exact key; in a family with its placeholder in angle brackets."""
    summary: str
    """What it says, for people."""
    value: str | None = None
    """Regular expression of the whole value; None where the value is JSON or free."""
    pattern: str | None = None
    """Regular expression of the family's keys; None for an exact key."""
    where: KeyLocation = KeyLocation.NODE_LABEL
    writer: Writer = Writer.AGENT
    source: str = ""
    """The NVML call, file or setting it rests on."""

    def matches(self, key: str) -> bool:
        """Whether ``key`` is this key or of this family."""
        if self.pattern is None:
            return key == self.name
        return re.fullmatch(self.pattern, key) is not None
