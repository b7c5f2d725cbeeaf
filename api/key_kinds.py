# SPDX-License-Identifier: Apache-2.0
"""Keys in the cluster: name, kind of object field, the one writer, and the form of values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


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
    """A key in the cluster, or a family of keys that differ in a ``<placeholder>``."""

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


# Keys of Node labels that an admin's rules make. Source: Kubernetes documentation, "Labels and
# Selectors", syntax.
RESERVED: Final = ("kubernetes.io", "k8s.io", "nvidia.com", "gpuscape.io")
"""Prefixes that no rule may write under, nor under their subdomains: those of Kubernetes and of
Node Feature Discovery, NVIDIA's, and our own, whose keys have one writer each."""

MOST_RULES: Final = 32
"""Labels that rules may make on one Node."""

PREFIX_PATTERN: Final = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
NAME_PATTERN: Final = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
RESERVED_PATTERN: Final = rf"([^/]*\.)?({'|'.join(map(re.escape, RESERVED))})/.*"
_MOST_PREFIX: Final = 253
_MOST_NAME: Final = 63


def rule_key_fault(key: str) -> str | None:
    """Why a rule cannot write the label ``key``, with the fix; None when it can."""
    prefix, slash, name = key.partition("/")
    if not (prefix and slash):
        return "it has no prefix: put a domain of yours before it, as in example.com/gpu-type"
    if len(prefix) > _MOST_PREFIX or not re.fullmatch(PREFIX_PATTERN, prefix):
        return (
            f"the part before the slash is no domain of up to {_MOST_PREFIX} lower-case letters,"
            " digits, dashes and dots"
        )
    if len(name) > _MOST_NAME or not re.fullmatch(NAME_PATTERN, name):
        return (
            f"the part after the slash has up to {_MOST_NAME} letters, digits, dashes, underscores"
            " and dots, a letter or digit first and last"
        )
    if re.fullmatch(RESERVED_PATTERN, key):
        return f"{prefix} is reserved: use a domain of yours, as in example.com/gpu-type"
    return None


def is_rule_key(key: str) -> bool:
    """Whether a rule could have written this label."""
    return rule_key_fault(key) is None


def keys_of_rules(names: Iterable[str]) -> tuple[Key, ...]:
    """These label keys as those of rules, each once, in their order."""
    return tuple(Key(name=name, summary="by a rule of yours") for name in dict.fromkeys(names))
