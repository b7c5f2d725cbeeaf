# SPDX-License-Identifier: Apache-2.0
"""``gpuscape compare --dashboards --rules`` on files of users."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import main
from tests.exporters.queries.expositions import NEW, OLD

POWER = "DCGM_FI_DEV_POWER_USAGE"
PANEL = {
    "title": "Power\x1b[2J",
    "targets": [{"expr": POWER + '{gpu=~"$gpu"}', "legendFormat": "{{gpu}}"}],
}
ROW = {"type": "row", "collapsed": True, "panels": [PANEL]}
KEPT = {"title": "Heat", "targets": [{"expr": "DCGM_FI_DEV_GPU_TEMP"}]}
RULES = f"groups:\n- name: g\n  rules:\n  - record: a:b\n    expr: sum({POWER})\n---\n"
RULES += "kind: PrometheusRule\nspec:\n  groups:\n  - name: h\n    rules:\n"
RULES += "    - {alert: Hot, expr: a:b > 1}\n    - {alert: Broken, expr: 'sum('}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with both expositions and an empty folder of dashboards."""
    (tmp_path / "old").write_text(OLD)
    (tmp_path / "new").write_text(NEW)
    (tmp_path / "d").mkdir()
    return tmp_path


def compare(folder: Path, *options: str) -> Result:
    """Run the command on both expositions."""
    words = ["compare", str(folder / "old"), str(folder / "new"), *options]
    return CliRunner().invoke(main, words)


@pytest.mark.parametrize("wrap", [lambda it: it, lambda it: {"dashboard": it, "meta": {}}])
def test_a_panel_in_a_closed_row_is_judged(folder: Path, wrap: object) -> None:
    dashboard = wrap({"panels": [ROW, KEPT]})  # type: ignore[operator]  # a row of this test
    (folder / "d" / "x.json").write_text(json.dumps(dashboard))

    result = compare(folder, "--dashboards", str(folder / "d"))

    assert result.exit_code == 1
    assert "\x1b" not in result.output
    assert f"series {POWER}" in result.output
    assert "RIGHT has DCGM_FI_DEV_BOARD_POWER_WATTS" in result.output
    assert "1 of 2 queries lose something." in result.output


def test_rules_in_several_documents_are_judged_with_what_cannot_be_parsed(folder: Path) -> None:
    (folder / "r.yml").write_text(RULES)

    result = compare(folder, "--rules", str(folder / "r.yml"), "-o", "json")

    queries = json.loads(result.output)["queries"]
    assert [(it["query"]["title"], it["verdict"]) for it in queries] == [
        ("a:b", "lost"),
        ("Hot", "lost"),
        ("Broken", "unreadable"),
    ]
    assert result.exit_code == 1


def test_nothing_lost_is_exit_code_0_and_a_config_map_is_read(folder: Path) -> None:
    text = json.dumps({"kind": "ConfigMap", "data": {"x.json": json.dumps({"panels": [KEPT]})}})
    (folder / "d" / "cm.yaml").write_text(text)

    assert compare(folder, "--dashboards", str(folder / "d")).exit_code == 0


def test_what_is_no_json_is_named_by_file_and_line(folder: Path) -> None:
    (folder / "d" / "x.json").write_text("{\n  panels\n}")

    result = compare(folder, "--dashboards", str(folder / "d"))

    assert (result.exit_code, "x.json:2: not valid JSON" in result.output) == (2, True)


def test_a_link_out_of_the_folder_is_refused(folder: Path) -> None:
    (folder / "d" / "x.json").symlink_to("/etc/hostname")

    assert compare(folder, "--dashboards", str(folder / "d")).exit_code == 2
