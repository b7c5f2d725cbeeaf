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
from scheduler.simulation import choosers
from tests.bench import placement
from tests.bench.page import REAL_NODES, with_section
from tests.bench.placement_arms import (
    AHEAD,
    ARMS,
    COMPARED,
    FASTEST,
    LATE,
    NOW,
    OTHER_POLICY,
    PACK,
    SPREAD,
    Plugin,
    Plugins,
)
from tests.bench.placement_cells import FLEETS, LOADS, MIXED, MIXES, Cell, cells, plan
from tests.bench.placement_fleets import WORKLOADS, best_gbps, fleet_of, machine
from tests.bench.placement_page import MOST_ROWS, page, raw
from tests.bench.placement_runs import Key, Run, SizeFigures, kind_of, play, read, run
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
    assert {each.fleet for each in keys} == {*FLEETS}
    assert {(each.mix, each.load) for each in keys} == {(mix, at) for mix in MIXES for at in LOADS}
    assert {each.arm for each in keys} == {*COMPARED}


def test_the_page_has_the_worst_cells_and_the_raw_table_has_all() -> None:
    keys = [each for each in plan() if each.seed < 2]
    runs = [played(each, speed=each.load if each.arm == NOW else 1) for each in keys]
    text = page(runs)
    rows = [line for line in text.splitlines() if line.startswith("| ") and ", 0." in line]
    assert len(rows) == MOST_ROWS
    assert sum(", 0.30 |" in row for row in rows) == len(FLEETS) * len(MIXES)
    assert not any(", 0.95 |" in row for row in rows)
    lines = raw(runs).splitlines()
    sizes = sum(len(WORKLOADS[mix].sizes) for mix in MIXES)
    assert len(lines) == 1 + len(FLEETS) * len(LOADS) * len(COMPARED) * sizes
    assert "nan" not in text


def test_cells_that_break_a_limit_come_before_slower_ones_that_break_none() -> None:
    def speed_of(arm: str, load: float) -> float:
        if load > LOADS[0]:
            return 0.97 if arm == NOW else 1.0
        return {NOW: 0.6, SPREAD: 0.5, PACK: 0.5}.get(arm, 1.0)

    keys = [each for each in plan() if each.seed < 2]
    text = page([played(each, speed=speed_of(each.arm, each.load)) for each in keys])
    rows = [line for line in text.splitlines() if line.startswith("| ") and ", 0." in line]
    assert len(rows) == MOST_ROWS
    assert not any(f", {LOADS[0]:.2f} |" in row for row in rows)
    assert all("GPUs -0.030" in row for row in rows)


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
    for arm in (NOW, FASTEST):
        assert predicted(key(arm, fleet=spec, pods=60)).speed(8) == 1


def test_a_node_that_lost_a_link_is_judged_by_the_best_of_its_product() -> None:
    """Its eight GPUs are the best that it has, and slower than those of a whole one."""
    assert joined("dgx1-v100") - joined("dgx1-broken") == {(0, 3)}
    kinds = [kind_of(name) for name in ("dgx1-broken", "dgx1-v100")]
    assert kinds[0].table.ideal(gpu_request(8)) < kinds[1].table.ideal(gpu_request(8))
    spec = "1*dgx1-broken+1*dgx1-v100"
    for arm in (NOW, FASTEST):
        found = [
            predicted(key(arm, fleet=spec, mix="trace", seed=each, pods=1)) for each in range(9)
        ]
        assert all(one.speed(size) == 1 for one in found for size in one.sizes)


def cell_of(arms: dict[str, dict[str, float]], mix: str = "usual") -> Cell:
    """Four days on which each arm has these figures."""
    (fleet, *_) = MIXED
    runs = [
        played(Key(fleet=fleet, mix=mix, load=0.85, arm=arm, seed=seed, pods=100), **its)
        for arm, its in arms.items()
        for seed in range(4)
    ]
    (found,) = cells(runs)
    return found


def test_the_reference_is_the_fastest_arm_that_keeps_to_the_limits() -> None:
    stock = {"speed": 0.5, "wait": 20.0}
    arms = {SPREAD: stock, PACK: stock, FASTEST: {"speed": 0.7, "wait": 20.0}}
    assert cell_of({**arms, AHEAD: {"speed": 0.9, "wait": 21.0}}).reference == AHEAD
    assert cell_of({**arms, AHEAD: {"speed": 0.9, "wait": 23.0}}).reference == FASTEST
    assert cell_of({**arms, NOW: {"speed": 1.0, "wait": 1.0}}).reference == FASTEST
    assert cell_of({SPREAD: {"speed": 0.9, "wait": 99.0}, PACK: stock}).reference == PACK


def test_a_limit_is_broken_by_a_slower_size_or_a_longer_wait() -> None:
    stock = {"speed": 0.8, "wait": 20.0}
    arms = {SPREAD: {"speed": 0.6}, PACK: stock}
    assert not cell_of({**arms, NOW: {"speed": 0.79, "wait": 21.9}}).broken(NOW)
    slow = cell_of({**arms, NOW: {"speed": 0.77, "wait": 20.0}}).broken(NOW)
    assert [words.split()[2] for words in slow] == ["-0.030"] * 3
    (late,) = cell_of({**arms, NOW: {"speed": 0.9, "wait": 22.5}}).broken(NOW)
    assert late.startswith("waits 1.1")
    short = {SPREAD: {"wait": 4.0}, PACK: {"wait": 4.0}, NOW: {"wait": 9.0}}
    assert not cell_of(short).broken(NOW)


def test_sizes_that_hardly_any_gpu_is_used_by_do_not_count() -> None:
    sizes = {1: figures(100), 2: figures(1, speed=0.1), 8: figures(20)}
    runs = {
        arm: {seed: Run(key=key(arm, seed=seed), sizes=sizes) for seed in range(2)}
        for arm in (PACK, NOW)
    }
    assert Cell(fleet=PAIRS, mix="usual", load=0.85, runs=runs).sizes == [8]


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
    arms = (AHEAD, NOW, LATE, PACK, OTHER_POLICY)
    found = {arm: run(key(arm, fleet="32*a100-pcie-pairs", pods=3000), give) for arm in arms}
    best = found[AHEAD].best_part
    assert found[NOW].best_part > 0.99 * best
    assert found[LATE].best_part > 0.97 * best
    assert found[PACK].best_part < 0.9 * best
    assert found[OTHER_POLICY].best_part < 0.9 * best
    assert sum(each.lost for each in found.values()) == 0
