# SPDX-License-Identifier: Apache-2.0
"""The sections of docs/mig-benchmarks.md on MIG modes and on compute instances in parts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final, Literal, TypeVar

from simulator.description.machine_catalog import load_machine
from simulator.description.machine_schema import MachineDescription
from tests.bench.mig_changes.arms import OURS, PARTED, SKIPPING, ArmOutcome, arms, played
from tests.bench.mig_changes.compute_changes import MODELS, ComputeChange, compute_changes
from tests.bench.mig_changes.mode_changes import (
    AMPERE,
    GPUS,
    HOPPER,
    ModeChange,
    mode_changes,
)
from tests.bench.mig_changes.outcome_rows import Outcomes, row_of
from tests.bench.page import Section
from tests.controlplane.builds import binaries
from tests.controlplane.families import NVIDIA
from tests.foreign.parted_node import FIRST_GPUS, with_gpus, with_one

PARTS: Final = 150
"""Changes of shared instances, as many of each model."""
NODES: Final = 36
"""Nodes for each kind of driver, as many of each model."""
Driver = Literal["resets", "reset-required"]
ComputeResult = tuple[ComputeChange, Outcomes]
ModeResult = tuple[ModeChange, Outcomes]
Result = TypeVar("Result", ComputeResult, ModeResult)

_PARTS: Final = (
    f"{PARTS} more changes of one GPU (A100 with 40 GB, H100 and A30 in turns) that has GPU "
    "instances with several compute instances, or is to have them: `1c.3g.20gb` twice, `2c.4g` "
    "next to `1c.4g`, `4c.7g` with `3c.7g`. Half of the GPUs are idle; on the others programs run "
    "on single compute instances. Both programs read the desired layout from mig-parted's format, "
    "which counts devices and does not say which of them share a GPU instance. gpuscape puts the "
    "devices on as few GPU instances as possible; `least` may share them in any way, which now and "
    "then costs less. `least` minimises the programs that are ended, then the compute instances "
    "next to a program that stays, then all instances, then calls."
)
_MODES: Final = (
    f"{NODES} nodes with {GPUS} GPUs, {{models}} in turns. On each node at least one GPU switches "
    "its mode, on or off; others get a new layout with MIG on, or are not named in the "
    "configuration. Half of the nodes are idle, and on the others programs have some of the GPUs "
    "or instances. gpuscape runs with `mig-mode-change: driver`. If mig-parted fails, the programs "
    "of the GPUs in its configuration are ended first, and those of the whole node only if it "
    "fails again."
)
_RESETS: Final = (
    "The driver resets an idle GPU when its mode is set, as nvmlDeviceSetMigMode is documented. "
    "With such a driver mig-parted resets no more GPUs than gpuscape does. "
)
_RESET_REQUIRED: Final = (
    "The same nodes, with a driver that answers RESET_REQUIRED, as a driver may where GPUs can "
    "only be reset together. **Here nvidia-mig-parted is better: it reaches the layouts, and "
    "gpuscape with its defaults reaches none.** mig-parted runs `nvidia-smi -r` once for all GPUs "
    "of the node, also for those not in its configuration, so the whole node has to be empty. "
    "gpuscape runs here with `mig-reset: off`, its default: it takes the mode back and names the "
    "command. Only an empty GPU shows gpuscape the driver's answer, so programs are ended in "
    "vain, and idle instances are destroyed and created again. With `mig-reset: allow` gpuscape "
    "would have nvidia-smi reset the GPUs that switch; this was not measured. With `--skip-reset` "
    "of mig-parted the mode waits for the next boot. `least` resets only the GPUs that switch. In "
    "a virtual machine where nvidia-smi cannot reset a GPU either, neither program reaches the "
    "layout; this was not measured. "
)
_NO_RESET: Final = "A Hopper GPU switches the mode without a reset if no program runs on it. "


def compute_results(model: str, count: int, programs: Path | None) -> list[ComputeResult]:
    """Play those of one model, of so many in all; without ``programs`` mig-parted is left out."""
    its = [change for change in compute_changes(count) if change.model == model]
    with arms(with_one(model), programs) as (gpus, ways):
        return [
            (change, {name: played(ways[name], gpus, change) for name in _of(ways, OURS, PARTED)})
            for change in its
        ]


def mode_results(
    model: str, models: tuple[str, ...], driver: Driver, count: int, programs: Path | None
) -> list[ModeResult]:
    """Play the nodes of one model, of so many in all."""
    its = [change for change in mode_changes(count, models, driver) if change.model == model]
    with arms(_machine(model), programs) as (gpus, ways):
        gpus.simulation.set_resets(mode_change=driver)
        names = _of(ways, OURS, PARTED, *([SKIPPING] if models == AMPERE else []))
        return [
            (change, {name: played(ways[name], gpus, change) for name in names}) for change in its
        ]


def _of(ways: object, *names: str) -> list[str]:
    assert isinstance(ways, dict)
    return [name for name in names if name in ways]


def _machine(model: str) -> MachineDescription:
    name, _ = FIRST_GPUS[model]
    return with_gpus(name, [gpu for gpu in load_machine(name).gpus if gpu.model == model][:GPUS])


def parts() -> Section:
    """GPU instances that compute instances share."""
    programs = binaries(NVIDIA)
    with _pool() as pool:
        running = [pool.submit(compute_results, model, PARTS, programs) for model in MODELS]
        return parts_section(_all(running))


def ampere_resets() -> Section:
    """Modes of Ampere, with a driver that resets."""
    return _modes("MIG mode on Ampere, driver that resets", AMPERE, "resets", _RESETS)


def ampere_reset_required() -> Section:
    """Modes of Ampere, with a driver that does not reset."""
    title = "MIG mode on Ampere, driver that does not reset"
    return _modes(title, AMPERE, "reset-required", _RESET_REQUIRED)


def hopper() -> Section:
    """Modes that need no reset."""
    return _modes("MIG mode on Hopper", HOPPER, "resets", _NO_RESET)


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(mp_context=get_context("spawn"))


def _all(running: Sequence[Future[list[Result]]]) -> list[Result]:
    return [found for one in running for found in one.result()]


def _modes(title: str, models: tuple[str, ...], driver: Driver, text: str) -> Section:
    programs = binaries(NVIDIA)
    with _pool() as pool:
        running = [
            pool.submit(mode_results, model, models, driver, NODES, programs) for model in models
        ]
        text += _MODES.format(models=" and ".join(models))
        return modes_section(title, text, _all(running))


def parts_section(its: Sequence[ComputeResult]) -> Section:
    """The table of what was played."""
    names = tuple(its[0][1])
    row = functools.partial(row_of, arms=names)
    least = [change.least for change, _ in its if change.least is not None]
    undisturbed = sum(not cost.disturbed for cost in least)
    return Section(
        title="Compute instances that share a GPU instance",
        text=_PARTS,
        columns=("", *names, "least"),
        rows=(
            row(f"reached at once, of {len(its)}", its, _at_once, str(undisturbed)),
            row("reached after programs were ended", its, _later, str(len(its) - undisturbed)),
            row("never reached", its, lambda one: not one.reached, "0"),
            row("programs ended", its, _disturbed, str(sum(cost.disturbed for cost in least))),
            row(
                "compute instances destroyed next to a program that stays",
                its,
                lambda one: one.beside,
                str(sum(cost.beside for cost in least)),
            ),
            row(
                "GPU and compute instances destroyed",
                its,
                lambda one: one.destroyed + one.parts_destroyed,
                str(sum(cost.lost for cost in least)),
            ),
            row("failures that left another layout", its, lambda one: one.half_done, "0"),
            row(
                "calls that change something",
                its,
                lambda one: one.calls,
                str(sum(cost.steps for cost in least)),
            ),
            row("all calls, readings included", its, lambda one: one.all_calls),
        ),
    )


def modes_section(title: str, text: str, its: Sequence[ModeResult]) -> Section:
    """The table of what was played."""
    names = tuple(its[0][1])
    row = functools.partial(row_of, arms=names)
    least = [change.least for change, _ in its]
    undisturbed = sum(not disturbed for disturbed, _ in least)
    resets = sum(len(change.switched) for change, _ in its if change.model in AMPERE)
    return Section(
        title=title,
        text=text,
        columns=("", *names, "least"),
        rows=(
            row(f"reached at once, of {len(its)} nodes", its, _at_once, str(undisturbed)),
            row("reached after programs were ended", its, _later, str(len(its) - undisturbed)),
            row("never reached", its, lambda one: not one.reached, "0"),
            row("programs ended", its, _disturbed, str(sum(n for n, _ in least))),
            row(
                "programs ended on nodes that were never reached",
                its,
                lambda one: 0 if one.reached else one.disturbed,
                "0",
            ),
            row("GPUs reset", its, lambda one: len(one.was_reset), str(resets)),
            row(
                "GPU instances destroyed",
                its,
                lambda one: one.destroyed,
                str(sum(n for _, n in least)),
            ),
            row(
                "of these, on GPUs that the configuration does not name",
                its,
                lambda one: one.elsewhere,
                "0",
            ),
            row("failures that left other instances, or a mode that waits", its, _half_done, "0"),
            row("modes that wait for the next boot in the end", its, lambda one: one.waiting, "0"),
            row("calls that change something", its, lambda one: one.calls),
            row("all calls, readings included", its, lambda one: one.all_calls),
        ),
    )


def _at_once(one: ArmOutcome) -> int:
    return one.at_once


def _later(one: ArmOutcome) -> int:
    return one.reached and not one.at_once


def _disturbed(one: ArmOutcome) -> int:
    return one.disturbed


def _half_done(one: ArmOutcome) -> int:
    return one.half_done
