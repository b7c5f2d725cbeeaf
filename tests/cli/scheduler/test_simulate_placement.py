# SPDX-License-Identifier: Apache-2.0
"""A workload is replayed on a fleet and told, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.settings.agent_settings import AgentSettings
from cli.scheduler import simulate_placement
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
"""


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
    }
    assert {size: its["pods"] for size, its in ours["by_gpus"].items()} == {"2": 1, "8": 2}


def test_drawn_pods_repeat_with_all_that_they_depend_on(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "three.yaml"
    file.write_text(json.dumps([{"topology": fleets.topology(), "count": 3}]), encoding="utf-8")

    def drawn(*more: str) -> str:
        return simulate(run, "usual", "--fleet", str(file), "--pods", "60", *more)[1]

    usual = drawn()
    assert usual == drawn("--seed", "1", "--load", "0.85", "--lag", "1")
    for other in (("--seed", "2"), ("--load", "0.3"), ("--lag", "3600"), ("--pods", "50")):
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
