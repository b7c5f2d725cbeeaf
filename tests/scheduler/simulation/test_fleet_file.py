# SPDX-License-Identifier: Apache-2.0
"""Fleets are read as a person writes them or as kubectl prints them, or refused by entry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api import keys
from base.errors import BadInput
from scheduler.simulation.fleet_file import NodeGroup, read_node_groups
from tests.scheduler import fleets, simulated


def node(name: str, **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": annotations}}


def carrying(name: str) -> dict[str, Any]:
    return node(name, **{keys.TOPOLOGY: fleets.topology()})


def listed(*nodes: object) -> str:
    return json.dumps({"kind": "List", "items": nodes})


def test_machines_are_named_with_their_count_and_one_is_usual() -> None:
    assert read_node_groups("- {machine: dgx-a100, count: 3}\n- machine: ./mine.yaml\n", "f") == (
        NodeGroup(count=3, machine="dgx-a100"),
        NodeGroup(count=1, machine="./mine.yaml"),
    )


def test_an_annotation_stands_for_a_machine() -> None:
    text = json.dumps([{"topology": fleets.topology(), "count": 2}])
    assert read_node_groups(text, "f") == (NodeGroup(count=2, topology=simulated.annotation()),)


def test_nodes_are_taken_from_kubectl_and_those_without_gpus_passed_over() -> None:
    found = read_node_groups(
        listed(carrying("a"), node("cpu"), {"metadata": {"name": "bare"}}), "f"
    )
    assert found == (NodeGroup(count=1, topology=simulated.annotation()),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f is no fleet: write a list"),
        ("[]", "f is no fleet"),
        ("{a: 1}", "f is no fleet"),
        ("[{]", "f:1: not valid YAML"),
        ("- dgx-a100", "f: entry 1 names neither machine nor topology"),
        ("- machine: a\n- count: 2", "f: entry 2 names neither"),
        ("- {machine: a, nodes: 2}", "f: entry 1: 'nodes' is no key"),
        ("- {machine: a, count: 0}", "f: entry 1: count is 0"),
        ("- {machine: a, count: many}", "f: entry 1: count is 'many'"),
        ("- {machine: a, count: 5000}\n- machine: b", "f has 5001 nodes, more than 5000"),
        ("- {machine: a, topology: b}", "f: entry 1 names machine and topology"),
        ("- topology: 7", "f: entry 1: topology is no text of annotation"),
        ("- topology: '{\"v\": 2}'", "f: entry 1: topology is no text of annotation"),
        ("- topology: '{\"v\": 1}'", "f: entry 1: annotation gpuscape.io/topology is damaged"),
        (listed(node("cpu")), "f: no Node carries gpuscape.io/topology"),
        (listed("a"), "f: its items are no Nodes"),
        (
            listed(carrying("a"), node("b", **{keys.TOPOLOGY: "{"})),
            "f: Node b: annotation gpuscape.io/topology is damaged",
        ),
    ],
)
def test_a_bad_fleet_is_refused_with_the_place_and_the_fix(text: str, said: str) -> None:
    with pytest.raises(BadInput) as error:
        read_node_groups(text, "f")
    assert str(error.value).startswith(said)


SHAPE = "a list of entries such as {machine: dgx-a100, count: 8}, or kubectl's list of Nodes"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", f"f is no fleet: write {SHAPE}"),
        ("{items: 1}", f"f is no fleet: write {SHAPE}"),
        ("- 1", f"f: entry 1 names neither machine nor topology: write {SHAPE}"),
        (
            "- {machine: a, nodes: 2}",
            "f: entry 1: 'nodes' is no key; there are machine, topology, count",
        ),
        ("- {machine: a, count: 0}", "f: entry 1: count is 0, not a number of 1 to 5000"),
        ("- {machine: a, count: 5001}", "f: entry 1: count is 5001, not a number of 1 to 5000"),
        ("- {machine: a, count: 1.0}", "f: entry 1: count is 1.0, not a number of 1 to 5000"),
        ("- {machine: a, topology: b}", "f: entry 1 names machine and topology: keep one"),
        (
            "- topology: 7",
            "f: entry 1: topology is no text of annotation gpuscape.io/topology with GPUs",
        ),
        (
            listed(node("cpu"), {"metadata": {"name": "bare", "annotations": None}}),
            "f: no Node carries gpuscape.io/topology: does the agent run there?",
        ),
        (listed({"spec": {}}), "f: its items are no Nodes: take kubectl's -o json"),
    ],
)
def test_a_refusal_of_a_fleet_is_one_whole_sentence(text: str, sentence: str) -> None:
    with pytest.raises(BadInput) as error:
        read_node_groups(text, "f")
    assert str(error.value) == sentence


@pytest.mark.parametrize("count", [1, 5000])
def test_a_fleet_may_have_as_many_nodes_as_this(count: int) -> None:
    assert read_node_groups(f"- {{machine: a, count: {count}}}", "f")[0].count == count
