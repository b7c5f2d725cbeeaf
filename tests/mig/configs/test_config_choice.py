# SPDX-License-Identifier: Apache-2.0
"""What a configuration means on a node's GPUs; where upstream silently does nothing, a refusal."""

from __future__ import annotations

import pytest

from base.errors import BadInput
from discovery.mig_state import MigGpu
from mig.configs.config_choice import config_layouts
from mig.configs.config_overlap import Overlap
from mig.configs.mig_config_file import parse_mig_configs
from mig.gpu_layout import MIG_OFF, GpuLayout, layout_from_counts
from tests.mig.mig_gpus import A30, A100, H100, ON, T4, mig_gpu, uuid

TWO = (mig_gpu(0), mig_gpu(1))
WITH_T4 = (mig_gpu(0), mig_gpu(1, T4), mig_gpu(2))
MIXED = (mig_gpu(0, A100), mig_gpu(1, H100))
SEVEN = layout_from_counts({"1g.5gb": 7})


def layouts(
    gpus: tuple[MigGpu, ...], *entries: str, overlap: Overlap = Overlap.REFUSE
) -> dict[int, GpuLayout]:
    """GPU index to its layout; each entry stands in a line of its own, the first in line 4."""
    text = "version: v1\nmig-configs:\n  c:\n" + "".join(f"  - {{{one}}}\n" for one in entries)
    found = config_layouts(parse_mig_configs(text, "f", overlap).selected(), gpus)
    return {gpu.index: found[gpu.uuid] for gpu in gpus if gpu.uuid in found}


def refusal(gpus: tuple[MigGpu, ...], *entries: str) -> str:
    with pytest.raises(BadInput) as refused:
        layouts(gpus, *entries)
    return str(refused.value)


ALL_SEVEN = "devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}"
ALL_OFF = "devices: all, mig-enabled: false"
A100_IDS = 'device-filter: "0x20B010DE"'
H100_IDS = 'device-filter: "0x233010DE"'


# what is wanted


def test_all_means_every_gpu_with_mig() -> None:
    assert layouts(WITH_T4, ALL_SEVEN) == {0: SEVEN, 2: SEVEN}


def test_gpus_that_no_entry_matches_stay_as_they_are() -> None:
    """Where no filter is without a match: the entry names the GPUs."""
    assert layouts(TWO, "devices: [1], mig-enabled: false") == {1: MIG_OFF}


def test_each_model_gets_its_own_layout_by_filters() -> None:
    found = layouts(
        MIXED,
        f"{A100_IDS}, {ALL_SEVEN}",
        f"{H100_IDS}, devices: [1], mig-enabled: true, mig-devices: {{1g.10gb: 7}}",
    )

    assert found == {0: SEVEN, 1: layout_from_counts({"1g.10gb": 7})}


def test_entries_for_models_that_are_elsewhere_are_passed_over() -> None:
    """A configuration for the fleet, such as all-balanced, has an entry for each model."""
    found = layouts(
        WITH_T4, f"{A100_IDS}, {ALL_SEVEN}", f"{H100_IDS}, devices: [7], mig-enabled: false"
    )

    assert found == {0: SEVEN, 2: SEVEN}


def test_a_filter_may_name_the_board() -> None:
    assert layouts((mig_gpu(0),), f'device-filter: "0x20B010DE:0x134F10DE", {ALL_SEVEN}') == {
        0: SEVEN
    }
    assert "no GPU here is 0x20B010DE:0x134E10DE" in refusal(
        (mig_gpu(0),), f'device-filter: "0x20B010DE:0x134E10DE", {ALL_SEVEN}'
    )


def test_entries_that_agree_may_match_one_gpu_together() -> None:
    assert layouts(TWO, ALL_SEVEN, f"{A100_IDS}, {ALL_SEVEN}") == {0: SEVEN, 1: SEVEN}


def test_mig_off_asks_nothing_of_gpus_without_mig() -> None:
    assert layouts((mig_gpu(0, T4),), ALL_OFF) == {}
    assert layouts((mig_gpu(0, T4),), "devices: [0], mig-enabled: false") == {}
    assert layouts((), ALL_OFF) == {}


def test_with_mig_off_on_an_older_driver_the_known_models_decide() -> None:
    silent = (mig_gpu(0, silent=True),)

    assert layouts(silent, ALL_SEVEN) == {0: SEVEN}
    assert "has no profile '1g.6gb'" in refusal(
        silent, "devices: all, mig-enabled: true, mig-devices: {1g.6gb: 4}"
    )


# where upstream would do nothing


def test_a_profile_that_a_gpu_does_not_have_is_refused() -> None:
    """Upstream clears the GPU, creates nothing, and reports success: bug B1."""
    reason = refusal(TWO, "devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1, 1g.6gb: 1}")

    assert reason == (
        f"f:4: mig-configs.c[0].mig-devices.1g.6gb: GPU 0 (NVIDIA A100-SXM4-40GB, {uuid(0)})"
        " has no profile '1g.6gb': did you mean 1g.5gb?"
    )


def test_a_compute_instance_that_a_gpu_does_not_have_is_refused() -> None:
    assert refusal(TWO, "devices: all, mig-enabled: true, mig-devices: {5c.7g.40gb: 1}").endswith(
        "has no compute instances of 5 slices in 7g.40gb; of 1, 2, 3, 4, 7"
    )


def test_a_filter_that_leaves_a_gpu_out_is_refused() -> None:
    """A slip in a filter would leave the GPU as it is, and upstream reports success: bug B8."""
    reason = refusal(MIXED, f"{A100_IDS}, {ALL_SEVEN}", 'device-filter: "0x233110DE", ' + ALL_OFF)

    assert reason == (
        "f:5: mig-configs.c[1].device-filter: no GPU here is 0x233110DE, and no entry matches"
        f" GPU 1 (NVIDIA H100 80GB HBM3, {uuid(1)}), which is 0x233010DE:0x16C110DE"
    )


def test_filters_that_all_match_nothing_are_refused() -> None:
    assert refusal((mig_gpu(0, T4),), f"{A100_IDS}, {ALL_OFF}") == (
        "f:4: mig-configs.c[0].device-filter: no GPU here is 0x20B010DE;"
        " there are: 0 0x1EB810DE:0x12A210DE"
    )


def test_an_index_that_is_not_there_is_refused() -> None:
    assert refusal(TWO, "devices: [0, 2], mig-enabled: false") == (
        "f:4: mig-configs.c[0].devices: there is no GPU 2;"
        f" there are: 0 {uuid(0)} 0000:10:00.0, 1 {uuid(1)} 0000:11:00.0"
    )


def test_an_index_of_another_model_than_the_filters_is_refused() -> None:
    reason = refusal(MIXED, f"{A100_IDS}, devices: [0, 1], mig-enabled: false")

    assert reason.endswith(
        "is 0x233010DE:0x16C110DE, which the device-filter 0x20B010DE leaves out"
    )


@pytest.mark.parametrize(
    ("gpus", "entry"),
    [
        (WITH_T4, "devices: [0, 1], mig-enabled: true, mig-devices: {}"),
        ((mig_gpu(1, T4),), "devices: all, mig-enabled: true, mig-devices: {}"),
        (
            WITH_T4,
            'device-filter: "0x1EB810DE", devices: all, mig-enabled: true, mig-devices: {}',
        ),
    ],
)
def test_mig_on_a_gpu_without_it_is_refused(gpus: tuple[MigGpu, ...], entry: str) -> None:
    assert refusal(gpus, entry) == (
        f"f:4: mig-configs.c[0].devices: GPU 1 (Tesla T4, {uuid(1)}) has no MIG"
    )


def test_mig_on_a_node_without_gpus_is_refused() -> None:
    assert refusal((), ALL_SEVEN) == "f:4: mig-configs.c[0].devices: this node has no GPU"


def test_two_layouts_for_one_gpu_are_refused() -> None:
    """Upstream applies one after the other."""
    assert refusal(TWO, ALL_SEVEN, "devices: [1], mig-enabled: false") == (
        f"f:5: mig-configs.c[1].devices: GPU 1 (NVIDIA A100-SXM4-40GB, {uuid(1)}) gets another"
        " layout from f:4: mig-configs.c[0].devices: leave it out of one of them, or let the last"
        " entry decide (--overlap last, for an agent mig-config-overlap: last)"
    )


# where the last entry decides


def test_a_default_with_exceptions_gives_each_gpu_its_last_entry() -> None:
    halves = "devices: [1], mig-enabled: true, mig-devices: {3g.20gb: 2}"

    found = layouts((*TWO, mig_gpu(2)), ALL_SEVEN, halves, overlap=Overlap.LAST)
    turned = layouts((*TWO, mig_gpu(2)), halves, ALL_SEVEN, overlap=Overlap.LAST)

    assert found == {0: SEVEN, 1: layout_from_counts({"3g.20gb": 2}), 2: SEVEN}
    assert turned == {0: SEVEN, 1: SEVEN, 2: SEVEN}


def test_the_last_of_three_entries_decides_also_on_the_mode() -> None:
    off, on = "devices: [0], mig-enabled: false", "devices: [0], mig-enabled: true, mig-devices: {}"

    assert layouts(TWO, off, ALL_SEVEN, on, overlap=Overlap.LAST) == {
        0: GpuLayout(mig=True),
        1: SEVEN,
    }
    assert layouts(TWO, on, ALL_SEVEN, off, overlap=Overlap.LAST) == {0: MIG_OFF, 1: SEVEN}


def test_profiles_count_for_the_gpus_that_an_entry_decides_on() -> None:
    """The H100 has no 1g.5gb, and another entry decides on it."""
    tens = f"{H100_IDS}, devices: all, mig-enabled: true, mig-devices: {{1g.10gb: 7}}"

    found = layouts(MIXED, ALL_SEVEN, tens, overlap=Overlap.LAST)

    assert found == {0: SEVEN, 1: layout_from_counts({"1g.10gb": 7})}
    with pytest.raises(BadInput, match=r"GPU 1 .* has no profile '1g.5gb'"):
        layouts(MIXED, tens, ALL_SEVEN, overlap=Overlap.LAST)


def test_a_slip_is_refused_also_where_the_last_entry_decides() -> None:
    with pytest.raises(BadInput, match="there is no GPU 2"):
        layouts(TWO, "devices: [0, 2], mig-enabled: false", ALL_SEVEN, overlap=Overlap.LAST)


def test_instances_on_a_gpu_of_which_nothing_is_known_are_refused() -> None:
    """An unknown profile could not be told from a right one; turning MIG on is possible."""
    gpu = mig_gpu(0, "a30", silent=True)
    unknown = (MigGpu(**{name: getattr(gpu, name) for name in gpu.__slots__} | {"device_id": 1}),)

    assert "turn MIG on there first" in refusal(unknown, ALL_SEVEN)
    assert layouts(unknown, "devices: all, mig-enabled: true, mig-devices: {}") == {
        0: GpuLayout(mig=True)
    }


def test_the_present_mode_of_a_gpu_changes_nothing() -> None:
    assert layouts((mig_gpu(0, A30, mode=ON),), ALL_OFF) == {0: MIG_OFF}
