# SPDX-License-Identifier: Apache-2.0
"""GPU instances: what they are, and sums that are right."""

from __future__ import annotations

import pytest

from discovery.sample import MemoryUse
from exporters.gpuscape.families import GpuscapeFamilies
from tests import build
from tests.exporters.gpuscape_series import GIB, instance, of, split, told

SMALL = instance(7, "1g.5gb", placement=(0, 1), memory_bytes=5 * GIB)
LARGE = instance(1, "3g.20gb", slices=3, placement=(4, 4), memory_bytes=20 * GIB)
GPU = split(0, SMALL, LARGE, memory_bytes=40 * GIB)
USES = (
    (7, MemoryUse(free_bytes=4 * GIB, used_bytes=GIB, reserved_bytes=0)),
    (1, MemoryUse(free_bytes=15 * GIB, used_bytes=5 * GIB, reserved_bytes=GIB)),
)
BODY = GpuscapeFamilies().render(
    build.node([GPU, build.gpu(1, memory_bytes=40 * GIB)]),
    [
        build.sample(
            GPU,
            mig_memory=USES,
            memory=MemoryUse(free_bytes=33 * GIB, used_bytes=6 * GIB, reserved_bytes=GIB),
        )
    ],
)


def by_instance(name: str) -> dict[str, float]:
    found = of(BODY, f"gpuscape_mig_instance_{name}")
    return {dict(labels)["gpu_instance_id"]: number for labels, number in found.items()}


def test_an_instance_is_described_by_its_profile_and_place() -> None:
    assert list(of(BODY, "gpuscape_mig_instance_info")) == [
        (
            ("gpu_instance_id", "7"),
            ("placement_size", "1"),
            ("placement_start", "0"),
            ("profile", "1g.5gb"),
        ),
        (
            ("gpu_instance_id", "1"),
            ("placement_size", "4"),
            ("placement_start", "4"),
            ("profile", "3g.20gb"),
        ),
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("slices", {"7": 1, "1": 3}),
        ("share_ratio", {"7": 1 / 7, "1": 3 / 7}),
        ("compute_instances", {"7": 1, "1": 1}),
        ("memory_bytes", {"7": 5 * GIB, "1": 20 * GIB}),
        ("memory_used_bytes", {"7": GIB, "1": 5 * GIB}),
        ("memory_free_bytes", {"7": 4 * GIB, "1": 15 * GIB}),
        ("memory_reserved_bytes", {"7": 0, "1": GIB}),
    ],
)
def test_each_instance_has_its_own_numbers(name: str, expected: dict[str, float]) -> None:
    assert by_instance(name) == expected


def test_sums_over_instances_and_over_gpus_count_everything_once() -> None:
    assert sum(by_instance("memory_used_bytes").values()) == 6 * GIB
    assert of(BODY, "gpuscape_gpu_memory_used_bytes") == {(): 6 * GIB}
    assert of(BODY, "gpuscape_gpu_power_watts") == {(): 55.123}


def test_compute_instances_of_one_gpu_instance_are_one_series() -> None:
    parts = [
        instance(1, f"{1 + ci}c.3g.20gb", slices=3, ci=ci, memory_bytes=20 * GIB) for ci in (0, 1)
    ]
    node = build.node([split(0, *parts)])

    assert told("gpuscape_mig_instance_compute_instances", node) == {(("gpu_instance_id", "1"),): 2}
    assert told("gpuscape_mig_instance_memory_bytes", node) == {
        (("gpu_instance_id", "1"),): 20 * GIB
    }
    ((labels, _),) = told("gpuscape_mig_instance_info", node).items()
    assert dict(labels) == {"gpu_instance_id": "1", "profile": "3g.20gb"}


@pytest.mark.parametrize(("slices", "most"), [(1, None), (0, 7), (8, 7), (1, 0)])
def test_a_share_that_cannot_be_is_not_told(slices: int, most: int | None) -> None:
    gpu = build.gpu(
        mig=build.SPLIT, mig_devices=(instance(1, slices=slices),), max_mig_devices=most
    )

    assert told("gpuscape_mig_instance_share_ratio", build.node([gpu])) == {}


def test_an_instance_whose_memory_was_not_read_has_no_use() -> None:
    found = told("gpuscape_mig_instance_memory_used_bytes", build.node([GPU]), [build.sample(GPU)])

    assert found == {}
