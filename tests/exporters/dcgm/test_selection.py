# SPDX-License-Identifier: Apache-2.0
"""Device selection: dcgm-exporter's letters and ranges, and what is wrong with others."""

from __future__ import annotations

import pytest

from discovery.model import GpuSnapshot
from exporters.dcgm.selection import Level, LevelSelection, Selection, parse_selection
from tests import build


def split(at: int, *instances: int) -> GpuSnapshot:
    devices = tuple(build.mig_device(gi=gi) for gi in instances)
    return build.gpu(at, mig=build.SPLIT, mig_devices=devices)


@pytest.mark.parametrize(
    ("text", "level", "ids"),
    [
        ("f", Level.FLEXIBLE, None),
        (" g ", Level.GPUS, None),
        ("i", Level.INSTANCES, None),
        ("g:0", Level.GPUS, {0}),
        ("g:0,2-4", Level.GPUS, {0, 2, 3, 4}),
        ("g:1023", Level.GPUS, {1023}),
        ("i: 1 , 3-3", Level.INSTANCES, {1, 3}),
    ],
)
def test_text_becomes_a_selection(text: str, level: Level, ids: set[int] | None) -> None:
    choice = LevelSelection(level=level, ids=None if ids is None else frozenset(ids))

    assert parse_selection(text) == Selection(choices=(choice,))


@pytest.mark.parametrize(
    ("text", "gpus", "instances"),
    [
        ("g+i", None, None),
        (" i + g ", None, None),
        ("g:0+i", {0}, None),
        ("g+i:1,8-9", None, {1, 8, 9}),
        ("i:3+g:0-1", {0, 1}, {3}),
    ],
)
def test_gpus_and_instances_may_be_selected_together_in_any_order(
    text: str, gpus: set[int] | None, instances: set[int] | None
) -> None:
    assert parse_selection(text) == Selection(
        choices=(
            LevelSelection(level=Level.GPUS, ids=None if gpus is None else frozenset(gpus)),
            LevelSelection(
                level=Level.INSTANCES, ids=None if instances is None else frozenset(instances)
            ),
        )
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' selects no devices: write f, g, i, g\\+i, or g:0,2-4"),
        ("g+", "'' selects no devices"),
        ("g++i", "'' selects no devices"),
        ("f+g", "^f stands alone: write g\\+i for GPUs and GPU instances$"),
        ("i:0+f", "^f stands alone: write g\\+i"),
        ("f+f", "^f stands alone: write g\\+i"),
        ("g:0+g:2", "^g stands there twice: write all ids behind one, as in g:0,2-4$"),
        ("g,i", "'g,i' selects no devices"),
        ("g:0,i", "'i' is neither a number nor a range"),
        ("gpu", "'gpu' selects no devices"),
        ("f:0", "^f stands alone: write g:0,2-4 for GPUs or i:0,2-4 for GPU instances$"),
        ("g:", "'' is neither a number nor a range"),
        ("g:1,", "'' is neither a number nor a range"),
        ("g:a", "'a' is neither a number nor a range"),
        ("g:-1", "'-1' is neither a number nor a range"),
        ("g:1-2-3", "'1-2-3' is neither a number nor a range"),
        ("g:1:2", "'1:2' is neither a number nor a range"),
        ("g:٣", "'٣' is neither a number nor a range"),
        ("g:5-2", "the range 5-2 ends before it begins: write 2-5"),
        ("g:0-1024", "1024 is too high: devices are numbered from 0 to 1023"),
        ("g:0-99999999999", "is neither a number nor a range"),
    ],
)
def test_text_that_selects_nothing_is_refused_by_its_reason(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_selection(text)


def test_instances_are_numbered_as_dcgm_does_it_eight_for_each_gpu() -> None:
    selection = parse_selection("i:1,8")

    shown = [list(selection.instances(gpu)) for gpu in (split(0, 7, 9, 11), split(1, 3, 5))]

    assert shown == [[9], [3]]


def test_a_gpu_without_index_is_shown_only_where_all_are() -> None:
    gpus = [build.gpu(index=None), build.gpu(index=None, mig_devices=(build.mig_device(),))]

    shown = [
        [list(parse_selection(text).instances(gpu)) for gpu in gpus] for text in ("f", "g:0", "i:0")
    ]

    assert shown == [[[None], [1]], [[], []], [[], []]]


def test_an_instance_with_two_compute_instances_is_shown_once() -> None:
    devices = (build.mig_device(gi=5), build.mig_device(gi=5, ci=1))

    assert list(Selection().instances(build.gpu(mig_devices=devices))) == [5]
