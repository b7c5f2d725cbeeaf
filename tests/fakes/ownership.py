# SPDX-License-Identifier: Apache-2.0
"""managedFields: which manager wrote which field last, as far as our programs read it.

Source: Kubernetes documentation, "Server-Side Apply", field management. Simplified in
one way: a list is one field, where the real server owns some lists item by item.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str, ...]
Fields = dict[tuple[str, str], set[Path]]
"""(manager, operation) to what it owns."""

_BOOKKEEPING = {"apiVersion", "kind"}
_META = {"labels", "annotations", "finalizers", "ownerReferences"}
_MAPS = (("metadata", "labels"), ("metadata", "annotations"))


def written(
    old: Mapping[str, Any], new: Mapping[str, Any], manager: str, now: str
) -> list[dict[str, Any]]:
    """Entries after an Update: what changed is the writer's, and nobody else's any more."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    changed = {path for path, value in after.items() if before.get(path) != value}
    owned = _entries(old, set(after))
    for fields in owned.values():
        fields -= changed
    owned.setdefault((manager, "Update"), set()).update(changed)
    return _listed(owned, new, now)


def applied(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    body: Mapping[str, Any],
    manager: str,
    now: str,
) -> list[dict[str, Any]]:
    """Entries after a forced apply of ``body``: it is the applier's, others keep what is equal."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    owned = _entries(old, set(after))
    for fields in owned.values():
        fields -= {path for path, value in after.items() if before.get(path) != value}
    owned[(manager, "Apply")] = {path for path, _ in _leaves(body)}
    return _listed(owned, new, now)


def _leaves(of: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    for part, value in of.items():
        if part == "metadata":
            for name in _META & set(value):
                yield from _below(("metadata", name), value[name])
        elif part not in _BOOKKEEPING:
            yield from _below((part,), value)


def _below(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if not isinstance(value, Mapping):
        yield path, value
        return
    if path in _MAPS or not value:
        yield (*path, "."), {}
    for key, inner in value.items():
        yield from _below((*path, key), inner)


def _entries(of: Mapping[str, Any], known: set[Path]) -> Fields:
    listed = of.get("metadata", {}).get("managedFields", [])
    return {
        (entry["manager"], entry["operation"]): set(_paths(entry["fieldsV1"])) & known
        for entry in listed
    }


def _paths(tree: Mapping[str, Any], above: Path = ()) -> Iterator[Path]:
    for key, inner in tree.items():
        path = (*above, key.removeprefix("f:"))
        if inner:
            yield from _paths(inner, path)
        else:
            yield path


def _listed(owned: Fields, new: Mapping[str, Any], now: str) -> list[dict[str, Any]]:
    return [
        {
            "manager": manager,
            "operation": operation,
            "apiVersion": new["apiVersion"],
            "time": now,
            "fieldsType": "FieldsV1",
            "fieldsV1": _tree(fields),
        }
        for (manager, operation), fields in owned.items()
        if fields
    ]


def _tree(fields: set[Path]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in sorted(fields):
        at = tree
        for step in path:
            at = at.setdefault("." if step == "." else f"f:{step}", {})
    return tree
