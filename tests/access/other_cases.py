# SPDX-License-Identifier: Apache-2.0
"""Other credentials than the pod's token, everything beside the agent's objects, and kubelets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.access.ask import (
    Ask,
    Case,
    annotation,
    delete,
    label,
    merge,
    post,
    put,
    strategic,
)
from tests.access.node_cases import NODE, OTHER, OWN, STATUS
from tests.access.object_cases import (
    DAEMON_SETS,
    EVENTS,
    LEASE,
    NAMED,
    SELF,
    event,
)

_GRANTS = "gpuscape-agent-floor/grants"
_BOUND = "gpuscape-agent-floor/token"
PERMIT = "gpuscape.io/mig-permit"

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
        Case(name="Event", ask=post(EVENTS.format("default"), event(NAMED, SELF))),
    )
]

PODS = "/api/v1/namespaces/$ns/pods"
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


def eviction(name: str, *, of: str = "$ns", uid: str = "$workloaduid", **options: Any) -> Ask:
    """An eviction of a pod in the namespace ``of`` that has this UID, as the workload does."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name},
        "deleteOptions": {"preconditions": {"uid": uid}, **options},
    }
    return post(f"{PODS.replace('$ns', of)}/{name}/eviction", body)


def guest_eviction(**options: Any) -> Ask:
    """An eviction of a pod of users, in a namespace of their own."""
    return eviction("guest", of="$elsewhere", uid="$guestuid", **options)


def named(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **more}


def read(path: str) -> Ask:
    return Ask(method="GET", path=path)


REST = [
    Case(name="nodes/proxy: own", ask=read(f"{NODE}/proxy/pods")),
    Case(name="nodes/proxy: other", ask=read(f"{OTHER}/proxy/pods")),
    Case(name="nodes/proxy: run", ask=post(f"{NODE}/proxy/run/x/y/z", {})),
    Case(name="exec", ask=post(f"{PODS}/workload/exec?command=id&stdout=true", {})),
    Case(name="attach", ask=post(f"{PODS}/workload/attach?stdout=true", {})),
    Case(name="port-forward", ask=post(f"{PODS}/workload/portforward", {})),
    Case(name="eviction: own pod", ask=eviction("$pod", preconditions={}), only=_GRANTS),
    Case(name="eviction: other pod", ask=eviction("workload"), only=_GRANTS),
    Case(name="pod: create", ask=post(PODS, pod()), only=_GRANTS),
    Case(
        name="pod: create in another namespace",
        ask=post(
            "/api/v1/namespaces/$elsewhere/pods",
            {**pod(), "spec": {**pod()["spec"], "serviceAccountName": "default"}},
        ),
        only=_GRANTS,
    ),
    Case(name="pod: delete", ask=delete(f"{PODS}/workload")),
    Case(name="pod: delete own", ask=delete(f"{PODS}/$pod")),
    Case(name="pod: patch", ask=merge(f"{PODS}/workload", label("example.com/new")), only=_GRANTS),
    Case(
        name="pod: patch status",
        ask=merge(f"{PODS}/workload/status", {"status": {"message": "x"}}),
        only=_GRANTS,
    ),
    Case(
        name="pod: ephemeral container",
        ask=strategic(
            f"{PODS}/workload/ephemeralcontainers",
            {"spec": {"ephemeralContainers": [{"name": "x", "image": "none"}]}},
        ),
        only=_GRANTS,
    ),
    Case(
        name="pod: bind",
        ask=post(
            f"{PODS}/pending/binding",
            named("pending", target={"kind": "Node", "name": "$node", "apiVersion": "v1"}),
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
            ("another", "$ns", "workload"),
        )
    ),
    Case(name="account: create", ask=post(_ACCOUNTS.format("$ns"), named("$new")), only=_GRANTS),
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
        ask=post("/api/v1/namespaces/$ns/configmaps", named("$new")),
        only=_GRANTS,
    ),
    Case(name="namespace: create", ask=post("/api/v1/namespaces", named("$new")), only=_GRANTS),
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
            named("$new", roleRef=_ADMIN_ROLE, subjects=[_SUBJECT]),
        ),
        only=_GRANTS,
    ),
    Case(
        name="cluster role binding: create",
        ask=post(
            f"{_RBAC}/clusterrolebindings",
            named("$new", roleRef=_ADMIN_ROLE, subjects=[_SUBJECT]),
        ),
        only=_GRANTS,
    ),
    Case(
        name="cluster role: create",
        ask=post(f"{_RBAC}/clusterroles", named("$new", rules=[])),
        only=_GRANTS,
    ),
    Case(
        name="signing request: create",
        ask=post(
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            named(
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
            DAEMON_SETS,
            named(
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
            named(
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
        ask=post("/apis/scheduling.k8s.io/v1/priorityclasses", named("$new", value=1)),
        only=_GRANTS,
    ),
    Case(
        name="webhook: create",
        ask=post(f"{_ADMISSION}/mutatingwebhookconfigurations", named("$new")),
        only=_GRANTS,
    ),
    # what no policy beside them can hold: reads, impersonation, and the admission objects
    Case(name="PUT of the own Node", ask=put(NODE, OWN), drift=200),
    Case(name="read: all Nodes in a list", ask=read("/api/v1/nodes"), drift=200),
    Case(name="read: all DaemonSets in a list", ask=read(DAEMON_SETS), drift=200),
    Case(name="read: another DaemonSet", ask=read(f"{DAEMON_SETS}/other"), drift=200),
    Case(
        name="own DaemonSet: another image",
        ask=strategic(
            f"{DAEMON_SETS}/gpuscape-agent",
            {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}},
        ),
        only=_GRANTS,
    ),
    Case(
        name="own DaemonSet: its status",
        ask=merge(
            f"{DAEMON_SETS}/gpuscape-agent/status", {"status": {"desiredNumberScheduled": 1}}
        ),
        only=_GRANTS,
    ),
    Case(name="own DaemonSet: delete", ask=delete(f"{DAEMON_SETS}/gpuscape-agent")),
    Case(name="read: a Secret", ask=read("/api/v1/namespaces/$ns/secrets/legacy"), drift=200),
    Case(name="read: a pod", ask=read(f"{PODS}/workload"), drift=200),
    Case(name="read: a pod's log", ask=read(f"{PODS}/workload/log"), drift=500),  # no kubelet
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
_RESERVED = (
    "gpuscape.io/mig-layout",
    PERMIT,
    "gpuscape.io/mig-cordon",
    "gpuscape.io/release",
    "gpuscape.io/drain",
    "gpuscape.io/keep-cordoned",
)


def registered(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "$fresh", **metadata}}


KUBELET_REFUSED = [
    # the Node authorizer gives no right to delete, so it cannot register anew at will
    Case(name="own Node: delete", ask=delete(NODE), actor="kubelet", drift=403),
    Case(name="other Node: delete", ask=delete(OTHER), actor="kubelet", drift=403),
    Case(name="Nodes: delete all", ask=delete("/api/v1/nodes"), actor="kubelet", drift=403),
    *(
        Case(
            name=f"{key} through {what}",
            ask=strategic(path, annotation(key)),
            actor="kubelet",
            only=f"{_KUBELET}/annotations",
        )
        for key in _RESERVED
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
        name="registering with a permit",
        ask=post("/api/v1/nodes", registered(annotations={PERMIT: "x"})),
        actor="kubelet-fresh",
        only=f"{_KUBELET}/annotations",
    ),
]
CONDITION = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "tried"}
KUBELET_ALLOWED = [
    Case(
        name="heartbeat",
        ask=strategic(STATUS, {"status": {"conditions": [CONDITION]}}),
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
        ask=post("/api/v1/nodes", registered(labels={"nvidia.com/mig.config": "all-1g.5gb"})),
        actor="kubelet-fresh",
    ),
]

REFUSED = {
    "token": TOKENS,
    "the rest": REST,
    "kubelet": KUBELET_REFUSED,
}
STARTING = [
    Case(name="the number of agents", ask=read(f"{DAEMON_SETS}/gpuscape-agent")),
]
OPTED_INTO = [
    Case(name="pods of its node", ask=read("/api/v1/pods?fieldSelector=spec.nodeName=$node")),
]

ALLOWED = {
    "kubelet": KUBELET_ALLOWED,
    "starting": STARTING,
    "opted into": OPTED_INTO,
}
