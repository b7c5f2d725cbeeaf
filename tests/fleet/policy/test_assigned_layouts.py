# SPDX-License-Identifier: Apache-2.0
"""What the fleet policy writes to Nodes, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import keys
from fleet.policy.assigned_layouts import Assignment, assigned
from fleet.policy.fleet_policy import FleetPolicy, parse_fleet_policy
from kube.objects.typed_object import Metadata


def policy(*layouts: str, nodes: str = "pool=a") -> FleetPolicy:
    entries = [
        f"- {{name: e{at}, nodes: '{nodes}', layout: '{one}'}}" for at, one in enumerate(layouts)
    ]
    return parse_fleet_policy("\n".join(["version: v1", "layouts:", *(entries or [" []"])]), "p")


def metadata(pool: str = "a", **annotations: str | None) -> dict[str, Any]:
    there = {f"gpuscape.io/mig-{key}": text for key, text in annotations.items() if text}
    return {"name": "n", "labels": {"pool": pool}, "annotations": there}


def written(by: FleetPolicy, node: dict[str, Any]) -> dict[str, Any]:
    """The node after what is due was written."""
    found = assigned(by, Metadata.from_object(node))
    patch = None if found is None else found.patch
    return {**node, "annotations": {**node["annotations"], **(patch or {})}}


def word(by: FleetPolicy, node: dict[str, Any]) -> str:
    found = assigned(by, Metadata.from_object(node))
    return "" if found is None else found.assignment


def entry_of(by: FleetPolicy, node: dict[str, Any]) -> str | None:
    """The entry whose layout the node has from the policy."""
    found = assigned(by, Metadata.from_object(node))
    return None if found is None or found.written is None else found.written.name


def test_a_selected_node_gets_its_layout_once() -> None:
    by = policy("all-balanced")
    node = metadata()
    found = assigned(by, Metadata.from_object(node))
    assert found is not None
    assert (found.assignment, found.entries) == (Assignment.DUE, ("e0",))
    assert found.patch is not None
    assert found.patch[keys.MIG_LAYOUT] == "all-balanced"
    node = written(by, node)
    assert word(by, node) == "written"
    assert entry_of(by, node) == "e0"


def test_others_are_nobodys_affair() -> None:
    assert assigned(policy("x"), Metadata.from_object(metadata("b"))) is None
    assert assigned(policy("x"), Metadata.from_object(metadata("b", layout="mine"))) is None
    assert entry_of(policy("x"), metadata(layout="x")) is None


def test_a_new_layout_replaces_what_the_policy_wrote() -> None:
    node = written(policy("old"), metadata())
    assert word(policy("new"), node) == "due"
    node = written(policy("new"), node)
    assert node["annotations"][keys.MIG_LAYOUT] == "new"
    assert word(policy("old"), node) == "due"  # and back


def test_what_a_person_wrote_stays() -> None:
    by = policy("all-balanced")
    assert word(by, metadata(layout="mine")) == "own"
    edited = written(by, metadata())
    edited["annotations"][keys.MIG_LAYOUT] = "mine"
    assert (word(by, edited), entry_of(by, edited)) == ("own", None)
    del edited["annotations"][keys.MIG_LAYOUT]  # handed back
    assert word(by, edited) == "due"


def test_what_a_person_wrote_stays_even_where_it_is_the_same() -> None:
    """Else removing the entry, or changing it, would change what nobody gave to the policy."""
    by = policy("all-balanced")
    assert word(by, metadata(layout="all-balanced")) == "own"


@pytest.mark.parametrize("mark", ["", "e0", "e0/", "e0/0000000000", "/", "x" * 300])
def test_a_mark_that_is_no_hash_of_the_layout_gives_nothing_away(mark: str) -> None:
    assert word(policy("x"), metadata(layout="mine", policy=mark)) == "own"
    assert entry_of(policy("x"), metadata(layout="x", policy=mark)) is None


def test_a_layout_stays_when_its_entry_goes() -> None:
    node = written(policy("x"), metadata())
    assert word(policy(), node) == "left"
    node["labels"]["pool"] = "b"
    assert word(policy("x"), node) == "left"


def test_entries_that_disagree_write_nothing_and_those_that_agree_do() -> None:
    found = assigned(policy("x", "y"), Metadata.from_object(metadata()))
    assert found is not None
    assert (found.assignment, found.entries, found.patch) == (
        Assignment.DISPUTED,
        ("e0", "e1"),
        None,
    )
    assert word(policy("x", "x"), metadata()) == "due"


def test_of_entries_that_agree_the_first_one_is_named_on_the_node() -> None:
    """So that it keeps the layout when the others go."""
    both = policy("x", "x")
    first = assigned(both, Metadata.from_object(metadata()))
    assert first is not None
    assert first.patch is not None
    second = first.patch[keys.MIG_POLICY].replace("e0/", "e1/")
    node = metadata(layout="x", policy=second)

    assert (word(both, node), entry_of(both, node)) == ("due", "e1")
    assert (word(both, written(both, node)), entry_of(both, written(both, node))) == (
        "written",
        "e0",
    )


NODES = st.builds(
    metadata,
    st.sampled_from(["a", "b"]),
    layout=st.sampled_from([None, "x", "y", "mine"]),
    policy=st.sampled_from([None, "e0/bad", "e1/2d711642b7"]),
)
POLICIES = st.lists(st.sampled_from(["x", "y"]), max_size=2).map(lambda it: policy(*it))


@given(NODES, st.lists(POLICIES, max_size=4))
def test_a_layout_of_a_person_outlives_any_policies(
    node: dict[str, Any], policies: list[FleetPolicy]
) -> None:
    if word(policies[0] if policies else policy("x"), node) == "own":
        for by in policies:
            after = written(by, node)
            assert after["annotations"].get(keys.MIG_LAYOUT) == node["annotations"].get(
                keys.MIG_LAYOUT
            )


@given(NODES, POLICIES)
def test_what_was_written_needs_no_second_write(node: dict[str, Any], by: FleetPolicy) -> None:
    assert word(by, written(by, node)) != "due"
