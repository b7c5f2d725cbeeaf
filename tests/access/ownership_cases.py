# SPDX-License-Identifier: Apache-2.0
"""Who owns which field of a Node: what an agent and the coordinator may make of managedFields.

The Node has no entry of server-side apply here, which another rule guards, unless a case says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tests.access.ask import Ask, Case, annotation, label, merge, steps
from tests.access.node_cases import NODE, OWN, OWN_KEY
from tests.access.permit_cases import PERMITTED

TEAM = "example.com/team"
MOST = 10
"""Managers that the API server keeps an entry of."""


def entry(manager: str, *keys: str, part: str = "labels", **more: Any) -> dict[str, Any]:
    """What the API server notes of a writer that does not apply: the keys it owns."""
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {f"f:{part}": {f"f:{key}": {} for key in keys}}},
        **more,
    }


def owned(*entries: dict[str, Any], **labels: str) -> dict[str, Any]:
    """A merge patch that puts these entries in the place of those that are there."""
    made: dict[str, Any] = {"managedFields": list(entries)}
    return {"metadata": {**made, **({"labels": labels} if labels else {})}}


def before(*entries: dict[str, Any]) -> tuple[Ask, ...]:
    """An admin leaves the Node with these entries and no others."""
    return (merge(NODE, owned(*entries), manager="admin"),)


LABELLER = entry("kubectl-label", TEAM, "nvidia.com/gpu.product")
NOTER = entry("kubectl-annotate", "example.com/note", part="annotations")
CORDONER = {
    **entry("kubectl-cordon"),
    "fieldsV1": {"f:spec": {"f:unschedulable": {}}},
}
KUBELET = {
    **entry("kubelet", subresource="status"),
    "fieldsV1": {"f:status": {"f:capacity": {"f:cpu": {}}}},
}
OURS = entry("gpuscape-agent", OWN_KEY)
_ALL = (LABELLER, NOTER, CORDONER, KUBELET)

CROWD = tuple(
    entry(f"updater-{n}", f"example.com/u{n}", time=f"2026-01-01T00:00:{n:02}Z")
    for n in range(MOST)
)
FOLDED = entry("ancient-changes", "example.com/u0", "example.com/u1")


def _named(at: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**at, **fields}


_FORGED: dict[str, Sequence[dict[str, Any]]] = {
    "wiped": [{}],
    "one entry gone": _ALL[1:],
    "the entry of a status gone": _ALL[:3],
    "a key taken from its owner": (entry("kubectl-label", TEAM), *_ALL[1:]),
    "an annotation taken from its owner": (LABELLER, CORDONER, KUBELET),
    "a field of spec taken from its owner": (LABELLER, NOTER, KUBELET),
    "a key given to another": (entry("kubectl-label", TEAM, "x.com/y", OWN_KEY), *_ALL[1:]),
    "an entry invented": (*_ALL, entry("kubectl-edit", OWN_KEY)),
    "its manager renamed": (_named(LABELLER, manager="kubectl-edit"), *_ALL[1:]),
    "moved to another subresource": (_named(LABELLER, subresource="status"), *_ALL[1:]),
    "a foreign label claimed": (*_ALL, entry("gpuscape-agent", TEAM)),
    "a foreign annotation claimed": (
        *_ALL,
        entry("gpuscape-agent", "example.com/note", part="annotations"),
    ),
    "spec claimed": (
        *_ALL,
        {**OURS, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}},
    ),
    "owners claimed": (
        *_ALL,
        {**OURS, "fieldsV1": {"f:metadata": {"f:ownerReferences": {}}}},
    ),
    "folded without need": (_named(LABELLER, manager="ancient-changes"), *_ALL[1:]),
}
_CROWDED: dict[str, Sequence[dict[str, Any]]] = {
    "three folded": (
        *CROWD[3:],
        entry("ancient-changes", *(f"example.com/u{n}" for n in range(3))),
    ),
    "folded, and a key lost": (*CROWD[2:], entry("ancient-changes", "example.com/u0")),
    "folded, and a key invented": (
        *CROWD[2:],
        entry("ancient-changes", "example.com/u0", "example.com/u1", TEAM),
    ),
    "folded under another name": (*CROWD[2:], {**FOLDED, "manager": "kubectl-edit"}),
}


def _cases(
    forged: dict[str, Sequence[dict[str, Any]]], there: Iterable[dict[str, Any]]
) -> Iterable[Case]:
    for name, entries in forged.items():
        yield Case(
            name=name,
            ask=merge(NODE, owned(*entries)),
            only="gpuscape-agent-node/managers",
            before=before(*there),
        )


_HIDDEN = Case(
    name="wiped along with an own label",
    ask=merge(NODE, {"metadata": {**owned({})["metadata"], **OWN["metadata"]}}),
    only="gpuscape-agent-node/managers",
    before=before(*_ALL),
)
_BY_JSON = Case(
    name="one entry removed by JSON",
    ask=steps(NODE, ("remove", "/metadata/managedFields/0")),
    only="gpuscape-agent-node/managers",
    before=before(*_ALL),
)
_OWN_GONE = Case(
    name="its own entry removed while its label stands",
    ask=merge(NODE, owned(*_ALL)),
    only="gpuscape-agent-node/managers",
    before=before(*_ALL, OURS),
)


def _coordinators(name: str, *entries: dict[str, Any]) -> Case:
    return Case(
        name=name,
        actor="coordinator",
        ask=merge(NODE, owned(*entries)),
        only="gpuscape-coordinator-node/managers",
        before=before(*_ALL),
    )


REFUSED = {
    "managedFields": [
        *_cases(_FORGED, _ALL),
        *(replace(it, name=f"crowded: {it.name}") for it in _cases(_CROWDED, CROWD)),
        *(_HIDDEN, _BY_JSON, _OWN_GONE),
    ],
    "managedFields, coordinator": [
        _coordinators("wiped", {}),
        _coordinators("a key taken from its owner", entry("kubectl-label", TEAM), *_ALL[1:]),
        _coordinators("an entry invented", *_ALL, entry("kubectl-edit", OWN_KEY)),
        _coordinators("a foreign label claimed", *_ALL, entry("gpuscape-coordinator", TEAM)),
    ],
}


def _own(name: str, patch: dict[str, Any], *there: dict[str, Any]) -> Case:
    return Case(name=name, ask=merge(NODE, patch), before=before(*there))


ALLOWED = {
    "managedFields": [
        _own("an own label where nobody owned it", OWN, *_ALL),
        _own("an own label once more", OWN, *_ALL, OURS),
        _own("an own label removed", label(OWN_KEY, None), *_ALL, OURS),
        _own("a label taken from its owner by writing it", label("nvidia.com/gpu.product"), *_ALL),
        _own(
            "the only label of its owner taken by writing it",
            OWN,
            *_ALL,
            entry("gpu-feature-discovery", OWN_KEY),
        ),
        _own(
            "an annotation taken from its owner by writing it",
            annotation("gpuscape.io/topology", '{"v":1}'),
            *_ALL,
            entry("kubectl-edit", "gpuscape.io/topology", part="annotations"),
        ),
        _own("the same entries again", owned(*_ALL), *_ALL),
        _own("beside ten updaters", OWN, *CROWD),
        _own("beside nine updaters and those folded before", OWN, *CROWD[1:], FOLDED),
        _own("once more beside nine updaters", OWN, *CROWD[1:], OURS),
    ],
    "managedFields, coordinator": [
        Case(
            name="cordon and permit",
            actor="coordinator",
            ask=merge(NODE, PERMITTED),
            before=before(*_ALL),
        ),
        Case(
            name="cordon and permit beside ten updaters",
            actor="coordinator",
            ask=merge(NODE, PERMITTED),
            before=before(*CROWD),
        ),
    ],
}
