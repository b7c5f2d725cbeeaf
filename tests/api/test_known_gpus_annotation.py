# SPDX-License-Identifier: Apache-2.0
"""The annotation of known GPUs: what is written can be read, stays small and within its schema."""

from __future__ import annotations

import json

import jsonschema
import pytest

from api import known_gpus_annotation
from api.known_gpus_annotation import (
    MOST_CHARACTERS,
    MOST_GPUS,
    MOST_NAMED,
    decode,
    encode,
    json_schema,
    known_gpus_of_boot,
)
from base.errors import BadInput

BOOT = "5e6ea2c4-4cb4-4b0c-9a30-1d1b6a2a7b11"


def bus_ids(count: int) -> list[str]:
    """The longest that there are."""
    return [f"0001{place:04x}:00:00.0" for place in range(count)]


@pytest.mark.parametrize("count", [0, 1, 8, MOST_NAMED, MOST_NAMED + 1, MOST_GPUS, 1024])
@pytest.mark.parametrize("unnamed", [0, 3])
def test_any_number_of_gpus_can_be_written_and_read_again(count: int, unnamed: int) -> None:
    known = known_gpus_of_boot(BOOT, bus_ids(count), count + unnamed)
    text = encode(known)
    assert decode(text) == known
    assert known.n == min(count + unnamed, MOST_GPUS)
    assert known.bus == (tuple(bus_ids(count)) if count <= MOST_NAMED else ())
    assert len(text) <= MOST_CHARACTERS
    jsonschema.validate(json.loads(text), json_schema())


def test_eight_gpus_take_less_than_a_sixteenth_of_what_a_node_may_have() -> None:
    names = [f"0000:{place:02x}:00.0" for place in range(8)]
    assert len(encode(known_gpus_of_boot(BOOT, names, 8))) < 256


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"n": -1}, "`int` >= 0"),
        ({"n": MOST_GPUS + 1}, f"`int` <= {MOST_GPUS}"),
        ({"n": 1}, "`bus` has 2 bus ids of 1 GPUs"),
        ({"bus": ["0000:10:00.0"] * 2}, "`bus` has a bus id twice"),
        ({"bus": ["0000:10:00.9"]}, "matching regex"),
        ({"bus": bus_ids(MOST_NAMED + 1), "n": 99}, "length"),
        ({"boot": "yesterday"}, "matching regex"),
        ({"boot": BOOT.upper()}, "matching regex"),
        ({"boot": None}, "Expected `str`"),
    ],
)
def test_what_no_agent_writes_is_damage_and_the_reason_is_named(
    changed: dict[str, object], why: str
) -> None:
    whole = {"v": 1, "boot": BOOT, "n": 2, "bus": ["0000:10:00.0", "0000:11:00.0"]}
    assert decode(json.dumps(whole)) is not None
    with pytest.raises(BadInput) as raised:
        decode(json.dumps(whole | changed))
    assert why in str(raised.value)
    assert str(raised.value).endswith("; the agent writes it anew")


def test_another_major_version_is_no_data() -> None:
    assert known_gpus_annotation.decode('{"v":2}') is None
