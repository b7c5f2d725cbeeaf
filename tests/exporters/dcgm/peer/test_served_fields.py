# SPDX-License-Identifier: Apache-2.0
"""Of DCGM's fields, and of the rows that people have in counters files: which are served."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from exporters.dcgm.counters_format import read_counters
from exporters.dcgm.peer.peer_counters import counters_of
from exporters.dcgm.peer.unserved_fields import UNSERVED, why_unserved
from tests.deploy.dockerfile import REPOSITORY

HERE = Path(__file__).parent
LEAST_SHARE = 0.95
GAUGE, LABEL = "gauge", "label"
LEGACY = "dcgm_"
"""Fields of dcgm-exporter 1, which are in no header of DCGM."""


def lines(file: str) -> list[list[str]]:
    text = (HERE / file).read_text()
    return [line.split() for line in text.splitlines() if not line.startswith("#")]


FIELDS = [name for (name,) in lines("dcgm_fields.txt")]
PUBLISHED = {(name, kind): frozenset(files) for name, kind, *files in lines("public_rows.txt")}
FILES = sorted(frozenset[str]().union(*PUBLISHED.values()))


def why_not(name: str, kind: str) -> str:
    """Why a row with this field and type is not served; empty where it is."""
    return "; ".join(skip.reason for skip in read_counters(f"{name}, {kind}, x.\n", "x").skipped)


def served(name: str, kind: str) -> bool:
    return not why_not(name, kind)


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_of_dcgm_is_served_or_the_reason_is_known(name: str) -> None:
    is_served = served(name, GAUGE) or served(name, LABEL)

    assert is_served is (why_unserved(name) is None)


def test_every_reason_belongs_to_a_field() -> None:
    first = {next((p for p in UNSERVED if fnmatchcase(name, p)), None) for name in FIELDS}

    unused = [pattern for pattern in UNSERVED if pattern not in first]
    assert [it for it in unused if not it.startswith((LEGACY, "DCGM_EXP_"))] == []


def test_the_reason_stands_in_the_message() -> None:
    assert why_not("DCGM_FI_DEV_CPU_UTIL_TOTAL", GAUGE) == (
        "DCGM_FI_DEV_CPU_UTIL_TOTAL is not served: it is about the CPU and not a GPU"
    )
    assert why_not("DCGM_FI_DEV_TYPO", GAUGE) == (
        "'DCGM_FI_DEV_TYPO' is not served: docs/metrics.md lists what is"
    )


@pytest.mark.parametrize("file", FILES)
def test_of_the_rows_of_a_published_file_at_least_95_percent_are_served(file: str) -> None:
    rows = [row for row, files in PUBLISHED.items() if file in files]
    missing = [row for row in rows if not served(*row)]

    assert 1 - len(missing) / len(rows) >= LEAST_SHARE, missing


@pytest.mark.parametrize("release", ["4.8.3", "4.8.4"])
def test_of_the_rows_of_a_release_at_least_95_percent_are_served(release: str) -> None:
    rows = [(row.name, row.kind) for row in counters_of(release)]
    missing = [row for row in rows if not served(*row)]

    assert 1 - len(missing) / len(rows) >= LEAST_SHARE, missing


def test_the_page_has_the_share_of_all_published_rows() -> None:
    count = sum(served(*row) for row in PUBLISHED)
    page = (REPOSITORY / "docs/metrics.md").read_text()

    said = re.search(r"Of (\d+) different rows .* (\d+) are\s+served", page, re.DOTALL)
    assert said is not None
    assert said.groups() == (str(len(PUBLISHED)), str(count))
