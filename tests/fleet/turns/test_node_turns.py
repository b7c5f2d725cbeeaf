# SPDX-License-Identifier: Apache-2.0
"""A node's turns: each costs it its place and time, until its admin asks for something else."""

from __future__ import annotations

from fleet.rollout_settings import LONGEST_RETRY_SECONDS
from fleet.turns.node_turns import NodeTurns

NOW = 1_800_000_000.0


def test_the_wait_doubles_with_each_turn_up_to_an_hour() -> None:
    turns, waits = NodeTurns(60.0), []
    for _ in range(100):
        turns.ended("n", "u", "a", NOW)
        waits.append(turns.turn_of("n", "u", "a").not_before - NOW)
    assert waits[:4] == [60.0, 120.0, 240.0, 480.0]
    assert waits[-1] == max(waits) == LONGEST_RETRY_SECONDS


def test_a_rest_is_kept_where_it_is_longer() -> None:
    turns = NodeTurns(60.0)
    turns.ended("n", "u", "a", NOW, rest=600.0)
    assert turns.turn_of("n", "u", "a").not_before == NOW + 600.0


def test_turns_begin_anew_with_another_layout_or_another_node_of_the_name() -> None:
    turns = NodeTurns(60.0)
    turns.ended("n", "u", "a", NOW)
    turns.ended("n", "u", "a", NOW)
    counts = [turns.turn_of("n", *key).turns for key in (("u", "a"), ("u", "b"), ("v", "a"))]
    assert counts == [2, 0, 0]
    turns.ended("n", "u", "b", NOW)
    assert turns.turn_of("n", "u", "b").turns == 1


def test_only_nodes_that_are_gone_are_forgotten() -> None:
    turns = NodeTurns(60.0)
    for name in ("here", "gone"):
        turns.ended(name, "u", "a", NOW)
    turns.forget_all_but({"here"}.__contains__)
    assert [turns.turn_of(name, "u", "a").turns for name in ("here", "gone")] == [1, 0]
