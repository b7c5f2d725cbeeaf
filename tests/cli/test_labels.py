# SPDX-License-Identifier: Apache-2.0
"""Labels as a table, as data and as a feature file; each one explained on request."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from api import keys
from cli import labels
from discovery.driver_errors import DriverAbsent
from labelers.compose import LabelDecisions, LabelerFailure
from tests import build
from tests.cli.conftest import Run

ONE_GPU = build.node([build.gpu()])


def values(run: Run, *arguments: str) -> dict[str, str]:
    """The labels as data."""
    result = run("labels", "-o", "json", *arguments, sees=ONE_GPU)
    assert result.exit_code == 0, result.output
    data: dict[str, str] = json.loads(result.output)
    return data


def test_the_table_shows_key_and_value(run: Run) -> None:
    lines = run("labels", sees=ONE_GPU).output.splitlines()
    assert lines[0].split() == ["LABEL", "VALUE"]
    assert ["nvidia.com/gpu.count", "1"] in [line.split() for line in lines]


def test_the_feature_file_is_lines_of_key_and_value_sorted(run: Run) -> None:
    lines = run("labels", "-o", "feature-file", sees=ONE_GPU).output.splitlines()
    assert "nvidia.com/gpu.count=1" in lines
    assert lines == sorted(lines)


def test_yaml_has_a_line_for_each_label(run: Run) -> None:
    text = run("labels", "-o", "yaml", "--no-timestamp", sees=ONE_GPU).output
    assert yaml.safe_load(text) == values(run, "--no-timestamp")
    assert "nvidia.com/gpu.count: '1'" in text.splitlines()


def test_the_timestamp_can_be_left_out(run: Run) -> None:
    assert keys.TIMESTAMP in values(run)
    assert keys.TIMESTAMP not in values(run, "--no-timestamp")


def test_the_mig_strategy_decides_labels(run: Run) -> None:
    assert keys.MIG_STRATEGY not in values(run)
    assert values(run, "--mig-strategy", "mixed")[keys.MIG_STRATEGY] == "mixed"


def test_the_plugins_file_holds_where_no_flag_does(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "plugin.yaml"
    file.write_text(
        "version: v1\n"
        "flags: {migStrategy: single, gfd: {noTimestamp: true}}\n"
        "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"
    )
    shared = values(run, "--sharing-config", str(file))
    assert shared["nvidia.com/gpu.replicas"] == "4"
    assert shared[keys.MIG_STRATEGY] == "single"
    assert keys.TIMESTAMP not in shared

    overruled = values(run, "--sharing-config", str(file), "--mig-strategy", "none", "--timestamp")
    assert keys.MIG_STRATEGY not in overruled
    assert keys.TIMESTAMP in overruled


def test_labels_by_rules_come_with_their_reason_and_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    none = '{key: example.com/type, values: [{match: {product: "*H100*"}, value: h100}]}'
    file.write_text(f'labels:\n- {{key: example.com/count, value: "{{count}}x"}}\n- {none}\n')
    made = values(run, "--label-rules", str(file))
    assert {key: text for key, text in made.items() if key.startswith("example.com/")} == {
        "example.com/count": "1x"
    }

    arguments = ("labels", "--explain", "-o", "json", "--label-rules", str(file))
    explained = {each["key"]: each for each in json.loads(run(*arguments, sees=ONE_GPU).output)}
    assert explained["example.com/count"]["source"] == f"{file}:2"
    assert explained["example.com/type"]["outcome"] == "absent"
    assert "none of its values matches product" in explained["example.com/type"]["text"]


def test_a_wrong_rule_names_file_line_and_key(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("labels:\n- {key: example.com/type, value: '{prodct}'}\n")
    result = run("labels", "--label-rules", str(file), sees=ONE_GPU)
    assert result.exit_code == 2
    assert f"{file}:2: labels[0].value: unknown field 'prodct'" in result.stderr


def test_explain_tells_the_source_of_a_label_and_why_another_is_missing(run: Run) -> None:
    result = run("labels", "--explain", "-o", "json", sees=ONE_GPU)
    explained = {each["key"]: each for each in json.loads(result.output)}
    count, clique = explained["nvidia.com/gpu.count"], explained[keys.CLIQUE]
    assert (count["outcome"], count["text"]) == ("set", "1")
    assert count["source"]
    assert clique["outcome"] in ("absent", "kept")
    assert clique["text"]


def test_explain_as_a_table_has_a_row_for_every_label(run: Run) -> None:
    output = run("labels", "--explain", sees=ONE_GPU).output
    missing = [key.name for key in keys.LABELS if key.pattern is None and key.name not in output]
    assert not missing


def test_explain_has_no_feature_file(run: Run) -> None:
    result = run("labels", "--explain", "-o", "feature-file", sees=ONE_GPU)
    assert result.exit_code == 2
    assert "--explain has no feature-file format" in result.output


def test_a_wrong_sharing_config_names_file_line_and_key(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "plugin.yaml"
    file.write_text("version: v1\nflags: {migStrategy: both}\n")
    result = run("labels", "--sharing-config", str(file), sees=ONE_GPU)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert f"Error: {file}:2: flags.migStrategy: " in result.stderr


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_sharing_config_that_cannot_be_read_is_named(run: Run, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    result = run("labels", "--sharing-config", str(file), sees=ONE_GPU)
    assert result.exit_code == 2
    assert f"sharing-config: cannot read {file}: " in result.stderr


def test_a_failing_labeler_is_told_after_the_labels_of_the_others(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = LabelDecisions(
        rows=(), failures=(LabelerFailure(labeler="links", error="ValueError: no"),)
    )
    monkeypatch.setattr(labels, "decide_labels", lambda *_: broken)
    result = run("labels", sees=ONE_GPU)
    assert result.exit_code == 1
    assert "links: ValueError: no" in result.stderr


def test_an_illegal_label_is_left_out_and_told_beside_the_others(run: Run) -> None:
    node = build.node([build.gpu()])
    node = replace(node, host=replace(node.host, machine_type="Pizza Box."))
    result = run("labels", sees=node)
    assert result.exit_code == 0
    assert "nvidia.com/gpu.count" in result.stdout
    assert keys.MACHINE not in result.stdout
    assert result.stderr.startswith(f"Left out {keys.MACHINE}: 'Pizza-Box.' is not a legal label")


@pytest.mark.parametrize(
    ("driver", "strategy", "exit_code"),
    [(False, "none", 3), (False, "bogus", 2), (True, "bogus", 2), (True, "none", 0)],
)
def test_no_driver_and_a_bogus_strategy_are_told_apart(
    run: Run, driver: bool, strategy: str, exit_code: int
) -> None:
    """Upstream's cases of a failing start; the agent itself stays up and waits for the driver."""
    sees = build.node([build.gpu(0)]) if driver else DriverAbsent("no NVIDIA driver")
    assert run("labels", "--mig-strategy", strategy, sees=sees).exit_code == exit_code
