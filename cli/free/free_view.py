# SPDX-License-Identifier: Apache-2.0
"""Free GPUs of the fleet as tables: node by node, and together by product. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from api.mig_resources import MIG_PREFIX
from base.text.number_ranges import number_ranges
from cli.fitted_table import Column, fit_rows
from cli.terminal import NONE, UNKNOWN, Cell, Styled, TextTable
from forecast.fleet_reading import FreeNode, GpuHolder, MigSlices
from scheduler.cluster.node_views import NoView
from scheduler.score_explanation import REASONS

_LEAST_HOLDERS: Final = 16
_NO_PRODUCT: Final = "(no product label)"

_IN_SHORT: Final = {
    REASONS[NoView.NO_TOPOLOGY]: "no agent",
    REASONS[NoView.BAD_TOPOLOGY]: "bad topology",
    REASONS[NoView.OTHER_VERSION]: "other version",
    REASONS[NoView.NO_STATE]: "no state",
    REASONS[NoView.BAD_STATE]: "bad state",
    REASONS[NoView.OTHER_GENERATION]: "other topology",
    REASONS[NoView.STALE]: "agent silent",
}
"""Reason to its short form, which stands before it: a terminal may cut the rest."""


class ProductTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of one product together."""

    product: str
    nodes: int
    out: int
    """Nodes of these that take no pods now, or of which nothing is known."""
    gpus: int
    free: int
    """Free GPUs of the other nodes; the values below are of these nodes too."""
    whole_nodes: int
    """Number of nodes that are entirely free."""
    most_linked: int
    """GPUs of the largest linked set that is free on one node."""
    mig: tuple[MigSlices, ...]


def totals_by_product(nodes: Iterable[FreeNode]) -> tuple[ProductTotals, ...]:
    """The totals of each product, in the order of the products' names."""
    by_product: dict[str, list[FreeNode]] = {}
    for node in nodes:
        by_product.setdefault(node.product, []).append(node)
    return tuple(
        _totals(product, product_nodes) for product, product_nodes in sorted(by_product.items())
    )


def node_table(nodes: Sequence[FreeNode], width: int) -> TextTable:
    """Table of free GPUs with a row for each node."""
    return fit_rows(_NODES, nodes, width)


def totals_table(product_totals: Sequence[ProductTotals], width: int) -> TextTable:
    """Table of the totals with a row for each product."""
    return fit_rows(_TOTALS, product_totals, width)


def _totals(product: str, nodes: Sequence[FreeNode]) -> ProductTotals:
    counted = [node for node in nodes if node.takes_pods and node.free is not None]
    sizes = [len(node.linked.gpus) for node in counted if node.linked is not None]
    return ProductTotals(
        product=product,
        nodes=len(nodes),
        out=len(nodes) - len(counted),
        gpus=sum(node.gpus for node in nodes),
        free=sum(len(node.free or ()) for node in counted),
        whole_nodes=sum(node.whole_free for node in counted),
        most_linked=max(sizes, default=0),
        mig=_mig_totals(node.mig for node in nodes if node.takes_pods),
    )


def _mig_totals(offers: Iterable[Sequence[MigSlices]]) -> tuple[MigSlices, ...]:
    total: Counter[str] = Counter()
    free: Counter[str] = Counter()
    unknown = set()
    for offer in (slices for node_offers in offers for slices in node_offers):
        total[offer.resource] += offer.total
        free[offer.resource] += offer.free or 0
        if offer.free is None:
            unknown.add(offer.resource)
    return tuple(
        MigSlices(
            resource=resource,
            total=total[resource],
            free=None if resource in unknown else free[resource],
        )
        for resource in sorted(total)
    )


# cells


def _free(node: FreeNode) -> Cell:
    if node.free is None:
        return UNKNOWN
    text = f"{len(node.free)}/{node.gpus}"
    if not node.takes_pods or not node.free:
        return Styled(text, "dim")
    return Styled(text, "bold green" if node.whole_free else "green")


def _places(node: FreeNode) -> Cell:
    return NONE if not node.free else number_ranges(node.free)


def _linked(node: FreeNode) -> Cell:
    if node.linked is None:
        return NONE
    return f"{len(node.linked.gpus)} at {node.linked.gbps:.0f} GB/s"


def _mig(offers: Sequence[MigSlices]) -> Cell:
    return ", ".join(map(_slices, offers)) or NONE


def _slices(offer: MigSlices) -> str:
    """``5/7 1g.10gb``; without its first number where it is not known."""
    number = f"?/{offer.total}" if offer.free is None else f"{offer.free}/{offer.total}"
    return f"{number} {offer.resource.removeprefix(MIG_PREFIX)}"


def _state(node: FreeNode) -> Cell:
    marks = ([] if node.ready else ["not ready"]) + (["cordoned"] if node.cordoned else [])
    if marks:
        return Styled(", ".join(marks), "yellow")
    if node.why_unknown:
        short = _IN_SHORT.get(node.why_unknown)
        return Styled(f"{short} ({node.why_unknown})" if short else node.why_unknown, "yellow")
    return Styled("whole node free", "green") if node.whole_free else ""


def _held(node: FreeNode) -> Cell:
    """Pods with their GPUs; only the number of pods where no name is known."""
    if any(holder.pod is not None for holder in node.holders):
        return "; ".join(map(_holder, node.holders))
    pods = len(node.holders)
    return f"{pods} pod{'s' if pods > 1 else ''}" if pods else NONE


def _holder(holder: GpuHolder) -> str:
    return f"{number_ranges(holder.gpus)} {holder.pod or f'pod {holder.key}'}"


_NODES: Final = (
    Column(title="NODE", cell=lambda node: Styled(node.node, "bold"), least=20),
    Column(title="PRODUCT", cell=lambda node: node.product or NONE, goes=3),
    Column(title="FREE", cell=_free, right=True),
    Column(title="GPUS", cell=_places, goes=5),
    Column(title="LINKED", cell=_linked, right=True, goes=1),
    Column(title="MIG FREE", cell=lambda node: _mig(node.mig), goes=2),
    Column(title="STATE", cell=_state, least=15),
    Column(title="HELD BY", cell=_held, goes=4, least=_LEAST_HOLDERS),
    Column(title="TAINTS", cell=lambda node: ", ".join(node.taints) or NONE, goes=6),
)

_TOTALS: Final = (
    Column(title="PRODUCT", cell=lambda row: Styled(row.product or _NO_PRODUCT, "bold"), least=12),
    Column(title="NODES", cell=lambda row: str(row.nodes), right=True),
    Column(title="OUT", cell=lambda row: str(row.out) if row.out else NONE, right=True, goes=2),
    Column(title="GPUS", cell=lambda row: str(row.gpus), right=True),
    Column(
        title="FREE",
        cell=lambda row: Styled(str(row.free), "green" if row.free else "dim"),
        right=True,
    ),
    Column(title="FREE NODES", cell=lambda row: str(row.whole_nodes), right=True),
    Column(
        title="MOST LINKED",
        cell=lambda row: str(row.most_linked) if row.most_linked else NONE,
        right=True,
    ),
    Column(title="MIG FREE", cell=lambda row: _mig(row.mig), goes=1),
)
