# SPDX-License-Identifier: Apache-2.0
"""promtool's complaints arrive, a line each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.monitoring import promtool

pytestmark = pytest.mark.cluster

GOOD = "# HELP gpuscape_x_total Xs.\n# TYPE gpuscape_x_total counter\ngpuscape_x_total 1\n"
BAD = "# HELP gpuscape_x_ms Xs.\n# TYPE gpuscape_x_ms counter\ngpuscape_x_ms 1\n"
THEIRS = BAD.replace("gpuscape_x_ms", "DCGM_X")


def test_a_good_exposition_gives_none() -> None:
    assert promtool.check_metrics(GOOD) == []


def test_each_fault_of_a_name_gives_one() -> None:
    assert [line.split()[0] for line in promtool.check_metrics(BAD)] == ["gpuscape_x_ms"] * 2


def test_families_of_others_can_be_left_out() -> None:
    assert promtool.check_metrics(THEIRS) != []
    assert promtool.check_metrics(GOOD + THEIRS, prefix="gpuscape_") == []


@pytest.mark.parametrize("text", ["", "gpuscape_x{ 1\n"])
def test_what_is_no_exposition_is_told_whatever_is_left_out(text: str) -> None:
    assert promtool.check_metrics(text, prefix="gpuscape_") != []


def test_rules_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    file = tmp_path / "rules.yml"
    file.write_text("groups: [{name: a, rules: [{record: a, expr: 'sum('}]}]\n")

    assert any("parse error" in line for line in promtool.check_rules(file))


def test_rules_that_do_not_do_what_is_expected_are_told(tmp_path: Path) -> None:
    file = tmp_path / "test.yml"
    expected = "{expr: '1', eval_time: 1m, exp_samples: [{value: 2}]}"
    file.write_text(f"tests: [{{interval: 1m, promql_expr_test: [{expected}]}}]\n")

    assert any("FAILED" in line for line in promtool.test_rules(file))


def test_a_configuration_that_names_what_is_not_there_is_told(tmp_path: Path) -> None:
    file = tmp_path / "prometheus.yml"
    file.write_text("rule_files: [gone.yml]\n")

    assert any("gone.yml" in line for line in promtool.check_config(file))
