# SPDX-License-Identifier: Apache-2.0
"""What a GPU is and how it fares, from the snapshot."""

from __future__ import annotations

from typing import Any

import pytest

from discovery.model import Driver, GpuState, Mode, RemappedRows
from discovery.nvml_terms import Virtualization
from health.health_verdict import Health, HealthVerdict
from tests import build
from tests.exporters.gpuscape_series import told, value


def rows(**facts: Any) -> RemappedRows:
    plain: dict[str, Any] = {
        "correctable": 0,
        "uncorrectable": 0,
        "pending": False,
        "failed": False,
    }
    return RemappedRows(**plain | facts)


def test_facts_are_labels_and_those_not_told_are_left_out() -> None:
    full = build.gpu(3, vbios_version="92.0", numa_node=1, virtualization=Virtualization.VGPU)
    bare = build.gpu(index=None, minor=None, model=None, architecture=None, compute_capability=None)

    (found,) = told("gpuscape_gpu_info", build.node([full]))
    assert dict(found) == {
        "index": "3",
        "minor": "3",
        "model": "MOCKMODEL",
        "architecture": "ampere",
        "compute_capability": "8.0",
        "vbios_version": "92.0",
        "numa_node": "1",
        "virtualization": "vgpu",
    }
    assert told("gpuscape_gpu_info", build.node([bare])) == {(): 1}


def test_the_driver_is_told_where_there_is_one() -> None:
    found = told("gpuscape_driver_info", build.node())
    versions = {"driver_version": "400.300", "nvml_version": "12.400.300", "cuda_version": "8.0"}

    assert found == {tuple(sorted(versions.items())): 1}
    assert told("gpuscape_driver_info", build.node(driver=Driver())) == {}
    assert list(told("gpuscape_driver_info", build.node(driver=Driver(version="1")))) == [
        (("driver_version", "1"),)
    ]


@pytest.mark.parametrize("state", GpuState)
def test_up_is_told_of_every_gpu_whatever_its_state(state: GpuState) -> None:
    expected = 1 if state is GpuState.PRESENT else 0

    assert value("gpuscape_gpu_up", build.gpu(state=state)) == expected


def test_health_is_one_of_its_words_with_the_reason_beside() -> None:
    gpu = build.silent(0)
    health = {gpu.bus_id: HealthVerdict(health=Health.UNHEALTHY, reason="gpu-lost")}

    found = told("gpuscape_gpu_health", build.node([gpu]), health=health)
    reason = told("gpuscape_gpu_health_info", build.node([gpu]), health=health)

    expected = {"healthy": 0, "unknown": 0, "degraded": 0, "unhealthy": 1}
    assert found == {(("health", word),): number for word, number in expected.items()}
    assert reason == {(("health", "unhealthy"), ("reason", "gpu-lost")): 1}


def test_without_a_verdict_there_is_no_health() -> None:
    assert told("gpuscape_gpu_health", build.node([build.gpu()])) == {}
    assert told("gpuscape_gpu_health_info", build.node([build.gpu()])) == {}


@pytest.mark.parametrize(
    ("name", "fact", "expected"),
    [
        ("recovery_action", {"recovery_action": 4}, 4),
        ("recovery_action", {"recovery_action": 0}, 0),
        ("persistence_enabled", {"persistence": True}, 1),
        ("persistence_enabled", {"persistence": False}, 0),
        ("ecc_enabled", {"ecc": Mode(current=True, pending=False)}, 1),
        ("ecc_enabled", {"ecc": Mode(current=False, pending=True)}, 0),
        ("ecc_change_pending", {"ecc": Mode(current=False, pending=True)}, 1),
        ("ecc_change_pending", {"ecc": Mode(current=True, pending=False)}, 1),
        ("ecc_change_pending", {"ecc": Mode(current=True, pending=True)}, 0),
        ("mig_enabled", {"mig": build.SPLIT}, 1),
        ("mig_enabled", {"mig": build.WHOLE}, 0),
        ("mig_change_pending", {"mig": Mode(current=False, pending=True)}, 1),
        ("mig_change_pending", {"mig": build.SPLIT}, 0),
        ("row_remap_pending", {"remapped_rows": rows(pending=True)}, 1),
        ("row_remap_pending", {"remapped_rows": rows(failed=True)}, 0),
        ("row_remap_failed", {"remapped_rows": rows(failed=True)}, 1),
        ("row_remap_failed", {"remapped_rows": rows(pending=True)}, 0),
        ("page_retirement_pending", {"retired_pages_pending": True}, 1),
        ("page_retirement_pending", {"retired_pages_pending": False}, 0),
    ],
)
def test_a_fact_is_a_number(name: str, fact: dict[str, Any], expected: float) -> None:
    assert value(f"gpuscape_gpu_{name}", build.gpu(**fact)) == expected


@pytest.mark.parametrize(
    "name",
    [
        "recovery_action",
        "persistence_enabled",
        "ecc_enabled",
        "ecc_change_pending",
        "mig_enabled",
        "mig_change_pending",
        "row_remap_pending",
        "row_remap_failed",
        "remapped_rows_total",
        "page_retirement_pending",
    ],
)
def test_a_fact_that_is_not_told_is_no_series(name: str) -> None:
    bare = build.gpu(mig=None)

    assert told(f"gpuscape_gpu_{name}", build.node([bare]), [build.sample(bare)]) == {}


def test_remapped_rows_of_the_sample_are_newer_than_those_of_the_snapshot() -> None:
    gpu = build.gpu(remapped_rows=rows(correctable=1, uncorrectable=2))
    sample = build.sample(gpu, remapped_rows=rows(correctable=3, uncorrectable=4, failed=True))
    name, node = "gpuscape_gpu_remapped_rows_total", build.node([gpu])

    at_discovery, now = told(name, node), told(name, node, [sample])

    assert at_discovery == {(("error", "corrected"),): 1, (("error", "uncorrected"),): 2}
    assert now == {(("error", "corrected"),): 3, (("error", "uncorrected"),): 4}
    assert value("gpuscape_gpu_row_remap_failed", gpu, sample) == 1
