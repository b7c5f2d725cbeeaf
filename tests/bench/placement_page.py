# SPDX-License-Identifier: Apache-2.0
"""The page of the placement benchmark. Pure: runs in, Markdown out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.bench.page import Section, table
from tests.bench.placement_arms import LATE, NOW, OTHER_POLICY, OURS, PACK, REFERENCE, SPREAD
from tests.bench.placement_cells import (
    BOUND,
    GROWING_LOAD,
    GROWING_MIX,
    GROWTHS,
    LOADS,
    MACHINES,
    MIXED,
    OTHERS,
    PODS,
    Cell,
    cells,
    on_best,
    speed,
    wait,
    weighted,
)
from tests.bench.placement_fleets import WORKLOADS
from tests.bench.placement_runs import WARM_UP, Run

_SLOWER = 0.02
"""Of the fleet's best speed: no size may lose so much to the better stock scheduler."""
_WHY = (
    "Pods wait longer than with packing for two reasons. A node with a fast set is chosen before "
    "the fullest node. And because each pod size gets a share of each GPU model, a fuller node "
    "that the pod would not fill is skipped.\n\n"
    "This costs most where sizes do not add up to a node, as with 3 and 6 GPUs. In fleets with "
    "nodes of 4 and of 8 GPUs, large pods wait because smaller pods have a share of the larger "
    "nodes. Pods of 3 and 4 GPUs that are faster on these larger nodes get a smaller share of them "
    "than with `spread`, where pods of 8 wait for minutes to hours.\n\n"
    "The list leaves out waits that are less than a second longer, since a pod lives 600 s; the "
    "tables below have all waits. A line names the fleet, the sizes of the pods and the load."
)
_COLUMNS = "[columns](#how-to-read-the-tables)"
_HOW_TO_READ = (
    "## How to read the tables\n\n"
    "`±` is a standard error. *To reference* and *to bin-pack* are ratios on the same simulated "
    "days.\n\n"
    "- **Pods on the best GPUs**: of the pods with several GPUs, the share whose set is as fast as "
    "the fastest of an empty machine, by the judge. Then gpuscape's share relative to the "
    "reference's (target 0.99): with current state from the agents, with state that is late by "
    "0.5 s (target 0.97), 2 s and 5 s, and, as *another policy*, with a device plugin that has no "
    "preference while gpuscape expects NVIDIA's.\n"
    "- **Speed**: bandwidth of the sets that pods of a size get, by the judge, relative to the "
    "fastest set of the fleet. In brackets: the difference to the better stock scheduler on the "
    "same days, its standard error, and the lowest difference with 95 % confidence (target "
    "-0.02). Then the mean over the GPUs of all pods that have several, and gpuscape's mean "
    "relative to the reference's (target 0.95), also with agents 0.5 s late.\n"
    "- **Waiting**: the mean of all pods. Then gpuscape's wait relative to that with bin-pack, "
    "over the same pods at the same times: of all pods (target 1.05), and of each size (target "
    "1.15).\n"
)
_LONGER_SECONDS = 1.0
"""Nobody notices a smaller difference, however large its ratio is."""
_PART = 0.95
"""Of the reference's speed over GPUs, ours has at least so much."""


def page(runs: Sequence[Run]) -> str:
    """The whole page, of the runs that there are."""
    found = cells(runs)
    parts: list[Section] = []
    for mix in WORKLOADS:
        alone = _of(found, mix, MACHINES)
        if alone:
            parts += [_best_sets(mix, alone), _waits(mix, alone, MACHINES)]
        for fleets in (MIXED, OTHERS):
            if several := _of(found, mix, fleets):
                parts += [_speeds(mix, several, fleets), _waits(mix, several, fleets)]
    parts += [
        _growth(title, its, fleets)
        for title, fleets in GROWTHS.items()
        if (its := _growing(found, fleets))
    ]
    return "\n".join([_head(runs), _misses(found), *map(table, parts)])


def _of(found: Iterable[Cell], mix: str, fleets: Mapping[str, str]) -> list[Cell]:
    order = list(fleets)
    its = [each for each in found if each.mix == mix and each.fleet in fleets]
    return sorted(its, key=lambda each: (order.index(each.fleet), each.load))


def _growing(found: Iterable[Cell], fleets: Mapping[str, int]) -> list[Cell]:
    its = [
        each
        for each in found
        if each.fleet in fleets and (each.mix, each.load) == (GROWING_MIX, GROWING_LOAD)
    ]
    return sorted(its, key=lambda each: fleets[each.fleet])


def _best_sets(mix: str, its: Sequence[Cell]) -> Section:
    arms = (SPREAD, PACK, NOW, REFERENCE)

    def row(cell: Cell) -> tuple[str, ...]:
        return (
            _place(cell, MACHINES),
            *(f"{cell.mean(arm, on_best) * 100:.1f} %" for arm in arms),
            *(cell.ratio(arm, REFERENCE, on_best).text(3) for arm in (*OURS, OTHER_POLICY)),
        )

    return Section(
        title=f"Pods on the best GPUs: {_words(mix)}",
        text=f"Pods that got a fastest set ({_COLUMNS}).",
        columns=(
            *("machine, load", SPREAD, PACK, "gpuscape", REFERENCE),
            *("to reference (target 0.99)", f"{LATE} (target 0.97)", *list(OURS)[2:]),
            OTHER_POLICY,
        ),
        rows=tuple(map(row, its)),
    )


def _speeds(mix: str, its: Sequence[Cell], fleets: Mapping[str, str]) -> Section:
    sizes = [size for size in sorted(WORKLOADS[mix].sizes) if size > 1]

    def gain(cell: Cell, size: int) -> str:
        figure = speed(size)
        stock = cell.stock(figure)
        found = cell.gain(NOW, stock, figure).text(3, "+")
        more = f"{found}, at least {cell.least(size):+.3f}, to {stock}"
        return f"{cell.mean(NOW, figure):.3f} ({more})"

    def row(cell: Cell) -> tuple[str, ...]:
        ours, best = cell.mean(NOW, weighted), cell.mean(REFERENCE, weighted)
        return (
            _place(cell, fleets),
            *(gain(cell, size) for size in sizes),
            *(f"{cell.mean(arm, weighted):.3f}" for arm in (SPREAD, PACK, NOW, REFERENCE)),
            f"{ours / best:.3f}",
            f"{cell.mean(LATE, weighted) / best:.3f}",
        )

    return Section(
        title=f"Speed in {_title(fleets)}: {_words(mix)}",
        text=f"Bandwidth of the sets that pods get ({_COLUMNS}).",
        columns=(
            "fleet, load",
            *(f"{size} GPUs" for size in sizes),
            *(SPREAD, PACK, "gpuscape", REFERENCE, "to reference", f"{LATE}, to reference"),
        ),
        rows=tuple(map(row, its)),
    )


def _waits(mix: str, its: Sequence[Cell], fleets: Mapping[str, str]) -> Section:
    sizes = sorted(WORKLOADS[mix].sizes)

    def row(cell: Cell) -> tuple[str, ...]:
        return (
            _place(cell, fleets),
            *(f"{cell.mean(arm, wait()):.2f} s" for arm in (SPREAD, PACK, NOW, REFERENCE)),
            *(cell.ratio(NOW, PACK, wait(size)).text(2) for size in (None, *sizes)),
        )

    return Section(
        title=f"Waiting{'' if fleets is MACHINES else f' in {_title(fleets)}'}: {_words(mix)}",
        text=f"How long pods wait ({_COLUMNS}).",
        columns=(
            *("fleet, load", SPREAD, PACK, "gpuscape", REFERENCE, "all"),
            *(f"{size} GPUs" if size > 1 else "1 GPU" for size in sizes),
        ),
        rows=tuple(map(row, its)),
    )


def _growth(title: str, its: Sequence[Cell], fleets: Mapping[str, int]) -> Section:
    def row(cell: Cell) -> tuple[str, ...]:
        stock = cell.stock(weighted)
        return (
            str(fleets[cell.fleet]),
            *(f"{cell.mean(arm, weighted):.3f}" for arm in (SPREAD, PACK, NOW, REFERENCE)),
            f"{cell.gain(NOW, stock, weighted).text(3, '+')}",
            cell.ratio(NOW, PACK, wait()).text(2),
        )

    return Section(
        title=f"By the size of the fleet: {title}",
        text=(
            f"Mean speed over all GPUs, at load {GROWING_LOAD:.2f} and with assumed sizes. The "
            "gain is relative to the better stock scheduler."
        ),
        columns=(*("nodes", SPREAD, PACK, "gpuscape", REFERENCE, "gain", f"waits, to {PACK}"),),
        rows=tuple(map(row, its)),
    )


def _misses(found: Sequence[Cell]) -> str:
    """The list of missed targets: first beyond what chance explains, then within it."""
    missed: list[str] = []
    unsure: list[str] = []
    for cell in found:
        place = {**MACHINES, **MIXED, **OTHERS}.get(cell.fleet)
        if not place:
            continue
        where = f"{place}, {WORKLOADS[cell.mix].words}, {cell.load:.2f}"
        for miss in _missed(cell):
            (missed if miss.is_sure else unsure).append(f"- {where}: {miss.words}\n")
    parts = (
        f"## Where a target is missed\n\n{_WHY}\n\n",
        f"Missed by more than {BOUND} standard errors:\n\n",
        *(missed or ["- nowhere\n"]),
        "\nMissed by less than that, so more simulated days may show otherwise:\n\n",
        *(unsure or ["- nowhere\n"]),
    )
    return "".join(parts)


class _Miss(NamedTuple):
    words: str
    is_sure: bool
    """More than chance explains."""


def _missed(cell: Cell) -> Iterator[_Miss]:
    """Targets that a cell has not reached."""
    sizes = sorted(WORKLOADS[cell.mix].sizes)
    if cell.fleet in MACHINES:
        for arm, least in ((NOW, 0.99), (LATE, 0.97)):
            part = cell.ratio(arm, REFERENCE, on_best)
            if part.value < least:
                words = f"pods on best sets, {arm}: {part.text(3)} of the reference's"
                yield _Miss(words, is_sure=part.value + BOUND * part.error < least)
    else:
        yield from _slower(cell, [size for size in sizes if size > 1])
    for size, most in ((None, 1.05), *((size, 1.15) for size in sizes)):
        its = cell.ratio(NOW, PACK, wait(size))
        ours, packed = cell.means(NOW, PACK, wait(size))
        if its.value > most and ours - packed >= _LONGER_SECONDS:
            who = "all pods" if size is None else f"pods of {size} GPU{'s' if size > 1 else ''}"
            words = f"{who} wait {ours:.2f} s, with packing {packed:.2f} s: {its.text(2)} times"
            yield _Miss(words, is_sure=its.value - BOUND * its.error > most)


def _slower(cell: Cell, sizes: Iterable[int]) -> Iterator[_Miss]:
    """Targets for speed in fleets of several machines."""
    for size in sizes:
        figure = speed(size)
        stock = cell.stock(figure)
        its = cell.gain(NOW, stock, figure)
        if cell.least(size) < -_SLOWER:
            sure = its.value + BOUND * its.error < -_SLOWER
            words = f"speed of pods of {size} GPUs: {its.text(3, '+')} compared with {stock}"
            yield _Miss(words, is_sure=sure)
    part = cell.ratio(NOW, REFERENCE, weighted)
    if part.value < _PART:
        words = f"speed over GPUs: {part.text(3)} of the reference's"
        yield _Miss(words, is_sure=part.value + BOUND * part.error < _PART)
    stock = cell.stock(weighted)
    gain = cell.gain(NOW, stock, weighted)
    if gain.value <= 0:
        words = f"speed over GPUs: {gain.text(3, '+')} compared with {stock}"
        yield _Miss(words, is_sure=gain.value + BOUND * gain.error < 0)


def _title(fleets: Mapping[str, str]) -> str:
    return "mixed fleets" if fleets is MIXED else "fleets with other nodes"


def _words(mix: str) -> str:
    its = WORKLOADS[mix]
    total = sum(its.sizes.values())
    parts = (f"{part / total * 100:.0f} % {size}" for size, part in its.sizes.items())
    return f"{its.words} ({', '.join(parts)})"


def _place(cell: Cell, fleets: Mapping[str, str]) -> str:
    return f"{fleets[cell.fleet]}, {cell.load:.2f}"


def _by_fullness(runs: Sequence[Run]) -> tuple[list[Cell], list[Cell]]:
    """Cells of single machines that are nearly full, after all others."""
    others: list[Cell] = []
    full: list[Cell] = []
    for each in cells(runs):
        is_full = each.fleet in MACHINES and each.load == max(LOADS)
        (full if is_full else others).append(each)
    return others, full


def _head(runs: Sequence[Run]) -> str:
    """What the figures are, and what they are not."""
    seeds = sorted({each.seeds for each in cells(runs)} - {0})
    span = "no" if not seeds else str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    others, full = (
        max((len(each.runs.get(REFERENCE, ())) for each in its), default=0)
        for its in _by_fullness(runs)
    )
    lost = sum(each.lost for each in runs)
    return (
        "# Where pods land\n\n"
        "Written by `.venv/bin/python -m tests.bench.placement`, from simulated runs that can be "
        "repeated.\n\n"
        f"**The runs.** Each figure is the mean of {span} runs of {PODS:,} pods; for the reference "
        f"and for late agents of at most {others} runs ({full} on single machines that are nearly "
        f"full). The first {WARM_UP * 100:.0f} % of each run is warm-up and is not counted.\n\n"
        "**The pods** arrive at random (Poisson) and request whole GPUs. They live 600 s on "
        "average: exponential, or lognormal where the title says so. That is about the median of "
        "the trace below, and far below its mean. A pod that fits nowhere waits, and smaller ones "
        "behind it go first. The simulation has no CPU or memory, no gangs and no pods of several "
        "containers.\n\n"
        "**The sizes of the trace** are those of the pods with whole GPUs in Alibaba's trace of "
        "2023 (cluster-trace-gpu-v2023, multigpu50). No public trace records NVLink topologies.\n\n"
        "**The schedulers.** `spread` and `bin-pack` are the stock scheduler: NodeResourcesFit as "
        "LeastAllocated and as MostAllocated on GPUs. `gpuscape` is bin-pack with gpuscape's ranks "
        "at weight 10, computed by the code that the extender runs.\n\n"
        "**The device plugin.** For all schedulers NVIDIA's go-gpuallocator allocates the GPUs, "
        "not our prediction of it. It gets them in random orders, as kubelets name GPUs. It failed "
        f"over {lost} pods.\n\n"
        "**The judge** decides how fast a set is, and shares no code with the scheduler. It "
        "searches the links as NCCL does, and its bandwidths are within 15 % of published "
        "measurements (`tests/judge`).\n\n"
        "**The reference** (`reference`) knows at each decision which GPUs are free and which of "
        "them each node would allocate, and uses the judge. Its aims, in this order: speed "
        "relative to the best of the machine, larger nodes left to pods that need them, whole "
        "nodes left whole, an equal share of each machine for each size, and what is left for "
        "other pods (`tests/bench/placement_reference.py`). By the first aim it has at least 95 % "
        "of what exhaustive search reaches on fleets of two to four nodes.\n\n"
        "**On uniform NVSwitch machines nothing is gained in speed: every set of GPUs is as fast "
        "as any other.**\n\n"
        f"{_HOW_TO_READ}"
    )
