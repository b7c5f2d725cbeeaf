"""The log of calls on a simulated machine, written by all its clients."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path


def call_log(state_file: Path) -> Path:
    """Where the calls on the machine in a state file are logged."""
    return state_file.with_name(state_file.name + ".calls")


def log_call(path: Path, entry: str, bus_ids: Iterable[str]) -> None:
    """Append one call: a line so short that those of several processes never mix."""
    line = " ".join((entry, *dict.fromkeys(bus_ids))) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def logged_calls(path: Path) -> Counter[tuple[str, str | None]]:
    """Calls by C name and bus id: None for a call on no GPU, both for a call on two."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else ()
    counted: Counter[tuple[str, str | None]] = Counter()
    for entry, *bus_ids in map(str.split, lines):
        counted.update((entry, bus_id) for bus_id in bus_ids or (None,))
    return counted
