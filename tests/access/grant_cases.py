# SPDX-License-Identifier: Apache-2.0
"""Attacks on MIG changes: by an agent's stolen token, by programs that may patch every Node, by
people; and what these go on doing while a grant stands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.access.ask import (
    Ask,
    Case,
    annotation,
    apply,
    delete,
    label,
    merge,
    pointer,
    post,
    put,
    steps,
    strategic,
)
from tests.access.node_cases import NODE, OTHER, OWN, STATUS, node
from tests.access.object_cases import LEASE, LEASES, lease
from tests.access.other_cases import CONDITION, GRANT, eviction, registered

COORDINATOR = "gpuscape-coordinator"
GUARD = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
KARPENTER = "karpenter.sh/do-not-disrupt"
REQUEST = "gpuscape.io/mig-request"
STATUS_KEY = "gpuscape.io/mig-status"
UNDO = "gpuscape.io/mig-undo"
CORDON_MARK = "gpuscape.io/mig-cordon"
ID = "00112233445566aa"
"""Of the request."""
SLOT = f"{LEASES}/mig-slot-0"


def grant(phase: str = "hold", *, cordoned: bool = True) -> str:
    """A grant as the coordinator writes it."""
    said = ',"cordoned":true' if cordoned else ""
    return f'{{"v":1,"request":"{ID}","phase":"{phase}"{said}}}'


CORDON: dict[str, Any] = {"spec": {"unschedulable": True}}
UNCORDON: dict[str, Any] = {"spec": {"unschedulable": None}}
GRANTED: dict[str, Any] = {
    "metadata": {
        "annotations": {GRANT: grant(), CORDON_MARK: ID, GUARD: "true", KARPENTER: "true"}
    },
    **CORDON,
}
UNDONE: dict[str, Any] = {
    "metadata": {"annotations": {GRANT: None, CORDON_MARK: None, GUARD: None, KARPENTER: None}},
    **UNCORDON,
}
_CORDONED = merge(NODE, CORDON, manager="kubectl-cordon")
HELD = merge(NODE, GRANTED, manager=COORDINATOR)
"""The coordinator has cordoned the Node and holds it."""
_AT = f"/metadata/annotations/{pointer(GRANT)}"
_GO = annotation(GRANT, grant("go"))
_ASKED = annotation(REQUEST, "{}")
_KEPT = {"key": "example.com/kept", "effect": "NoSchedule"}
_PENDING = merge(
    NODE,
    {"spec": {"taints": [_KEPT, {**_KEPT, "key": "gpuscape.io/mig-layout-pending"}]}},
    manager="kubectl-taint",
)


def _agent(name: str, ask: Ask, only: str = "", **more: Any) -> Case:
    return Case(name=f"agent: {name}", ask=ask, only=only and f"gpuscape-agent-{only}", **more)


def _foreign(name: str, ask: Ask, only: str = "grant", **more: Any) -> Case:
    only = only and f"gpuscape-mig-grant/{only}"
    return Case(name=f"DaemonSet: {name}", ask=ask, actor="foreign", only=only, **more)


ATTACKS = (
    _agent("evicts a pod of another node", eviction("workload"), "floor/grants"),
    _agent("evicts a pod of its own node", eviction("$pod", preconditions={}), "floor/grants"),
    _agent("uncordons", merge(NODE, UNCORDON), "node/frozen", before=(HELD,)),
    _agent(
        "uncordons along with its status",
        merge(NODE, {**annotation(STATUS_KEY), **UNCORDON}),
        "node/frozen",
        before=(HELD,),
    ),
    *(
        _agent(f"forges a grant: {how}", ask, "node/annotations")
        for how, ask in (
            ("merge", merge(NODE, _GO)),
            ("strategic", strategic(NODE, _GO)),
            ("JSON", steps(NODE, ("add", _AT, grant("go")))),
            ("PUT", put(NODE, _GO)),
        )
    ),
    _agent("forges a grant: apply", apply(NODE, node(_GO))),
    _agent("forges a grant: nodes/status", merge(STATUS, _GO)),
    _agent(
        "turns hold into go",
        steps(NODE, ("replace", _AT, grant("go"))),
        "node/annotations",
        before=(HELD,),
    ),
    _agent(
        "removes its grant",
        merge(NODE, annotation(GRANT, None)),
        "node/annotations",
        before=(HELD,),
    ),
    _agent(
        "removes a guard against autoscalers",
        merge(NODE, annotation(GUARD, None)),
        "node/annotations",
        before=(HELD,),
    ),
    *(
        _agent(f"writes {key}", merge(NODE, annotation(key, value)), "node/annotations")
        for key, value in (
            ("gpuscape.io/mig-layout", "all-1g.5gb"),
            ("gpuscape.io/drain", "evict"),
            ("gpuscape.io/keep-cordoned", "true"),
        )
    ),
    _agent(
        "asks for a layout by label", merge(NODE, label("nvidia.com/mig.config")), "node/labels"
    ),
    _agent(
        "pauses the device plugin",
        merge(NODE, label("nvidia.com/gpu.deploy.device-plugin", "paused-for-mig-change")),
        "node/labels",
    ),
    *(
        _agent(f"takes its startup taint off: {how}", ask, only, before=(_PENDING,))
        for how, ask, only in (
            ("merge", merge(NODE, {"spec": {"taints": [_KEPT]}}), "node/frozen"),
            ("JSON", steps(NODE, ("remove", "/spec/taints/1")), "node/frozen"),
            (
                "along with its status",
                merge(NODE, {**annotation(STATUS_KEY), "spec": {"taints": [_KEPT]}}),
                "node/frozen",
            ),
        )
    ),
    _agent("adopts its label", merge(NODE, label("gpuscape.io/mig-adopt", "any")), "node/labels"),
    _agent("asks for another node", merge(OTHER, _ASKED), "node/own-node"),
    _agent(
        "says how another node's change ended",
        merge(OTHER, annotation(STATUS_KEY, "{}")),
        "node/own-node",
    ),
    _agent(
        "labels another node as changed",
        merge(OTHER, label("nvidia.com/mig.config.state", "success")),
        "node/own-node",
    ),
    _agent("takes a slot", merge(SLOT, {"spec": {"holderIdentity": "$node"}}), "lease/name"),
    _agent("makes a slot", post(LEASES, lease("mig-slot-77")), "lease/name"),
    _agent("frees a slot", delete(SLOT)),
    _agent("rewrites what is undone", merge(SLOT, annotation(UNDO, "{}"))),
    _agent(
        "becomes the leader",
        merge(f"{LEASES}/coordinator", {"spec": {"holderIdentity": "$node"}}),
        "lease/name",
    ),
    _agent("keeps a record of its own", merge(LEASE, annotation(UNDO, "{}")), "lease/annotations"),
    *(
        _foreign(f"forges a grant: {how}", ask)
        for how, ask in (
            ("merge", merge(NODE, _GO)),
            ("strategic", strategic(NODE, _GO)),
            ("JSON", steps(NODE, ("add", _AT, grant("go")))),
            ("apply", apply(NODE, node(_GO))),
            ("PUT", put(NODE, _GO)),
            ("nodes/status, merge", merge(STATUS, _GO)),
            ("nodes/status, strategic", strategic(STATUS, _GO)),
            ("nodes/status, JSON", steps(STATUS, ("add", _AT, grant("go")))),
            ("nodes/status, apply", apply(STATUS, node(_GO))),
            ("nodes/status, PUT", put(STATUS, _GO)),
            ("of no characters", merge(NODE, annotation(GRANT, ""))),
            ("with a label", merge(NODE, {"metadata": {**_GO["metadata"], **OWN["metadata"]}})),
            (
                "moved from another key",
                steps(NODE, ("move", f"/metadata/annotations/{pointer('example.com/note')}", _AT)),
            ),
        )
    ),
    _foreign(
        "makes a Node with a grant",
        post("/api/v1/nodes", registered(annotations={GRANT: grant("go")})),
    ),
    _foreign("turns hold into go: merge", merge(NODE, _GO), before=(HELD,)),
    _foreign(
        "turns hold into go: JSON", steps(NODE, ("replace", _AT, grant("go"))), before=(HELD,)
    ),
    _foreign("turns hold into go: nodes/status", merge(STATUS, _GO), before=(HELD,)),
    _foreign(
        "removes and adds at once",
        steps(NODE, ("remove", _AT), ("add", _AT, grant("go"))),
        before=(HELD,),
    ),
    _foreign(
        "adds again what was removed",
        merge(NODE, annotation(GRANT, grant())),
        before=(HELD, merge(NODE, UNDONE, manager=COORDINATOR)),
    ),
    _foreign(
        "copies a grant to another Node", merge(OTHER, annotation(GRANT, grant())), before=(HELD,)
    ),
    _foreign("removes a grant", merge(NODE, annotation(GRANT, None)), "removal", before=(HELD,)),
    _foreign("claims a cordon", merge(NODE, annotation(CORDON_MARK, ID)), before=(_CORDONED,)),
    _foreign(
        "claims a cordon with a patch of the same",
        merge(NODE, {**annotation(CORDON_MARK, ID), **CORDON}),
    ),
    _foreign(
        "removes the mark of a cordon",
        merge(NODE, annotation(CORDON_MARK, None)),
        "removal",
        before=(HELD,),
    ),
    _foreign("removes a grant: JSON", steps(NODE, ("remove", _AT)), "removal", before=(HELD,)),
    _foreign(
        "removes a grant: nodes/status",
        merge(STATUS, annotation(GRANT, None)),
        "removal",
        before=(HELD,),
    ),
    _foreign(
        "removes all annotations",
        merge(NODE, {"metadata": {"annotations": None}}),
        "removal",
        before=(HELD,),
    ),
    replace(
        _foreign("of the coordinator's name in another namespace", merge(NODE, _GO)),
        actor="coordinator-elsewhere",
    ),
    replace(_foreign("cluster admin forges a grant", merge(NODE, _GO)), actor="person"),
    replace(
        _foreign("cluster admin turns hold into go", merge(NODE, _GO), before=(HELD,)),
        actor="person",
    ),
)
"""What must be refused of whoever has an agent's token, or may patch every Node."""

SERVED = (
    Case(name="agent: asks", ask=merge(NODE, _ASKED)),
    Case(
        name="agent: says how far it is",
        ask=merge(
            NODE,
            {
                "metadata": {
                    "annotations": {REQUEST: "{}", STATUS_KEY: "{}"},
                    "labels": {"nvidia.com/mig.config.state": "pending"},
                }
            },
        ),
    ),
    Case(name="coordinator: cordons and grants", ask=merge(NODE, GRANTED), actor="coordinator"),
    Case(name="coordinator: lets go", ask=merge(NODE, _GO), actor="coordinator", before=(HELD,)),
    Case(name="coordinator: undoes", ask=merge(NODE, UNDONE), actor="coordinator", before=(HELD,)),
    Case(
        name="coordinator: keeps a record",
        ask=merge(SLOT, {**annotation(UNDO, "{}"), "spec": {"holderIdentity": "n" * 253}}),
        actor="coordinator",
    ),
    Case(
        name="kubelet: heartbeat beside a grant",
        ask=strategic(STATUS, {"status": {"conditions": [CONDITION]}}),
        actor="kubelet",
        before=(HELD,),
    ),
    Case(
        name="kubelet: PUT of its status beside a grant",
        ask=put(STATUS, {"status": {"conditions": [CONDITION]}}),
        actor="kubelet",
        before=(HELD,),
    ),
    Case(
        name="kubelet: annotation of its own beside a grant",
        ask=merge(NODE, annotation("volumes.kubernetes.io/controller-managed-attach-detach")),
        actor="kubelet",
        before=(HELD,),
    ),
    Case(
        name="kubelet: registers",
        ask=post("/api/v1/nodes", registered()),
        actor="kubelet-fresh",
        before=(delete("/api/v1/nodes/$fresh"),),
    ),
    Case(
        name="DaemonSet: a label beside a grant",
        ask=merge(NODE, label("example.com/x")),
        actor="foreign",
        before=(HELD,),
    ),
    Case(
        name="DaemonSet: PUT that leaves the grant",
        ask=put(NODE, annotation("example.com/x")),
        actor="foreign",
        before=(HELD,),
    ),
    Case(
        name="DaemonSet: condition in nodes/status",
        ask=strategic(STATUS, {"status": {"conditions": [{**CONDITION, "type": "Kernel"}]}}),
        actor="foreign",
        before=(HELD,),
    ),
    Case(
        name="DaemonSet: the same grant again",
        ask=merge(NODE, annotation(GRANT, grant())),
        actor="foreign",
        before=(HELD,),
    ),
    Case(
        name="person: deletes a grant",
        ask=merge(NODE, annotation(GRANT, None)),
        actor="person",
        before=(HELD,),
    ),
    Case(
        name="coordinator: undoes after a person has deleted the grant",
        ask=merge(NODE, UNDONE),
        actor="coordinator",
        before=(HELD, merge(NODE, annotation(GRANT, None), manager="kubectl-annotate")),
    ),
    Case(
        name="person: deletes the mark of a cordon",
        ask=merge(NODE, annotation(CORDON_MARK, None)),
        actor="person",
        before=(HELD,),
    ),
    Case(
        name="person: deletes a grant by JSON",
        ask=steps(NODE, ("remove", _AT)),
        actor="person",
        before=(HELD,),
    ),
    Case(
        name="person: uncordons",
        ask=merge(NODE, UNCORDON),
        actor="person",
        before=(HELD,),
    ),
)
"""What is served at any moment in between."""

REFUSED = {"MIG change": ATTACKS}
ALLOWED = {"MIG change": SERVED}
