# SPDX-License-Identifier: Apache-2.0
"""Readings from files below one root: each gives a value, or None and the reason why not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from discovery.model import Gap, Reason

_T = TypeVar("_T")

_CPU_LIST = re.compile(r"([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?")


class ValueUnknown(Exception):
    """The kernel says that it does not know."""


class SysfsFiles:
    """Reads below one root and keeps a gap for each reading that could not be had."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.gaps: list[Gap] = []

    def read(self, field: str, path: str, parse: Callable[[str], _T]) -> _T | None:
        """The parsed text of one file; None together with a new gap."""
        return self.ask(field, path, lambda file: parse(file.read_text("utf-8", "replace").strip()))

    def ask(self, field: str, path: str, read: Callable[[Path], _T]) -> _T | None:
        """Result of ``read`` for one path; None together with a new gap when it raises.

        OSError, ValueError (the content is garbage) and ValueUnknown are understood.
        """
        try:
            return read(self.root / path)
        except (OSError, ValueError, ValueUnknown) as error:
            detail = getattr(error, "strerror", None) or str(error)
            self.miss(field, _reason(error), path, detail)
            return None

    def miss(self, field: str, reason: Reason, source: str, detail: str) -> None:
        """Keep a gap."""
        self.gaps.append(Gap(what=field, reason=reason, source=source, detail=detail))


def _reason(error: Exception) -> Reason:
    match error:
        case FileNotFoundError() | NotADirectoryError():
            return Reason.ABSENT
        case PermissionError():
            return Reason.FORBIDDEN
        case ValueUnknown():
            return Reason.UNSUPPORTED
        case ValueError():
            return Reason.GARBAGE
        case _:
            return Reason.FAILED


def hexadecimal(text: str) -> int:
    """The number that hexadecimal text stands for. Raises ValueError."""
    return int(text, 16)


def numa_node(text: str) -> int:
    """The NUMA node. Raises ValueUnknown for the kernel's -1, ValueError for no number."""
    if (node := int(text)) < 0:
        raise ValueUnknown(f"the kernel names no NUMA node ({node})")
    return node


def cpu_list(text: str) -> str:
    """The text, if it is in the kernel's list format; raises ValueError if not."""
    if not _CPU_LIST.fullmatch(text):
        raise ValueError(f"not a CPU list: {text!r}")
    return text


def cpu_count(text: str) -> int:
    """How many CPUs a list names. Raises ValueError as :func:`cpu_list` does."""
    spans = [part.split("-") for part in cpu_list(text).split(",") if part]
    return sum(int(span[-1]) - int(span[0]) + 1 for span in spans)
