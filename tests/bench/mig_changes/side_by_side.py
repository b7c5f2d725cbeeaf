# SPDX-License-Identifier: Apache-2.0
"""The first sections of docs/mig-benchmarks.md: every arm on the same transitions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.bench.mig_changes.arms import OURS, PARTED, WIPE, ArmOutcome, arms, played
from tests.bench.mig_changes.outcome_rows import Outcomes, row_of
from tests.bench.mig_changes.published_places import PUBLISHED
from tests.bench.mig_changes.transitions import MOST_ORDERS, Transition, transitions
from tests.bench.page import Section
from tests.controlplane.builds import binaries
from tests.controlplane.families import NVIDIA
from tests.foreign.parted_node import with_one

WHOLE = (OURS, PARTED, WIPE)
"""The arms of changes of whole instances."""
COUNT = 504
"""Of transitions: as many of each model."""

ASSUMED = ", ".join(name for name, model in PUBLISHED.items() if model.ids_assumed)
"""Models, by the simulator's names, whose ids of profiles no table has."""
HOW = (
    f"{COUNT} changes of one simulated GPU with MIG on, drawn by a seed: A30, A100 with 40 and 80 "
    "GB, H100, H200, B200 and RTX PRO 6000 in turns. The desired layout keeps most of the current "
    "one, or has nothing in common with it, or (one in ten) is impossible; it never equals the "
    "current one. Every arm begins in the same states and calls the same simulator. `gpuscape` is "
    "the actuator's change with its journal. `nvidia-mig-parted` is that program, 0.10.0, "
    "unchanged, whose `apply` goes through the simulator's C library. `wipe-and-permute` does the "
    "same as nvidia-mig-parted, in a few lines. All figures but those of the last section are sums "
    "of counts. gpuscape makes more calls in all, because it reads the whole state and the device "
    "users anew before each step.\n\n"
    "Independent tables decide what fits where: go-nvml's mock of an A100, those of "
    "NVIDIA/k8s-test-infra for H100 and B200, published output of nvidia-smi for A30 and RTX PRO "
    "6000. H200 is assumed to have the places of the H100, in line with the names and counts of "
    f"the MIG user guide. No table has the profile ids of {ASSUMED}, which are assumed to be those "
    "of the H100. If the driver chooses a place, the simulator chooses like the examples of the "
    "MIG user guide. No real GPU was available.\n\n"
    f"Not included are layouts that can be created in more than {MOST_ORDERS} orders, such as "
    "seven instances of three kinds: an arm that tries all orders would try thousands, and a few "
    "changes would dominate the sums. So the arms that try orders may need more calls in practice "
    "than here. Changes of the MIG mode, and compute instances that are a part of their GPU "
    "instance, have sections of their own. Two things are not compared: clients that only have a "
    "GPU open, such as the persistence daemon and DCGM, and the work in Kubernetes. "
    "nvidia-mig-manager stops such clients before it calls nvidia-mig-parted; neither of the two "
    "cordons a node or waits for its pods."
)
_IDLE = (
    "Half of the changes begin on an idle GPU. `least` is the minimum of all possible ways, found "
    "by a search through every final state."
)
_BUSY = (
    "The other half begins on GPUs where programs run on some instances, with gaps between them. "
    "Sometimes there is an instance without a compute instance, as a killed change leaves it. If "
    "an arm fails, programs are ended and it tries once more: with gpuscape the programs that its "
    "refusal names, otherwise all programs of the GPU. The calls of both attempts count. `least` "
    "counts the programs on instances that no final state keeps, and then instances."
)

Result = tuple[Transition, Outcomes]


def of_model(model: str, count: int, programs: Path | None) -> list[Result]:
    """Play those of one model, of so many in all; without ``programs`` mig-parted is left out."""
    its = [one for one in transitions(count) if one.model == model]
    with arms(with_one(model), programs) as (gpus, ways):
        return [
            (one, {name: played(way, gpus, one) for name, way in ways.items() if name in WHOLE})
            for one in its
        ]


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

    row = functools.partial(row_of, arms=WHOLE)
    undisturbed = sum(1 for disturbed, _ in least if not disturbed)
    return Section(
        title=title,
        text=text,
        columns=("", OURS, PARTED, WIPE, "least"),
        rows=(
            row(f"reached at once, of {len(can)} possible", can, _at_once, str(undisturbed)),
            row("reached after programs were ended", can, _later, str(len(can) - undisturbed)),
            row("never reached", can, lambda one: not one.reached, "0"),
            row("programs ended", can, lambda one: one.disturbed, str(sum(n for n, _ in least))),
            row(
                "instances destroyed", can, lambda one: one.destroyed, str(sum(n for _, n in least))
            ),
            row("failures that left another layout", can, lambda one: one.half_done, "0"),
            row("calls that change something", can, lambda one: one.calls),
            row("all calls, readings included", can, lambda one: one.all_calls),
            row(
                f"current layouts lost, of {len(cannot)} with an impossible desired one",
                cannot,
                lambda one: one.half_done,
                "0",
            ),
            row("calls for these that change something", cannot, lambda one: one.calls, "0"),
        ),
    )


def _at_once(one: ArmOutcome) -> int:
    return one.at_once


def _later(one: ArmOutcome) -> int:
    return one.reached and not one.at_once
