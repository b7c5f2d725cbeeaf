# SPDX-License-Identifier: Apache-2.0
"""Tables of free GPUs from values: every cell, the sums, and which columns there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from cli.free.free_view import node_table, totals_by_product, totals_table
from cli.terminal import Cell, Styled, TextTable
from forecast.fleet_reading import FreeNode, GpuHolder, LinkedSet, MigSlices
from scheduler.cluster.node_views import NoView
from scheduler.score_explanation import REASONS

WIDE = 10_000
ALL = tuple(range(8))


def node(name: str = "a", **facts: Any) -> FreeNode:
    """A node of 8 GPUs, all of them free."""
    plain = FreeNode(
        node=name,
        product="H100",
        gpus=8,
        free=ALL,
        linked=LinkedSet(gpus=ALL, gbps=450.0),
        mig=(),
        holders=(),
        cordoned=False,
        ready=True,
    )
    return msgspec.structs.replace(plain, **facts)


def small(free: int | None) -> MigSlices:
    """Seven MIG devices of one slice."""
    return MigSlices(resource="nvidia.com/mig-1g.10gb", total=7, free=free)


def text(cell: Cell) -> str:
    return cell.text if isinstance(cell, Styled) else cell


def style(cell: Cell) -> str:
    return cell.style if isinstance(cell, Styled) else ""


def cell(of: FreeNode, title: str, *others: FreeNode) -> Cell:
    """What stands in this column of a node's row."""
    table = node_table([of, *others], WIDE)
    return table.rows[0][table.header.index(title)] if title in table.header else "(no column)"


@pytest.mark.parametrize(
    ("facts", "said", "styled"),
    [
        ({}, "8/8", "bold green"),
        ({"free": (0, 3)}, "2/8", "green"),
        ({"free": ()}, "0/8", "dim"),
        ({"free": None}, "?", "yellow"),
        ({"cordoned": True}, "8/8", "dim"),
        ({"ready": False}, "8/8", "dim"),
        ({"free": (0, 1, 2), "gpus": 3}, "3/3", "bold green"),
    ],
)
def test_free_gpus_are_counted_and_coloured_by_what_can_be_had(
    facts: dict[str, Any], said: str, styled: str
) -> None:
    found = cell(node(**facts), "FREE", node("b", free=None))
    assert (text(found), style(found)) == (said, styled)


SHORT = {
    NoView.NO_TOPOLOGY: "no agent",
    NoView.BAD_TOPOLOGY: "bad topology",
    NoView.OTHER_VERSION: "other version",
    NoView.NO_STATE: "no state",
    NoView.BAD_STATE: "bad state",
    NoView.OTHER_GENERATION: "other topology",
    NoView.STALE: "agent silent",
}


@pytest.mark.parametrize(
    ("facts", "said", "styled"),
    [
        ({}, "whole node free", "green"),
        ({"free": (1,)}, "", ""),
        ({"free": ()}, "", ""),
        ({"cordoned": True}, "cordoned", "yellow"),
        ({"ready": False}, "not ready", "yellow"),
        ({"ready": False, "cordoned": True}, "not ready, cordoned", "yellow"),
        ({"free": None, "why_unknown": "why", "cordoned": True}, "cordoned", "yellow"),
        ({"free": None, "why_unknown": "something new"}, "something new", "yellow"),
        *(
            ({"free": None, "why_unknown": REASONS[view]}, f"{word} ({REASONS[view]})", "yellow")
            for view, word in SHORT.items()
        ),
    ],
)
def test_the_state_says_what_keeps_pods_off_or_why_nothing_is_known(
    facts: dict[str, Any], said: str, styled: str
) -> None:
    found = cell(node(**facts), "STATE")
    assert (text(found), style(found)) == (said, styled)


@pytest.mark.parametrize(
    ("facts", "title", "said"),
    [
        ({}, "GPUS", "0-7"),
        ({"free": (0, 2, 3)}, "GPUS", "0,2-3"),
        ({"free": ()}, "GPUS", "-"),
        ({"free": None}, "GPUS", "-"),
        ({}, "LINKED", "8 at 450 GB/s"),
        ({"linked": LinkedSet(gpus=(1, 2), gbps=49.6)}, "LINKED", "2 at 50 GB/s"),
        ({"linked": None}, "LINKED", "-"),
        ({"product": ""}, "PRODUCT", "-"),
        ({"taints": ("a=b", "c")}, "TAINTS", "a=b, c"),
        ({"mig": (small(5),)}, "MIG FREE", "5/7 1g.10gb"),
        ({"mig": (small(0),)}, "MIG FREE", "0/7 1g.10gb"),
        (
            {
                "mig": (
                    small(None),
                    MigSlices(resource="nvidia.com/mig-3g.40gb", total=1, free=None),
                )
            },
            "MIG FREE",
            "?/7 1g.10gb, ?/1 3g.40gb",
        ),
        ({"holders": (GpuHolder(pod=None, key="0a", gpus=(0,)),)}, "HELD BY", "1 pod"),
        (
            {"holders": tuple(GpuHolder(pod=None, key=f"{at}", gpus=(at,)) for at in (0, 1))},
            "HELD BY",
            "2 pods",
        ),
        (
            {
                "holders": (
                    GpuHolder(pod="team/a", key="0a", gpus=(0, 1)),
                    GpuHolder(pod=None, key="0b", gpus=(3,)),
                )
            },
            "HELD BY",
            "0-1 team/a; 3 pod 0b",
        ),
    ],
)
def test_each_fact_of_a_node_stands_in_its_column(
    facts: dict[str, Any], title: str, said: str
) -> None:
    filled = node(
        "b",
        mig=(MigSlices(resource="nvidia.com/mig-9g.9gb", total=1, free=1),),
        holders=(GpuHolder(pod="x/y", key="9", gpus=(0,)),),
        taints=("x",),
    )
    assert text(cell(node(**facts), title, filled)) == said
    assert text(cell(node("named"), "NODE")) == "named"


def test_a_node_without_any_free_gpu_is_no_free_node() -> None:
    assert node().whole_free
    assert not node(free=ALL[1:]).whole_free
    assert not node(free=None).whole_free
    assert not node(free=None, gpus=0).whole_free
    states = {
        (ready, cordoned): node(ready=ready, cordoned=cordoned).takes_pods
        for ready in (True, False)
        for cordoned in (True, False)
    }
    assert [it for it, takes in states.items() if takes] == [(True, False)]


def drawn(draw: Random) -> FreeNode:
    """Any node."""
    gpus = draw.choice((0, 2, 8))
    free = draw.choice((None, tuple(at for at in range(gpus) if draw.random() < 0.7)))
    size = 0 if free is None else draw.randrange(len(free) + 1)
    return node(
        f"node-{draw.randrange(10**6)}",
        product=draw.choice(("", "A100", "H100")),
        gpus=gpus,
        free=free,
        linked=LinkedSet(gpus=tuple(range(size)), gbps=1.0) if size > 1 else None,
        cordoned=draw.random() < 0.2,
        ready=draw.random() < 0.8,
        mig=tuple(
            MigSlices(
                resource=f"nvidia.com/mig-{at}g.1gb",
                total=draw.randrange(8),
                free=draw.choice((None, draw.randrange(8))),
            )
            for at in draw.sample((1, 2, 3), draw.randrange(3))
        ),
    )


def by_hand(nodes: Sequence[FreeNode], product: str) -> dict[str, Any]:
    """The sums of one product, counted node by node."""
    row: dict[str, Any] = dict.fromkeys(
        ("nodes", "out", "gpus", "free", "whole_nodes", "most_linked"), 0
    )
    mig: dict[str, list[int | None]] = {}
    for one in nodes:
        if one.product != product:
            continue
        row["nodes"] += 1
        row["gpus"] += one.gpus
        serves = one.ready is True and one.cordoned is False
        if serves:
            for offer in one.mig:
                total, free = mig.setdefault(offer.resource, [0, 0])
                unknown = free is None or offer.free is None
                mig[offer.resource] = [
                    (total or 0) + offer.total,
                    None if unknown else (free or 0) + (offer.free or 0),
                ]
        if not serves or one.free is None:
            row["out"] += 1
            continue
        row["free"] += len(one.free)
        if len(one.free) == one.gpus:
            row["whole_nodes"] += 1
        if one.linked is not None:
            row["most_linked"] = max(row["most_linked"], len(one.linked.gpus))
    return row | {"product": product, "mig": dict(sorted(mig.items()))}


def test_sums_are_those_of_a_person_who_counts() -> None:
    draw = Random(11)  # noqa: S311  # a test's choice
    for _ in range(300):
        nodes = [drawn(draw) for _ in range(draw.randrange(7))]
        found = totals_by_product(nodes)
        assert [it.product for it in found] == sorted({it.product for it in nodes})
        for it in found:
            row = {key: getattr(it, key) for key in it.__struct_fields__ if key != "mig"}
            mig = {offer.resource: [offer.total, offer.free] for offer in it.mig}
            assert list(mig) == sorted(mig)
            assert row | {"mig": mig} == by_hand(nodes, it.product)


def row(table: TextTable, at: int = 0) -> dict[str, str]:
    return dict(zip(table.header, map(text, table.rows[at]), strict=True))


def test_the_sums_stand_in_their_columns_and_a_dash_for_none() -> None:
    mig = (small(5),)
    found = totals_by_product(
        [node("a", mig=mig), node("b", free=(1,), linked=None), node("c", cordoned=True)]
    )
    assert row(totals_table(found, WIDE)) == {
        "PRODUCT": "H100",
        "NODES": "3",
        "OUT": "1",
        "GPUS": "24",
        "FREE": "9",
        "FREE NODES": "1",
        "MOST LINKED": "8",
        "MIG FREE": "5/7 1g.10gb",
    }
    bare = totals_by_product([node(product="", free=(), linked=None), node("z", cordoned=True)])
    full, other = totals_table(bare, WIDE), totals_table([*bare, *found], WIDE)
    assert row(full) | {"OUT": "-"} == {
        "PRODUCT": "(no product label)",
        "NODES": "1",
        "OUT": "-",
        "GPUS": "8",
        "FREE": "0",
        "FREE NODES": "0",
        "MOST LINKED": "-",
    }
    assert row(other)["OUT"] == row(other)["MIG FREE"] == "-"
    frees = [it[full.header.index("FREE")] for it in totals_table([*bare, *found], WIDE).rows]
    assert [style(it) for it in frees] == ["dim", "dim", "green"]


def order_of_going(make: Any, rows: Sequence[Any]) -> list[str]:
    """Titles of the columns that are left out, as the terminal gets narrower."""
    gone: list[str] = []
    for width in range(400, 10, -1):
        header = make(rows, width).header
        gone += [it for it in make(rows, WIDE).header if it not in header and it not in gone]
    return gone


def test_the_columns_that_a_person_needs_least_are_left_out_first() -> None:
    mig = (small(5),)
    full = node(
        "b",
        mig=mig,
        holders=(GpuHolder(pod="x/y", key="9", gpus=(0,)),),
        taints=("dedicated=gpu",),
        free=(1,),
    )
    assert node_table([full], WIDE).header == (
        *("NODE", "PRODUCT", "FREE", "GPUS", "LINKED", "MIG FREE", "STATE", "HELD BY", "TAINTS"),
    )
    assert order_of_going(node_table, [full]) == [
        *("TAINTS", "GPUS", "HELD BY", "PRODUCT", "MIG FREE", "LINKED"),
    ]
    sums = totals_by_product([full, node("c", cordoned=True)])
    assert order_of_going(totals_table, sums) == ["OUT", "MIG FREE"]
    numbers = {"NODES", "OUT", "GPUS", "FREE", "FREE NODES", "MOST LINKED"}
    for table, right in (
        (node_table([full], WIDE), {"FREE", "LINKED"}),
        (totals_table(sums, WIDE), numbers),
    ):
        assert {table.header[at] for at in table.right} == right


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_long_name_leaves_room_for_the_state(width: int) -> None:
    long = node("a" * 100, free=None, linked=None, why_unknown=REASONS[NoView.STALE])
    found = row(node_table([long], width))
    assert len(found["NODE"]) >= 20
    assert found["STATE"].startswith("agent silent")
