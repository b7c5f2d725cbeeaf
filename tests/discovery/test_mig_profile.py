# SPDX-License-Identifier: Apache-2.0
"""MIG profile names, against those that NVIDIA publishes for its GPUs."""

from __future__ import annotations

import pytest

from discovery.mig_profile import mig_profile_name

MIB = 1 << 20


@pytest.mark.parametrize(
    ("total_mib", "memory_mib", "slices", "name"),
    [
        (40536, 4864, 1, "1g.5gb"),
        (40536, 9856, 2, "2g.10gb"),
        (40536, 19968, 3, "3g.20gb"),
        (40536, 40192, 7, "7g.40gb"),
        (81559, 9984, 1, "1g.10gb"),
        (81559, 81152, 7, "7g.80gb"),
        (143771, 16384, 1, "1g.18gb"),
        (24576, 5952, 1, "1g.6gb"),
        (183359, 22528, 1, "1g.23gb"),  # 22.5 rounds away from zero
        (97887, 24192, 1, "1g.24gb"),
    ],
)
def test_a_profile_is_named_as_published(
    total_mib: int, memory_mib: int, slices: int, name: str
) -> None:
    named = mig_profile_name(
        gpu_slices=slices,
        compute_slices=slices,
        memory_bytes=memory_mib * MIB,
        total_bytes=total_mib * MIB,
    )
    assert named == name


def test_compute_slices_are_named_where_they_are_a_part() -> None:
    named = mig_profile_name(
        gpu_slices=3,
        compute_slices=1,
        memory_bytes=19968 * MIB,
        total_bytes=40536 * MIB,
        attribute="+me",
    )
    assert named == "1c.3g.20gb+me"
