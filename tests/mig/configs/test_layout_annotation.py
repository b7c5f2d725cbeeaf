# SPDX-License-Identifier: Apache-2.0
"""The annotation with a node's layout: what it means on the node's GPUs, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api.mig_layout_annotation import MOST_BYTES
from base.errors import BadInput
from discovery.mig_state import MigGpu
from mig.configs.config_choice import config_layouts
from mig.configs.layout_annotation import parse_layout_annotation
from mig.configs.mig_configs import MigConfig
from mig.gpu_layout import MIG_OFF, DesiredInstance, GpuLayout, layout_from_counts
from tests.mig.mig_gpus import T4, mig_gpu, uuid

GPUS = tuple(mig_gpu(index) for index in range(6))
WITH_T4 = (mig_gpu(0), mig_gpu(1, T4))
SEVEN = layout_from_counts({"1g.5gb": 7})
HALVES = layout_from_counts({"3g.20gb": 2})
SOURCE = "annotation gpuscape.io/mig-layout"


def layouts(value: str, gpus: tuple[MigGpu, ...] = GPUS) -> dict[int, GpuLayout]:
    """GPU index to its layout."""
    inline = parse_layout_annotation(value)
    assert isinstance(inline, MigConfig)
    found = config_layouts(inline, gpus)
    return {gpu.index: found[gpu.uuid] for gpu in gpus if gpu.uuid in found}


def refusal(value: str, gpus: tuple[MigGpu, ...] = GPUS) -> str:
    with pytest.raises(BadInput) as refused:
        layouts(value, gpus)
    return str(refused.value)


# what it means


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ('{"all": {"1g.5gb": 7}}', dict.fromkeys(range(6), SEVEN)),
        (
            '{"0-3": {"3g.20gb": 2}, "4,5": "off"}',
            dict.fromkeys(range(4), HALVES) | dict.fromkeys((4, 5), MIG_OFF),
        ),
        (f'{{"{uuid(2)}": {{"1g.5gb": 7}}, "1, 4": {{}}}}', {2: SEVEN}),
        ('{"0000:13:00.0": "on"}', {3: GpuLayout(mig=True)}),
        ('{"00000000:13:00.0,10:00.0": "off"}', {0: MIG_OFF, 3: MIG_OFF}),
        ("{0: off, 1-2: {1g.5gb: 7}}", {0: MIG_OFF, 1: SEVEN, 2: SEVEN}),
        ("3: {3g.20gb: 2, 1g.5gb: 0}", {3: HALVES}),
        ('{"0,0-1": {"3g.20gb": 2}, "1": {"3c.3g.20gb": 2}}', {0: HALVES, 1: HALVES}),
    ],
)
def test_gpus_are_chosen_in_every_way(value: str, wanted: dict[int, GpuLayout]) -> None:
    found = layouts(value)

    assert found.items() >= wanted.items()
    assert all(layout == GpuLayout(mig=True) for at, layout in found.items() if at not in wanted)


def test_a_uuid_is_the_same_in_capitals() -> None:
    """The driver writes small letters."""
    small = "GPU-0532d473-a0da-5602-adfb-808475bb00b5"
    gpu = replace(mig_gpu(0), uuid=small)

    for text in (small, f"GPU-{small[4:].upper()}"):
        assert layouts(f'{{"{text}": "off"}}', (gpu,)) == {0: MIG_OFF}


def test_parts_at_one_place_are_one_instance_in_whatever_order() -> None:
    """The largest compute instance comes first, as it is made."""
    wanted = GpuLayout(mig=True, instances=(DesiredInstance("4g.20gb", (2, 1, 1), 0),))

    assert layouts('{"0": {"1c.4g.20gb@0": 2, "2c.4g.20gb@0": 1}}') == {0: wanted}
    assert layouts('{"0": {"2c.4g.20gb@0": 1, "1c.4g.20gb@0": 2}}') == {0: wanted}


def test_gpus_that_are_not_named_stay_as_they_are() -> None:
    assert layouts('{"5": "off"}').keys() == {5}


def test_all_leaves_out_gpus_without_mig() -> None:
    assert layouts('{"all": {"1g.5gb": 7}}', WITH_T4) == {0: SEVEN}


def test_places_may_be_asked_for() -> None:
    found = layouts('{"0": {"3g.20gb@4": 1, "1g.5gb": 2, "1c.2g.10gb@0": 2}}')

    assert found[0] == GpuLayout(
        mig=True,
        instances=(
            DesiredInstance("3g.20gb", (3,), 4),
            DesiredInstance("1g.5gb", (1,)),
            DesiredInstance("1g.5gb", (1,)),
            DesiredInstance("2g.10gb", (1, 1), 0),
        ),
    )


@pytest.mark.parametrize("value", ["all-1g.10gb", '"all-1g.10gb"', " all-1g.10gb\n"])
def test_plain_text_is_the_name_of_a_configuration(value: str) -> None:
    assert parse_layout_annotation(value) == "all-1g.10gb"


# what is refused


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", ":1: it is empty: leave it out, or write a layout"),
        ("null", ":1: it is empty: leave it out, or write a layout"),
        ("{}", ":1: it names no GPU: leave it out, or write a layout"),
        ("[]", ":1: expected the name of a configuration, or GPUs with layouts"),
        ("off", ':1: a layout goes with GPUs: write {"all": "off"}, for example'),
        (
            '{"al": "off"}',
            ":1: al: 'al' names no GPU: write all, indices such as 0-3, UUIDs or bus ids",
        ),
        (
            '{"all,0": "off"}',
            ":1: all,0: 'all' names no GPU: write all, indices such as 0-3, UUIDs or bus ids",
        ),
        (
            '{"": "off"}',
            ":1: '' names no GPU: write all, indices such as 0-3, UUIDs or bus ids",
        ),
        (
            '{"GPU-1": "off"}',
            ":1: GPU-1: 'GPU-1' names no GPU: write all, indices such as 0-3, UUIDs or bus ids",
        ),
        ('{"3-1": "off"}', ":1: 3-1: '3-1' is no range of indices: 0-3 is, up to 1023"),
        ('{"0-9999": "off"}', ":1: 0-9999: '0-9999' is no range of indices: 0-3 is, up to 1023"),
        (
            '{"00": "off"}',
            ":1: 00: '00' names no GPU: write all, indices such as 0-3, UUIDs or bus ids",
        ),
        (
            '{"0": "of"}',
            ':1: 0: expected "off", "on", or profiles with counts: {"1g.10gb": 7}',
        ),
        (
            '{"0": false}',
            ':1: 0: expected "off", "on", or profiles with counts: {"1g.10gb": 7}',
        ),
        (
            '{"0": null}',
            ':1: 0: expected "off", "on", or profiles with counts: {"1g.10gb": 7}',
        ),
        (
            '{"0": "all-1g.5gb"}',
            ':1: 0: expected "off", "on", or profiles with counts: {"1g.10gb": 7}',
        ),
        (
            '{"0": {"1g.5gb": 0}}',
            ":1: 0: all counts are 0: write {} for no MIG devices, or a count",
        ),
        (
            '{"0": {"1g.5gb@0": 0}}',
            ":1: 0: all counts are 0: write {} for no MIG devices, or a count",
        ),
        (
            '{"0": {"1g.5gb": 2, "1g.5gb": 3}}',
            ":1: 0.1g.5gb: it stands twice: keep one",
        ),
        ('{"0": "off", "0": "on"}', ":1: 0: it stands twice: keep one"),
        (
            '{"0": {"1g.5gb@x": 1}}',
            ":1: 0.1g.5gb@x: 'x' is no memory unit: write a number, as in 1g.5gb@4",
        ),
        (
            '{"0": {"1g.5gb@": 1}}',
            ":1: 0.1g.5gb@: '' is no memory unit: write a number, as in 1g.5gb@4",
        ),
        (
            '{"0": {"1g.5gb@64": 1}}',
            ":1: 0.1g.5gb@64: '64' is no memory unit: write a number, as in 1g.5gb@4",
        ),
        (
            '{"0": {"3g.20gb@4": 2}}',
            ":1: 0.3g.20gb@4: one instance starts at 4, and this is more than fits it",
        ),
        (
            '{"0": {"1c.3g.20gb@4": 2, "2c.3g.20gb@4": 1}}',
            ":1: 0.2c.3g.20gb@4: one instance starts at 4, and this is more than fits it",
        ),
        (
            '{"0": {"3g.20gb@2": 1}}',
            f":1: 0.3g.20gb@2: GPU 0 (NVIDIA A100-SXM4-40GB, {uuid(0)}) has no place for 3g.20gb"
            " at 2; at 0, 4",
        ),
        (
            '{"4-5": {"1g.10gb": 1, "1g.12gb": 1}}',
            f":1: 4-5.1g.12gb: GPU 4 (NVIDIA A100-SXM4-40GB, {uuid(4)}) has no profile '1g.12gb':"
            " did you mean 1g.5gb?",
        ),
        (
            '{"all": {"1g.5gb": 7}, "5": "off"}',
            f":1: 5: GPU 5 (NVIDIA A100-SXM4-40GB, {uuid(5)}) gets another layout from"
            f" {SOURCE}:1: all: leave it out of one of them",
        ),
    ],
)
def test_a_mistake_is_refused_with_its_key(value: str, reason: str) -> None:
    assert refusal(value) == SOURCE + reason


def test_a_gpu_that_is_not_there_is_refused_with_those_that_are() -> None:
    there = f"0 {uuid(0)} 0000:10:00.0"

    for selector in ("1", uuid(1), "0000:11:00.0"):
        assert refusal(f'{{"0,{selector}": "off"}}', GPUS[:1]) == (
            f"{SOURCE}:1: 0,{selector}: there is no GPU {selector}; there are: {there}"
        )


def test_mig_on_a_gpu_without_it_is_refused() -> None:
    assert refusal('{"1": "on"}', WITH_T4) == (
        f"{SOURCE}:1: 1: GPU 1 (Tesla T4, {uuid(1)}) has no MIG"
    )
    assert refusal('{"all": "on"}', WITH_T4[1:]).endswith("has no MIG")
    assert refusal('{"all": "on"}', ()) == f"{SOURCE}:1: all: this node has no GPU"
    assert layouts('{"all": "off"}', WITH_T4[1:]) == {}


@pytest.mark.parametrize("value", ["x" * (MOST_BYTES + 1), "\u00e4" * MOST_BYTES])
def test_a_value_that_is_too_long_is_refused(value: str) -> None:
    assert refusal(value) == f"{SOURCE}: longer than 4096 bytes: put it into a configuration"


def test_a_bomb_is_refused() -> None:
    levels = ", ".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 9))

    assert refusal(f"{{l0: &l0 [x], {levels}}}") == (
        f"{SOURCE}:1: not valid YAML: aliases repeat too many values"
    )


# any text at all

PIECES = ["all", "0", "0-3", ",", uuid(1), "10:00.0", "1g.5gb", "3g.20gb@4", "off", "on", "{", "}"]
PIECES += ['"', ":", ": ", ", ", "7", "null", "&a", "*a", "<<", "!!int", "[", "]", "\\u0000", "\n"]


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join)))
@example("!!int x: 1")
@example("? [a]\n: 1")
@example("\ud800")
def test_whatever_stands_there_is_read_or_is_bad_input_with_the_annotation(value: str) -> None:
    try:
        inline = parse_layout_annotation(value)
        if isinstance(inline, MigConfig):
            config_layouts(inline, GPUS)
    except BadInput as error:
        refused = str(error)
    else:
        return
    assert refused.startswith(SOURCE)
    assert "\n" not in refused


COUNTS = st.dictionaries(
    st.sampled_from(["1g.5gb", "2g.10gb", "3g.20gb", "1g.5gb+me", "1c.3g.20gb", "7c.7g.40gb"]),
    st.integers(1, 7),
    min_size=1,
)


@given(st.dictionaries(st.integers(0, 5), COUNTS, min_size=1))
def test_what_json_says_is_what_is_wanted(by_index: dict[int, dict[str, int]]) -> None:
    value = json.dumps({str(index): counts for index, counts in by_index.items()})

    assert layouts(value) == {
        index: layout_from_counts(counts) for index, counts in by_index.items()
    }
