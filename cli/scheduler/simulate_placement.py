# SPDX-License-Identifier: Apache-2.0
"""``gpuscape scheduler simulate``: what would become of a workload on a fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

import click

from agent.settings.agent_settings import AgentSettings
from agent.single_reading import take_snapshot
from api.topology_annotation import TopologyAnnotation
from base.errors import BadInput
from base.files import read_text
from cli import options, terminal
from cli.terminal import Styled, TextTable
from labelers.annotations import topology_of
from placement.class_tables import ScoreTables
from scheduler.placement_aims import ProductOrder
from scheduler.simulation import fleet_file, workload
from scheduler.simulation.estimates import Figure, FigureDifference, Verdict
from scheduler.simulation.experiment import OURS, Plan, SchedulerResult, results
from scheduler.simulation.fleet_replay import NodeKind, Summary
from scheduler.simulation.workload import PUBLISHED, USUAL, Arrival, Mix

MIXES: Final[Mapping[str, Mapping[int, float]]] = {"usual": USUAL, "published": PUBLISHED}
SEEDS: Final = 8
"""Runs by default: enough for errors that can be trusted; 64 nodes take half a minute."""


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
  submit_seconds,duration_seconds,gpus      and perhaps link,nic as a pod's annotations,
                                            and job, equal for the pods of one job
or pods that are drawn: `usual` has half of them ask for 1 GPU, 25 % for 2, 20 % for 4 and 5 %
for 8; `published` has the sizes of Alibaba's trace of 2023, where 8 GPUs have most.

\b
Schedulers: `spread` and `pack` are the stock one, by LeastAllocated and by MostAllocated on
GPUs; `gpuscape` is pack with our scores; `foresight` knows what each node would hand out. GPUs
are handed out as we predict them. BEST SETS: of the pods with several GPUs, those that no set
would serve faster; SPEED: that of their sets to the best.

\b
Behind ± is half of the 95 % interval. Drawn pods are drawn anew with each seed, alike for all
schedulers; a file is one run, whose errors come from ten parts that follow each other. The
second table has what gpuscape has more or less of than the others: a difference within its
error is none, and all of the table is right in 95 of 100 runs. What a run is too small to say
stands above the tables."""
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
@click.option("--seed", default=1, show_default=True, help="The first; same seeds, same answer.")
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    help=f"How often pods are drawn anew.  [default: {SEEDS}]",
)
@click.option(
    "--load",
    default=0.85,
    show_default=True,
    type=click.FloatRange(0.01, 1.5),
    help="Share of all GPUs that is requested at a time; for drawn pods.",
)
@click.option(
    "--pods",
    default=4000,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    help="How many are drawn for each seed.",
)
@click.option(
    "--job-pods",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Pods of a job, of one size, that come at the same moment; for drawn pods.",
)
@click.option(
    "--product-order",
    default=ProductOrder.FASTEST.value,
    show_default=True,
    type=click.Choice([order.value for order in ProductOrder]),
    help="GPU model to which the scheduler gpuscape sends pods of several GPUs first.",
)
@options.output("table", "json", "yaml")
def command(
    workload_name: str,
    fleet: Path,
    lag: float,
    seed: int,
    seeds: int | None,
    load: float,
    pods: int,
    job_pods: int,
    product_order: str,
    output: str,
) -> None:
    """Replay WORKLOAD on a fleet and compare where its pods land and how long they wait.

    No cluster is needed and none is touched.
    """
    tables = ScoreTables()
    text = read_text(fleet, most_bytes=fleet_file.MOST_BYTES)
    kinds = tuple(_kinds(fleet_file.read_node_groups(text, str(fleet)), tables))
    gpus = sum(kind.table.n for kind in kinds)
    lives = None
    if workload_name in MIXES:
        mix = Mix(sizes=MIXES[workload_name], load=load, pods=pods, job_pods=job_pods)
        lives = mix.lives(gpus)
        runs = [
            workload.drawn_arrivals(mix, gpus, Random(run_seed))  # noqa: S311  # has to repeat
            for run_seed in range(seed, seed + (seeds or SEEDS))
        ]
    elif seeds is not None:
        raise BadInput(f"--seeds is for pods that are drawn: {' and '.join(MIXES)}")
    else:
        runs = [_of_file(workload_name)]
    plan = Plan(kinds=kinds, runs=runs, lag_seconds=lag, first_seed=seed, lives=lives)
    scheduler_results = results(plan, tables, ProductOrder(product_order))
    if output != "table":
        terminal.print_data(scheduler_results, output)
        return
    seeds_text = f" for each of {len(runs)} seeds" if lives is not None else ""
    terminal.note(f"Pods: {len(runs[0])}{seeds_text}, nodes: {len(kinds)}, GPUs: {gpus}")
    for warning in scheduler_results[0].warnings:
        terminal.note(f"Warning: {warning}.")
    terminal.note("")
    terminal.show_table(scheduler_table(scheduler_results))
    if spreads := [(result.scheduler, result.jobs) for result in scheduler_results if result.jobs]:
        counts = ", ".join(f"{name} {jobs.mean_products:.2f}" for name, jobs in spreads)
        terminal.note("", f"GPU models that the pods of a job are on, on average: {counts}")
    if differences := [
        difference
        for scheduler_result in scheduler_results
        for difference in scheduler_result.compared
    ]:
        terminal.note("", f"What {OURS} has more (+) or less (-) than the others:", "")
        terminal.show_table(difference_table(differences))


def scheduler_table(scheduler_results: Sequence[SchedulerResult]) -> TextTable:
    """Table with a row for each scheduler, and below it a row for each size of its pods."""
    rows: list[tuple[Styled | str, ...]] = []
    for result in scheduler_results:
        style = "bold green" if result.scheduler == OURS else "bold"
        rows.append(
            (Styled(result.scheduler, style), *_cells(result.all), str(result.never_placed))
        )
        rows += [
            (Styled(f"  {gpus} GPUs" if gpus > 1 else "  1 GPU", "dim"), *_cells(summary), "")
            for gpus, summary in result.by_gpus.items()
        ]
    header = ("SCHEDULER", "PODS", "BEST SETS", "SPEED", "MEAN WAIT", "LONGEST", "LOST", "NEVER")
    return TextTable(header=header, rows=tuple(rows), right=frozenset(range(1, len(header))))


def difference_table(differences: Sequence[FigureDifference]) -> TextTable:
    """Table with a row for each other scheduler: the differences of ours from it."""
    other_schedulers = list(dict.fromkeys(difference.other for difference in differences))
    difference_by_cell = {
        (difference.other, difference.figure): difference for difference in differences
    }
    return TextTable(
        header=("THAN", "BEST SETS", "SPEED", "MEAN WAIT"),
        rows=tuple(
            (
                Styled(scheduler, "bold"),
                *(_difference(difference_by_cell.get((scheduler, figure))) for figure in Figure),
            )
            for scheduler in other_schedulers
        ),
    )


def _difference(difference: FigureDifference | None) -> str:
    if difference is None:
        return "-"
    if difference.figure is Figure.MEAN_WAIT:
        amount = f"{difference.difference:+.1f} ± {difference.error:.1f} s"
    else:
        amount = f"{difference.difference * 100:+.1f} ± {difference.error * 100:.1f} %"
    return f"no difference ({amount})" if difference.verdict is Verdict.NO_DIFFERENCE else amount


def _kinds(groups: Sequence[fleet_file.NodeGroup], tables: ScoreTables) -> Iterator[NodeKind]:
    """The kind of each node of the fleet, in the order of the groups."""
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


def _of_file(name: str) -> tuple[Arrival, ...]:
    if not Path(name).exists():
        raise BadInput(f"there is no file {name}; pods are drawn for {' and '.join(MIXES)}")
    return workload.read_arrivals(read_text(Path(name), most_bytes=workload.MOST_BYTES), name)


def _cells(summary: Summary) -> tuple[str, ...]:
    return (
        str(summary.pods),
        _percent(summary.ideal_ratio, summary.ideal_ratio_error),
        _percent(summary.speed_ratio, summary.speed_ratio_error),
        f"{summary.mean_wait_seconds:.1f}{_error(summary.mean_wait_error_seconds)} s",
        f"{summary.longest_wait_seconds:.0f} s",
        str(summary.lost),
    )


def _percent(ratio: float | None, error: float | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio * 100:.1f}{_error(None if error is None else error * 100)} %"


def _error(error: float | None) -> str:
    return "" if error is None else f" ± {error:.1f}"
