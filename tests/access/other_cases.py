"""Other credentials, and everything beside the agent's own objects; coordinator, scheduler."""

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
    put,
    steps,
    strategic,
)
from tests.access.node_cases import NODE, OTHER, OWN, STATUS, node
from tests.access.object_cases import (
    CORE_EVENTS,
    EVENTS,
    LEASE,
    LEASES,
    NEIGHBOUR,
    SELF,
    WORK,
    core_event,
    event,
    lease,
)

_GRANTS = "gpuscape-agent-floor/grants"
_BOUND = "gpuscape-agent-floor/token"
GRANT = "gpuscape.io/mig-grant"
GUARD = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
KARPENTER = "karpenter.sh/do-not-disrupt"
PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
EXPORTER = "nvidia.com/gpu.deploy.dcgm-exporter"
"""Switched off by the admin."""

TOKENS = [
    replace(case, name=f"{what}: {case.name}", actor=actor, drift=drift, only=only)
    for what, actor, drift, only in (
        ("not bound", "agent-unbound", 422, ""),
        ("pod without node", "agent-homeless", 422, ""),
        ("bound to the Node", "agent-of-node", 422, _BOUND),
        ("legacy Secret", "agent-legacy", 422, ""),
        ("certificate", "agent-certificate", 422, ""),
        ("same name in another namespace", "agent-elsewhere", 403, ""),
        ("wrong audience", "agent-audience", 401, ""),
    )
    for case in (
        Case(name="own label", ask=merge(NODE, OWN)),
        Case(name="nothing", ask=merge(NODE, {})),
        Case(name="Lease", ask=merge(LEASE, {"spec": {"leaseDurationSeconds": 170}})),
        Case(name="Event", ask=post(CORE_EVENTS.format("default"), core_event("$new", SELF))),
    )
]

_PODS = "/api/v1/namespaces/$ns/pods"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_POLICY = f"{_ADMISSION}/validatingadmissionpolicies/gpuscape-agent-node.$ns"
_BINDING = f"{_ADMISSION}/validatingadmissionpolicybindings/gpuscape-agent-node.$ns"
_ACCOUNTS = "/api/v1/namespaces/{}/serviceaccounts"
_SUBJECT = {"kind": "ServiceAccount", "name": "gpuscape-agent", "namespace": "$ns"}
_ADMIN_ROLE = {
    "apiGroup": "rbac.authorization.k8s.io",
    "kind": "ClusterRole",
    "name": "cluster-admin",
}
_TOKEN_REQUEST = {"spec": {"expirationSeconds": 3600}}


def pod(name: str = "$new") -> dict[str, Any]:
    """A pod of the agent's account on another node."""
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeName": "$other",
            "serviceAccountName": "gpuscape-agent",
            "containers": [{"name": "main", "image": "none"}],
        },
    }


def _eviction(name: str) -> Ask:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return post(f"{_PODS}/{name}/eviction", body)


def _named(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **more}


def _read(path: str) -> Ask:
    return Ask(method="GET", path=path)


REST = [
    Case(name="nodes/proxy: own", ask=_read(f"{NODE}/proxy/pods")),
    Case(name="nodes/proxy: other", ask=_read(f"{OTHER}/proxy/pods")),
    Case(name="nodes/proxy: run", ask=post(f"{NODE}/proxy/run/x/y/z", {})),
    Case(name="exec", ask=post(f"{_PODS}/work/exec?command=id&stdout=true", {})),
    Case(name="attach", ask=post(f"{_PODS}/work/attach?stdout=true", {})),
    Case(name="port-forward", ask=post(f"{_PODS}/work/portforward", {})),
    Case(name="eviction: own pod", ask=_eviction("$pod"), only=_GRANTS),
    Case(name="eviction: other pod", ask=_eviction("work"), only=_GRANTS),
    Case(name="pod: create", ask=post(_PODS, pod()), only=_GRANTS),
    Case(
        name="pod: create in another namespace",
        ask=post(
            "/api/v1/namespaces/$elsewhere/pods",
            {**pod(), "spec": {**pod()["spec"], "serviceAccountName": "default"}},
        ),
        only=_GRANTS,
    ),
    Case(name="pod: delete", ask=delete(f"{_PODS}/work")),
    Case(name="pod: delete own", ask=delete(f"{_PODS}/$pod")),
    Case(name="pod: patch", ask=merge(f"{_PODS}/work", label("example.com/new")), only=_GRANTS),
    Case(
        name="pod: patch status",
        ask=merge(f"{_PODS}/work/status", {"status": {"message": "x"}}),
        only=_GRANTS,
    ),
    Case(
        name="pod: ephemeral container",
        ask=strategic(
            f"{_PODS}/work/ephemeralcontainers",
            {"spec": {"ephemeralContainers": [{"name": "x", "image": "none"}]}},
        ),
        only=_GRANTS,
    ),
    Case(
        name="pod: bind",
        ask=post(
            f"{_PODS}/pending/binding",
            _named("pending", target={"kind": "Node", "name": "$node", "apiVersion": "v1"}),
        ),
        only=_GRANTS,
    ),
    *(
        Case(
            name=f"token: of {whose}",
            ask=post(f"{_ACCOUNTS.format(place)}/{account}/token", _TOKEN_REQUEST),
            only=_GRANTS,
        )
        for whose, place, account in (
            ("itself", "$ns", "gpuscape-agent"),
            ("the coordinator", "$ns", "gpuscape-coordinator"),
            ("another", "$ns", "work"),
        )
    ),
    Case(name="account: create", ask=post(_ACCOUNTS.format("$ns"), _named("$new")), only=_GRANTS),
    Case(
        name="Secret: create one that gets a token",
        ask=post(
            "/api/v1/namespaces/$ns/secrets",
            {
                "metadata": {
                    "name": "$new",
                    "annotations": {"kubernetes.io/service-account.name": "gpuscape-agent"},
                },
                "type": "kubernetes.io/service-account-token",
            },
        ),
        only=_GRANTS,
    ),
    Case(name="Secret: delete", ask=delete("/api/v1/namespaces/$ns/secrets/legacy")),
    Case(
        name="ConfigMap: create",
        ask=post("/api/v1/namespaces/$ns/configmaps", _named("$new")),
        only=_GRANTS,
    ),
    Case(name="namespace: create", ask=post("/api/v1/namespaces", _named("$new")), only=_GRANTS),
    Case(
        name="namespace: patch",
        ask=merge("/api/v1/namespaces/$ns", label("example.com/new")),
        only=_GRANTS,
    ),
    Case(name="namespace: delete", ask=delete("/api/v1/namespaces/$elsewhere")),
    Case(
        name="role binding: create",
        ask=post(
            f"{_RBAC}/namespaces/$ns/rolebindings",
            _named("$new", roleRef=_ADMIN_ROLE, subjects=[_SUBJECT]),
        ),
        only=_GRANTS,
    ),
    Case(
        name="cluster role binding: create",
        ask=post(
            f"{_RBAC}/clusterrolebindings",
            _named("$new", roleRef=_ADMIN_ROLE, subjects=[_SUBJECT]),
        ),
        only=_GRANTS,
    ),
    Case(
        name="cluster role: create",
        ask=post(f"{_RBAC}/clusterroles", _named("$new", rules=[])),
        only=_GRANTS,
    ),
    Case(
        name="signing request: create",
        ask=post(
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            _named(
                "$new",
                spec={
                    "request": "$csr",
                    "signerName": "kubernetes.io/kube-apiserver-client",
                    "usages": ["client auth"],
                },
            ),
        ),
        only=_GRANTS,
    ),
    Case(
        name="DaemonSet: create",
        ask=post(
            "/apis/apps/v1/namespaces/$ns/daemonsets",
            _named(
                "$new",
                spec={
                    "selector": {"matchLabels": {"a": "b"}},
                    "template": {
                        "metadata": {"labels": {"a": "b"}},
                        "spec": {"containers": [{"name": "main", "image": "none"}]},
                    },
                },
            ),
        ),
        only=_GRANTS,
    ),
    Case(
        name="Job: create",
        ask=post(
            "/apis/batch/v1/namespaces/$ns/jobs",
            _named(
                "$new",
                spec={
                    "template": {
                        "spec": {
                            "restartPolicy": "Never",
                            "containers": [{"name": "main", "image": "none"}],
                        }
                    }
                },
            ),
        ),
        only=_GRANTS,
    ),
    Case(
        name="priority class: create",
        ask=post("/apis/scheduling.k8s.io/v1/priorityclasses", _named("$new", value=1)),
        only=_GRANTS,
    ),
    Case(
        name="webhook: create",
        ask=post(f"{_ADMISSION}/mutatingwebhookconfigurations", _named("$new")),
        only=_GRANTS,
    ),
    # what no policy beside them can hold: reads, impersonation, and the admission objects
    Case(name="PUT of the own Node", ask=put(NODE, OWN), drift=200),
    Case(name="read: all Nodes in a list", ask=_read("/api/v1/nodes"), drift=200),
    Case(name="read: a Secret", ask=_read("/api/v1/namespaces/$ns/secrets/legacy"), drift=200),
    Case(name="read: pods", ask=_read(_PODS), drift=200),
    Case(
        name="impersonation",
        ask=merge(NODE, label("example.com/new")),
        actor="agent-as-admin",
        drift=200,
    ),
    Case(name="policy: delete", ask=replace(delete(_POLICY), query="dryRun=All"), drift=200),
    Case(name="policy: unbind", ask=replace(delete(_BINDING), query="dryRun=All"), drift=200),
    Case(
        name="policy: patch",
        ask=replace(merge(_POLICY, {"spec": {"failurePolicy": "Ignore"}}), query="dryRun=All"),
        drift=200,
    ),
]

_KUBELET = "gpuscape-node-keys"
_FOUR = ("gpuscape.io/mig-layout", GRANT, "gpuscape.io/release", "gpuscape.io/drain")


def _registered(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "$fresh", **metadata}}


KUBELET_REFUSED = [
    *(
        Case(
            name=f"{key} through {what}",
            ask=strategic(path, annotation(key)),
            actor="kubelet",
            only=f"{_KUBELET}/annotations",
        )
        for key in _FOUR
        for what, path in (("nodes", NODE), ("nodes/status", STATUS))
    ),
    Case(
        name="the admin's layout removed",
        ask=merge(NODE, annotation("gpuscape.io/mig-layout", None)),
        actor="kubelet",
        only=f"{_KUBELET}/annotations",
    ),
    *(
        Case(
            name=f"mig.config through {what}",
            ask=merge(path, label("nvidia.com/mig.config")),
            actor="kubelet",
            only=f"{_KUBELET}/labels",
        )
        for what, path in (("nodes", NODE), ("nodes/status", STATUS))
    ),
    Case(
        name="registering with a grant",
        ask=post("/api/v1/nodes", _registered(annotations={GRANT: "x"})),
        actor="kubelet-fresh",
        only=f"{_KUBELET}/annotations",
    ),
]
_CONDITION = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "tried"}
KUBELET_ALLOWED = [
    Case(
        name="heartbeat",
        ask=strategic(STATUS, {"status": {"conditions": [_CONDITION]}}),
        actor="kubelet",
    ),
    Case(
        name="own pod's token",
        ask=post(
            f"{_ACCOUNTS.format('$ns')}/gpuscape-agent/token",
            {
                "spec": {
                    "expirationSeconds": 3600,
                    "boundObjectRef": {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "name": "$pod",
                        "uid": "$poduid",
                    },
                }
            },
            manager=None,
        ),
        actor="kubelet",
    ),
    Case(
        name="registering with a layout's name",
        ask=post("/api/v1/nodes", _registered(labels={"nvidia.com/mig.config": "all-1g.5gb"})),
        actor="kubelet-fresh",
    ),
]

_COORDINATOR = "gpuscape-coordinator-node"
_COORDINATOR_GRANTS = "gpuscape-coordinator-floor/grants"
_CORDON = {"spec": {"unschedulable": True}}
_GRANTED: dict[str, Any] = {
    "metadata": {"annotations": {GRANT: "{}", GUARD: "true", KARPENTER: "true"}},
    "spec": {"unschedulable": True},
}
_UNDONE: dict[str, Any] = {
    "metadata": {"annotations": {GRANT: None, GUARD: None, KARPENTER: None}},
    "spec": {"unschedulable": None},
}
_ADMIN_CORDON = merge(NODE, _CORDON, manager="kubectl-cordon")
_HELD = merge(NODE, _GRANTED, manager="gpuscape-coordinator")


def _coordinator(name: str, ask: Ask, only: str = "", **more: Any) -> Case:
    only = only and (only if "/" in only else f"{_COORDINATOR}/{only}")
    return Case(name=name, ask=ask, actor="coordinator", only=only, **more)


COORDINATOR_REFUSED = [
    _coordinator("cordon without a grant", merge(NODE, _CORDON), "cordon"),
    _coordinator(
        "cordon without a grant by JSON",
        steps(NODE, ("add", "/spec/unschedulable", True)),
        "cordon",
    ),
    _coordinator(
        "cordon that drops the grant",
        merge(NODE, {**_CORDON, **annotation(GRANT, None)}),
        "cordon",
        before=(merge(NODE, annotation(GRANT), manager="gpuscape-coordinator"),),
    ),
    _coordinator(
        "uncordon without a grant",
        merge(NODE, {"spec": {"unschedulable": None}}),
        "uncordon",
        before=(_ADMIN_CORDON,),
    ),
    _coordinator(
        "uncordon with a grant that comes with it",
        merge(NODE, {"spec": {"unschedulable": None}, **annotation(GRANT)}),
        "uncordon",
        before=(_ADMIN_CORDON,),
    ),
    _coordinator("taint", steps(NODE, ("remove", "/spec/taints/0")), "frozen"),
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
            "gpuscape.io/mig-layout",
            "gpuscape.io/mig-request",
            "gpuscape.io/mig-status",
            "gpuscape.io/topology",
            "gpuscape.io/release",
            "gpuscape.io/drain",
            "gpuscape.io/mig-grants",
            "example.com/note",
        )
    ),
    _coordinator("status", merge(STATUS, {"status": {"capacity": {"nvidia.com/gpu": "9"}}})),
    _coordinator(
        "status: its own annotation", merge(STATUS, annotation(GRANT)), _COORDINATOR_GRANTS
    ),
    _coordinator("delete", delete(NODE)),
    _coordinator("create", post("/api/v1/nodes", _registered()), _COORDINATOR_GRANTS),
    _coordinator("finalizer", merge(NODE, {"metadata": {"finalizers": None}}), "metadata"),
    _coordinator(
        "owner",
        merge(
            NODE,
            {
                "metadata": {
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}
                    ]
                }
            },
        ),
        "metadata",
    ),
    _coordinator("apply", apply(NODE, node(annotation(GRANT))), "appliers"),
    _coordinator("managedFields", merge(NODE, {"metadata": {"managedFields": [{}]}}), "appliers"),
    _coordinator("proxy", _read(f"{NODE}/proxy/pods")),
    _coordinator("pod: delete", delete(f"{_PODS}/work")),
    _coordinator("pod: create", post(_PODS, pod()), _COORDINATOR_GRANTS),
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
    _coordinator("Lease: delete", delete(f"{LEASES}/mig-slot-0")),
    _coordinator(
        "foreign field manager",
        merge(NODE, annotation(GRANT), manager="gpuscape-agent"),
        "gpuscape-coordinator-floor/field-manager",
    ),
    _coordinator(
        "Event as another",
        post(
            CORE_EVENTS.format("default"),
            core_event("$new", SELF, reporter="gpuscape-agent"),
        ),
        "gpuscape-coordinator-event/reporter",
    ),
    _coordinator(
        "Event about something else",
        post(
            CORE_EVENTS.format("$ns"),
            core_event("$new", {**WORK, "kind": "Secret"}, reporter="gpuscape-coordinator"),
        ),
        "gpuscape-coordinator-event/subject",
    ),
    _coordinator(
        "Event taken over",
        merge(
            f"{CORE_EVENTS.format('default')}/$node.kubelet",
            {"reportingComponent": "gpuscape-coordinator", "source": None},
        ),
        "gpuscape-coordinator-event/kept",
    ),
    *(
        replace(
            _coordinator(f"not bound: {name}", ask, "gpuscape-coordinator-floor/token"),
            actor="coordinator-unbound",
        )
        for name, ask in (
            ("grant", merge(NODE, annotation(GRANT))),
            ("eviction", _eviction("work")),
            ("Lease", merge(f"{LEASES}/mig-slot-0", {"spec": {"leaseDurationSeconds": 1}})),
        )
    ),
]
COORDINATOR_ALLOWED = [
    _coordinator("cordon, grant and guards: merge", merge(NODE, _GRANTED)),
    _coordinator("cordon, grant and guards: strategic", strategic(NODE, _GRANTED)),
    _coordinator(
        "cordon, grant and guards: JSON",
        steps(
            NODE,
            ("add", "/metadata/annotations/gpuscape.io~1mig-grant", "{}"),
            ("add", "/metadata/annotations/karpenter.sh~1do-not-disrupt", "true"),
            ("add", "/spec/unschedulable", True),
        ),
    ),
    _coordinator("go", merge(NODE, annotation(GRANT, "go")), before=(_HELD,)),
    _coordinator("undo", merge(NODE, _UNDONE), before=(_HELD,)),
    _coordinator(
        "grant removed, cordon of another left",
        merge(NODE, {"metadata": {"annotations": {GRANT: None}}}),
        before=(_HELD,),
    ),
    _coordinator("pause", merge(NODE, label(PLUGIN, "paused-for-mig-change"))),
    _coordinator(
        "resume",
        merge(NODE, label(PLUGIN, "true")),
        before=(merge(NODE, label(PLUGIN, "paused-for-mig-change"), manager="x"),),
    ),
    _coordinator("eviction", replace(_eviction("work"), query="dryRun=All")),
    _coordinator("slot: create", post(LEASES, lease("mig-slot-$digits"))),
    _coordinator("slot: patch", merge(f"{LEASES}/mig-slot-0", {"spec": {"holderIdentity": "x"}})),
    _coordinator("leader", merge(f"{LEASES}/coordinator", {"spec": {"holderIdentity": "x"}})),
    _coordinator(
        "Event about a Node",
        post(EVENTS.format("default"), event("$new", NEIGHBOUR, reporter="gpuscape-coordinator")),
    ),
]

_SCHEDULER = "gpuscape-scheduler-event"
_SCHEDULER_GRANTS = "gpuscape-scheduler-floor/grants"
_ABOUT_WORK = "gpuscape-$workuid"


def _scheduler(name: str, ask: Ask, only: str = "", **more: Any) -> Case:
    only = only and (only if "/" in only else f"{_SCHEDULER}/{only}")
    return Case(name=name, ask=ask, actor="scheduler", only=only, **more)


def _said(
    name: str = _ABOUT_WORK, subject: Any = WORK, reporter: str = "gpuscape-scheduler"
) -> Any:
    return event(name, subject, reporter=reporter)


_THERE, _THERE_CORE = EVENTS.format("$ns"), CORE_EVENTS.format("$ns")
_GONE = (delete(f"{_THERE}/{_ABOUT_WORK}"),)

SCHEDULER_REFUSED = [
    _scheduler(
        "Event about a Node",
        post(EVENTS.format("default"), _said("gpuscape-$uid", NEIGHBOUR)),
        "subject",
    ),
    _scheduler("Event of another name", post(_THERE, _said("$new")), "name"),
    _scheduler(
        "Event about another pod",
        post(_THERE, _said(subject={**WORK, "uid": "$uid"})),
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
        "Event as kube-scheduler (core)",
        post(
            _THERE_CORE,
            core_event(_ABOUT_WORK, WORK, reporter="default-scheduler"),
        ),
        "reporter",
        before=_GONE,
    ),
    _scheduler(
        "Event taken over",
        merge(
            f"{_THERE_CORE}/{_ABOUT_WORK}",
            {"reportingComponent": "gpuscape-scheduler", "source": None},
        ),
        "kept",
        before=(*_GONE, post(_THERE, _said(reporter="default-scheduler"))),
    ),
    _scheduler("Event: delete", delete(f"{_THERE}/{_ABOUT_WORK}")),
    _scheduler("Node", merge(NODE, OWN), _SCHEDULER_GRANTS),
    _scheduler("Node: nothing", merge(NODE, {}), _SCHEDULER_GRANTS),
    _scheduler(
        "pod: bind",
        post(
            f"{_PODS}/pending/binding",
            _named("pending", target={"kind": "Node", "name": "$node", "apiVersion": "v1"}),
        ),
        _SCHEDULER_GRANTS,
    ),
    _scheduler("pod: patch", merge(f"{_PODS}/work", label("example.com/new")), _SCHEDULER_GRANTS),
    _scheduler("eviction", _eviction("work"), _SCHEDULER_GRANTS),
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
    _scheduler("Event (events)", post(_THERE, _said()), before=_GONE),
    _scheduler(
        "Event (core)",
        post(
            _THERE_CORE,
            core_event(_ABOUT_WORK, WORK, reporter="gpuscape-scheduler"),
        ),
        before=_GONE,
    ),
    _scheduler(
        "Event again (events)",
        merge(
            f"{_THERE}/{_ABOUT_WORK}",
            {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}},
        ),
        before=(*_GONE, post(_THERE, _said())),
    ),
    _scheduler(
        "Event again (core)",
        merge(f"{_THERE_CORE}/{_ABOUT_WORK}", {"message": "again", "count": 2}),
        before=(*_GONE, post(_THERE, _said())),
    ),
]

REFUSED = {
    "token": TOKENS,
    "the rest": REST,
    "kubelet": KUBELET_REFUSED,
    "coordinator": COORDINATOR_REFUSED,
    "scheduler": SCHEDULER_REFUSED,
}
ALLOWED = {
    "kubelet": KUBELET_ALLOWED,
    "coordinator": COORDINATOR_ALLOWED,
    "scheduler": SCHEDULER_ALLOWED,
}
