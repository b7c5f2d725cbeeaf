# SPDX-License-Identifier: Apache-2.0
"""``gpuscape scheduler simulate``: what would become of a workload on a fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import click

from agent.settings.agent_settings import AgentSettings
from api.topology_annotation import TopologyAnnotation
from base.errors import BadInput
from base.files import read_text
from cli import options, terminal
from cli.observe import take_snapshot
from cli.terminal import Styled, TextTable
from labelers.annotations import topology_of
from scheduler.scores.class_tables import ScoreTables
from scheduler.simulation import choosers, fleet_file, workload
from scheduler.simulation.fleet_replay import (
    Choose,
    NodeKind,
    Placed,
    ReplaySetup,
    Summary,
    replay,
    summary,
)
from scheduler.simulation.workload import PUBLISHED, USUAL, Arrival, Mix

MIXES: Final[Mapping[str, Mapping[int, float]]] = {"usual": USUAL, "published": PUBLISHED}
OURS: Final = "gpuscape"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerResult:
    """What one scheduler made of the workload."""

    scheduler: str
    never_placed: int
    """Pods that no node can hold."""
    all: Summary
    by_gpus: Mapping[int, Summary]
    """The same by the number of GPUs that pods request."""


@click.command(
    epilog="""\b
Examples:
  gpuscape scheduler simulate usual --fleet fleet.yaml
  gpuscape scheduler simulate pods.csv --fleet fleet.yaml --lag 2 -o json
  kubectl get nodes -o json > nodes.json
  gpuscape scheduler simulate published --load 0.95 --fleet nodes.json
      on the fleet that is there

\b
A fleet file lists machines, simulated ones or files of them, or annotations:
  - {machine: dgx1-v100, count: 64}
  - {topology: '{"v":1,...}', count: 8}

\b
WORKLOAD is a CSV file, whose first line names its columns:
  submit_seconds,duration_seconds,gpus      and perhaps link,nic as a pod's annotations
or pods that are drawn: `usual` has half of them ask for 1 GPU, 25 % for 2, 20 % for 4 and 5 %
for 8; `published` has the sizes of Alibaba's trace of 2023, where 8 GPUs have most.

\b
Schedulers: `spread` and `pack` are the stock one, by LeastAllocated and by MostAllocated on
GPUs; `gpuscape` is pack with our scores; `foresight` knows what each node would hand out. GPUs
are handed out as we predict them. BEST SETS: of the pods with several GPUs, those that no set
would serve faster; SPEED: that of their sets to the best."""
)
@click.argument("workload_name", metavar="WORKLOAD")
@click.option(
    "--fleet",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The nodes: YAML, or what kubectl prints.",
)
@click.option(
    "--lag",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, 3600),
    help="Seconds until the scheduler learns which GPUs a pod got.",
)
@click.option("--seed", default=1, show_default=True, help="Same seed, same answer.")
@click.option(
    "--load",
    default=0.85,
    show_default=True,
    type=click.FloatRange(0.01, 1.5),
    help="Share of all GPUs that is requested at a time; for drawn pods.",
)
@click.option(
    "--pods",
    default=8000,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    help="How many are drawn.",
)
@options.output("table", "json", "yaml")
def command(
    workload_name: str, fleet: Path, lag: float, seed: int, load: float, pods: int, output: str
) -> None:
    """Replay WORKLOAD on a fleet and compare where its pods land and how long they wait.

    No cluster is needed and none is touched.
    """
    tables = ScoreTables()
    kinds = tuple(
        _kinds(
            fleet_file.read(read_text(fleet, most_bytes=fleet_file.MOST_BYTES), str(fleet)), tables
        )
    )
    gpus = sum(kind.table.n for kind in kinds)
    arrivals = _arrivals(workload_name, load, pods, gpus, seed)
    found = [
        _found(name, arrivals, _placed(choose, arrivals, kinds, lag, seed))
        for name, choose in _schedulers(tables).items()
    ]
    if output != "table":
        terminal.data(found, output)
        return
    terminal.note(f"Pods: {len(arrivals)}, nodes: {len(kinds)}, GPUs: {gpus}")
    terminal.note("")
    terminal.show(table(found))


def table(found: Sequence[SchedulerResult]) -> TextTable:
    """One row a scheduler, then its pods by size."""
    rows: list[tuple[Styled | str, ...]] = []
    for each in found:
        style = "bold green" if each.scheduler == OURS else "bold"
        rows.append((Styled(each.scheduler, style), *_cells(each.all), str(each.never_placed)))
        rows += [
            (Styled(f"  {gpus} GPUs" if gpus > 1 else "  1 GPU", "dim"), *_cells(its), "")
            for gpus, its in each.by_gpus.items()
        ]
    header = ("SCHEDULER", "PODS", "BEST SETS", "SPEED", "MEAN WAIT", "LONGEST", "LOST", "NEVER")
    return TextTable(header=header, rows=tuple(rows), right=frozenset(range(1, len(header))))


def _kinds(groups: Sequence[fleet_file.NodeGroup], tables: ScoreTables) -> Iterator[NodeKind]:
    """One for each node."""
    known: dict[str, NodeKind] = {}
    for group in groups:
        topology = group.topology or _of_machine(group.machine or "")
        gen = tables.add(topology)
        if gen not in known:
            table = tables.find(gen)
            if table is None:
                raise BadInput(f"{group.machine or gen}: no scores for {topology.n} GPUs")
            known[gen] = NodeKind(name=group.machine or gen, gen=gen, table=table)
        yield from [known[gen]] * group.count


def _of_machine(machine: str) -> TopologyAnnotation:
    topology = topology_of(take_snapshot(AgentSettings(simulate=machine)))
    if not topology.n:
        raise BadInput(f"machine {machine} has no GPU: leave it out of the fleet")
    return topology


def _arrivals(name: str, load: float, pods: int, gpus: int, seed: int) -> tuple[Arrival, ...]:
    if name in MIXES:
        mix = Mix(sizes=MIXES[name], load=load, pods=pods)
        return workload.drawn(mix, gpus, Random(seed))  # noqa: S311  # has to repeat
    if not Path(name).exists():
        raise BadInput(f"there is no file {name}; pods are drawn for {' and '.join(MIXES)}")
    return workload.read(read_text(Path(name), most_bytes=workload.MOST_BYTES), name)


def _schedulers(tables: ScoreTables) -> Mapping[str, Choose]:
    return {
        "spread": choosers.spread,
        "pack": choosers.pack,
        OURS: choosers.ranked(tables),
        "foresight": choosers.foreseeing(choosers.predicted),
    }


def _placed(
    choose: Choose, arrivals: Sequence[Arrival], kinds: tuple[NodeKind, ...], lag: float, seed: int
) -> Sequence[Placed]:
    setup = ReplaySetup(kinds=kinds, give=choosers.predicted, lag_seconds=lag)
    return replay(setup, arrivals, choose, Random(seed))  # noqa: S311  # has to repeat


def _found(
    scheduler: str, arrivals: Sequence[Arrival], placed: Sequence[Placed]
) -> SchedulerResult:
    sizes = sorted({each.wish.gpus for each in placed})
    return SchedulerResult(
        scheduler=scheduler,
        never_placed=len(arrivals) - len(placed),
        all=summary(placed),
        by_gpus={
            size: summary([each for each in placed if each.wish.gpus == size]) for size in sizes
        },
    )


def _cells(its: Summary) -> tuple[str, ...]:
    return (
        str(its.pods),
        _percent(its.ideal_ratio),
        _percent(its.speed_ratio),
        f"{its.mean_wait_seconds:.1f} s",
        f"{its.longest_wait_seconds:.0f} s",
        str(its.lost),
    )


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio * 100:.1f} %"
