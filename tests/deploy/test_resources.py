# SPDX-License-Identifier: Apache-2.0
"""What manifests request and allow is what the benchmarks' pages say that programs take."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from discovery.reader.ending import MOST_STUCK
from tests.deploy.daemonset import DEPLOY

DOCS = DEPLOY.parent / "docs"
STUCK_READER_MIB = 16
"""Of the agent's limit, for each device reader that may hang in the driver for good."""
MOST_SPARE = 1.3
"""Of what is measured: a request far above it keeps other pods off the node."""
PROGRAMS = {
    "agent": ("base/daemonset.yaml", "benchmarks.md", "with its reader"),
    "scheduler": ("scheduler/deployment.yaml", "scheduler-benchmarks.md", "memory, after these"),
}
"""Manifest, page, and how the row of the page begins that has budget and figure."""


def mib(text: str) -> float:
    """A quantity of memory in a manifest."""
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi)", text).groups()  # type: ignore[union-attr]  # or it fails
    return float(number) * {"Mi": 1, "Gi": 1024}[unit]


def resources(manifest: str) -> dict[str, Any]:
    """Of the program's container."""
    found = yaml.safe_load_all((DEPLOY / manifest).read_text())
    (pods,) = (it for it in found if it["kind"] in ("DaemonSet", "Deployment"))
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    return dict(container["resources"])


def measured(page: Path, row: str) -> tuple[float, float]:
    """Budget and figure, MiB, in a page's row such as ``| memory (budget 64 MiB) | 61.7 MiB |``."""
    pattern = rf"^\| {re.escape(row)}[^|]*\(budget (\d+) MiB\) \| ([\d.]+) MiB"
    (found,) = re.findall(pattern, page.read_text(), re.MULTILINE)
    return float(found[0]), float(found[1])


@pytest.mark.parametrize(("manifest", "page", "row"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_pod_requests_what_its_program_takes_and_may_take_twice_the_budget_and_stuck_readers(
    manifest: str, page: str, row: str
) -> None:
    budget, takes = measured(DOCS / page, row)
    of = resources(manifest)
    requested, limit = mib(of["requests"]["memory"]), mib(of["limits"]["memory"])

    assert takes <= requested <= MOST_SPARE * takes
    assert takes <= budget
    stuck_mib = MOST_STUCK * STUCK_READER_MIB if manifest == PROGRAMS["agent"][0] else 0
    assert limit == 2 * budget + stuck_mib


def test_the_limit_has_room_for_what_a_stuck_reader_takes() -> None:
    page = (DOCS / "benchmarks.md").read_text()
    (takes,) = re.findall(r"^\| device reader \| ([\d.]+) MiB", page, re.MULTILINE)
    assert float(takes) <= STUCK_READER_MIB


@pytest.mark.parametrize(("manifest", "page", "row"), PROGRAMS.values(), ids=PROGRAMS)
def test_no_processor_is_ever_taken_away(manifest: str, page: str, row: str) -> None:
    """Throttled, the agent looks like a GPU that hangs and the extender answers too late."""
    del page, row
    assert "cpu" in resources(manifest)["requests"]
    assert "cpu" not in resources(manifest)["limits"]
