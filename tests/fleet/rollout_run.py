# SPDX-License-Identifier: Apache-2.0
"""Rollouts in the numbers that docs/mig-rollouts.md has: ``python -m tests.fleet.rollout_run``.

    --only random,busy     these parts alone; what the page has of the others stays

Each part runs what ``make long`` asserts, counts it, and is written at once. An assertion that
fails ends the program, and the page keeps what was there.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest

from fleet.rollout_settings import RolloutSettings
from tests.actuator.test_fleet_reboot import MOST_SECONDS, reboot_all
from tests.bench.page import Section, table, with_section
from tests.fleet.bad_nodes import LIES, play
from tests.fleet.test_bad_nodes import MOST_RATIO
from tests.fleet.test_interrupted_rollouts import FAILURES, calls, interrupted
from tests.fleet.test_many_rollouts import many
from tests.fleet.test_random_rollouts import (
    FAILING,
    PARTS,
    QUIET,
    STORM,
    Figures,
    fifty,
    terms_of,
)

PAGE: Final = Path(__file__).parents[2] / "docs" / "mig-rollouts.md"
HEAD: Final = """# How rollouts of MIG layouts were tried

Written by `.venv/bin/python -m tests.fleet.rollout_run`, which `make long` calls.
[Testing](testing.md#rollouts-in-virtual-time) explains the test beds, and which test checks which
promise.
"""
NODES, SLOTS, ROLLOUTS = 200, 10, 1000
MODE_NODES = 100
BAD_NODES = 100
PLANE_RUNS, PLANE_NODES = 10, 50
KINDS: Final = {
    FAILING: "pods leave and stay, changes fail",
    QUIET: "every device user ends",
    STORM: "like the first; calls fail, coordinators are killed",
}


def random_runs() -> Section:
    """Fleets drawn by a seed, judged by the log of all requests."""
    found = {name: Figures() for name in KINDS.values()}
    for part in range(PARTS):
        begun = time.monotonic()
        found[KINDS[terms_of(part)]].join(fifty(part))
        say(f"part {part + 1} of {PARTS}: {time.monotonic() - begun:.0f} s")
    return Section(
        title="Rollouts drawn by a seed",
        text=(
            f"50 nodes and {STORM.slots} slots in each run, in virtual time on the API server in "
            "memory (`tests/fleet/test_random_rollouts.py`). Half of the nodes have pods, on GPUs "
            "that change and on others. The rules of `tests/fleet/rollout_judge.py` judge the log "
            "of all requests: none was broken, and no trace of any change stayed. The last column "
            "compares the longest run with the time that [the page on "
            "MIG](mig.md#the-coordinator) allows nodes that nothing blocks."
        ),
        columns=(
            *("what happens", "runs", "changes", "evictions", "coordinators killed"),
            *("calls that failed", "nodes blocked", "most nodes in change", "of the time"),
        ),
        rows=tuple(
            (
                name,
                *(f"{it:,}" for it in (its.runs, its.changes, its.evictions)),
                *(f"{it:,}" for it in (its.kills, its.failed_calls, its.blocked)),
                str(its.most),
                f"{its.longest:.2f}",
            )
            for name, its in found.items()
        ),
    )


def busy() -> Section:
    """Rollouts all the time."""
    begun = time.monotonic()
    fleet = many(1, nodes=NODES, slots=SLOTS, rollouts=ROLLOUTS)
    say(f"{ROLLOUTS} rollouts: {time.monotonic() - begun:.0f} s")
    judge = fleet.judge
    figures = (fleet.begun, judge.permitted, len(judge.evicted), fleet.kills, fleet.failed_calls)
    return Section(
        title="A thousand rollouts",
        text=(
            f"{NODES} nodes, {SLOTS} slots (`tests/fleet/test_many_rollouts.py`). A rollout begins "
            "every minute on average, for a few nodes or all, also for nodes whose last rollout "
            "has not ended. Changes fail and get stuck, pods come and go, coordinators are "
            "killed. At the end every node has its layout, or waits for a true reason. No node "
            "was left behind, and no rule was broken."
        ),
        columns=(
            *("rollouts", "changes", "evictions", "coordinators killed", "calls that failed"),
            "most nodes in change",
        ),
        rows=((*(f"{it:,}" for it in figures), str(judge.most_in_change)),),
    )


def mode_changes() -> Section:
    """The same where half of the nodes have Ampere GPUs."""
    begun = time.monotonic()
    fleet = many(2, nodes=MODE_NODES, slots=SLOTS, rollouts=ROLLOUTS, modes=True)
    say(f"{ROLLOUTS} rollouts with mode changes: {time.monotonic() - begun:.0f} s")
    judge = fleet.judge
    figures = (fleet.begun, judge.permitted, fleet.mode_changes, len(judge.evicted))
    return Section(
        title="A thousand rollouts with mode changes",
        text=(
            f"{MODE_NODES} nodes, {SLOTS} slots, as above. Half of the nodes have Ampere GPUs: "
            "their changes switch MIG modes, for which the coordinator pauses parts of the GPU "
            "operator. Such a part goes at once, late, or never. Resets fail or lose the GPU now "
            "and then. The judge also knows those pods: none was there when a change proceeded. "
            "At the end every cordon of ours was off, and every label of the operator had its "
            "value from before."
        ),
        columns=(
            *("rollouts", "changes", "of these, with mode changes", "evictions"),
            *("coordinators killed", "calls that failed", "most nodes in change"),
        ),
        rows=(
            (
                *(f"{it:,}" for it in (*figures, fleet.kills, fleet.failed_calls)),
                str(judge.most_in_change),
            ),
        ),
    )


def interruptions() -> Section:
    """Each call of a rollout interrupted in each way."""
    rows = []
    for name, drains in (
        ("pods are waited for", False),
        ("a pod is evicted, a part of the GPU operator is paused", True),
    ):
        runs = interrupted(1, drains=drains)
        say(f"{name}: {runs} interruptions")
        rows.append((name, f"{calls(drains=drains)}", f"{len(FAILURES) + 2}", f"{runs}"))
    return Section(
        title="Every call interrupted",
        text=(
            "A rollout of two nodes, once for each call of the coordinator and each kind of "
            "interruption: killed before and after the call, 409, 429, 500, connection lost "
            "before and after it (`tests/fleet/test_interrupted_rollouts.py`). No rule was "
            "broken, both nodes had their layout, and no trace of the change stayed."
        ),
        columns=("the rollout", "calls", "ways", "runs"),
        rows=tuple(rows),
    )


def bad_nodes() -> Section:
    """A node that always fails and a stolen agent, among honest ones."""
    terms = RolloutSettings()
    base = play(None, nodes=BAD_NODES - 2, terms=terms, broken="", liar="", within=10_000)
    say(f"bad nodes: {base.seconds:.0f} s without them")
    rows = []
    for name, lie in LIES.items():
        its = play(lie, nodes=BAD_NODES, terms=terms, broken="n0", liar="n1", within=10_000)
        assert (its.changed, its.faults) == (its.of, ())
        assert its.seconds <= MOST_RATIO * base.seconds, name
        ratio = its.seconds / base.seconds
        say(f"bad nodes, {name}: {ratio:.2f}")
        counts = (f"{its.changed} of {its.of}", f"{its.lies:,}")
        rows.append((name, *counts, f"{its.seconds:,.0f} s", f"{ratio:.2f}"))
    return Section(
        title="A broken node and a stolen agent",
        text=(
            f"{BAD_NODES} nodes and one slot, with the default settings. One node fails at each "
            "attempt. The agent of another node was stolen, and writes what an agent may write "
            "(`tests/fleet/bad_nodes.py`). Both are first in line, before all others. The other "
            f"{base.of} alone take {base.seconds:,.0f} s. No rule was broken."
        ),
        columns=("what the stolen agent does", "others changed", "lies", "took", "ratio"),
        rows=tuple(rows),
    )


def reboots() -> Section:
    """Nodes that are rebooted together."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        took = sorted(reboot_all(Path(folder), patched, NODES))
    assert took[-1] <= MOST_SECONDS
    seconds = (took[len(took) // 2], took[-1], MOST_SECONDS)
    return Section(
        title="Reboots",
        text=(
            "The actuator's own code on simulated GPUs that lose everything "
            "(`tests/actuator/test_fleet_reboot.py`). The driver starts at once, or up to 15 "
            "minutes late. Times are in virtual seconds, from the start of the driver until the "
            "node has its layouts, with the same MIG devices. No coordinator, agent or API server "
            "takes part."
        ),
        columns=("nodes", "median", "longest", "allowed"),
        rows=((str(NODES), *(f"{it:.0f} s" for it in seconds)),),
    )


def plane() -> Section:
    """The coordinator as a program, on a real control plane."""
    from tests.cluster.random_rollout import play  # it takes a control plane

    rows = []
    for seed in range(PLANE_RUNS):
        with tempfile.TemporaryDirectory() as folder:
            its = play(Path(folder), seed, PLANE_NODES)
        assert (its.faults, its.deleted, its.refused) == ((), 0, 0)
        say(f"plane, seed {seed}: {its.seconds:.0f} s")
        counts = (seed, its.changes, its.evictions, its.blocked, its.most_in_change)
        times = (its.seconds, its.bound_seconds)
        rows.append((*map(str, counts), *(f"{it:.0f} s" for it in times)))
    return Section(
        title="On a real control plane",
        text=(
            f"{PLANE_NODES} nodes and 3 slots on a real API server with the shipped policies "
            "(`tests/cluster/test_random_rollouts.py`). Half of the nodes have pods, on GPUs that "
            "change and on others. Two coordinators run as programs; the leader is killed once. "
            "The same rules judge the audit log: none was broken, the API server refused no "
            "request, and gpuscape deleted no pod. The times are seconds until each node that "
            "nothing blocked had its layout, next to the time allowed. The canary waits one "
            "second."
        ),
        columns=(
            *("seed", "changes", "evictions", "nodes blocked", "most nodes in change"),
            *("took", "allowed"),
        ),
        rows=tuple(rows),
    )


RUNS: Final[dict[str, Callable[[], Section]]] = {
    "random": random_runs,
    "busy": busy,
    "modes": mode_changes,
    "interruptions": interruptions,
    "bad-nodes": bad_nodes,
    "reboots": reboots,
    "plane": plane,
}


def main(words: Sequence[str] | None = None) -> None:
    """Run the parts and write each into the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.fleet.rollout_run", description=__doc__)
    parser.add_argument("--only", default=",".join(RUNS), metavar="PART,…")
    asked = parser.parse_args(words).only.split(",")
    if unknown := sorted(set(asked) - RUNS.keys()):
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(RUNS)}")
    logging.disable(logging.CRITICAL)  # what coordinators say of the faults that are meant
    for name in asked:
        section = RUNS[name]()
        before = PAGE.read_text("utf-8") if PAGE.exists() else HEAD
        text = with_section(before, section.title, table(section))
        PAGE.write_text(f"{text.rstrip()}\n", encoding="utf-8")


def say(line: str) -> None:
    """One line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
