# SPDX-License-Identifier: Apache-2.0
"""Rollouts drawn by a seed, on a real control plane: no rule is broken, by its audit log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.mig_nodes import SLOTS
from tests.cluster.random_rollout import RolloutFigures, play

pytestmark = [pytest.mark.cluster, pytest.mark.long]


def check(figures: RolloutFigures) -> None:
    """What holds for each of them."""
    assert figures.faults == ()
    assert figures.changes >= figures.nodes
    assert figures.most_in_change <= SLOTS
    assert (figures.deleted, figures.refused) == (0, 0)


def test_a_rollout_of_nodes_with_all_kinds_of_pods_breaks_no_rule(tmp_path: Path) -> None:
    check(play(tmp_path, seed=4, nodes=9))


@pytest.mark.parametrize("seed", range(10))
def test_no_rule_is_broken_by_50_nodes(tmp_path: Path, seed: int) -> None:
    check(play(tmp_path, seed, nodes=50))
