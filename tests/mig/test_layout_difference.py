# SPDX-License-Identifier: Apache-2.0
"""Is a node as it should be, and what differs."""

from __future__ import annotations

import pytest

from discovery.mig_state import MigGpu
from mig.gpu_layout import MIG_OFF, DesiredInstance, GpuLayout, current_layout, layout_from_counts
from mig.layout_difference import LayoutDifference, layout_differences
from tests.mig.mig_gpus import A100, OFF, ON, T4, TO_OFF, TO_ON, instance, mig_gpu, uuid

CUT = mig_gpu(
    0,
    A100,
    instance(1, "3g.20gb", 4, 3),
    instance(7, "1g.5gb", 0, 1),
    instance(8, "1g.5gb", 1, 1),
    mode=ON,
)
LAYOUT = layout_from_counts({"1g.5gb": 2, "3g.20gb": 1})


def reasons(layout: GpuLayout, gpu: MigGpu) -> tuple[str, ...]:
    """Of the only GPU; empty where it does not differ."""
    found = layout_differences({gpu.uuid: layout}, [gpu])
    return found[0].reasons if found else ()


def cut(*profiles: tuple[str, int, tuple[int, ...]]) -> MigGpu:
    """A GPU with MIG on and instances: profile, start, compute instances."""
    found = [instance(at, profile, start, *of) for at, (profile, start, of) in enumerate(profiles)]
    return mig_gpu(0, A100, *found, mode=ON)


# equal


def test_the_same_instances_are_the_same_wherever_they_lie() -> None:
    assert reasons(LAYOUT, CUT) == ()


def test_what_is_only_written_otherwise_is_the_same() -> None:
    assert reasons(layout_from_counts({"3c.3g.20gb": 1, "1g.5gb": 2, "2g.10gb": 0}), CUT) == ()


@pytest.mark.parametrize("others", [(mig_gpu(1, T4),), (mig_gpu(1, mode=ON),)])
def test_gpus_for_which_nothing_is_wanted_do_not_count(others: tuple[MigGpu, ...]) -> None:
    """Upstream demands that every GPU be matched, and MIG of those that have none: bug B3."""
    assert layout_differences({CUT.uuid: LAYOUT}, [CUT, *others]) == ()


def test_compute_instances_are_compared_as_sizes() -> None:
    assert (
        reasons(layout_from_counts({"2c.3g.20gb": 1, "1c.3g.20gb": 1}), cut(("3g.20gb", 0, (1, 2))))
        == ()
    )


def test_a_place_that_is_asked_for_is_compared() -> None:
    wanted = GpuLayout(
        mig=True, instances=(DesiredInstance("1g.5gb", (1,)), DesiredInstance("1g.5gb", (1,), 2))
    )

    assert reasons(wanted, cut(("1g.5gb", 2, (1,)), ("1g.5gb", 5, (1,)))) == ()
    assert reasons(wanted, cut(("1g.5gb", 3, (1,)), ("1g.5gb", 5, (1,)))) == (
        "missing: 1g.5gb at 2",
        "surplus: 1g.5gb at 5",
    )
    first = GpuLayout(
        mig=True, instances=(DesiredInstance("1g.5gb", (1,)), DesiredInstance("1g.5gb", (1,), 0))
    )
    assert reasons(first, cut(("1g.5gb", 0, (1,)), ("1g.5gb", 5, (1,)))) == ()
    assert "missing: 1g.5gb at 0" in reasons(first, cut(("1g.5gb", 5, (1,))))


def test_instances_do_not_count_where_modes_alone_are_compared() -> None:
    """As assert --mode-only does."""
    wanted = {CUT.uuid: layout_from_counts({"7g.40gb": 1})}

    assert layout_differences(wanted, [CUT], modes_only=True) == ()
    assert layout_differences({CUT.uuid: MIG_OFF}, [CUT], modes_only=True)[0].reasons == (
        "MIG is on, desired off",
    )


# different


def test_missing_and_surplus_instances_are_counted() -> None:
    assert reasons(layout_from_counts({"2g.10gb": 2, "3g.20gb": 1}), CUT) == (
        "missing: 2x 2g.10gb",
        "surplus: 1g.5gb at 0, 1g.5gb at 1",
    )


def test_parts_are_not_the_whole() -> None:
    gpu = cut(("3g.20gb", 4, (2, 1)), ("1g.5gb", 0, (1,)), ("1g.5gb", 1, (1,)))

    assert reasons(LAYOUT, gpu) == ("missing: 3g.20gb", "surplus: 3g.20gb in 2c+1c at 4")


def test_a_gpu_instance_without_compute_instance_is_like_none() -> None:
    """Upstream derives layouts from compute instances, and does not see it: bug B7."""
    gpu = cut(("3g.20gb", 4, ()))

    assert reasons(GpuLayout(mig=True), gpu) == (
        "GPU instance 0 (3g.20gb at 4) has no compute instance",
    )
    assert reasons(layout_from_counts({"3g.20gb": 1}), gpu) == (
        "missing: 3g.20gb",
        "GPU instance 0 (3g.20gb at 4) has no compute instance",
    )


@pytest.mark.parametrize(
    ("layout", "mode", "reason"),
    [
        (GpuLayout(mig=True), OFF, "MIG is off, desired on"),
        (GpuLayout(mig=True), TO_ON, "MIG is off, desired on, waiting for a reset"),
        (GpuLayout(mig=True), TO_OFF, "MIG will be off after a reset, desired on"),
        (MIG_OFF, ON, "MIG is on, desired off"),
        (MIG_OFF, TO_OFF, "MIG is on, desired off, waiting for a reset"),
        (MIG_OFF, TO_ON, "MIG will be on after a reset, desired off"),
    ],
)
def test_a_mode_that_does_not_hold_now_and_after_a_reset_differs(
    layout: GpuLayout, mode: object, reason: str
) -> None:
    assert reasons(layout, mig_gpu(0, mode=mode)) == (reason,)  # type: ignore[arg-type]


def test_a_gpu_that_is_gone_or_has_no_mig_differs() -> None:
    found = layout_differences(
        {uuid(5): MIG_OFF, uuid(1): MIG_OFF, CUT.uuid: MIG_OFF}, [CUT, mig_gpu(1, T4)]
    )

    assert [str(one).partition(";")[0] for one in found] == [
        f"GPU 0 ({uuid(0)}): MIG is on, desired off",
        f"GPU 1 ({uuid(1)}): it has no MIG",
        f"{uuid(5)}: there is no such GPU",
    ]
    assert isinstance(found[0], LayoutDifference)


def test_a_gpu_does_not_differ_from_its_present_layout() -> None:
    assert reasons(current_layout(CUT), CUT) == ()
