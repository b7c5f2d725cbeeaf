# SPDX-License-Identifier: Apache-2.0
"""Layouts in canonical form."""

from __future__ import annotations

import pytest

from base.errors import BadInput
from discovery.model import Mode
from mig.gpu_layout import (
    MIG_OFF,
    DesiredInstance,
    GpuLayout,
    current_layout,
    has_layout,
    layout_from_counts,
)
from tests.mig.naive_gpu import mig_gpu


def test_zeros_and_long_names_mean_the_same_as_none_and_short_ones() -> None:
    """Upstream compares texts, and applies a layout again and again."""
    assert layout_from_counts({"1g.5gb": 2, "2g.10gb": 0, "3c.3g.20gb": 1}) == layout_from_counts(
        {"3g.20gb": 1, "1g.5gb": 2}
    )


def test_the_order_of_instances_does_not_matter() -> None:
    """A layout is what is there, not in which order it was written."""
    one, other = DesiredInstance("1g.5gb", (1,)), DesiredInstance("3g.20gb", (3,))

    assert GpuLayout(mig=True, instances=(one, other)) == GpuLayout(
        mig=True, instances=(other, one)
    )


@pytest.mark.parametrize(
    ("devices", "instances"),
    [
        ({"1c.3g.20gb": 3}, [(1, 1, 1)]),
        ({"1c.3g.20gb": 4}, [(1,), (1, 1, 1)]),
        ({"2c.3g.20gb": 2, "1c.3g.20gb": 2}, [(2, 1), (2, 1)]),
        ({"2c.3g.20gb": 2, "3g.20gb": 1}, [(2,), (2,), (3,)]),
    ],
)
def test_parts_share_as_few_gpu_instances_as_they_fit_into(
    devices: dict[str, int], instances: list[tuple[int, ...]]
) -> None:
    """Whole ones have an instance each."""
    layout = layout_from_counts(devices)

    assert sorted(one.compute for one in layout.instances) == sorted(instances)
    assert layout.devices() == devices


def test_a_gpu_without_mig_has_no_instances() -> None:
    """Such a value would be a mistake in the program."""
    with pytest.raises(ValueError, match=r"^instances with MIG off$"):
        GpuLayout(mig=False, instances=(DesiredInstance("1g.5gb", (1,)),))


def test_an_instance_without_compute_instances_is_a_part_of_what_is_found() -> None:
    """No layout that somebody asks for is equal to it."""
    gpu = mig_gpu("a100-sxm4-40gb", ("1g.5gb", 0, ()))

    assert current_layout(gpu) != layout_from_counts({})
    assert current_layout(gpu).devices() == {}


def test_more_devices_than_any_gpu_has_are_refused_before_they_are_counted_out() -> None:
    """A file may hold any number."""
    with pytest.raises(BadInput, match="65 MIG devices"):
        layout_from_counts({"1g.5gb": 60, "2g.10gb": 5})
    assert layout_from_counts({"1g.5gb": 60, "2g.10gb": 4}).devices().total() == 64


@pytest.mark.parametrize("start", [0, 6])
@pytest.mark.parametrize("there", [0, 6])
def test_a_layout_with_places_is_there_at_these_places_alone(there: int, start: int) -> None:
    """Anywhere else the devices have other UUIDs."""
    gpu = mig_gpu("a100-sxm4-40gb", ("1g.5gb", there))
    layout = GpuLayout(mig=True, instances=(DesiredInstance("1g.5gb", (1,), start),))

    assert has_layout(gpu, layout) == (start == there)


def test_a_mode_that_waits_for_a_reset_is_no_layout() -> None:
    """What holds now ends with the reset."""
    waiting = Mode(current=True, pending=False)
    gpu = mig_gpu("a100-sxm4-40gb", ("1g.5gb", 0), mode=waiting)

    assert not has_layout(gpu, layout_from_counts({"1g.5gb": 1}))
    assert not has_layout(gpu, MIG_OFF)
    assert has_layout(mig_gpu("a100-sxm4-40gb", mode=None), MIG_OFF)
