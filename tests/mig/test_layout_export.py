# SPDX-License-Identifier: Apache-2.0
"""The present layout as a configuration: met at once, and never less than what is there."""

from __future__ import annotations

import pytest

from base.errors import Permanent
from discovery.mig_state import MigGpu
from mig.configs.config_choice import config_layouts
from mig.configs.mig_config_file import parse_mig_configs
from mig.configs.mig_config_text import mig_config_text
from mig.layout_difference import layout_differences
from mig.layout_export import export_losses, present_config
from tests.mig.mig_gpus import A30, A100, H100, ON, T4, TO_OFF, TO_ON, instance, mig_gpu

CUT = (instance(1, "3g.20gb", 4, 2, 1), instance(7, "1g.5gb", 0, 1), instance(8, "1g.5gb", 1, 1))
MOVED = (instance(2, "3g.20gb", 0, 2, 1), instance(7, "1g.5gb", 5, 1), instance(8, "1g.5gb", 4, 1))
UNUSED = instance(1, "3g.20gb", 4)

ALL_A100, ALL_T4 = (["0x20B010DE"], None), (["0x1EB810DE"], None)


@pytest.mark.parametrize(
    ("gpus", "entries"),
    [
        ((mig_gpu(0), mig_gpu(1)), [([], None)]),
        ((mig_gpu(0), mig_gpu(1, T4)), [([], None)]),
        ((mig_gpu(0, T4),), [([], None)]),
        ((mig_gpu(0, A100, *CUT, mode=ON), mig_gpu(1), mig_gpu(2)), [([], (0,)), ([], (1, 2))]),
        ((mig_gpu(0, A100, *CUT, mode=ON), mig_gpu(1, A100, *MOVED, mode=ON)), [([], None)]),
        ((mig_gpu(0, A30, mode=ON), mig_gpu(1, A100, mode=ON)), [([], None)]),
        ((mig_gpu(0, A100, *CUT, mode=ON), mig_gpu(1, T4)), [ALL_A100, ALL_T4]),
        (
            (mig_gpu(0, H100), mig_gpu(1, T4), mig_gpu(2, H100, mode=ON)),
            [(["0x1EB810DE", "0x233010DE"], (0, 1)), (["0x233010DE"], (2,))],
        ),
    ],
)
def test_the_present_layout_is_written_and_met(
    gpus: tuple[MigGpu, ...], entries: list[tuple[list[str], tuple[int, ...] | None]]
) -> None:
    """Filters only where models differ; indices only where an entry is not for all of a model."""
    text = mig_config_text([present_config(gpus)])
    config = parse_mig_configs(text, "now.yaml").selected("current")

    assert [
        ([str(it) for it in one.filters], one.devices and tuple(sorted(one.devices, key=int)))
        for one in config.specs
    ] == entries
    assert layout_differences(config_layouts(config, gpus), gpus) == ()


def test_parts_of_gpu_instances_are_counted_by_their_slices() -> None:
    (spec,) = present_config([mig_gpu(0, A100, *CUT, mode=ON)]).specs
    assert spec.layout.devices() == {"1g.5gb": 2, "1c.3g.20gb": 1, "2c.3g.20gb": 1}


@pytest.mark.parametrize(
    ("gpu", "loss", "left"),
    [
        (
            mig_gpu(3, A100, UNUSED, instance(7, "1g.5gb", 0, 1), mode=ON),
            "GPU 3: GPU instance 1 (3g.20gb at 4) has no compute instance",
            {"1g.5gb": 1},
        ),
        (mig_gpu(3, mode=TO_ON), "GPU 3: MIG is off and will be on after a reset", {}),
        (
            mig_gpu(3, A100, instance(7, "1g.5gb", 0, 1), mode=TO_OFF),
            "GPU 3: MIG is on and will be off after a reset",
            {"1g.5gb": 1},
        ),
        (
            mig_gpu(3, A100, instance(1, "3g.20gb", 0, 1), instance(2, "3g.20gb", 4, 1), mode=ON),
            "GPU 3: compute instances are spread over more GPU instances than they need",
            {"1c.3g.20gb": 2},
        ),
    ],
)
def test_what_no_configuration_says_is_left_out_only_where_that_is_wanted(
    gpu: MigGpu, loss: str, left: dict[str, int]
) -> None:
    """Upstream leaves it out: bug B7."""
    assert list(export_losses(gpu)) == [loss]
    with pytest.raises(Permanent, match="no configuration can express this: GPU 3"):
        present_config([mig_gpu(0), gpu])
    (spec,) = present_config([gpu], lossy=True).specs
    assert spec.layout.devices() == left


def test_a_node_without_gpus_has_no_layout() -> None:
    """A configuration without an entry is none."""
    with pytest.raises(Permanent, match=r"^there is no GPU here, so there is no layout to write$"):
        present_config([], lossy=True)


def test_a_plain_state_loses_nothing() -> None:
    gpus = (mig_gpu(0, T4), mig_gpu(1), mig_gpu(2, mode=ON), mig_gpu(3, A100, *CUT, mode=ON))
    assert [list(export_losses(gpu)) for gpu in gpus] == [[]] * 4
