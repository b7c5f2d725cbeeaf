# SPDX-License-Identifier: Apache-2.0
"""How MIG modes, instances and programs are written in tables of ``gpuscape mig``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from cli.terminal import Cell, Styled
from discovery.mig_state import MigGpu, MigReading, UnreadMigGpu
from discovery.model import Mode

NONE = Styled("-", "dim")
UNUSABLE = "no compute instance"
"""Of a GPU instance that no program can open."""


def split(readings: Iterable[MigReading]) -> tuple[list[MigGpu], list[UnreadMigGpu]]:
    """GPUs that were read in full, and the others."""
    read: list[MigGpu] = []
    unread: list[UnreadMigGpu] = []
    for gpu in readings:
        if isinstance(gpu, MigGpu):
            read.append(gpu)
        else:
            unread.append(gpu)
    return read, unread


def mode_cell(mode: Mode | None, *, resetless: bool = False) -> Cell:
    """``on``, ``off``, ``no MIG``; a mode that is not in force yet is marked."""
    if mode is None:
        return Styled("no MIG", "dim")
    now, after = ("on" if value else "off" for value in (mode.current, mode.pending))
    if now == after:
        return now
    return Styled(f"{now}, {after} {'pending' if resetless else 'after reset'}", "yellow")


def pending_note(gpu: MigGpu) -> str | None:
    """What has to happen before a pending mode is in force."""
    if gpu.mode is None or gpu.mode.current == gpu.mode.pending:
        return None
    after = "on" if gpu.mode.pending else "off"
    if gpu.resetless:
        return f"GPU {gpu.index}: MIG goes {after} when no program holds the GPU: set it again then"
    return f"GPU {gpu.index}: MIG goes {after} when the GPU is reset, or the machine restarted"


def unread_note(gpu: UnreadMigGpu) -> str:
    """Why a GPU's MIG state is not shown."""
    name = gpu.bus_id if gpu.index is None else f"{gpu.index} ({gpu.bus_id})"
    gap = gpu.gaps[0]
    return f"GPU {name}: not read: {gap.source}: {gap.detail}"


def pids(found: Sequence[int]) -> Cell:
    """Process ids; 0 is a process of another PID namespace."""
    return ", ".join("hidden" if pid == 0 else str(pid) for pid in found) or NONE


def numbers(of: Iterable[int]) -> str:
    """``0-3, 6``."""
    ordered = sorted(of)
    runs = (
        [number for _, number in run]
        for _, run in groupby(enumerate(ordered), lambda it: it[1] - it[0])
    )
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def units(start: int, size: int) -> str:
    """Memory units, ``4-7``."""
    return str(start) if size == 1 else f"{start}-{start + size - 1}"
