# SPDX-License-Identifier: Apache-2.0
"""What the coordinator of MIG changes and the scheduler extender may and may not do."""

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
    post,
    steps,
    strategic,
)
from tests.access.node_cases import NODE, OWN, STATUS, node
from tests.access.object_cases import (
    CORE_EVENTS,
    EVENTS,
    LEASE,
    LEASES,
    NEIGHBOUR,
    NOT_OF_EVENTS,
    SELF,
    WORKLOAD,
    core_event,
    event,
    lease,
)
from tests.access.other_cases import (
    PERMIT,
    PODS,
    eviction,
    guest_eviction,
    named,
    pod,
    read,
    registered,
)
from tests.access.permit_cases import (
    CORDON,
    CORDON_MARK,
    CORDONED,
    ID,
    PERMITTED,
    ROLLBACK_RECORD,
    SLOT,
    UNCORDON,
    UNDONE,
    permit,
)

PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
EXPORTER = "nvidia.com/gpu.deploy.dcgm-exporter"
"""Switched off by the admin."""

_COORDINATOR = "gpuscape-coordinator-node"
_COORDINATOR_GRANTS = "gpuscape-coordinator-floor/grants"
_FORMER_PERMIT = "gpuscape.io/mig-grant"
_FORMER_RECORD = "gpuscape.io/mig-undo"
_ADMIN_CORDON = merge(NODE, CORDON, manager="kubectl-cordon")
_KEPT = merge(NODE, annotation("gpuscape.io/keep-cordoned", "true"), manager="kubectl-annotate")


_UNPERMITTED = merge(NODE, annotation(PERMIT, None), manager="kubectl-annotate")
_UNMARKED = merge(NODE, annotation(CORDON_MARK, None), manager="kubectl-annotate")
_ROLLOUTS = "gpuscape.io/mig-rollouts"
_PAUSED = "gpuscape.io/mig-paused"
LAYOUT = "gpuscape.io/mig-layout"
MARK = "gpuscape.io/mig-policy"
LAID_OUT = {"metadata": {"annotations": {LAYOUT: "all-balanced", MARK: "small/0123456789"}}}
_LAID_OUT = merge(NODE, LAID_OUT, manager="gpuscape-coordinator")
_NO_LAYOUT = merge(NODE, annotation(LAYOUT, None), manager="kubectl-annotate")
"""The Node has one of its admin."""

_LEADER = f"{LEASES}/coordinator"
_OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}


def _coordinator(name: str, ask: Ask, only: str = "", **more: Any) -> Case:
    only = only and (only if "/" in only else f"{_COORDINATOR}/{only}")
    return Case(name=name, ask=ask, actor="coordinator", only=only, **more)


def _with_notes(patch: dict[str, Any], **notes: str) -> dict[str, Any]:
    there = patch.get("metadata", {}).get("annotations", {})
    return {**patch, "metadata": {"annotations": {**there, **notes}}}


_UNASKED = merge(NODE, annotation("gpuscape.io/mig-request", None), manager="kubectl-annotate")
"""The Node's agent asks for nothing."""
_PAUSED_VALUE = "paused-for-mig-change"

KEPT: dict[str, Any] = {"key": "example.com/kept", "effect": "NoSchedule"}
"""The Node has it from the beginning."""
PENDING: dict[str, Any] = {"key": "gpuscape.io/mig-layout-pending", "effect": "NoSchedule"}

UNSCHEDULABLE: dict[str, Any] = {
    "key": "node.kubernetes.io/unschedulable",
    "effect": "NoSchedule",
    "timeAdded": "2026-11-24T00:00:00Z",
}


def _tainted(*taints: dict[str, Any], by: str | None = None) -> Ask:
    patch = {"spec": {"taints": list(taints)}}
    return merge(NODE, patch) if by is None else merge(NODE, patch, manager=by)


_PENDING = _tainted(KEPT, PENDING, by="kubectl-taint")
"""The Node waits for its first layout."""


def _event(**more: Any) -> Any:
    return event("$new", NEIGHBOUR, reporter="gpuscape-coordinator", **more)


COORDINATOR_REFUSED = [
    _coordinator(
        "cordon of a Node without a request",
        merge(NODE, PERMITTED),
        "request",
        before=(_UNASKED,),
    ),
    _coordinator(
        "permit on a Node without a request",
        merge(NODE, annotation(PERMIT, permit(owns_cordon=False))),
        "request",
        before=(_UNASKED,),
    ),
    _coordinator(
        "cordon with a request that it writes itself",
        merge(NODE, _with_notes(PERMITTED, **{"gpuscape.io/mig-request": "{}"})),
        before=(_UNASKED,),
    ),
    _coordinator(
        "permit with a request that it writes itself",
        merge(NODE, _with_notes({}, **{PERMIT: permit(), "gpuscape.io/mig-request": "{}"})),
        before=(_UNASKED,),
    ),
    _coordinator(
        "mark that comes with the uncordon",
        merge(NODE, {**annotation(CORDON_MARK, ID), **UNCORDON}),
        before=(_ADMIN_CORDON,),
    ),
    _coordinator(
        "deploy label paused on a Node without a request",
        merge(NODE, label(PLUGIN, _PAUSED_VALUE)),
        "labels",
        before=(_UNASKED,),
    ),
    _coordinator(
        "deploy label with a value of its own", merge(NODE, label(PLUGIN, "off")), "labels"
    ),
    _coordinator("cordon without a permit", merge(NODE, CORDON), "cordon"),
    _coordinator(
        "cordon without a permit by JSON",
        steps(NODE, ("add", "/spec/unschedulable", True)),
        "cordon",
    ),
    _coordinator(
        "cordon that drops the permit",
        merge(NODE, {**CORDON, **annotation(PERMIT, None)}),
        "cordon",
        before=(
            merge(
                NODE, annotation(PERMIT, permit(owns_cordon=False)), manager="gpuscape-coordinator"
            ),
        ),
    ),
    _coordinator(
        "uncordon without a permit",
        merge(NODE, UNCORDON),
        "uncordon",
        before=(_ADMIN_CORDON,),
    ),
    _coordinator(
        "uncordon with a permit that comes with it",
        merge(NODE, {**UNCORDON, **annotation(PERMIT, permit(owns_cordon=False))}),
        "uncordon",
        before=(_ADMIN_CORDON,),
    ),
    _coordinator(
        "cordon with a permit that does not say so",
        merge(NODE, {**CORDON, **annotation(PERMIT, permit(owns_cordon=False))}),
        "cordon",
    ),
    _coordinator(
        "uncordon of what another cordoned",
        merge(NODE, UNDONE),
        "uncordon",
        before=(
            _ADMIN_CORDON,
            merge(
                NODE, annotation(PERMIT, permit(owns_cordon=False)), manager="gpuscape-coordinator"
            ),
        ),
    ),
    _coordinator(
        "permit that claims the cordon of another",
        merge(NODE, annotation(PERMIT, permit())),
        "whose-cordon",
        before=(_ADMIN_CORDON,),
    ),
    _coordinator(
        "permit that claims its cordon again, after somebody deleted the permit",
        merge(NODE, annotation(PERMIT, permit())),
        "whose-cordon",
        before=(CORDONED, merge(NODE, annotation(PERMIT, None), manager="kubectl-annotate")),
    ),
    *(
        _coordinator(
            f"mark that claims {what}",
            merge(NODE, annotation(CORDON_MARK, ID)),
            "whose-cordon",
            before=before,
        )
        for what, before in (
            ("the cordon of another", (_ADMIN_CORDON,)),
            ("a cordon to come", ()),
            ("its cordon again, after somebody deleted the mark", (CORDONED, _UNMARKED)),
        )
    ),
    _coordinator(
        "mark of another request",
        merge(NODE, annotation(CORDON_MARK, ID[::-1])),
        "whose-cordon",
        before=(CORDONED,),
    ),
    _coordinator(
        "mark that is no id",
        merge(
            NODE,
            {**CORDON, "metadata": {"annotations": {PERMIT: permit(), CORDON_MARK: "x" * 16}}},
        ),
        "mark",
    ),
    _coordinator(
        "uncordon with a mark that stays, after somebody deleted the permit",
        merge(NODE, UNCORDON),
        "uncordon",
        before=(CORDONED, _UNPERMITTED),
    ),
    _coordinator(
        "uncordon after somebody deleted permit and mark",
        merge(NODE, UNDONE),
        "uncordon",
        before=(CORDONED, _UNPERMITTED, _UNMARKED),
    ),
    _coordinator(
        "uncordon of what is to stay cordoned, after somebody deleted the permit",
        merge(NODE, UNDONE),
        "keep-cordoned",
        before=(CORDONED, _UNPERMITTED, _KEPT),
    ),
    _coordinator(
        "permit that claims a cordon to come",
        merge(NODE, annotation(PERMIT, permit())),
        "whose-cordon",
    ),
    _coordinator(
        "uncordon of what is to stay cordoned",
        merge(NODE, UNDONE),
        "keep-cordoned",
        before=(CORDONED, _KEPT),
    ),
    _coordinator(
        "uncordon that drops keep-cordoned",
        merge(NODE, {**UNCORDON, **annotation("gpuscape.io/keep-cordoned", None)}),
        before=(CORDONED, _KEPT),
    ),
    _coordinator(
        "permit in the form before 0.1.0",
        merge(NODE, annotation(_FORMER_PERMIT, permit())),
        "annotations",
    ),
    _coordinator(
        "record in the form before 0.1.0",
        merge(SLOT, annotation(_FORMER_RECORD, "{}")),
        "gpuscape-coordinator-lease/annotations",
    ),
    _coordinator(
        "permit of 257 characters",
        merge(NODE, annotation(PERMIT, "x" * 257)),
        "permit-size",
    ),
    *(
        _coordinator(f"taint: {how}", ask, "taints", before=(_PENDING,))
        for how, ask in (
            ("another's removed", steps(NODE, ("remove", "/spec/taints/0"))),
            ("another's removed with it", merge(NODE, {"spec": {"taints": None}})),
            ("another's changed as it goes", _tainted(KEPT | {"effect": "PreferNoSchedule"})),
            ("added", _tainted(KEPT, PENDING, KEPT | {"key": "example.com/x"})),
            ("added as it goes", _tainted(KEPT, KEPT | {"key": "example.com/x"})),
            ("its effect changed", _tainted(KEPT, PENDING | {"effect": "PreferNoSchedule"})),
            ("its value changed", _tainted(KEPT, PENDING | {"value": "x"})),
        )
    ),
    _coordinator("taint: it is put on", _tainted(KEPT, PENDING), "taints"),
    _coordinator(
        "taint: a key that begins so",
        _tainted(KEPT),
        "taints",
        before=(_tainted(KEPT, PENDING | {"key": f"{PENDING['key']}-x"}, by="kubectl-taint"),),
    ),
    _coordinator("taint: nodes/status", merge(STATUS, {"spec": {"taints": [KEPT]}})),
    _coordinator("provider", merge(NODE, {"spec": {"providerID": "x"}}), "frozen"),
    *(
        _coordinator(f"label {key}", merge(NODE, label(key)), "labels")
        for key in (
            "example.com/new",
            "example.com/team",
            "gpuscape.io/gpu.health",
            "nvidia.com/gpu.count",
            "nvidia.com/mig.config",
            "nvidia.com/mig.config.state",
            "nvidia.com/gpu.deployx.device-plugin",
            "nvidia.com/gpu.deploy.new",
            "nvidiaxcom/gpu.deploy.device-plugin",
            "kubernetes.io/hostname",
        )
    ),
    _coordinator("deploy label that is off", merge(NODE, label(EXPORTER, "paused")), "labels"),
    _coordinator("deploy label switched off", merge(NODE, label(PLUGIN, "false")), "labels"),
    _coordinator("deploy label removed", merge(NODE, label(PLUGIN, None)), "labels"),
    *(
        _coordinator(f"annotation {key}", merge(NODE, annotation(key)), "annotations")
        for key in (
            "gpuscape.io/mig-request",
            "gpuscape.io/mig-status",
            "gpuscape.io/topology",
            "gpuscape.io/release",
            "gpuscape.io/drain",
            "gpuscape.io/keep-cordoned",
            "gpuscape.io/mig-rollback-record",
            "gpuscape.io/mig-permits",
            "example.com/note",
        )
    ),
    _coordinator(
        "layout without the mark",
        merge(NODE, annotation(LAYOUT)),
        "layout",
        before=(_NO_LAYOUT,),
    ),
    _coordinator(
        "mark without a layout", merge(NODE, annotation(MARK)), "layout", before=(_NO_LAYOUT,)
    ),
    _coordinator("layout in the place of a person's", merge(NODE, LAID_OUT), "layout"),
    _coordinator("mark on a person's layout", merge(NODE, annotation(MARK)), "layout"),
    _coordinator(
        "layout removed",
        merge(NODE, annotation(LAYOUT, None)),
        "layout",
        before=(_NO_LAYOUT, _LAID_OUT),
    ),
    _coordinator("status", merge(STATUS, {"status": {"capacity": {"nvidia.com/gpu": "9"}}})),
    _coordinator(
        "status: its own annotation", merge(STATUS, annotation(PERMIT)), _COORDINATOR_GRANTS
    ),
    _coordinator("delete", delete(NODE)),
    _coordinator("create", post("/api/v1/nodes", registered()), _COORDINATOR_GRANTS),
    _coordinator("finalizer", merge(NODE, {"metadata": {"finalizers": None}}), "metadata"),
    _coordinator(
        "owner",
        merge(
            NODE,
            {"metadata": {"ownerReferences": [_OWNER]}},
        ),
        "metadata",
    ),
    _coordinator("apply", apply(NODE, node(annotation(PERMIT))), "appliers"),
    _coordinator("managedFields", merge(NODE, {"metadata": {"managedFields": [{}]}})),
    _coordinator("proxy", read(f"{NODE}/proxy/pods")),
    _coordinator("pod: delete", delete(f"{PODS}/workload")),
    _coordinator("pod: create", post(PODS, pod()), _COORDINATOR_GRANTS),
    _coordinator(
        "Lease of an agent",
        merge(LEASE, {"spec": {"leaseDurationSeconds": 1}}),
        "gpuscape-coordinator-lease/name",
    ),
    _coordinator(
        "Lease like a slot", post(LEASES, lease("mig-slot-x")), "gpuscape-coordinator-lease/name"
    ),
    _coordinator(
        "Lease in another namespace",
        post(LEASES.replace("$ns", "$elsewhere"), lease("mig-slot-0")),
        _COORDINATOR_GRANTS,
    ),
    _coordinator("Lease: delete", delete(SLOT)),
    _coordinator(
        "Lease like a slot that is there",
        post(LEASES, lease("mig-slot-00")),
        "gpuscape-coordinator-lease/name",
    ),
    *(
        _coordinator(
            f"slot too many: {number}",
            post(LEASES, lease(f"mig-slot-{number}")),
            "gpuscape-coordinator-lease/slots",
        )
        for number in (1, 999, 1100, 999999)
    ),
    _coordinator(
        "foreign field manager",
        merge(NODE, annotation(PERMIT), manager="gpuscape-agent"),
        "gpuscape-coordinator-floor/field-manager",
    ),
    _coordinator(
        "Event as another",
        post(
            EVENTS.format("default"),
            event("$new", SELF, reporter="gpuscape-agent"),
        ),
        "gpuscape-coordinator-event/reporter",
    ),
    _coordinator(
        "Event about something else",
        post(
            EVENTS.format("$ns"),
            event("$new", {**WORKLOAD, "kind": "Secret"}, reporter="gpuscape-coordinator"),
        ),
        "gpuscape-coordinator-event/subject",
    ),
    _coordinator(
        "Event with a second object",
        post(EVENTS.format("default"), _event(related=SELF)),
        "gpuscape-coordinator-event/related",
    ),
    *(
        _coordinator(
            f"Event with {part}",
            post(EVENTS.format("default"), _event(metadata={"name": "$new", part: it})),
            "gpuscape-coordinator-event/bare",
        )
        for part, it in NOT_OF_EVENTS
    ),
    _coordinator(
        "Event by the core group",
        post(
            CORE_EVENTS.format("default"),
            core_event("$new", NEIGHBOUR, reporter="gpuscape-coordinator"),
        ),
        _COORDINATOR_GRANTS,
    ),
    _coordinator(
        "Lease: holder of 254",
        merge(SLOT, {"spec": {"holderIdentity": "x" * 254}}),
        "gpuscape-coordinator-lease/holder",
    ),
    _coordinator(
        "Lease: finalizer",
        merge(SLOT, {"metadata": {"finalizers": ["example.com/keep"]}}),
        "gpuscape-coordinator-lease/finalizers",
    ),
    *(
        _coordinator(f"Lease: {what}", ask, f"gpuscape-coordinator-lease/{rule}")
        for what, ask, rule in (
            ("foreign label", merge(SLOT, label("example.com/new")), "labels"),
            ("foreign annotation", merge(SLOT, annotation("example.com/new")), "annotations"),
            (
                "foreign annotation gone",
                merge(SLOT, annotation("example.com/note", None)),
                "annotations",
            ),
            ("an agent's state", merge(SLOT, annotation("gpuscape.io/state")), "annotations"),
            ("record in the leader's", merge(_LEADER, annotation(ROLLBACK_RECORD)), "annotations"),
            ("memory in a slot's", merge(SLOT, annotation(_ROLLOUTS)), "annotations"),
            ("pause taken back", merge(_LEADER, annotation(_PAUSED, "false")), "annotations"),
            (
                "memory of 16,385",
                merge(_LEADER, annotation(_ROLLOUTS, "x" * 16385)),
                "rollouts-size",
            ),
            (
                "record of 4,097",
                merge(SLOT, annotation(ROLLBACK_RECORD, "x" * 4097)),
                "record-size",
            ),
            ("owner", merge(SLOT, {"metadata": {"ownerReferences": [_OWNER]}}), "owners"),
        )
    ),
    *(
        _coordinator(f"eviction: {what}", ask, f"gpuscape-coordinator-eviction/{rule}")
        for what, ask, rule in (
            ("of whichever pod has the name", guest_eviction(preconditions={}), "pod"),
            ("at once", guest_eviction(gracePeriodSeconds=0), "options"),
            ("with little grace", guest_eviction(gracePeriodSeconds=1), "options"),
            ("in the foreground", guest_eviction(propagationPolicy="Foreground"), "options"),
            ("of a pod in its own namespace", eviction("workload"), "protected"),
            (
                "of a pod in kube-system",
                eviction("$system", of="kube-system", uid="$systemuid"),
                "protected",
            ),
        )
    ),
    *(
        replace(
            _coordinator(f"not bound: {name}", ask, "gpuscape-coordinator-floor/token"),
            actor="coordinator-unbound",
        )
        for name, ask in (
            ("permit", merge(NODE, annotation(PERMIT))),
            ("eviction", guest_eviction()),
            ("Lease", merge(SLOT, {"spec": {"leaseDurationSeconds": 1}})),
        )
    ),
]
COORDINATOR_ALLOWED = [
    _coordinator("cordon, permit and guards: merge", merge(NODE, PERMITTED)),
    _coordinator("cordon, permit and guards: strategic", strategic(NODE, PERMITTED)),
    _coordinator(
        "cordon, permit and guards: JSON",
        steps(
            NODE,
            ("add", "/metadata/annotations/gpuscape.io~1mig-permit", permit()),
            ("add", "/metadata/annotations/karpenter.sh~1do-not-disrupt", "true"),
            ("add", "/spec/unschedulable", True),
        ),
    ),
    _coordinator("proceed", merge(NODE, annotation(PERMIT, permit("proceed"))), before=(CORDONED,)),
    _coordinator("startup taint removed", _tainted(KEPT), before=(_PENDING,)),
    _coordinator(
        "startup taint removed: JSON", steps(NODE, ("remove", "/spec/taints/1")), before=(_PENDING,)
    ),
    _coordinator(
        "startup taint removed beside the taint of a cordon",
        _tainted(KEPT, UNSCHEDULABLE),
        before=(_tainted(KEPT, PENDING, UNSCHEDULABLE, by="kube-controller-manager"),),
    ),
    _coordinator(
        "cordon of a Node with the startup taint", merge(NODE, PERMITTED), before=(_PENDING,)
    ),
    _coordinator("layout of the fleet policy", merge(NODE, LAID_OUT), before=(_NO_LAYOUT,)),
    _coordinator(
        "another layout of the fleet policy",
        merge(NODE, {"metadata": {"annotations": {LAYOUT: "other", MARK: "small/9876543210"}}}),
        before=(_NO_LAYOUT, _LAID_OUT),
    ),
    _coordinator("undo", merge(NODE, UNDONE), before=(CORDONED,)),
    _coordinator(
        "permit removed, cordon of another left",
        merge(NODE, {"metadata": {"annotations": {PERMIT: None}}}),
        before=(CORDONED,),
    ),
    _coordinator(
        "undo of a node that stays cordoned",
        merge(NODE, {"metadata": UNDONE["metadata"]}),
        before=(CORDONED, _KEPT),
    ),
    _coordinator("pause", merge(NODE, label(PLUGIN, _PAUSED_VALUE))),
    _coordinator(
        "pause of a Node that it holds, after its request went",
        merge(NODE, label(PLUGIN, _PAUSED_VALUE)),
        before=(CORDONED, _UNASKED),
    ),
    _coordinator(
        "resume after all is over",
        merge(NODE, label(PLUGIN, "true")),
        before=(_UNASKED, merge(NODE, label(PLUGIN, _PAUSED_VALUE), manager="x")),
    ),
    _coordinator(
        "uncordon by the mark, after somebody deleted the permit",
        merge(NODE, {**annotation(CORDON_MARK, None), **UNCORDON}),
        before=(CORDONED, _UNPERMITTED),
    ),
    _coordinator("mark removed", merge(NODE, annotation(CORDON_MARK, None)), before=(CORDONED,)),
    _coordinator("undo after its request went", merge(NODE, UNDONE), before=(CORDONED, _UNASKED)),
    _coordinator(
        "resume",
        merge(NODE, label(PLUGIN, "true")),
        before=(merge(NODE, label(PLUGIN, "paused-for-mig-change"), manager="x"),),
    ),
    _coordinator("eviction", replace(guest_eviction(), query="dryRun=All")),
    _coordinator(
        "eviction of a device plugin's pod in kube-system",
        replace(eviction("$plugin", of="kube-system", uid="$pluginuid"), query="dryRun=All"),
    ),
    _coordinator("slot: create", post(LEASES, lease("mig-slot-0")), before=(delete(SLOT),)),
    *(
        _coordinator(
            f"slot: create the parked {number}",
            post(LEASES, lease(f"mig-slot-{number}")),
            before=(delete(f"{LEASES}/mig-slot-{number}"),),
        )
        for number in (1000, 1099)
    ),
    _coordinator(
        "slot: more than there may be, from a time when there were",
        merge(f"{LEASES}/mig-slot-2", {"spec": {"holderIdentity": ""}}),
        before=(post(LEASES, lease("mig-slot-2"), manager="admin"),),
    ),
    _coordinator(
        "slot: record of 4,096 and a long name",
        merge(
            SLOT, {**annotation(ROLLBACK_RECORD, "x" * 4096), "spec": {"holderIdentity": "x" * 253}}
        ),
    ),
    _coordinator(
        "slot: freed",
        merge(SLOT, {**annotation(ROLLBACK_RECORD, None), "spec": {"holderIdentity": ""}}),
        before=(merge(SLOT, annotation(ROLLBACK_RECORD, "{}"), manager="x"),),
    ),
    _coordinator(
        "permit in the form before 0.1.0 removed",
        merge(NODE, annotation(_FORMER_PERMIT, None)),
        before=(merge(NODE, annotation(_FORMER_PERMIT), manager="admin"),),
    ),
    _coordinator(
        "slot: record in the form before 0.1.0 removed",
        merge(SLOT, {**annotation(_FORMER_RECORD, None), "spec": {"holderIdentity": ""}}),
        before=(merge(SLOT, annotation(_FORMER_RECORD, "{}"), manager="admin"),),
    ),
    _coordinator("slot: patch", merge(SLOT, {"spec": {"holderIdentity": "x"}})),
    _coordinator("leader: memory", merge(_LEADER, annotation(_ROLLOUTS, "x" * 16384))),
    _coordinator("leader", merge(_LEADER, {"spec": {"holderIdentity": "x"}})),
    _coordinator(
        "Event about a Node",
        post(EVENTS.format("default"), _event()),
    ),
]

_SCHEDULER = "gpuscape-scheduler-event"
_SCHEDULER_GRANTS = "gpuscape-scheduler-floor/grants"
_ABOUT_WORKLOAD = "gpuscape-$workloaduid"


def _scheduler(name: str, ask: Ask, only: str = "", **more: Any) -> Case:
    only = only and (only if "/" in only else f"{_SCHEDULER}/{only}")
    return Case(name=name, ask=ask, actor="scheduler", only=only, **more)


def _said(
    name: str = _ABOUT_WORKLOAD,
    subject: Any = WORKLOAD,
    reporter: str = "gpuscape-scheduler",
    **more: Any,
) -> Any:
    return event(name, subject, reporter=reporter, **more)


_THERE = EVENTS.format("$ns")
_AGAIN = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}
_GONE = (delete(f"{_THERE}/{_ABOUT_WORKLOAD}"),)

SCHEDULER_REFUSED = [
    _scheduler(
        "Event about a Node",
        post(EVENTS.format("default"), _said("gpuscape-$uid", NEIGHBOUR)),
        "subject",
    ),
    _scheduler("Event of another name", post(_THERE, _said("$new")), "name"),
    _scheduler(
        "Event about another pod",
        post(_THERE, _said(subject={**WORKLOAD, "uid": "$uid"})),
        "name",
        before=_GONE,
    ),
    _scheduler(
        "Event as kube-scheduler",
        post(_THERE, _said(reporter="default-scheduler")),
        "reporter",
        before=_GONE,
    ),
    _scheduler(
        "Event of kube-scheduler counted",
        merge(f"{_THERE}/{_ABOUT_WORKLOAD}", _AGAIN),
        "reporter",
        before=(*_GONE, post(_THERE, _said(reporter="default-scheduler"))),
    ),
    _scheduler(
        "Event with a second object",
        post(_THERE, _said(related=SELF)),
        "related",
        before=_GONE,
    ),
    *(
        _scheduler(
            f"Event with {part}",
            post(_THERE, _said(metadata={"name": _ABOUT_WORKLOAD, part: it})),
            "bare",
            before=_GONE,
        )
        for part, it in NOT_OF_EVENTS
    ),
    _scheduler(
        "Event by the core group",
        post(
            CORE_EVENTS.format("$ns"),
            core_event(_ABOUT_WORKLOAD, WORKLOAD, reporter="gpuscape-scheduler"),
        ),
        _SCHEDULER_GRANTS,
        before=_GONE,
    ),
    _scheduler(
        "Event: delete",
        delete(f"{_THERE}/{_ABOUT_WORKLOAD}"),
        before=(*_GONE, post(_THERE, _said())),
    ),
    _scheduler("Node", merge(NODE, OWN), _SCHEDULER_GRANTS),
    _scheduler("Node: nothing", merge(NODE, {}), _SCHEDULER_GRANTS),
    _scheduler(
        "pod: bind",
        post(
            f"{PODS}/pending/binding",
            named("pending", target={"kind": "Node", "name": "$node", "apiVersion": "v1"}),
        ),
        _SCHEDULER_GRANTS,
    ),
    _scheduler(
        "pod: patch", merge(f"{PODS}/workload", label("example.com/new")), _SCHEDULER_GRANTS
    ),
    _scheduler("eviction", eviction("workload"), _SCHEDULER_GRANTS),
    _scheduler("Lease", merge(LEASE, {"spec": {"leaseDurationSeconds": 1}}), _SCHEDULER_GRANTS),
    _scheduler(
        "foreign field manager",
        post(_THERE, _said(), manager="kube-scheduler"),
        "gpuscape-scheduler-floor/field-manager",
        before=_GONE,
    ),
    replace(
        _scheduler("not bound", post(_THERE, _said()), "gpuscape-scheduler-floor/token"),
        actor="scheduler-unbound",
        before=_GONE,
    ),
]
SCHEDULER_ALLOWED = [
    _scheduler("Event", post(_THERE, _said()), before=_GONE),
    _scheduler(
        "Event again",
        merge(f"{_THERE}/{_ABOUT_WORKLOAD}", _AGAIN),
        before=(*_GONE, post(_THERE, _said())),
    ),
]

REFUSED = {"coordinator": COORDINATOR_REFUSED, "scheduler": SCHEDULER_REFUSED}
ALLOWED = {"coordinator": COORDINATOR_ALLOWED, "scheduler": SCHEDULER_ALLOWED}
