# SPDX-License-Identifier: Apache-2.0
"""The placement benchmark on small fleets: what it has to show there, it shows."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.gpu_request import gpu_request
from base.errors import BadInput
from placement.class_tables import ScoreTables
from scheduler.fleet_products import FleetProducts
from scheduler.simulation import choosers
from scheduler.simulation.fleet_replay import ReplayNode
from tests.bench import placement
from tests.bench.page import REAL_NODES, with_section
from tests.bench.placement_arms import (
    ARMS,
    LATE,
    MIXED_ARMS,
    NOW,
    OTHER_POLICY,
    PACK,
    REFERENCE,
    SPREAD,
    Plugin,
    Plugins,
)
from tests.bench.placement_cells import MACHINES, MIXED, OTHERS, Cell, cells, plan
from tests.bench.placement_fleets import WORKLOADS, best_gbps, fleet_of, machine
from tests.bench.placement_page import page
from tests.bench.placement_reference import Reference
from tests.bench.placement_runs import Key, Run, SizeFigures, kind_of, play, read, run, tables
from tests.judge.bandwidth import AMPERE, HOPPER
from tests.kubelet_nodes.allocator import Allocator
from tests.observed import observed
from tests.scheduler.simulated import kind, seeded

PAIRS = "4*a100-pcie-pairs"


@pytest.fixture(scope="module")
def allocator() -> Iterator[Allocator]:
    """Tests that use it are marked ``cluster``, since it has to be built."""
    with Allocator() as running:
        yield running


def key(
    arm: str = NOW, *, fleet: str = PAIRS, mix: str = "usual", seed: int = 0, pods: int = 100
) -> Key:
    return Key(fleet=fleet, mix=mix, load=0.85, arm=arm, seed=seed, pods=pods)


def predicted(which: Key) -> Run:
    """A run with a device plugin that does as we predict: it needs nothing that has to be built."""
    return run(which, choosers.predicted)


def figures(pods: int = 10, *, speed: float = 1.0, wait: float = 0.0) -> SizeFigures:
    return SizeFigures(
        pods=pods, speed=pods * speed, best=int(pods * speed), wait_seconds=pods * wait, lost=0
    )


def played(which: Key, *, speed: float = 1.0, wait: float = 0.0) -> Run:
    sizes = WORKLOADS[which.mix].sizes
    return Run(key=which, sizes={size: figures(speed=speed, wait=wait) for size in sizes})


def cell(**waits: list[float]) -> Cell:
    runs = {
        arm: {seed: played(key(arm, seed=seed), wait=wait) for seed, wait in enumerate(its)}
        for arm, its in waits.items()
    }
    return Cell(fleet=PAIRS, mix="usual", load=0.85, runs=runs)


def wait(one: Run) -> float:
    return one.wait_seconds()


def test_waits_are_compared_over_the_same_seeds() -> None:
    """Without one seed the ratio is 1.5, without the other 0.5; the third has no partner."""
    found = cell(ours=[2, 9, 99], pack=[4, 6]).ratio("ours", "pack", wait)
    assert (found.value, round(found.error, 9)) == (1.1, 0.5)


def test_where_nobody_waits_there_is_no_ratio() -> None:
    assert math.isnan(cell(ours=[0, 0], pack=[0, 0]).ratio("ours", "pack", wait).value)


def test_a_gain_is_the_mean_of_gains_on_the_same_days() -> None:
    """Gains of 1 and 3: the standard error is half of the difference, whatever the days are."""
    found = cell(ours=[5, 103], pack=[4, 100]).gain("ours", "pack", wait)
    assert (found.value, round(found.error, 9)) == (2.0, 1.0)


def test_speed_over_gpus_counts_each_pod_by_its_gpus_and_no_single_ones() -> None:
    sizes = {1: figures(), 2: figures(speed=0.5), 4: figures(5, speed=0.8)}
    assert Run(key=key(), sizes=sizes).weighted_speed == pytest.approx(0.65)


def test_a_set_is_compared_by_the_judge_with_the_best_of_the_fleet() -> None:
    """Eight GPUs of bridged pairs have PCIe; the other machine has NVSwitch."""
    fleet = fleet_of("1*a100-pcie-pairs+1*hgx-h100")
    assert best_gbps(fleet, 2) == HOPPER.gpu
    slow = predicted(key(PACK, fleet="2*a100-pcie-pairs+1*hgx-h100", mix="fours", pods=300))
    least = AMPERE.sockets / best_gbps(fleet, 8)
    assert least < slow.speed(8) < 1


def test_the_same_key_plays_the_same_run() -> None:
    first, second = (predicted(key(arm, seed=3)) for arm in (NOW, NOW))
    assert first.sizes == second.sizes


def test_every_workload_and_arm_plays() -> None:
    """Arms of one seed have the same pods, so as many of each size."""
    for mix in WORKLOADS:
        runs = [predicted(key(arm, mix=mix, pods=40)) for arm in ARMS]
        assert (
            len({tuple((size, its.pods) for size, its in one.sizes.items()) for one in runs}) == 1
        )


def test_lognormal_lives_have_the_mean_of_the_others_and_far_longer_ones() -> None:
    lives = {
        mix: [each.lasts_seconds for each in WORKLOADS[mix].arrivals(64, 0.85, 20_000, seeded())]
        for mix in ("usual", "lognormal")
    }
    means = {mix: sum(its) / len(its) for mix, its in lives.items()}
    assert means["lognormal"] == pytest.approx(means["usual"], rel=0.1)
    assert max(lives["lognormal"]) > 2 * max(lives["usual"])


def test_runs_that_were_stopped_go_on_where_they_were(tmp_path: Path) -> None:
    file = tmp_path / "runs"
    asked = [key(PACK, seed=seed, pods=20) for seed in range(3)]
    first = list(play(asked[:2], file, one=predicted))
    with file.open("ab") as lines:
        lines.write(b'{"key":{"fleet":"cut o')  # killed in the middle of a line
    second = list(play(asked, file, one=predicted))
    assert [each.key for each in first] == asked[:2]
    assert [each.key for each in second] == asked[2:]
    assert {each.key for each in read(file)} == {*asked}


def test_no_run_begins_after_the_time_is_over(tmp_path: Path) -> None:
    asked = [key(PACK, pods=20)]
    assert not list(play(asked, tmp_path / "runs", until=time.monotonic() - 1, one=predicted))


@pytest.mark.parametrize("spec", ["dgx1-v100", "0*dgx1-v100", "2*no-such", "2*dgx1-v100+", "+"])
def test_a_fleet_that_makes_no_sense_is_refused(spec: str) -> None:
    with pytest.raises(BadInput):
        fleet_of(spec)


def test_the_plan_has_every_run_once_and_all_arms_of_a_day() -> None:
    keys = list(plan())
    assert len(keys) == len({*keys})
    assert {each.fleet for each in keys} > {*MACHINES, *MIXED, *OTHERS}
    assert {each.mix for each in keys if each.fleet in MIXED} == {*WORKLOADS}
    assert {each.arm for each in keys if each.fleet in MIXED} == {*MIXED_ARMS}


def test_the_page_has_every_cell_of_the_plan() -> None:
    keys = [each for each in plan() if each.seed < 2]
    text = page([played(each, speed=0.5, wait=1) for each in keys])
    found = cells([played(each) for each in keys])
    rows = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    for each in found:
        place = {**MACHINES, **MIXED, **OTHERS}.get(each.fleet)
        if place:
            assert sum(line.startswith(f"| {place}, {each.load:.2f} |") for line in rows) >= 2
    assert "nan" not in text
    assert all(len(line) < 2000 for line in rows)


def test_the_command_plays_what_is_asked_for_and_writes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, written = tmp_path / "runs", tmp_path / "page.md"
    monkeypatch.setattr("tests.bench.placement_runs._played", predicted)
    monkeypatch.setattr(placement, "PAGE", written)
    asked = ["run", str(runs), "--fleet", PAIRS, "--mix", "fours", "--load", "0.5", "--pods", "30"]
    placement.main([*asked, "--arm", PACK, "--arm", SPREAD, "--seeds", "2"])
    assert len(read(runs)) == 4
    placement.main(["page", str(runs)])
    assert written.read_text(encoding="utf-8").startswith("# Where pods land")
    others = f"## {REAL_NODES}\n\nWritten by another program.\n"
    written.write_text(f"# Where pods land\n\nOld.\n\n{others}", encoding="utf-8")
    placement.main(["page", str(runs)])
    assert written.read_text(encoding="utf-8").endswith(f"\n\n{others}")
    with pytest.raises(SystemExit, match="not COUNT"):
        placement.main(["run", str(runs), "--fleet", "nonsense"])
    assert "4/4" in capsys.readouterr().out


def test_a_section_of_a_page_is_written_anew_where_it_stands() -> None:
    page = "# Page\n\n## One\n\n1\n\n## Two\n\n2\n"
    assert with_section(page, "One", "## One\n\nI\n") == page.replace("1", "I")
    assert with_section(page, "Three", "## Three\n\n3\n") == f"{page}\n## Three\n\n3\n"
    assert with_section(page, "Three", "") == page


def joined(name: str) -> set[tuple[int, int]]:
    its = machine(name).topology
    return {(a, b) for b in range(its.n) for a in range(b) if its.links(a, b)}


def test_quads_are_joined_within_and_not_between() -> None:
    assert joined("quads") == {(a, b) for b in range(8) for a in range(b) if a // 4 == b // 4}


def test_nodes_of_four_have_all_links_and_no_part_in_what_is_larger() -> None:
    assert joined("four-a100") == {(a, b) for b in range(4) for a in range(b)}
    assert best_gbps(fleet_of("1*four-a100+1*a100-pcie-pairs"), 8) == AMPERE.sockets
    spec = "3*four-a100+1*dgx-a100"
    for arm in (NOW, REFERENCE):
        assert predicted(key(arm, fleet=spec, pods=60)).speed(8) == 1


def test_a_node_that_lost_a_link_is_judged_by_the_best_of_its_product() -> None:
    """Its eight GPUs are the best that it has, and slower than those of a whole one."""
    assert joined("dgx1-v100") - joined("dgx1-broken") == {(0, 3)}
    kinds = [kind_of(name) for name in ("dgx1-broken", "dgx1-v100")]
    assert kinds[0].table.ideal(gpu_request(8)) < kinds[1].table.ideal(gpu_request(8))
    fleet = fleet_of("1*dgx1-broken+1*dgx1-v100")
    for choose in (choosers.ranked(tables), Reference(fleet, choosers.predicted).choose):
        products = FleetProducts()
        nodes = [ReplayNode(each.name, each, products) for each in kinds]
        chosen = {choose(nodes, gpu_request(8), seeded(seed)).node.kind.name for seed in range(8)}
        assert chosen == {"dgx1-v100"}


def cells_of(fleet: str, arms: dict[str, dict[str, float]]) -> str:
    """The page's list of missed targets for four days on which each arm has these figures."""
    runs = [
        played(key(arm, fleet=fleet, seed=seed), **its)
        for arm, its in arms.items()
        for seed in range(4)
    ]
    text = page(runs)
    return text[text.index("## Where a target is missed") : text.index("## Speed")]


def test_the_page_names_each_target_that_is_missed() -> None:
    (fleet, *_), stock = MIXED, {"speed": 0.8, "wait": 20.0}
    arms = {SPREAD: stock, PACK: stock, REFERENCE: {"speed": 0.9, "wait": 20.0}}
    good = cells_of(fleet, {**arms, NOW: {"speed": 0.9, "wait": 20.5}})
    assert good.count("- ") == good.count("- nowhere") == 2
    slow = cells_of(fleet, {**arms, NOW: {"speed": 0.77, "wait": 20.0}})
    assert all(f"pods of {size} GPUs: -0.030" in slow for size in (2, 4, 8))
    assert "speed over GPUs: 0.856 ± 0.000 of the reference's" in slow
    late = cells_of(fleet, {**arms, NOW: {"speed": 0.9, "wait": 22.0}})
    assert "all pods wait 22.00 s, with packing 20.00 s" in late
    assert "GPUs: 22.00 s" not in late


def test_a_wait_that_is_longer_by_less_than_a_second_is_no_miss() -> None:
    (fleet, *_) = MIXED
    arms = {arm: {"speed": 0.9, "wait": 0.1} for arm in (SPREAD, PACK, REFERENCE)}
    assert "all pods" not in cells_of(fleet, {**arms, NOW: {"speed": 0.95, "wait": 0.9}})
    assert "all pods" in cells_of(fleet, {**arms, NOW: {"speed": 0.95, "wait": 1.2}})


@pytest.mark.cluster
def test_the_device_plugin_gives_linked_gpus_and_says_so_again(allocator: Allocator) -> None:
    plugin = Plugin(allocator, observed("a100-pcie-pairs").snapshot)
    given = {
        plugin.give(kind(ScoreTables()), 0b1111, gpu_request(2), seeded(seed)) for seed in range(50)
    }
    assert given == {0b0011, 0b1100}


@pytest.mark.cluster
def test_ours_finds_what_foresight_finds_and_far_more_than_bin_packing(
    allocator: Allocator,
) -> None:
    give = Plugins(allocator).give
    arms = (REFERENCE, NOW, LATE, PACK, OTHER_POLICY)
    found = {arm: run(key(arm, fleet="32*a100-pcie-pairs", pods=3000), give) for arm in arms}
    best = found[REFERENCE].best_part
    assert found[NOW].best_part > 0.99 * best
    assert found[LATE].best_part > 0.97 * best
    assert found[PACK].best_part < 0.9 * best
    assert found[OTHER_POLICY].best_part < 0.9 * best
    assert sum(each.lost for each in found.values()) == 0
