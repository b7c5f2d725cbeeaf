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
    "Pods wait longer than with packing where a node with a fast set is chosen before the fullest "
    "one, and where each size gets its part of each product, so that a fuller node is passed by "
    "which the pod would not have filled. That costs most where sizes do not add up to a node, as "
    "with 3 and 6 GPUs. With nodes of 4 and 8 GPUs large pods wait where smaller ones have a part "
    "of the larger nodes. Pods of 3 and 4 that gain on these have less of that part than with "
    "spread, where those of 8 wait for minutes to hours. Where pods wait less than a second "
    "longer, of 600 that they live, it is not listed here; the tables below have all."
)
_LONGER_SECONDS = 1.0
"""Ratios of waits that differ by less say nothing to anybody who waits."""
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
        text=(
            "Of the pods with several GPUs those that no set of an empty machine would serve "
            "faster, by the judge. Then ours as a part of the reference on the same days, with the "
            "standard error: with the state of the agents up to date, late by so much, and with a "
            "device plugin that prefers nothing, where ours expects NVIDIA's."
        ),
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
        text=(
            "Bandwidth of the sets that pods of a size get, by the judge, to that of the fastest "
            "set of the fleet; in brackets how much more it is than with the better stock "
            "scheduler on the same days, its standard error, and the least that it is with 95 % "
            "confidence (target -0.02). Then the mean over the GPUs of all pods that have several, "
            "and ours as a part of the reference (target 0.95), also with agents 0.5 s late."
        ),
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
        text=(
            f"Mean of all pods. Then gpuscape to {PACK} over the same pods at the same times, with "
            "the standard error: of all pods (target 1.05), and of each size (target 1.15)."
        ),
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
            f"Mean speed over GPUs as above, at load {GROWING_LOAD:.2f} and with assumed sizes. "
            "The gain is over the better stock scheduler."
        ),
        columns=(*("nodes", SPREAD, PACK, "gpuscape", REFERENCE, "gain", f"waits, to {PACK}"),),
        rows=tuple(map(row, its)),
    )


def _misses(found: Sequence[Cell]) -> str:
    """Which targets are missed where, and by how much: beyond what chance explains, and within."""
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
        f"By more than {BOUND} standard errors:\n\n",
        *(missed or ["- nowhere\n"]),
        "\nWithin them, so that more days may find otherwise:\n\n",
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
            who = "all pods" if size is None else f"{size} GPU{'s' if size > 1 else ''}"
            words = f"{who}: {ours:.2f} s for {packed:.2f} s, {its.text(2)}"
            yield _Miss(words, is_sure=its.value - BOUND * its.error > most)


def _slower(cell: Cell, sizes: Iterable[int]) -> Iterator[_Miss]:
    """Targets for speed in fleets of several machines."""
    for size in sizes:
        figure = speed(size)
        stock = cell.stock(figure)
        its = cell.gain(NOW, stock, figure)
        if cell.least(size) < -_SLOWER:
            sure = its.value + BOUND * its.error < -_SLOWER
            yield _Miss(f"{size} GPUs, speed: {its.text(3, '+')} to {stock}", is_sure=sure)
    part = cell.ratio(NOW, REFERENCE, weighted)
    if part.value < _PART:
        words = f"speed over GPUs: {part.text(3)} of the reference's"
        yield _Miss(words, is_sure=part.value + BOUND * part.error < _PART)
    stock = cell.stock(weighted)
    gain = cell.gain(NOW, stock, weighted)
    if gain.value <= 0:
        words = f"speed over GPUs: {gain.text(3, '+')} to {stock}"
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
        "Written by `.venv/bin/python -m tests.bench.placement`, from a simulation that repeats: "
        f"{PODS:,} pods of each of {span} seeds, of up to {others} for the reference and "
        f"late agents ({full} on single machines that are nearly full); the first "
        f"{WARM_UP * 100:.0f} % are not counted. "
        "Pods come at random (Poisson), ask for whole GPUs, live 600 s on average (exponential, "
        "or lognormal where that is said; about the median of the trace below, far below its "
        "mean), and wait where they fit nowhere, while smaller ones behind them go first.\n\n"
        "`spread` and `bin-pack` are the stock scheduler with NodeResourcesFit as LeastAllocated "
        "and as MostAllocated on GPUs; `gpuscape` is bin-pack with our ranks at weight 10, by the "
        "code that the extender runs. GPUs are handed out by NVIDIA's go-gpuallocator, asked in "
        "orders drawn as kubelets name GPUs, in every arm: not by our prediction of it.\n\n"
        "How fast a set is says a judge that shares no code with the scheduler: it makes the "
        "search that NCCL makes over the links, and has the bandwidths that others measured "
        "within 15 % (`tests/judge`). `reference` knows at each decision what is free and what "
        "each node would hand out, and goes by the judge: speed to the best of the machine, nodes "
        "larger than others left to pods that need them, whole nodes left whole, an equal part of "
        "each machine for each size, what is left for others "
        "(`tests/bench/placement_reference.py`); by the first of these aims it has at least 95 % "
        "of what exhaustive search reaches on fleets of two to four nodes.\n\n"
        "The sizes of the trace are those of the pods with whole GPUs of Alibaba's trace of 2023 "
        "(cluster-trace-gpu-v2023, multigpu50). No trace tells NVLink shapes. No CPU or memory, no "
        f"gangs, no pods of several containers. The device plugin failed over {lost} pods.\n\n"
        "**On uniform NVSwitch machines nothing is gained in speed: every set of GPUs is as fast "
        "as any other.**\n"
    )
