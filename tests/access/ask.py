# SPDX-License-Identifier: Apache-2.0
"""Requests and cases as data. ``$node`` and its like are filled in where a case is tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OWN_MANAGER = "$manager"
"""The field manager of whoever asks."""

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The body of a PUT: the object as it is now, with this merged in."""

    patch: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request."""

    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"
    manager: str | None = None
    query: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One request and what must become of it."""

    name: str
    ask: Ask
    actor: str = "agent"
    only: str = ""
    """Of a refused one: the rule, as POLICY/RULE, without which it is let through; empty
    where several refuse it."""
    drift: int = 422
    """Of a refused one: the answer's status when the account is bound to cluster-admin.
    2xx: what no policy can hold."""
    before: tuple[Ask, ...] = ()
    """What an admin does first."""


def merge(path: str, patch: Any, *, manager: str | None = OWN_MANAGER) -> Ask:
    """A JSON merge patch."""
    return Ask(method="PATCH", path=path, body=patch, content_type=MERGE, manager=manager)


def strategic(path: str, patch: Any) -> Ask:
    """A strategic merge patch."""
    return Ask(method="PATCH", path=path, body=patch, content_type=STRATEGIC, manager=OWN_MANAGER)


def steps(path: str, *operations: Sequence[Any]) -> Ask:
    """A JSON patch: ``("add", path, value)``, ``("remove", path)``, ``("move", from, path)``."""
    body = []
    for verb, at, *rest in operations:
        step = {"op": verb, "path": at}
        if verb == "move":
            step = {"op": verb, "from": at, "path": rest[0]}
        elif rest:
            step["value"] = rest[0]
        body.append(step)
    return Ask(method="PATCH", path=path, body=body, content_type=JSON_PATCH, manager=OWN_MANAGER)


def apply(path: str, body: Any) -> Ask:
    """A server-side apply that takes what others own."""
    return Ask(
        method="PATCH",
        path=path,
        body=body,
        content_type=APPLY,
        manager=OWN_MANAGER,
        query="force=true",
    )


def put(path: str, patch: Mapping[str, Any]) -> Ask:
    """A replacement by the present object with ``patch`` merged in."""
    return Ask(method="PUT", path=path, body=Change(patch=patch), manager=OWN_MANAGER)


def post(path: str, body: Any, *, manager: str | None = OWN_MANAGER) -> Ask:
    """A creation."""
    return Ask(method="POST", path=path, body=body, manager=manager)


def delete(path: str) -> Ask:
    """A deletion."""
    return Ask(method="DELETE", path=path)


def label(key: str, value: str | None = "x") -> dict[str, Any]:
    """A merge patch of one label."""
    return {"metadata": {"labels": {key: value}}}


def annotation(key: str, value: str | None = "x") -> dict[str, Any]:
    """A merge patch of one annotation."""
    return {"metadata": {"annotations": {key: value}}}


def pointer(key: str) -> str:
    """A key as a JSON pointer has it."""
    return key.replace("~", "~0").replace("/", "~1")
