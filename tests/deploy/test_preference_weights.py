# SPDX-License-Identifier: Apache-2.0
"""People's preferences outweigh the extender's ranks, by kube-scheduler's published arithmetic.

Source: kube-scheduler of 1.37, the same in 1.32: pkg/scheduler/apis/config/v1/default_plugins.go
(stock weights), pkg/scheduler/framework/plugins/helper/normalize_score.go, interpodaffinity/
scoring.go (NormalizeScore), pkg/scheduler/schedule_one.go (prioritizeNodes); kube-scheduler's
extender/v1, MaxExtenderPriority.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml

from tests.deploy import scheduler_page
from tests.deploy.daemonset import DEPLOY

STOCK = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "InterPodAffinity": 2,
    "PodTopologySpread": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
WISHES = ("NodeAffinity", "InterPodAffinity", "TaintToleration")
"""Plugins whose scores come from what people write as preferred."""
MOST, HIGHEST_RANK = 100, 10
"""Most points of a plugin, and of an extender, before weights."""
PAGE = scheduler_page.PAGE


def shipped() -> dict[str, Any]:
    """kube-scheduler's configuration."""
    (made,) = yaml.safe_load_all((DEPLOY / "kube-scheduler" / "configuration.yaml").read_text())
    configuration: dict[str, Any] = yaml.safe_load(made["data"]["config.yaml"])
    return configuration


def weights(configuration: Mapping[str, Any]) -> dict[str, int]:
    """Of all plugins in its one profile."""
    (profile,) = configuration["profiles"]
    enabled = profile["plugins"]["score"]["enabled"]
    return {**STOCK, **{plugin["name"]: plugin["weight"] for plugin in enabled}}


def extender_weight(configuration: Mapping[str, Any]) -> int:
    (extender,) = configuration["extenders"]
    return int(extender["weight"])


def scaled(scores: Sequence[int], *, reverse: bool = False) -> list[int]:
    """As NodeAffinity scales sums of weights and, reversed, TaintToleration numbers of taints."""
    most = max(scores)
    if not most:
        return [MOST if reverse else 0] * len(scores)
    parts = [MOST * score // most for score in scores]
    return [MOST - part for part in parts] if reverse else parts


def stretched(scores: Sequence[int]) -> list[int]:
    """As InterPodAffinity scales sums of weights of matching pods."""
    least, most = min(scores), max(scores)
    return [MOST * (score - least) // (most - least) for score in scores]


def lead(plugin: str, written: Sequence[int]) -> int:
    """Unweighted points by which the first node leads over the second, by what is written.

    Sums of weights of the preferences that each node meets; for TaintToleration the number of its
    taints.
    """
    if plugin == "InterPodAffinity":
        points = stretched(written)
    else:
        points = scaled(written, reverse=plugin == "TaintToleration")
    return points[0] - points[1]


def others(of: Mapping[str, int]) -> int:
    """The most by which two nodes differ in all that nobody has written as preferred."""
    return MOST * sum(weight for plugin, weight in of.items() if plugin not in WISHES)


def ranks(weight: int) -> int:
    """Points between the highest rank and the lowest. The scheduler multiplies by 100 / 10."""
    return HIGHEST_RANK * weight * (MOST // HIGHEST_RANK)


@pytest.mark.parametrize(
    ("plugin", "written"),
    [
        ("NodeAffinity", (1, 0)),
        ("NodeAffinity", (100, 0)),
        ("NodeAffinity", (100, 50)),
        ("NodeAffinity", (60, 30, 30)),
        ("InterPodAffinity", (1, 0)),
        ("InterPodAffinity", (0, -100)),
        ("InterPodAffinity", (200, 100, 0)),
        ("TaintToleration", (0, 1)),
        ("TaintToleration", (0, 1, 2)),
        ("TaintToleration", (1, 2)),
    ],
)
def test_a_preference_that_is_half_of_all_outweighs_ranks_and_all_else(
    plugin: str, written: tuple[int, ...]
) -> None:
    """The node that it is against has rank 10, and is the best in everything else too."""
    of = weights(shipped())
    assert lead(plugin, written) * of[plugin] > ranks(extender_weight(shipped())) + others(of)


def test_the_three_weights_keep_their_proportions() -> None:
    of = weights(shipped())
    assert {of[plugin] / STOCK[plugin] for plugin in WISHES} == {of["NodeAffinity"] / 2}


def test_the_page_has_the_points_of_the_shipped_profile() -> None:
    of, weight = weights(shipped()), extender_weight(shipped())
    table = PAGE.partition("<!-- points -->")[2].partition("<!-- end -->")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
    shown = {re.split("[: ]", row[0])[0]: row[1:] for row in rows if len(row) == 4}
    expected = {
        plugin: [str(STOCK[plugin]), str(of[plugin]), f"{MOST * of[plugin]:,}"] for plugin in STOCK
    }
    assert {plugin: shown[plugin] for plugin in STOCK} == expected
    assert shown["gpuscape's"] == ["-", str(weight), f"{ranks(weight):,}"]
    for sentence in (
        f"together are worth {ranks(weight) + others(of):,}",
        f"is worth {MOST * of['NodeAffinity']:,} points**, whether its own weight is 1 or 100",
        f"is worth {50 * of['NodeAffinity']:,} points or more",
        f"sum is worth {10 * of['NodeAffinity']:,} points.",
        f"loses {MOST * of['TaintToleration']:,} points if no node has more of them, "
        f"and {50 * of['TaintToleration']:,} if another node has two",
    ):
        assert sentence in " ".join(PAGE.split())


def test_with_stock_weights_the_page_names_the_largest_weight_that_no_preference_loses_to() -> None:
    lone = min(MOST * STOCK[plugin] for plugin in WISHES)
    largest = max(weight for weight in range(1, 100) if ranks(weight) < lone)
    assert f"`weight` to **{largest}**" in PAGE.replace("\n", " ")


def test_the_pages_example_has_the_shipped_weights() -> None:
    example = yaml.safe_load(scheduler_page.marked("extenders"))
    assert weights(example) == weights(shipped())
    assert extender_weight(example) == extender_weight(shipped())
