# SPDX-License-Identifier: Apache-2.0
"""Text of MIG modes, instances and programs in the tables of ``gpuscape mig``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from api.mig_outcome import Outcome
from base.text.number_ranges import number_ranges
from cli.terminal import NONE, Cell, Styled
from discovery.mig_state import MigGpu, UnreadMigGpu
from discovery.model import Mode

UNUSABLE = "no compute instance"
"""Text for a GPU instance that no program can open."""
_OUTCOME_STYLES: Mapping[Outcome | None, str] = {
    Outcome.APPLIED: "green",
    Outcome.UNCHANGED: "dim",
    Outcome.ROLLED_BACK: "yellow",
    Outcome.STUCK: "bold red",
}


def outcome_text(outcome: Outcome | None) -> str:
    """How the change of a GPU ended; None: it has not."""
    return "not ended" if outcome is None else str(outcome)


def outcome_cell(outcome: Outcome | None) -> Cell:
    """:func:`outcome_text` for a table."""
    return Styled(outcome_text(outcome), _OUTCOME_STYLES.get(outcome, "bold yellow"))


def mode_cell(mode: Mode | None, *, resetless: bool = False) -> Cell:
    """Cell with a MIG mode: ``on``, ``off``, ``no MIG``; a pending mode is marked."""
    if mode is None:
        return Styled("no MIG", "dim")
    now, after = ("on" if value else "off" for value in (mode.current, mode.pending))
    if now == after:
        return now
    return Styled(f"{now}, {after} {'pending' if resetless else 'after reset'}", "yellow")


def pending_note(gpu: MigGpu) -> str | None:
    """Event that brings a pending mode into force, in one line; None where no mode is pending."""
    if gpu.mode is None or gpu.mode.current == gpu.mode.pending:
        return None
    after = "on" if gpu.mode.pending else "off"
    if gpu.resetless:
        return f"GPU {gpu.index}: MIG goes {after} when no program uses the GPU: set it again then"
    return f"GPU {gpu.index}: MIG goes {after} when the GPU is reset, or the machine is restarted"


def unread_note(gpu: UnreadMigGpu) -> str:
    """Line on a GPU whose MIG state could not be read, and why."""
    name = gpu.bus_id if gpu.index is None else f"{gpu.index} ({gpu.bus_id})"
    gap = gpu.gaps[0]
    return f"GPU {name}: not read: {gap.source}: {gap.detail}"


def pid_cell(process_ids: Sequence[int]) -> Cell:
    """Cell with process ids; 0 is a process of another PID namespace."""
    return ", ".join("hidden" if pid == 0 else str(pid) for pid in process_ids) or NONE


def gpu_numbers(numbers: Iterable[int]) -> str:
    """Numbers of GPUs as ranges in ascending order: ``0-3, 6``."""
    return number_ranges(numbers, separator=", ")


def unit_range(start: int, size: int) -> str:
    """Memory units of a placement as a range: ``4-7``."""
    return str(start) if size == 1 else f"{start}-{start + size - 1}"
