# SPDX-License-Identifier: Apache-2.0
"""How a planned change of MIG layouts, or why there is none, is written for people and scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from cli import terminal
from cli.mig.mig_words import NONE, UNUSABLE, numbers, units
from cli.terminal import Cell, Styled, TextTable
from discovery.mig_state import MigGpu
from mig.gpu_layout import GpuLayout, WantedInstance
from mig.holders import HolderKind, MigHolder, MigHolders
from mig.planned_change import Fate, GpuChange, InstanceChange, planned_changes
from mig.planner import MigPlan, MigRefusal, Obstacle, joint_command
from mig.steps import (
    CreateCompute,
    CreateInstance,
    DestroyCompute,
    DestroyInstance,
    MigStep,
    SetMode,
)

_MARKS: Final[Mapping[Fate, Cell]] = {
    Fate.KEEP: " ",
    Fate.DESTROY: Styled("-", "red"),
    Fate.CREATE: Styled("+", "green"),
}

_STEP_NAMES: Final[Mapping[type[MigStep], str]] = {
    DestroyCompute: "destroy-compute-instance",
    DestroyInstance: "destroy-gpu-instance",
    SetMode: "set-mode",
    CreateInstance: "create-gpu-instance",
    CreateCompute: "create-compute-instance",
}

_NO_DEVICES: Final = "Allocatable then: nothing, neither GPUs nor MIG devices."
"""Of a node whose GPUs have MIG on and no instance."""
_NOTHING: Final[Mapping[str, Any]] = {"gpus": [], "steps": [], "disturbed": [], "allocatable": None}
"""Of a document, where there is no plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPlan:
    """A plan or a refusal, with what it was made from."""

    asked: str
    gpus: tuple[MigGpu, ...]
    """All of the machine."""
    layouts: Mapping[str, GpuLayout]
    """By GPU UUID: what is wanted."""
    found: MigPlan | MigRefusal
    holders: MigHolders


def layout_words(layout: GpuLayout) -> str:
    """A layout in one line: ``2 x 1g.5gb, 1 x 3g.20gb at 4``."""
    if not layout.mig:
        return "MIG off"
    found = Counter(_wanted_words(one) for one in layout.instances)
    return ", ".join(f"{count} x {text}" for text, count in found.items()) or "MIG on, empty"


def _wanted_words(one: WantedInstance) -> str:
    at = f" at {one.start}" if one.start >= 0 else ""
    return f"{instance_words(one.profile, one.compute)}{at}"


def instance_words(profile: str, compute: Sequence[int]) -> str:
    """A GPU instance, and its compute instances where it is not one that takes all of it."""
    if tuple(compute) == (int(profile.partition("g.")[0]),):
        return profile
    if not compute:
        return f"{profile}: {UNUSABLE}"
    return f"{profile} in {'+'.join(f'{slices}c' for slices in compute)}"


# for people


def show_plan(shown: ShownPlan) -> None:
    """Print it as tables and lines."""
    if isinstance(shown.found, MigRefusal):
        _show_refusal(shown.gpus, shown.found)
        return
    changes = planned_changes(shown.gpus, shown.layouts, shown.found, shown.holders)
    changing = [one for one in changes if one.steps]
    for alike in _alike(changing):
        terminal.note(_title(alike))
        if alike[0].instances:
            terminal.show(change_table(alike[0]))
        terminal.note("")
    for line in (*_others(shown, changes), *_summary(shown.found, changing)):
        terminal.note(line)


def _alike(changes: Iterable[GpuChange]) -> list[list[GpuChange]]:
    """GPUs on which the same happens, to the same holders; in the order of the first of each."""
    groups: dict[object, list[GpuChange]] = {}
    for one in changes:
        groups.setdefault(replace(one, index=0, uuid=""), []).append(one)
    return list(groups.values())


def _title(alike: Sequence[GpuChange]) -> str:
    one = alike[0]
    fates = Counter(each.fate for each in one.instances)
    parts = [
        f"{fates[fate]} {word}"
        for fate, word in (
            (Fate.KEEP, "kept"),
            (Fate.DESTROY, "destroyed"),
            (Fate.CREATE, "created"),
        )
        if fates[fate]
    ]
    words = [*_mode_words(one), *parts]
    each = ", each" if len(alike) > 1 else ""
    return f"GPU {numbers(it.index for it in alike)} ({one.model}){each}: {', '.join(words)}"


def _mode_words(one: GpuChange) -> Iterator[str]:
    if one.mode is None or not one.sets_mode:
        return
    now, after = (_word(one.mode.current), _word(one.mode_after))
    if now == after:
        yield f"MIG stays {now}, and no longer waits to be {_word(not one.mode_after)}"
    else:
        yield f"MIG goes {after}"


def change_table(change: GpuChange) -> TextTable:
    """A row for each instance that is there, or will be."""
    return TextTable(
        header=("", "INSTANCE", "PROFILE", "UNITS", "PROGRAMS"),
        rows=tuple(
            (
                _MARKS[one.fate],
                "new" if one.id is None else str(one.id),
                _profile_cell(one),
                units(one.start, one.size),
                ", ".join(map(_holder_words, one.holders)) or NONE,
            )
            for one in change.instances
        ),
    )


def _holder_words(holder: MigHolder) -> str:
    return holder.name if holder.kind is HolderKind.PROCESS else str(holder)


def _profile_cell(one: InstanceChange) -> Cell:
    words = instance_words(one.profile, one.compute)
    if one.added:
        return Styled(f"{words}, new: {'+'.join(f'{each}c' for each in one.added)}", "green")
    return words


def _others(shown: ShownPlan, changes: Sequence[GpuChange]) -> Iterator[str]:
    """GPUs that stay as they are, and why."""
    same = [one.index for one in changes if not one.steps]
    left = [gpu.index for gpu in shown.gpus if gpu.uuid not in shown.layouts and gpu.mode]
    without = [gpu.index for gpu in shown.gpus if gpu.mode is None]
    if same:
        yield f"GPU {numbers(same)}: as wanted"
    if left:
        yield f"GPU {numbers(left)}: not in this layout, left as they are"
    if without:
        yield f"GPU {numbers(without)}: no MIG"
    if same or left or without:
        yield ""


def _summary(found: MigPlan, changing: Sequence[GpuChange]) -> Iterator[str]:
    if not found.steps:
        yield "Nothing to do."
    else:
        created = sum(one.fate is Fate.CREATE for each in changing for one in each.instances)
        yield (
            f"Plan: {len(found.steps)} steps; instances: {len(found.kept)} kept,"
            f" {len(found.destroyed)} destroyed, {created} created."
        )
        if found.disturbed:
            yield "Disturbed:"
            yield from (f"  {holder}" for holder in sorted(found.disturbed))
        else:
            yield "Disturbed: nobody."
    if found.allocatable is not None:
        yield "Allocatable then:" if found.allocatable else _NO_DEVICES
        yield from (f"  {name}: {count}" for name, count in found.allocatable.items())


def _show_refusal(gpus: Sequence[MigGpu], refusal: MigRefusal) -> None:
    terminal.note("Refused: there is no plan.")
    groups: dict[object, list[Obstacle]] = {}
    for one in refusal.obstacles:
        groups.setdefault((one.kind, one.detail, one.nearest), []).append(one)
    index = {gpu.uuid: gpu.index for gpu in gpus}
    for alike in groups.values():
        one = alike[0]
        indices = [index[each.gpu] for each in alike if each.gpu in index]
        title = f"GPU {numbers(indices)}" if indices else (one.gpu or "This node")
        terminal.note("", f"{title}: {one.kind}: {one.detail}")
        if one.nearest is not None:
            terminal.note(f"  the most of it that fits: {layout_words(one.nearest)}")
        for holder in sorted(one.holders):
            terminal.note(f"  in the way: {holder}")
        command = joint_command(alike)
        if command is not None:
            terminal.note(f"  run, when nothing uses the GPU{'s' if len(alike) > 1 else ''}:")
            terminal.note(f"    {command}")


def _word(on: bool) -> str:
    return "on" if on else "off"


# for scripts


def plan_document(shown: ShownPlan) -> dict[str, Any]:
    """All of it as plain values; the same keys whatever the answer is."""
    found = shown.found
    same = {"asked": shown.asked, "result": plan_result(found)}
    if isinstance(found, MigRefusal):
        obstacles = [_obstacle_document(one) for one in found.obstacles]
        return same | dict(_NOTHING) | {"obstacles": obstacles}
    changes = planned_changes(shown.gpus, shown.layouts, found, shown.holders)
    return same | {
        "gpus": [_gpu_document(one) for one in changes],
        "steps": [_step_document(one) for one in found.steps],
        "disturbed": _holder_documents(found.disturbed),
        "allocatable": found.allocatable,
        "obstacles": [],
    }


def plan_result(found: MigPlan | MigRefusal) -> str:
    """In one word: ``steps``, ``nothing``, ``refused``."""
    if isinstance(found, MigRefusal):
        return "refused"
    return "steps" if found.steps else "nothing"


def _gpu_document(one: GpuChange) -> dict[str, Any]:
    return {
        "index": one.index,
        "uuid": one.uuid,
        "model": one.model,
        "mode": one.mode,
        "mode_after": one.mode_after,
        "instances": [
            {
                "fate": each.fate,
                "id": each.id,
                "profile": each.profile,
                "start": each.start,
                "size": each.size,
                "compute_slices": list(each.compute),
                "added_compute_slices": list(each.added),
                "holders": _holder_documents(each.holders),
            }
            for each in one.instances
        ],
    }


def _step_document(step: MigStep) -> dict[str, Any]:
    return {"step": _STEP_NAMES[type(step)], **asdict(step)}


def _holder_documents(holders: Iterable[MigHolder]) -> list[dict[str, str]]:
    return [{"kind": one.kind, "name": one.name} for one in sorted(holders)]


def _obstacle_document(one: Obstacle) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "gpu": one.gpu,
        "detail": one.detail,
        "limit": one.limit,
        "nearest": None if one.nearest is None else layout_document(one.nearest),
        "holders": _holder_documents(one.holders),
        "command": one.command,
    }


def layout_document(layout: GpuLayout) -> dict[str, Any]:
    """A layout as plain values."""
    return {
        "mig": layout.mig,
        "instances": [
            {
                "profile": one.profile,
                "compute_slices": list(one.compute),
                "start": None if one.start < 0 else one.start,
            }
            for one in layout.instances
        ],
    }
