# SPDX-License-Identifier: Apache-2.0
"""The fleet policy as it is read, and refused as a whole."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import BadInput
from fleet.mig_node import DrainMode
from fleet.policy.fleet_policy import MOST_ENTRIES, FleetPolicy, parse_fleet_policy
from mig.configs.layout_annotation import parse_layout_annotation

GOOD = """\
version: v1
layouts:
- name: inference          # small parts for many
  nodes: pool=inference, tier!=dev
  layout: all-1g.10gb
  drain: evict
- name: training
  nodes: pool in (training, research)
  layout: {"0-3": "off", "4-7": {3g.40gb: 2}}
"""


def parsed(text: str) -> FleetPolicy:
    return parse_fleet_policy(text, "policy.yaml")


def test_entries_have_names_selectors_layouts_and_ways_to_drain() -> None:
    policy = parsed(GOOD)
    inference, training = policy.entries
    assert (inference.name, inference.layout) == ("inference", "all-1g.10gb")
    assert (inference.drain, training.drain) == (DrainMode.EVICT, None)
    assert training.layout == '{"0-3": "off", "4-7": {"3g.40gb": 2}}'
    assert not isinstance(parse_layout_annotation(training.layout), str)
    assert inference.selector.matches({"pool": "inference"})
    assert not inference.selector.matches({"pool": "inference", "tier": "dev"})
    assert training.selector.matches({"pool": "research"})
    assert not policy.paused


def test_it_can_be_paused_and_empty() -> None:
    assert parsed("version: v1\npaused: true\nlayouts: []\n") == FleetPolicy(
        entries=(), paused=True
    )


def test_the_revision_is_of_what_is_meant_not_of_how_it_is_written() -> None:
    other = GOOD.replace("tier!=dev", "tier != dev").replace("# small parts for many", "")
    assert parsed(other).revision == parsed(GOOD).revision
    turned = GOOD.replace('"0-3": "off", "4-7": {3g.40gb: 2}', '"4-7": {3g.40gb: 2}, "0-3": "off"')
    assert turned != GOOD
    assert parsed(turned) == parsed(GOOD)
    for change in (("all-1g.10gb", "all-2g.20gb"), ("tier!=dev", "tier=dev"), ("evict", "wait")):
        assert parsed(GOOD.replace(*change)).revision != parsed(GOOD).revision
    paused = f"{GOOD}paused: true\n"
    assert parsed(paused).revision == parsed(GOOD).revision  # to pause is no other policy


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("version: v1", "version: v2", "policy.yaml:1: version: only the format v1 is known"),
        ("version: v1\n", "", "version is missing: write v1"),
        ("layouts:\n", "layout:\n", "policy.yaml:2: 'layout' is not a key.*did you mean layouts"),
        ("  drain: evict", "  drain: kill", r"policy.yaml:6: layouts.drain: 'kill' is not one of"),
        ("  drain: evict", "  drains: evict", "did you mean drain"),
        ("name: training", "name: inference", "the name inference is taken by policy.yaml:3"),
        ("name: training", "name: Train_1", "'Train_1': up to 40 characters"),
        ("pool in (training, research)", "pool in training", "policy.yaml:8: .*label selector"),
        ("pool in (training, research)", '" "', "it would select every Node"),
        ("  layout: all-1g.10gb\n", "", "policy.yaml:3: .*layout is missing"),
        ("layout: all-1g.10gb", "layout: ''", "it is empty"),
        ("layout: all-1g.10gb", "layout: off", "a layout goes with GPUs"),
        ("layout: all-1g.10gb", "layout: [1]", "expected the name of a configuration"),
        ("{3g.40gb: 2}", "{3g.40gb: -2}", "3g.40gb"),
        ("{3g.40gb: 2}", "{3 g: 2}", "policy.yaml:9"),
        ('"0-3": "off"', '"0-x": "off"', "0-x"),
    ],
)
def test_a_mistake_anywhere_refuses_the_whole_by_line_and_key(
    before: str, after: str, why: str
) -> None:
    assert before in GOOD
    with pytest.raises(BadInput, match=why):
        parsed(GOOD.replace(before, after))


def test_the_number_of_entries_is_bounded() -> None:
    entry = "- {{name: e{}, nodes: a=b, layout: x}}\n"
    most = "version: v1\nlayouts:\n" + "".join(entry.format(at) for at in range(MOST_ENTRIES))
    assert len(parsed(most).entries) == MOST_ENTRIES
    with pytest.raises(BadInput, match="more than 200 entries"):
        parsed(most + entry.format(MOST_ENTRIES))


@given(st.text(max_size=200) | st.sampled_from([GOOD[:at] for at in range(0, len(GOOD), 7)]))
def test_whatever_the_text_is_it_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(BadInput):
        parsed(text)
