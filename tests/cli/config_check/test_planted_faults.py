# SPDX-License-Identifier: Apache-2.0
"""One fault in a good file of each kind: the line that is blamed is the line where it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.config_check.config_kinds import ConfigKind
from tests.cli.config_check.good_configs import (
    COUNTERS_YAML,
    FAULTS,
    GOOD,
    MARK,
    config_map,
    planted_line,
)
from tests.cli.conftest import Run

OTHERS = "# above\n---\n" + config_map(GOOD[ConfigKind.WEB]) + "---\n"
"""What stands above a ConfigMap in its file."""


def checked(run: Run, file: Path, text: str, *arguments: str) -> list[dict[str, Any]]:
    """The configurations that the command found in a file of this text."""
    file.write_text(text)
    result = run("check-config", "-o", "json", *arguments, str(file))
    found: list[dict[str, Any]] = json.loads(result.stdout)["configs"]
    assert result.exit_code == (1 if any(each["refused"] for each in found) else 0), result.output
    return found


@pytest.mark.parametrize("kind", ConfigKind)
def test_a_good_file_is_recognised_and_right(run: Run, tmp_path: Path, kind: ConfigKind) -> None:
    (found,) = checked(run, tmp_path / "file", GOOD[kind])

    assert (found["kind"], found["refused"]) == (kind, [])
    assert found["meaning"]


def test_a_yaml_file_of_counters_is_recognised(run: Run, tmp_path: Path) -> None:
    (found,) = checked(run, tmp_path / "file", COUNTERS_YAML)

    assert (found["kind"], found["refused"]) == ("counters", [])
    assert found["meaning"]["families"] == [["DCGM_FI_DEV_GPU_TEMP", "gauge"]]
    assert found["meaning"]["settings"]["max-concurrent-scrapes"] == "4"


@pytest.mark.parametrize(("kind", "text"), FAULTS)
def test_a_fault_is_named_with_its_line(
    run: Run, tmp_path: Path, kind: ConfigKind, text: str
) -> None:
    (found,) = checked(run, tmp_path / "file", text)

    assert found["kind"] == kind
    assert [fault["line"] for fault in found["refused"]] == [planted_line(text)]


@pytest.mark.parametrize(("kind", "text"), FAULTS)
def test_a_fault_in_a_config_map_has_the_line_of_the_manifest(
    run: Run, tmp_path: Path, kind: ConfigKind, text: str
) -> None:
    manifest = OTHERS + config_map(GOOD[ConfigKind.MIG], text, GOOD[kind])

    web, mig, faulty, good = checked(run, tmp_path / "file", manifest)

    assert [each["refused"] for each in (web, mig, good)] == [[], [], []]
    assert faulty["kind"] == kind
    assert [fault["line"] for fault in faulty["refused"]] == [planted_line(manifest)]
    assert faulty["entry"] == "ConfigMap configs, key file-1"


@pytest.mark.parametrize(("kind", "text"), FAULTS)
def test_a_fault_in_quoted_text_has_the_line_of_its_entry_and_its_own(
    run: Run, tmp_path: Path, kind: ConfigKind, text: str
) -> None:
    quoted = json.dumps(text)
    manifest = f"kind: ConfigMap\napiVersion: v1\ndata:\n\n  any: {quoted}\n"

    (found,) = checked(run, tmp_path / "file", manifest)

    (fault,) = found["refused"]
    assert (found["kind"], fault["line"]) == (kind, planted_line(manifest))
    assert int(re.match(r"line (\d+) of this text: ", fault["reason"])[1]) == planted_line(text)  # type: ignore[index]


@pytest.mark.parametrize(("kind", "text"), FAULTS)
def test_the_table_begins_a_line_with_file_and_line(
    run: Run, tmp_path: Path, kind: ConfigKind, text: str
) -> None:
    file = tmp_path / "file"
    file.write_text(text)

    result = run("check-config", "--kind", kind.value, str(file))

    assert result.exit_code == 1
    assert f"{file}:{planted_line(text)}: " in "\n" + result.stdout
    assert "Traceback" not in result.output


@pytest.mark.parametrize("kind", ConfigKind)
def test_every_entry_of_a_list_is_checked(run: Run, tmp_path: Path, kind: ConfigKind) -> None:
    maps = [yaml.safe_load(config_map(GOOD[kind])) for _ in range(2)]
    listed = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": maps})

    found = checked(run, tmp_path / "file", listed)

    assert [(each["kind"], each["refused"]) for each in found] == [(kind, [])] * 2


def test_the_planted_faults_are_of_every_kind() -> None:
    assert {kind for kind, _ in FAULTS} == set(ConfigKind)
    assert all(text.count(MARK) == 1 for _, text in FAULTS)
