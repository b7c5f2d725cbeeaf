# SPDX-License-Identifier: Apache-2.0
"""What Grafana shows of the answers to a table panel's queries, by its own code (grafana.cjs)."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.controlplane.builds import NotPreparedError, binaries, cache
from tests.controlplane.families import GRAFANA
from tests.controlplane.toolchain import NODE, NoToolError, find_tool
from tests.monitoring.prometheus import Series

SCRIPT = Path(__file__).with_suffix(".cjs")
MOST_SECONDS = 120

Panel = Mapping[str, Any]
Answers = Sequence[Sequence[Series]]
"""Of each query, in the panel's order."""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column of a table, cells from top to bottom."""

    name: str
    """Its heading."""
    kind: str
    """Grafana's name of the type of its values."""
    texts: tuple[str, ...]
    colors: tuple[str, ...]
    """Of its values, whether cells have them or not."""
    is_colored: bool
    most: float | None
    """The value that colours and bars take for the greatest."""
    links: tuple[str, ...]
    """Addresses that its first cell leads to, with variables as they are in the panel."""


Table = tuple[Column, ...]


def tables(asked: Sequence[tuple[Panel, Answers]]) -> list[Table]:
    """The table that each panel shows; no column where it has no data.

    Raises NotPreparedError where Grafana's packages or Node are missing.
    """
    answer = run(SCRIPT, [_asked(panel, answers) for panel, answers in asked])
    found = msgspec.convert(answer, type=list[tuple[Table, ...]])
    assert all(len(frames) <= 1 for frames in found), "a panel shows the first of several tables"
    return [frames[0] if frames else () for frames in found]


def run(script: Path, asked: Sequence[object]) -> Any:
    """What a script that runs Grafana's code answers to each of these.

    Raises NotPreparedError where Grafana's packages or Node are missing.
    """
    try:
        node = find_tool(NODE, cache(), lambda _: None)
    except NoToolError as error:
        raise NotPreparedError(str(error)) from error
    done = subprocess.run(
        [node, script, binaries(GRAFANA)],
        input=json.dumps(asked).encode(),
        capture_output=True,
        timeout=MOST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return json.loads(done.stdout)


def _asked(panel: Panel, answers: Answers) -> Mapping[str, object]:
    at = 1e3 * max((it.points[-1][0] for answer in answers for it in answer), default=0)
    series = [
        [{"labels": it.labels, "at": at, "value": number(it.value)} for it in answer]
        for answer in answers
    ]
    return {"panel": panel, "answers": series}


def number(value: float) -> str:
    """As JavaScript reads it: JSON has no word for NaN."""
    return str(value) if math.isfinite(value) else "NaN"
