# SPDX-License-Identifier: Apache-2.0
"""The sections of docs/mig-benchmarks.md: every arm on the same transitions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.bench.mig_changes.arms import OURS, PARTED, WIPE, ArmOutcome, arms, played
from tests.bench.mig_changes.published_places import PUBLISHED
from tests.bench.mig_changes.transitions import MOST_ORDERS, Transition, transitions
from tests.bench.page import Section
from tests.controlplane.builds import binaries
from tests.controlplane.families import NVIDIA

COUNT = 504
"""Of transitions: as many of each model."""

ASSUMED = ", ".join(name for name, model in PUBLISHED.items() if model.ids_assumed)
"""Models, by the simulator's names, whose ids of profiles no table has."""
HOW = (
    f"{COUNT} changes of one simulated GPU with MIG on, drawn by a seed: A30, A100 with 40 and 80 "
    "GB, H100, H200, B200 and RTX PRO 6000 in turns. The layout that is wanted keeps most of what "
    "is there, or has nothing to do with it, or (one in ten) cannot be; it is never the one that "
    "is there already. Every arm begins in the same states and makes its calls to the same "
    "simulator: `gpuscape` is the actuator's change with its journal, `nvidia-mig-parted` is that "
    "program, 0.10.0, unchanged, whose `apply` goes through the simulator's C library, and "
    "`wipe-and-permute` is what it does, in a few lines. All figures are counts, summed up; "
    "nothing is timed. gpuscape reads the whole state and who uses it anew before each step, "
    "hence its calls in all.\n\n"
    "What fits where is judged by tables that are not ours: go-nvml's mock of an A100, those of "
    "NVIDIA/k8s-test-infra for H100 and B200, published output of nvidia-smi for A30 and RTX PRO "
    "6000. H200 is assumed to have the places of the H100, as the MIG user guide's names and "
    f"counts have it; no table has the ids of profiles of {ASSUMED}, which are assumed to be those "
    "of the H100. Where the driver chooses a place, the simulator chooses as the MIG user guide's "
    "examples do. No real GPU was at hand.\n\n"
    f"What is not in it: layouts that can be created in more than {MOST_ORDERS} orders, such as "
    "seven instances of three kinds, since an arm that tries all orders would try thousands, and "
    "the sums would be those of a few changes; changes of the MIG mode; compute instances that are "
    "a part of their GPU instance; several GPUs at once. So the arms that try orders make fewer "
    "calls here than they may have to."
)
_IDLE = (
    "Half of the changes begin on a GPU on which nothing runs. `least` is what no way can do with "
    "less, by a search through every final state."
)
_BUSY = (
    "The other half: programs run on some instances, there are holes between them, and now and "
    "then an instance without a compute instance, as a change leaves it that was killed. Where an "
    "arm fails, programs are ended, and it tries once more: with gpuscape those that its refusal "
    "names, else all of the GPU. The calls of both tries count. `least` counts the programs on "
    "instances that no final state spares, and then instances."
)

Result = tuple[Transition, Mapping[str, ArmOutcome]]


def of_model(model: str, count: int, programs: Path | None) -> list[Result]:
    """Play those of one model, of so many in all; without ``programs`` mig-parted is left out."""
    its = [one for one in transitions(count) if one.model == model]
    with arms(model, programs) as (gpu, ways):
        return [(one, {name: played(way, gpu, one) for name, way in ways.items()}) for one in its]


@functools.cache
def _all() -> Sequence[Result]:
    """All of them; models on a core each, since nothing is timed."""
    programs = binaries(NVIDIA)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        played_by_model = [pool.submit(of_model, model, COUNT, programs) for model in PUBLISHED]
        return [found for one in played_by_model for found in one.result()]


def idle() -> Section:
    """From GPUs on which nothing runs."""
    return _section("From idle GPUs", [one for one in _all() if not one[0].fragmented], _IDLE)


def busy() -> Section:
    """From GPUs on which programs run."""
    its = [one for one in _all() if one[0].fragmented]
    return _section("From busy and fragmented GPUs", its, _BUSY)


def _section(title: str, its: Sequence[Result], text: str) -> Section:
    can = [one for one in its if one[0].least is not None]
    cannot = [one for one in its if one[0].least is None]
    least = [one.least for one, _ in can if one.least is not None]

    def row(
        name: str,
        figure: Callable[[ArmOutcome], int],
        best: str = "",
        among: Sequence[Result] = can,
    ) -> tuple[str, ...]:
        cells = (sum(figure(found[arm]) for _, found in among) for arm in (OURS, PARTED, WIPE))
        return (name, *map(str, cells), best)

    undisturbed = sum(1 for disturbed, _ in least if not disturbed)
    return Section(
        title=title,
        text=text,
        columns=("", OURS, PARTED, WIPE, "least"),
        rows=(
            row(f"reached at once, of {len(can)} that can be", _at_once, str(undisturbed)),
            row("reached after programs ended", _later, str(len(can) - undisturbed)),
            row("never reached", lambda one: not one.reached, "0"),
            row("programs ended", lambda one: one.disturbed, str(sum(one for one, _ in least))),
            row("instances destroyed", lambda one: one.destroyed, str(sum(n for _, n in least))),
            row("failures that left another layout", lambda one: one.half_done, "0"),
            row("calls that change something", lambda one: one.calls),
            row("calls in all, readings too", lambda one: one.all_calls),
            row(
                f"layouts lost, of {len(cannot)} asked for one that cannot be",
                lambda one: one.half_done,
                "0",
                cannot,
            ),
            row("calls that change something for these", lambda one: one.calls, "0", cannot),
        ),
    )


def _at_once(one: ArmOutcome) -> int:
    return one.at_once


def _later(one: ArmOutcome) -> int:
    return one.reached and not one.at_once
