# SPDX-License-Identifier: Apache-2.0
"""Which labels a query's answer can have, by its syntax tree; and what it names in vain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Tree = Mapping[str, Any]
"""A node of Prometheus' syntax tree; see ``Prometheus.parsed``."""

LabelsOf = Callable[[str], set[str]]
"""The labels that a metric's series have; none where it has no series."""


class UnknownError(Exception):
    """The query names a metric or label that nothing serves; the text says which."""


def selectors(tree: Tree) -> Iterator[Tree]:
    """Every selector of series in the expression."""
    if tree["type"] in ("vectorSelector", "matrixSelector"):
        yield tree
    for child in _children(tree):
        yield from selectors(child)


def labels(tree: Tree, labels_of: LabelsOf) -> set[str]:
    """The labels that the answer's series can have. Raises UnknownError."""
    match tree["type"]:
        case "vectorSelector" | "matrixSelector":
            return _selected(tree, labels_of)
        case "aggregation":
            return _aggregated(tree, labels_of)
        case "binaryExpr":
            return _joined(tree, labels_of)
    below = {label for child in _children(tree) for label in labels(child, labels_of)}
    if tree["type"] == "call" and tree["func"]["name"] == "label_replace":
        _, new, _, source, _ = tree["args"]
        _known({source["val"]}, below, "label_replace")
        below.add(new["val"])
    return below


def _selected(tree: Tree, labels_of: LabelsOf) -> set[str]:
    name = tree["name"]
    if not (found := labels_of(name)):
        raise UnknownError(f"no series of {name}")
    _known({it["name"] for it in tree["matchers"]} - {"__name__"}, found, name)
    return found


def _aggregated(tree: Tree, labels_of: LabelsOf) -> set[str]:
    below = labels(tree["expr"], labels_of)
    named = set(tree["grouping"])
    _known(named, below, tree["op"])
    if tree["op"] in ("topk", "bottomk"):
        return below
    return below - named if tree["without"] else named


def _joined(tree: Tree, labels_of: LabelsOf) -> set[str]:
    left, right = labels(tree["lhs"], labels_of), labels(tree["rhs"], labels_of)
    if matching := tree["matching"]:
        _known(set(matching["labels"]), left, f"the left of {tree['op']}")
        _known(set(matching["labels"]), right, f"the right of {tree['op']}")
        _known(set(matching["include"]), left | right, tree["op"])
        left |= set(matching["include"])
    return left | right if tree["op"] == "or" else left or right


def _known(named: set[str], found: set[str], where: str) -> None:
    if unknown := named - found:
        raise UnknownError(f"no label {', '.join(sorted(unknown))} on {where}")


def _children(tree: Tree) -> Iterator[Tree]:
    for name in ("expr", "lhs", "rhs", "param"):
        if isinstance(tree.get(name), Mapping):
            yield tree[name]
    yield from tree.get("args", ())
