# SPDX-License-Identifier: Apache-2.0
"""Text and documents of a planned change of MIG layouts, or of its refusal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from api.mig_mode_change import MigReset
from base.grouping import grouped
from cli import terminal
from cli.mig.mig_text import gpu_numbers, unit_range
from cli.terminal import NONE, Cell, Styled, TextTable
from discovery.mig_state import MigGpu
from mig.gpu_layout import DesiredInstance, GpuLayout
from mig.gpu_plan import GpuPlan, InstanceAction, InstanceChange
from mig.planned_layouts import PlannedLayouts
from mig.planner import MigPlan, MigRefusal, Obstacle, joint_command
from mig.steps import (
    CreateCompute,
    CreateInstance,
    DestroyCompute,
    DestroyInstance,
    MigStep,
    SetMode,
)
from mig.users.device_users import DeviceUser, UserKind

_MARKS: Final[Mapping[InstanceAction, Cell]] = {
    InstanceAction.KEEP: " ",
    InstanceAction.DESTROY: Styled("-", "red"),
    InstanceAction.CREATE: Styled("+", "green"),
}

_CHANGED: Final[Cell] = Styled("~", "yellow")
"""Mark of a kept GPU instance in which compute instances are destroyed or created."""

_STEP_NAMES: Final[Mapping[type[MigStep], str]] = {
    DestroyCompute: "destroy-compute-instance",
    DestroyInstance: "destroy-gpu-instance",
    SetMode: "set-mode",
    CreateInstance: "create-gpu-instance",
    CreateCompute: "create-compute-instance",
}

_NO_DEVICES: Final = "Allocatable then: nothing, neither GPUs nor MIG devices."
"""Line for a node whose GPUs have MIG on and no instance."""
_NOTHING: Final[Mapping[str, Any]] = {"gpus": [], "steps": [], "disturbed": [], "allocatable": None}
"""Keys of a plan's document with their values where there is no plan."""


# for people


def show_plan(planned: PlannedLayouts) -> None:
    """Print a plan or a refusal as tables and lines."""
    if isinstance(planned.plan_or_refusal, MigRefusal):
        _show_refusal(planned.gpus, planned.plan_or_refusal)
        return
    changes = planned.changes
    changing = [change for change in changes if change.steps]
    for equal_changes in grouped(changing, _effect).values():
        terminal.note(_title(equal_changes))
        if equal_changes[0].instances:
            terminal.show_table(change_table(equal_changes[0]))
        terminal.note("")
    terminal.note(*_unchanged_gpus(planned, changes), *_summary(planned.plan_or_refusal))
    terminal.note(*_about_resets(planned))


def _effect(change: GpuPlan) -> Hashable:
    """What equal changes with equal device users have in common."""
    gpu = change.gpu
    return gpu.model, gpu.mode, change.after.mig, change.resets, change.instances


def _title(changes: Sequence[GpuPlan]) -> str:
    first = changes[0]
    actions = Counter(instance.action for instance in first.instances)
    parts = [
        f"{actions[action]} {word}"
        for action, word in (
            (InstanceAction.KEEP, "kept"),
            (InstanceAction.DESTROY, "destroyed"),
            (InstanceAction.CREATE, "created"),
        )
        if actions[action]
    ]
    words = [*_mode_text(first), *parts]
    suffix = ", each" if len(changes) > 1 else ""
    indices = gpu_numbers(change.gpu.index for change in changes)
    return f"GPU {indices} ({first.gpu.model}){suffix}: {', '.join(words)}"


def _mode_text(change: GpuPlan) -> Iterator[str]:
    mode, after = change.gpu.mode, change.after.mig
    if mode is None or not change.sets_mode:
        return
    if mode.current == after:
        yield f"MIG stays {_on_off(after)}, and no longer waits to be {_on_off(not after)}"
    else:
        yield f"MIG goes {_on_off(after)}{' by a reset of the GPU' if change.resets else ''}"


def change_table(change: GpuPlan) -> TextTable:
    """Table of a GPU's change, a row for each present or new instance."""
    return TextTable(
        header=("", "INSTANCE", "PROFILE", "UNITS", "PROGRAMS"),
        rows=tuple(
            (
                _CHANGED if instance.added or instance.removed else _MARKS[instance.action],
                "new" if instance.id is None else str(instance.id),
                _profile_cell(instance),
                unit_range(instance.start, instance.size),
                ", ".join(map(_user_text, instance.users)) or NONE,
            )
            for instance in change.instances
        ),
    )


def _user_text(user: DeviceUser) -> str:
    return user.name if user.kind is UserKind.PROCESS else str(user)


def _profile_cell(instance: InstanceChange) -> Cell:
    words = [str(DesiredInstance(instance.profile, instance.compute))]
    for word, sizes in (("destroyed", instance.removed), ("new", instance.added)):
        if sizes:
            words.append(f"{word}: {'+'.join(f'{slices}c' for slices in sizes)}")
    return Styled(", ".join(words), "yellow") if len(words) > 1 else words[0]


def _unchanged_gpus(planned: PlannedLayouts, changes: Sequence[GpuPlan]) -> Iterator[str]:
    """Lines on the GPUs that stay as they are, and why."""
    unchanged = [change.gpu.index for change in changes if not change.steps]
    unnamed = [gpu.index for gpu in planned.gpus if gpu.uuid not in planned.layouts and gpu.mode]
    incapable = [gpu.index for gpu in planned.gpus if gpu.mode is None]
    if unchanged:
        yield f"GPU {gpu_numbers(unchanged)}: as desired"
    if unnamed:
        yield f"GPU {gpu_numbers(unnamed)}: not in this layout, left as they are"
    if incapable:
        yield f"GPU {gpu_numbers(incapable)}: no MIG"
    if unchanged or unnamed or incapable:
        yield ""


def _about_resets(planned: PlannedLayouts) -> Iterator[str]:
    """Lines on the GPUs that the driver resets, and on what is not known before."""
    if planned.resets:
        indices = gpu_numbers(planned.resets)
        yield f"Reset by the driver: GPU {indices}. No program may have a GPU open for it."
        if planned.modes.fallback.reset is MigReset.ALLOW:
            yield "Where the driver does not, its nvidia-smi does, once for each GPU."
        yield "The agent does this where mig-mode-change is driver."
    if planned.assumed:
        indices = gpu_numbers(planned.assumed)
        yield f"By the table of known models: GPU {indices}. The driver knows more once MIG is on."


def _summary(plan: MigPlan) -> Iterator[str]:
    if not plan.steps:
        yield "Nothing to do."
    else:
        instances = [instance for change in plan.gpus for instance in change.instances]
        counts = Counter(instance.action for instance in instances)
        yield (
            f"Plan: {len(plan.steps)} steps; instances: {counts[InstanceAction.KEEP]} kept,"
            f" {counts[InstanceAction.DESTROY]} destroyed, {counts[InstanceAction.CREATE]} created."
        )
        removed = sum(len(instance.removed) for instance in instances)
        added = sum(len(instance.added) for instance in instances)
        if removed or added:
            yield f"Compute instances in kept instances: {removed} destroyed, {added} created."
        if plan.disturbed:
            yield "Disturbed:"
            yield from (f"  {user}" for user in sorted(plan.disturbed))
        else:
            yield "Disturbed: no device user."
    if plan.allocatable is not None:
        yield "Allocatable then:" if plan.allocatable else _NO_DEVICES
        yield from (f"  {name}: {count}" for name, count in plan.allocatable.items())


def _show_refusal(gpus: Sequence[MigGpu], refusal: MigRefusal) -> None:
    terminal.note("Refused: there is no plan.")
    index = {gpu.uuid: gpu.index for gpu in gpus}
    groups = grouped(refusal.obstacles, lambda found: (found.kind, found.detail, found.nearest))
    for obstacles in groups.values():
        first = obstacles[0]
        indices = [index[obstacle.gpu] for obstacle in obstacles if obstacle.gpu in index]
        title = f"GPU {gpu_numbers(indices)}" if indices else (first.gpu or "This node")
        terminal.note("", f"{title}: {first.kind}: {first.detail}")
        if first.nearest is not None:
            terminal.note(f"  the most of it that fits: {first.nearest}")
        for user in sorted(first.users):
            terminal.note(f"  in the way: {user}")
        command = joint_command(obstacles)
        if command is not None:
            terminal.note(f"  run, when nothing uses the GPU{'s' if len(obstacles) > 1 else ''}:")
            terminal.note(f"    {command}")


def _on_off(on: bool) -> str:
    return "on" if on else "off"


# for scripts


def plan_document(title: str, planned: PlannedLayouts) -> dict[str, Any]:
    """A plan or a refusal as plain values, with the same keys for both.

    ``title``: name of the desired layouts with their source, for people.
    """
    plan_or_refusal = planned.plan_or_refusal
    common = {"desired": title, "result": planned.result}
    if isinstance(plan_or_refusal, MigRefusal):
        obstacles = [_obstacle_document(obstacle) for obstacle in plan_or_refusal.obstacles]
        return common | dict(_NOTHING) | {"obstacles": obstacles}
    return common | {
        "gpus": [_gpu_document(change) for change in planned.changes],
        "steps": [_step_document(step) for step in plan_or_refusal.steps],
        "disturbed": sorted(plan_or_refusal.disturbed),
        "allocatable": plan_or_refusal.allocatable,
        "obstacles": [],
    }


def _gpu_document(change: GpuPlan) -> dict[str, Any]:
    return {
        "index": change.gpu.index,
        "uuid": change.gpu.uuid,
        "model": change.gpu.model,
        "mode": change.gpu.mode,
        "mode_after": change.after.mig,
        "reset": change.resets,
        "instances": [
            {
                "fate": instance.action,
                "id": instance.id,
                "profile": instance.profile,
                "start": instance.start,
                "size": instance.size,
                "compute_slices": instance.compute,
                "added_compute_slices": instance.added,
                "destroyed_compute_slices": instance.removed,
                "device_users": instance.users,
            }
            for instance in change.instances
        ],
    }


def _step_document(step: MigStep) -> dict[str, Any]:
    return {"step": _STEP_NAMES[type(step)], **asdict(step)}


def _obstacle_document(obstacle: Obstacle) -> dict[str, Any]:
    return {
        "kind": obstacle.kind,
        "gpu": obstacle.gpu,
        "detail": obstacle.detail,
        "limit": obstacle.limit,
        "nearest": None if obstacle.nearest is None else layout_document(obstacle.nearest),
        "device_users": sorted(obstacle.users),
        "command": obstacle.command,
    }


def layout_document(layout: GpuLayout) -> dict[str, Any]:
    """A layout as plain values."""
    return {
        "mig": layout.mig,
        "instances": [
            {
                "profile": instance.profile,
                "compute_slices": instance.compute,
                "start": None if instance.start < 0 else instance.start,
            }
            for instance in layout.instances
        ],
    }
