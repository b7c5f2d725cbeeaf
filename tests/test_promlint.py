# SPDX-License-Identifier: Apache-2.0
"""Our copy of promtool's rules finds what promtool finds."""

from __future__ import annotations

import pytest

from tests import promlint
from tests.exposition import Family


def family(name: str, kind: str = "gauge", text: str = "Text.", label: str = "uuid") -> Family:
    return Family(name, text, kind, {(name, ((label, "x"),)): "1"})


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (family("gpuscape_gpus", text=""), "no help"),
        (family("gpuscape_errors", "counter"), "a counter without _total"),
        (family("gpuscape_errors_total"), "_total without a counter"),
        (family("gpuscape_age_minutes"), "no base unit"),
        (family("gpuscape_energy_millijoules"), "no base unit"),
        (family("gpuscape_age_ms"), "an abbreviated unit"),
        (family("gpuscape_kb_used"), "an abbreviated unit"),
        (family("gpuscape_gpus_gauge"), "its type in its name"),
        (family("gpuscape_gpuCount"), "no snake case"),
        (family("gpuscape:gpus"), "no snake case"),
        (family("gpuscape_gpus", label="modelName"), "no snake case"),
        (family("gpuscape_gpus_count"), "a suffix of another type"),
        (family("gpuscape_gpus_bucket"), "a suffix of another type"),
        (family("gpuscape_gpus", label="le"), "a label of another type"),
    ],
    ids=lambda it: it.name if isinstance(it, Family) else "",
)
def test_each_rule_is_told_apart(bad: Family, problem: str) -> None:
    assert promlint.problems(bad) == [problem]


@pytest.mark.parametrize(
    "good",
    [
        family("gpuscape_gpu_power_watts"),
        family("gpuscape_gpu_sm_clock_hertz"),
        family("gpuscape_nvlink_sent_bytes_total", "counter"),
        family("gpuscape_cycle_duration_seconds", "histogram", label="le"),
        family("gpuscape_link_bytes_per_second"),
    ],
    ids=lambda it: it.name,
)
def test_good_names_are_left_in_peace(good: Family) -> None:
    assert promlint.problems(good) == []
