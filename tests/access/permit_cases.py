# SPDX-License-Identifier: Apache-2.0
"""Attacks on MIG changes: by an agent's stolen token, by programs that may patch every Node, by
people; and what these go on doing while a permit stands."""

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
from tests.access.other_cases import CONDITION, PERMIT, eviction, registered

COORDINATOR = "gpuscape-coordinator"
GUARD = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
KARPENTER = "karpenter.sh/do-not-disrupt"
REQUEST = "gpuscape.io/mig-request"
STATUS_KEY = "gpuscape.io/mig-status"
ROLLBACK_RECORD = "gpuscape.io/mig-rollback-record"
CORDON_MARK = "gpuscape.io/mig-cordon"
ID = "00112233445566aa"
"""Of the request."""
SLOT = f"{LEASES}/mig-slot-0"


def permit(phase: str = "cordoned", *, owns_cordon: bool = True) -> str:
    """A permit as the coordinator writes it."""
    said = ',"owns_cordon":true' if owns_cordon else ""
    return f'{{"v":2,"request":"{ID}","phase":"{phase}"{said}}}'


CORDON: dict[str, Any] = {"spec": {"unschedulable": True}}
UNCORDON: dict[str, Any] = {"spec": {"unschedulable": None}}
PERMITTED: dict[str, Any] = {
    "metadata": {
        "annotations": {PERMIT: permit(), CORDON_MARK: ID, GUARD: "true", KARPENTER: "true"}
    },
    **CORDON,
}
UNDONE: dict[str, Any] = {
    "metadata": {"annotations": {PERMIT: None, CORDON_MARK: None, GUARD: None, KARPENTER: None}},
    **UNCORDON,
}
_CORDONED_BY_OTHERS = merge(NODE, CORDON, manager="kubectl-cordon")
CORDONED = merge(NODE, PERMITTED, manager=COORDINATOR)
"""The coordinator has cordoned the Node for a change."""
_AT = f"/metadata/annotations/{pointer(PERMIT)}"
_PROCEED = annotation(PERMIT, permit("proceed"))
_ASKED = annotation(REQUEST, "{}")
_KEPT = {"key": "example.com/kept", "effect": "NoSchedule"}
_PENDING = merge(
    NODE,
    {"spec": {"taints": [_KEPT, {**_KEPT, "key": "gpuscape.io/mig-layout-pending"}]}},
    manager="kubectl-taint",
)


def _agent(name: str, ask: Ask, only: str = "", **more: Any) -> Case:
    return Case(name=f"agent: {name}", ask=ask, only=only and f"gpuscape-agent-{only}", **more)


def _foreign(name: str, ask: Ask, only: str = "permit", **more: Any) -> Case:
    only = only and f"gpuscape-mig-permit/{only}"
    return Case(name=f"DaemonSet: {name}", ask=ask, actor="foreign", only=only, **more)


ATTACKS = (
    _agent("evicts a pod of another node", eviction("workload"), "floor/grants"),
    _agent("evicts a pod of its own node", eviction("$pod", preconditions={}), "floor/grants"),
    _agent("uncordons", merge(NODE, UNCORDON), "node/frozen", before=(CORDONED,)),
    _agent(
        "uncordons along with its status",
        merge(NODE, {**annotation(STATUS_KEY), **UNCORDON}),
        "node/frozen",
        before=(CORDONED,),
    ),
    *(
        _agent(f"forges a permit: {how}", ask, "node/annotations")
        for how, ask in (
            ("merge", merge(NODE, _PROCEED)),
            ("strategic", strategic(NODE, _PROCEED)),
            ("JSON", steps(NODE, ("add", _AT, permit("proceed")))),
            ("PUT", put(NODE, _PROCEED)),
        )
    ),
    _agent("forges a permit: apply", apply(NODE, node(_PROCEED))),
    _agent("forges a permit: nodes/status", merge(STATUS, _PROCEED)),
    _agent(
        "turns cordoned into proceed",
        steps(NODE, ("replace", _AT, permit("proceed"))),
        "node/annotations",
        before=(CORDONED,),
    ),
    _agent(
        "removes its permit",
        merge(NODE, annotation(PERMIT, None)),
        "node/annotations",
        before=(CORDONED,),
    ),
    _agent(
        "removes a guard against autoscalers",
        merge(NODE, annotation(GUARD, None)),
        "node/annotations",
        before=(CORDONED,),
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
    _agent("rewrites what is undone", merge(SLOT, annotation(ROLLBACK_RECORD, "{}"))),
    _agent(
        "becomes the leader",
        merge(f"{LEASES}/coordinator", {"spec": {"holderIdentity": "$node"}}),
        "lease/name",
    ),
    _agent(
        "keeps a record of its own",
        merge(LEASE, annotation(ROLLBACK_RECORD, "{}")),
        "lease/annotations",
    ),
    *(
        _foreign(f"forges a permit: {how}", ask)
        for how, ask in (
            ("merge", merge(NODE, _PROCEED)),
            ("strategic", strategic(NODE, _PROCEED)),
            ("JSON", steps(NODE, ("add", _AT, permit("proceed")))),
            ("apply", apply(NODE, node(_PROCEED))),
            ("PUT", put(NODE, _PROCEED)),
            ("nodes/status, merge", merge(STATUS, _PROCEED)),
            ("nodes/status, strategic", strategic(STATUS, _PROCEED)),
            ("nodes/status, JSON", steps(STATUS, ("add", _AT, permit("proceed")))),
            ("nodes/status, apply", apply(STATUS, node(_PROCEED))),
            ("nodes/status, PUT", put(STATUS, _PROCEED)),
            ("of no characters", merge(NODE, annotation(PERMIT, ""))),
            (
                "with a label",
                merge(NODE, {"metadata": {**_PROCEED["metadata"], **OWN["metadata"]}}),
            ),
            (
                "moved from another key",
                steps(NODE, ("move", f"/metadata/annotations/{pointer('example.com/note')}", _AT)),
            ),
        )
    ),
    _foreign(
        "makes a Node with a permit",
        post("/api/v1/nodes", registered(annotations={PERMIT: permit("proceed")})),
    ),
    _foreign("turns cordoned into proceed: merge", merge(NODE, _PROCEED), before=(CORDONED,)),
    _foreign(
        "turns cordoned into proceed: JSON",
        steps(NODE, ("replace", _AT, permit("proceed"))),
        before=(CORDONED,),
    ),
    _foreign(
        "turns cordoned into proceed: nodes/status", merge(STATUS, _PROCEED), before=(CORDONED,)
    ),
    _foreign(
        "removes and adds at once",
        steps(NODE, ("remove", _AT), ("add", _AT, permit("proceed"))),
        before=(CORDONED,),
    ),
    _foreign(
        "adds again what was removed",
        merge(NODE, annotation(PERMIT, permit())),
        before=(CORDONED, merge(NODE, UNDONE, manager=COORDINATOR)),
    ),
    _foreign(
        "copies a permit to another Node",
        merge(OTHER, annotation(PERMIT, permit())),
        before=(CORDONED,),
    ),
    _foreign(
        "removes a permit", merge(NODE, annotation(PERMIT, None)), "removal", before=(CORDONED,)
    ),
    _foreign(
        "claims a cordon", merge(NODE, annotation(CORDON_MARK, ID)), before=(_CORDONED_BY_OTHERS,)
    ),
    _foreign(
        "claims a cordon with a patch of the same",
        merge(NODE, {**annotation(CORDON_MARK, ID), **CORDON}),
    ),
    _foreign(
        "removes the mark of a cordon",
        merge(NODE, annotation(CORDON_MARK, None)),
        "removal",
        before=(CORDONED,),
    ),
    _foreign("removes a permit: JSON", steps(NODE, ("remove", _AT)), "removal", before=(CORDONED,)),
    _foreign(
        "removes a permit: nodes/status",
        merge(STATUS, annotation(PERMIT, None)),
        "removal",
        before=(CORDONED,),
    ),
    _foreign(
        "removes all annotations",
        merge(NODE, {"metadata": {"annotations": None}}),
        "removal",
        before=(CORDONED,),
    ),
    replace(
        _foreign("of the coordinator's name in another namespace", merge(NODE, _PROCEED)),
        actor="coordinator-elsewhere",
    ),
    replace(_foreign("cluster admin forges a permit", merge(NODE, _PROCEED)), actor="person"),
    replace(
        _foreign(
            "cluster admin turns cordoned into proceed", merge(NODE, _PROCEED), before=(CORDONED,)
        ),
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
    Case(name="coordinator: cordons and permits", ask=merge(NODE, PERMITTED), actor="coordinator"),
    Case(
        name="coordinator: lets it proceed",
        ask=merge(NODE, _PROCEED),
        actor="coordinator",
        before=(CORDONED,),
    ),
    Case(
        name="coordinator: undoes", ask=merge(NODE, UNDONE), actor="coordinator", before=(CORDONED,)
    ),
    Case(
        name="coordinator: keeps a record",
        ask=merge(
            SLOT, {**annotation(ROLLBACK_RECORD, "{}"), "spec": {"holderIdentity": "n" * 253}}
        ),
        actor="coordinator",
    ),
    Case(
        name="kubelet: heartbeat beside a permit",
        ask=strategic(STATUS, {"status": {"conditions": [CONDITION]}}),
        actor="kubelet",
        before=(CORDONED,),
    ),
    Case(
        name="kubelet: PUT of its status beside a permit",
        ask=put(STATUS, {"status": {"conditions": [CONDITION]}}),
        actor="kubelet",
        before=(CORDONED,),
    ),
    Case(
        name="kubelet: annotation of its own beside a permit",
        ask=merge(NODE, annotation("volumes.kubernetes.io/controller-managed-attach-detach")),
        actor="kubelet",
        before=(CORDONED,),
    ),
    Case(
        name="kubelet: registers",
        ask=post("/api/v1/nodes", registered()),
        actor="kubelet-fresh",
        before=(delete("/api/v1/nodes/$fresh"),),
    ),
    Case(
        name="DaemonSet: a label beside a permit",
        ask=merge(NODE, label("example.com/x")),
        actor="foreign",
        before=(CORDONED,),
    ),
    Case(
        name="DaemonSet: PUT that leaves the permit",
        ask=put(NODE, annotation("example.com/x")),
        actor="foreign",
        before=(CORDONED,),
    ),
    Case(
        name="DaemonSet: condition in nodes/status",
        ask=strategic(STATUS, {"status": {"conditions": [{**CONDITION, "type": "Kernel"}]}}),
        actor="foreign",
        before=(CORDONED,),
    ),
    Case(
        name="DaemonSet: the same permit again",
        ask=merge(NODE, annotation(PERMIT, permit())),
        actor="foreign",
        before=(CORDONED,),
    ),
    Case(
        name="person: deletes a permit",
        ask=merge(NODE, annotation(PERMIT, None)),
        actor="person",
        before=(CORDONED,),
    ),
    Case(
        name="coordinator: undoes after a person has deleted the permit",
        ask=merge(NODE, UNDONE),
        actor="coordinator",
        before=(CORDONED, merge(NODE, annotation(PERMIT, None), manager="kubectl-annotate")),
    ),
    Case(
        name="person: deletes the mark of a cordon",
        ask=merge(NODE, annotation(CORDON_MARK, None)),
        actor="person",
        before=(CORDONED,),
    ),
    Case(
        name="person: deletes a permit by JSON",
        ask=steps(NODE, ("remove", _AT)),
        actor="person",
        before=(CORDONED,),
    ),
    Case(
        name="person: uncordons",
        ask=merge(NODE, UNCORDON),
        actor="person",
        before=(CORDONED,),
    ),
)
"""What is served at any moment in between."""

REFUSED = {"MIG change": ATTACKS}
ALLOWED = {"MIG change": SERVED}
