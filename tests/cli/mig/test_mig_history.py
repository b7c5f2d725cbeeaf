# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig history``: what the journal has, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from actuator.change_record import ChangeRecord, Direction
from actuator.journal import CHANGE, PAST, Journal
from api.mig_outcome import Outcome
from cli.main import main
from mig.gpu_layout import MIG_OFF, DesiredInstance, GpuLayout, layout_from_counts

BEFORE = GpuLayout(mig=True, instances=(DesiredInstance("3g.20gb", (2, 1), 4),))
ENTRY = ChangeRecord(
    change="c-1",
    origin="all-1g.5gb of config.yaml",
    started="2026-11-23T10:00:00Z",
    boot="boot-1",
    gpu="GPU-0",
    index=0,
    bus_id="0000:10:00.0",
    desired=layout_from_counts({"1g.5gb": 7}),
    previous=BEFORE,
)


def entries(change: str, **facts: Any) -> list[ChangeRecord]:
    """A change of three GPUs, of which the last had MIG off."""
    return [
        msgspec.structs.replace(
            ENTRY,
            change=change,
            gpu=f"GPU-{index}",
            index=index,
            previous=MIG_OFF if index == 2 else BEFORE,
            **facts,
        )
        for index in range(3)
    ]


CHANGED = entries("c-1", outcome=Outcome.APPLIED)
LATER = "2026-11-23T11:00:00Z"
BACK = [
    *entries("c-2", started=LATER, outcome=Outcome.APPLIED)[:2],
    entries(
        "c-2",
        started=LATER,
        direction=Direction.BACK,
        reason="no room",
        outcome=Outcome.ROLLED_BACK,
    )[2],
]
STUCK = msgspec.structs.replace(
    ENTRY, change="c-3", direction=Direction.BACK, outcome=Outcome.STUCK, reason="lost"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A journal with two changes that have ended."""
    path = tmp_path / "mig"
    with Journal(path) as journal:
        for record in (*CHANGED, *BACK):
            journal.end(record)
    return path


def history(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ("mig", "history", "--journal", str(folder), *arguments))


def test_changes_are_listed_with_layouts_result_and_reason(folder: Path) -> None:
    assert history(folder).output.splitlines() == [
        "STARTED               OUTCOME      GPUS  FROM                  TO          ORIGIN",
        "2026-11-23T10:00:00Z  applied      2     1 x 3g.20gb in 2c+1c  7 x 1g.5gb  all-1g.5gb of"
        " config.yaml",
        "                      applied      1     MIG off               7 x 1g.5gb",
        "2026-11-23T11:00:00Z  applied      2     1 x 3g.20gb in 2c+1c  7 x 1g.5gb  all-1g.5gb of"
        " config.yaml",
        "                      rolled-back  1     MIG off               7 x 1g.5gb",
        "",
        "2026-11-23T11:00:00Z rolled-back: GPU 2: no room",
    ]
    wide = history(folder, "-o", "wide").output.splitlines()[1]
    assert "  GPU-0  1 x 3g.20gb in 2c+1c at 4  7 x 1g.5gb  " in wide


def test_the_document_has_all_that_the_journal_has(folder: Path) -> None:
    changes = json.loads(history(folder, "-o", "json").output)["changes"]
    assert [one["outcome"] for one in changes] == ["applied", "rolled-back"]
    assert [one["reason"] for one in changes] == [None, "GPU 2: no room"]
    assert [one["going_back"] for one in changes] == [False, True]
    assert changes[0]["gpus"][0] == {
        "uuid": "GPU-0",
        "from": {
            "mig": True,
            "instances": [{"profile": "3g.20gb", "compute_slices": [2, 1], "start": 4}],
        },
        "to": {
            "mig": True,
            "instances": [{"profile": "1g.5gb", "compute_slices": [1], "start": None}] * 7,
        },
        "outcome": "applied",
        "reason": None,
        "stuck": False,
        "given_up": False,
    }
    assert [gpu["outcome"] for gpu in changes[1]["gpus"]] == ["applied", "applied", "rolled-back"]


@pytest.mark.parametrize(
    ("record", "word"),
    [(STUCK, "stuck"), (msgspec.structs.replace(STUCK, outcome=None), "not-ended")],
)
def test_what_has_not_ended_comes_last(folder: Path, record: ChangeRecord, word: str) -> None:
    with Journal(folder) as journal:
        journal.write(record)
        answer = history(folder, "-o", "json")  # while somebody has the journal
    changes = json.loads(answer.output)["changes"]
    assert [one["change"] for one in changes] == ["c-1", "c-2", "c-3"]
    assert changes[-1]["outcome"] == word


def test_without_a_change_there_is_nothing_and_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    empty = history(tmp_path / "empty")
    assert (empty.exit_code, list((tmp_path / "empty").iterdir())) == (0, [])
    assert empty.output == f"No change of MIG is recorded in {tmp_path}/empty.\n"
    missing = history(tmp_path / "missing")
    assert (missing.exit_code, (tmp_path / "missing").exists()) == (2, False)
    assert f"there is no folder {tmp_path}/missing" in missing.stderr


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (PAST, '{"v": 3, "changes": []}', "written by another version of gpuscape"),
        (CHANGE, '{"v": 3}', "written by another version of gpuscape"),
        (PAST, "{", "is damaged"),
        (PAST, '{"v": 2, "changes": [{}]}', "is damaged"),
    ],
)
def test_a_journal_that_cannot_be_read_is_no_empty_one(
    folder: Path, name: str, content: str, words: str
) -> None:
    (folder / name).write_text(content)
    result = history(folder)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{folder / name}: " in result.stderr
    assert words in result.stderr
