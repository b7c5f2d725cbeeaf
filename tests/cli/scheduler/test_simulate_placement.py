# SPDX-License-Identifier: Apache-2.0
"""A workload is replayed on a fleet and told, for people and for programs."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from agent.settings.agent_settings import AgentSettings
from cli.scheduler import simulate_placement
from cli.scheduler.simulate_placement import difference_table
from scheduler.simulation.estimates import Figure, FigureDifference, Verdict
from tests.cli.conftest import Run
from tests.observed import observed
from tests.scheduler import fleets

PODS = """\
submit_seconds,duration_seconds,gpus
0,100,8
1,100,8
2,10,2
3,10,16
"""
TABLE = """\
Pods: 4, nodes: 1, GPUs: 8
Warning: too small to say anything: 3 pods in 3 samples, WHY; a longer file is needed.

SCHEDULER  PODS  BEST SETS    SPEED  MEAN WAIT  LONGEST  LOST  NEVER
spread        3    100.0 %  100.0 %     99.0 s    198 s     0      1
  2 GPUs      1    100.0 %  100.0 %    198.0 s    198 s     0
  8 GPUs      2    100.0 %  100.0 %     49.5 s     99 s     0
pack          3    100.0 %  100.0 %     99.0 s    198 s     0      1
  2 GPUs      1    100.0 %  100.0 %    198.0 s    198 s     0
  8 GPUs      2    100.0 %  100.0 %     49.5 s     99 s     0
gpuscape      3    100.0 %  100.0 %     99.0 s    198 s     0      1
  2 GPUs      1    100.0 %  100.0 %    198.0 s    198 s     0
  8 GPUs      2    100.0 %  100.0 %     49.5 s     99 s     0
foresight     3    100.0 %  100.0 %     99.0 s    198 s     0      1
  2 GPUs      1    100.0 %  100.0 %    198.0 s    198 s     0
  8 GPUs      2    100.0 %  100.0 %     49.5 s     99 s     0
""".replace("WHY", "of at least 5 with 20 pods each, so all differences may be chance")


@pytest.fixture
def fleet(tmp_path: Path) -> str:
    """One node with pairs."""
    file = tmp_path / "fleet.yaml"
    file.write_text(json.dumps([{"topology": fleets.topology()}]), encoding="utf-8")
    return str(file)


@pytest.fixture
def pods(tmp_path: Path) -> str:
    file = tmp_path / "pods.csv"
    file.write_text(PODS, encoding="utf-8")
    return str(file)


def simulate(run: Run, *arguments: str) -> tuple[int, str]:
    result = run("scheduler", "simulate", *arguments)
    return result.exit_code, result.output


def test_all_schedulers_are_told_with_their_pods_by_size(run: Run, fleet: str, pods: str) -> None:
    assert simulate(run, pods, "--fleet", fleet) == (0, TABLE)


def test_json_holds_the_same_by_number_of_gpus(run: Run, fleet: str, pods: str) -> None:
    found = json.loads(simulate(run, pods, "--fleet", fleet, "-o", "json")[1])
    ours = next(each for each in found if each["scheduler"] == "gpuscape")
    assert ours["never_placed"] == 1
    assert ours["all"] == {
        "pods": 3,
        "lost": 0,
        "ideal_ratio": 1.0,
        "speed_ratio": 1.0,
        "mean_wait_seconds": 99.0,
        "longest_wait_seconds": 198.0,
        "ideal_ratio_error": None,
        "speed_ratio_error": None,
        "mean_wait_error_seconds": None,
    }
    assert (ours["samples"], ours["compared"]) == (3, [])
    assert {len(each["warnings"]) for each in found} == {1}
    assert {size: its["pods"] for size, its in ours["by_gpus"].items()} == {"2": 1, "8": 2}


def test_errors_and_differences_of_drawn_pods_are_shown_and_in_json(run: Run, fleet: str) -> None:
    drawn = ("usual", "--fleet", fleet, "--pods", "60", "--seeds", "6")
    code, output = simulate(run, *drawn)
    assert code == 0
    head, schedulers, title, differences = output.split("\n\n")
    first, *warned = head.splitlines()
    assert first == "Pods: 60 for each of 6 seeds, nodes: 1, GPUs: 8"
    assert [line.startswith("Warning: too small to say much about") for line in warned]
    figures = " +".join(rf"[\d.]+ ± [\d.]+ {unit}" for unit in ("%", "%", "s"))
    assert re.search(rf"^pack +360 +{figures} ", schedulers, re.MULTILINE)
    assert title == "What gpuscape has more (+) or less (-) than the others:"
    assert [line.split()[0] for line in differences.splitlines()] == [
        *("THAN", "spread", "pack", "foresight")
    ]

    found = json.loads(simulate(run, *drawn, "-o", "json")[1])
    ours = next(each for each in found if each["scheduler"] == "gpuscape")
    assert ours["samples"] == 6
    assert ours["all"]["mean_wait_error_seconds"] > 0
    assert [f"Warning: {each}." for each in ours["warnings"]] == warned
    assert [(each["other"], each["figure"]) for each in ours["compared"]] == [
        (other, figure)
        for other in ("spread", "pack", "foresight")
        for figure in ("ideal_ratio", "speed_ratio", "mean_wait_seconds")
    ]
    for each in ours["compared"]:
        is_none = abs(each["difference"]) <= each["error"]
        assert (each["verdict"] == "no difference") is is_none
        row = next(line for line in differences.splitlines() if line.startswith(each["other"]))
        if each["figure"] == "mean_wait_seconds":
            words = f"{each['difference']:+.1f} ± {each['error']:.1f} s"
        else:
            words = f"{each['difference'] * 100:+.1f} ± {each['error'] * 100:.1f} %"
        assert (f"no difference ({words})" if is_none else f"  {words}") in row


def test_seeds_follow_the_first_and_draw_other_pods(run: Run, fleet: str) -> None:
    def sizes(first: int, seeds: int) -> Counter[str]:
        drawn = ("usual", "--fleet", fleet, "--pods", "40", "--seeds", str(seeds))
        found = json.loads(simulate(run, *drawn, "--seed", str(first), "-o", "json")[1])
        return Counter({size: its["pods"] for size, its in found[0]["by_gpus"].items()})

    assert sizes(7, 2) == sizes(7, 1) + sizes(8, 1)
    assert sizes(7, 1) != sizes(8, 1)


def test_the_order_of_gpu_models_is_an_option(run: Run, tmp_path: Path) -> None:
    """One pod of two GPUs, on an empty fleet: on the faster machine, or on the slower one."""
    file, pods = tmp_path / "two.yaml", tmp_path / "one.csv"
    machines = [{"machine": "dgx1-v100", "count": 3}, {"machine": "hgx-h100", "count": 3}]
    file.write_text(json.dumps(machines), encoding="utf-8")
    pods.write_text("submit_seconds,duration_seconds,gpus\n0,9,2\n", encoding="utf-8")

    def speed(*order: str) -> float:
        words = (str(pods), "--fleet", str(file), *order, "-o", "json")
        found = json.loads(simulate(run, *words)[1])
        ours = next(each for each in found if each["scheduler"] == "gpuscape")
        return float(ours["all"]["speed_ratio"])

    assert speed() == speed("--product-order", "fastest") == 1
    assert speed("--product-order", "cheapest") < 0.2


def test_how_many_gpu_models_jobs_are_on_is_shown_where_there_are_jobs(
    run: Run, tmp_path: Path, fleet: str
) -> None:
    """The fast machine is taken while the job's first pod comes, and is free for the second."""
    file, jobs = tmp_path / "two.yaml", tmp_path / "jobs.csv"
    machines = [{"machine": "dgx1-v100", "count": 2}, {"machine": "hgx-h100", "count": 1}]
    file.write_text(json.dumps(machines), encoding="utf-8")
    rows = ("submit_seconds,duration_seconds,gpus,job", "0,9,8,", "1,99,8,a", "20,9,8,a")
    jobs.write_text("\n".join(rows), encoding="utf-8")

    output = simulate(run, str(jobs), "--fleet", str(file))[1]
    assert "GPU models that the pods of a job are on, on average:" in output
    assert "gpuscape 1.00" in output
    assert "foresight 2.00" in output
    found = json.loads(simulate(run, str(jobs), "--fleet", str(file), "-o", "json")[1])
    assert {each["scheduler"]: each["jobs"] for each in found}["gpuscape"] == {
        "jobs": 1,
        "mean_products": 1.0,
    }
    drawn = ("usual", "--fleet", fleet, "--pods", "40", "--seeds", "1")
    assert "GPU models that the pods of a job" in simulate(run, *drawn, "--job-pods", "4")[1]
    assert "GPU models that the pods of a job" not in simulate(run, *drawn)[1]


def test_a_run_that_mostly_fills_the_fleet_is_said(run: Run, tmp_path: Path) -> None:
    """Of 80 GPUs 0.85 are asked for at a time, by pods of 2.2 on average: 32.4 of 100 pods."""
    file = tmp_path / "ten.yaml"
    file.write_text(json.dumps([{"topology": fleets.topology(), "count": 10}]), encoding="utf-8")
    drawn = ("usual", "--fleet", str(file), "--pods", "100", "--seeds", "5")
    assert (
        "Warning: too short: the fleet begins empty, and the pods of a seed last for 3.2 mean lives"
        " of a pod, of at least 5; draw more --pods.\n" in simulate(run, *drawn)[1]
    )


def test_a_figure_that_is_not_compared_is_a_dash() -> None:
    one = FigureDifference(
        other="pack",
        figure=Figure.SPEED,
        difference=0.02,
        error=0.01,
        larger=0.5,
        verdict=Verdict.MORE,
    )
    (row,) = difference_table([one]).rows
    assert row[1:] == ("-", "+2.0 ± 1.0 %", "-")


def test_seeds_of_a_file_are_refused(run: Run, fleet: str, pods: str) -> None:
    assert simulate(run, pods, "--fleet", fleet, "--seeds", "3") == (
        2,
        "Error: --seeds is for pods that are drawn: usual and published\n",
    )


def test_drawn_pods_repeat_with_all_that_they_depend_on(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "three.yaml"
    file.write_text(json.dumps([{"topology": fleets.topology(), "count": 3}]), encoding="utf-8")

    def drawn(*more: str) -> str:
        return simulate(run, "usual", "--fleet", str(file), "--pods", "60", "--seeds", "2", *more)[
            1
        ]

    usual = drawn()
    assert usual == drawn("--seed", "1", "--load", "0.85", "--lag", "1")
    for other in (
        ("--seed", "2"),
        ("--load", "0.3"),
        ("--lag", "3600"),
        ("--pods", "50"),
        ("--seeds", "3"),
    ):
        assert drawn(*other) != usual


def test_a_fleet_may_name_simulated_machines(
    run: Run, tmp_path: Path, pods: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def take_snapshot(settings: AgentSettings) -> object:
        asked.append(settings.simulate)
        return observed(settings.simulate or "").snapshot

    monkeypatch.setattr(simulate_placement, "take_snapshot", take_snapshot)
    file = tmp_path / "fleet.yaml"
    file.write_text("- {machine: hgx-h100, count: 2}\n- {machine: a30-pair}\n", encoding="utf-8")
    _, output = simulate(run, pods, "--fleet", str(file))
    assert output.startswith("Pods: 4, nodes: 3, GPUs: 18\n")
    assert asked == ["hgx-h100", "a30-pair"]


@pytest.mark.parametrize(
    ("workload", "text", "said"),
    [
        ("nothing.csv", "[{machine: t4}]", "there is no file nothing.csv; pods are drawn for"),
        ("usual", "[{machine: empty}]", "machine empty has no GPU"),
        ("usual", "[{machine: nonsense}]", "nonsense"),
        ("usual", "{}", "is no fleet"),
    ],
)
def test_what_cannot_be_simulated_is_said_in_one_sentence(
    run: Run,
    tmp_path: Path,
    workload: str,
    text: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        simulate_placement, "take_snapshot", lambda settings: observed(settings.simulate).snapshot
    )
    file = tmp_path / "fleet.yaml"
    file.write_text(text, encoding="utf-8")
    result = run("scheduler", "simulate", workload, "--fleet", str(file))
    assert result.exit_code == 2
    (line,) = result.output.splitlines()
    assert said in line
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_a_fleet_that_cannot_be_read_is_named(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    result = run("scheduler", "simulate", "usual", "--fleet", str(missing))
    assert result.exit_code == 2
    assert f"cannot read {missing}: No such file or directory" in result.output
