"""What an agent may and may not do to Leases, NodeFeatures and Events."""

from __future__ import annotations

from typing import Any

from tests.access.ask import Case, annotation, apply, delete, label, merge, post, put
from tests.access.node_cases import OWN_KEY, mig_labels

LEASES = "/apis/coordination.k8s.io/v1/namespaces/$ns/leases"
LEASE = f"{LEASES}/gpuscape-$node"
FEATURES = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/$ns/nodefeatures"
FEATURE = f"{FEATURES}/nvidia-features-for-$node"
CORE_EVENTS = "/api/v1/namespaces/{}/events"
EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"
STATE = "gpuscape.io/state"

_GRANTS = "gpuscape-agent-floor/grants"
_LEASE = "gpuscape-agent-lease"
_FEATURE = "gpuscape-agent-nodefeature"
_EVENT = "gpuscape-agent-event"

OWN_NODE = {"apiVersion": "v1", "kind": "Node", "name": "$node", "uid": "$uid"}
OTHER_NODE = {"apiVersion": "v1", "kind": "Node", "name": "$other", "uid": "$uid"}
OWN_POD = {"apiVersion": "v1", "kind": "Pod", "name": "$pod", "uid": "$poduid"}


def lease(name: str = "gpuscape-$node", **metadata: Any) -> dict[str, Any]:
    """A Lease held by the agent."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, **metadata},
        "spec": {"holderIdentity": "$poduid", "leaseDurationSeconds": 180},
    }


def _renewed(**metadata: Any) -> dict[str, Any]:
    """A patch of a Lease."""
    return {"metadata": metadata, "spec": {"leaseDurationSeconds": 170}}


_NAME = f"{_LEASE}/name"

LEASE_REFUSED = [
    Case(name="other's: create", ask=post(LEASES, lease("gpuscape-$fresh")), only=_NAME),
    Case(name="other's: merge", ask=merge(f"{LEASES}/gpuscape-$other", _renewed()), only=_NAME),
    Case(name="other's: PUT", ask=put(f"{LEASES}/gpuscape-$other", _renewed()), only=_NAME),
    Case(
        name="other's: apply",
        ask=apply(f"{LEASES}/gpuscape-$other", lease("gpuscape-$other")),
        only=_NAME,
    ),
    Case(
        name="other's: created by apply",
        ask=apply(f"{LEASES}/gpuscape-$fresh", lease("gpuscape-$fresh")),
        only=_NAME,
    ),
    Case(name="ours plus a letter", ask=post(LEASES, lease("gpuscape-$nodey")), only=_NAME),
    Case(name="no prefix", ask=post(LEASES, lease("$node")), only=_NAME),
    Case(name="slot: create", ask=post(LEASES, lease("mig-slot-7")), only=_NAME),
    Case(name="slot: merge", ask=merge(f"{LEASES}/mig-slot-0", _renewed()), only=_NAME),
    Case(name="leader: merge", ask=merge(f"{LEASES}/coordinator", _renewed()), only=_NAME),
    Case(
        name="generateName",
        ask=post(LEASES, {**lease(), "metadata": {"generateName": "gpuscape-$node"}}),
        only=_NAME,
    ),
    Case(
        name="in the kubelets' namespace",
        ask=post(
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
            lease("gpuscape-$node"),
        ),
        only=_GRANTS,
    ),
    Case(
        name="the kubelet's own",
        ask=merge(
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/$node", _renewed()
        ),
    ),
    Case(
        name="finalizer: on create",
        ask=post(LEASES, lease(finalizers=["example.com/keep"])),
        only=f"{_LEASE}/finalizers",
        before=(delete(LEASE),),
    ),
    Case(
        name="finalizer: added",
        ask=merge(LEASE, _renewed(finalizers=["example.com/keep"])),
        only=f"{_LEASE}/finalizers",
    ),
    Case(
        name="owner: its pod",
        ask=merge(LEASE, _renewed(ownerReferences=[OWN_POD])),
        only=f"{_LEASE}/owner",
    ),
    Case(
        name="owner: another node",
        ask=merge(LEASE, _renewed(ownerReferences=[OTHER_NODE])),
        only=f"{_LEASE}/owner",
    ),
    Case(
        name="owner: a second one",
        ask=merge(LEASE, _renewed(ownerReferences=[OWN_NODE, OWN_POD])),
        only=f"{_LEASE}/owner",
    ),
    Case(
        name="annotation: foreign",
        ask=merge(LEASE, annotation("example.com/new")),
        only=f"{_LEASE}/annotations",
    ),
    Case(
        name="annotation: foreign changed",
        ask=merge(LEASE, annotation("example.com/note")),
        only=f"{_LEASE}/annotations",
    ),
    Case(
        name="annotation: look-alike",
        ask=merge(LEASE, annotation(f"{STATE}s")),
        only=f"{_LEASE}/annotations",
    ),
    Case(
        name="annotation: foreign on create",
        ask=post(LEASES, lease(annotations={"example.com/new": "x"})),
        only=f"{_LEASE}/annotations",
        before=(delete(LEASE),),
    ),
    Case(
        name="label: foreign", ask=merge(LEASE, label("example.com/new")), only=f"{_LEASE}/labels"
    ),
    Case(
        name="label: of a Node",
        ask=merge(LEASE, label(OWN_KEY, "7")),
        only=f"{_LEASE}/labels",
    ),
    Case(
        name="17 kB",
        ask=merge(LEASE, annotation(STATE, "x" * 17_000)),
        only=f"{_LEASE}/state-size",
    ),
    Case(name="delete", ask=delete(LEASE)),
    Case(name="delete all", ask=delete(LEASES)),
    Case(
        name="foreign field manager",
        ask=merge(LEASE, _renewed(), manager="x"),
        only="gpuscape-agent-floor/field-manager",
    ),
]
LEASE_ALLOWED = [
    Case(name="create", ask=post(LEASES, lease()), before=(delete(LEASE),)),
    Case(
        name="create with state, labels and owner",
        ask=post(
            LEASES,
            lease(
                annotations={STATE: "{}"},
                labels={"app.kubernetes.io/name": "gpuscape"},
                ownerReferences=[OWN_NODE],
            ),
        ),
        before=(delete(LEASE),),
    ),
    Case(name="merge", ask=merge(LEASE, _renewed())),
    Case(name="PUT", ask=put(LEASE, _renewed())),
    Case(name="apply", ask=apply(LEASE, lease())),
    Case(name="owned by the own Node", ask=merge(LEASE, _renewed(ownerReferences=[OWN_NODE]))),
    Case(name="state of 16,384", ask=merge(LEASE, annotation(STATE, "x" * 16_384))),
    Case(
        name="taken over with the version", ask=merge(LEASE, _renewed(resourceVersion="$version"))
    ),
]


def feature(
    name: str = "nvidia-features-for-$node",
    *,
    node: str = "$node",
    spec: dict[str, Any] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """A NodeFeature with one label of ours."""
    return {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {
            "name": name,
            "labels": {"nfd.node.kubernetes.io/node-name": node},
            **metadata,
        },
        "spec": {"labels": {OWN_KEY: "8"}, **(spec or {})},
    }


def _published(**of: str) -> dict[str, Any]:
    return {"spec": {"labels": of}}


_EMPTY: dict[str, Any] = {"flags": {}, "attributes": {}, "instances": {}}

FEATURE_REFUSED = [
    Case(
        name="other's: create",
        ask=post(FEATURES, feature("nvidia-features-for-$fresh")),
        only=f"{_FEATURE}/name",
    ),
    Case(
        name="other's: merge",
        ask=merge(f"{FEATURES}/nvidia-features-for-$other", _published(**{OWN_KEY: "7"})),
    ),
    Case(
        name="a name of its own",
        ask=post(FEATURES, feature("$node")),
        only=f"{_FEATURE}/name",
    ),
    Case(
        name="re-pointed",
        ask=merge(FEATURE, label("nfd.node.kubernetes.io/node-name", "$other")),
        only=f"{_FEATURE}/node-label",
    ),
    Case(
        name="created for another node",
        ask=post(FEATURES, feature(node="$other")),
        only=f"{_FEATURE}/node-label",
        before=(delete(FEATURE),),
    ),
    Case(
        name="no node label",
        ask=merge(FEATURE, {"metadata": {"labels": None}}),
        only=f"{_FEATURE}/node-label",
    ),
    Case(
        name="a second metadata label",
        ask=merge(FEATURE, label("example.com/new")),
        only=f"{_FEATURE}/node-label",
    ),
    *(
        Case(
            name=f"foreign label {key}",
            ask=merge(FEATURE, _published(**{key: "x"})),
            only=f"{_FEATURE}/labels",
        )
        for key in (
            "example.com/new",
            "unprefixed",
            "feature.node.kubernetes.io/x",
            "nvidia.com/gpu.deploy.driver",
            "nvidia.com/gpu.present",
            "nvidia.com/mig.config",
            "nvidiaxcom/gpu.count",
            "gpuscape.io/topology",
        )
    ),
    Case(
        name="300 own labels",
        ask=merge(FEATURE, {"spec": {"labels": mig_labels(300)}}),
        only=f"{_FEATURE}/label-count",
    ),
    Case(
        name="a value that names a feature",
        ask=merge(FEATURE, _published(**{OWN_KEY: "@cpu.model.id"})),
        only=f"{_FEATURE}/values",
    ),
    *(
        Case(
            name=f"features: {kind}",
            ask=merge(FEATURE, {"spec": {"features": {kind: {"cpu.x": {"elements": elements}}}}}),
            only=f"{_FEATURE}/features",
        )
        for kind, elements in (
            ("flags", {"AVX": {}}),
            ("attributes", {"x": "y"}),
            ("instances", [{"attributes": {"x": "y"}}]),
        )
    ),
    Case(
        name="finalizer",
        ask=merge(FEATURE, {"metadata": {"finalizers": ["example.com/keep"]}}),
        only=f"{_FEATURE}/finalizers",
    ),
    Case(
        name="annotation",
        ask=merge(FEATURE, annotation("example.com/new")),
        only=f"{_FEATURE}/annotations",
    ),
    Case(
        name="annotation by which nfd keeps labels of others apart",
        ask=merge(FEATURE, annotation("nfd.node.kubernetes.io/instance")),
        only=f"{_FEATURE}/annotations",
    ),
    Case(
        name="owner: its pod",
        ask=merge(FEATURE, {"metadata": {"ownerReferences": [OWN_POD]}}),
        only=f"{_FEATURE}/owner",
    ),
    Case(name="delete", ask=delete(FEATURE)),
    Case(name="delete all", ask=delete(FEATURES)),
    Case(
        name="in another namespace",
        ask=post(FEATURES.replace("$ns", "$elsewhere"), feature()),
        only=_GRANTS,
    ),
]
FEATURE_ALLOWED = [
    Case(
        name="create",
        ask=post(FEATURES, feature(ownerReferences=[OWN_NODE], spec={"features": _EMPTY})),
        before=(delete(FEATURE),),
    ),
    Case(name="merge", ask=merge(FEATURE, _published(**{OWN_KEY: "7"}))),
    Case(name="apply", ask=apply(FEATURE, feature(spec={"features": _EMPTY}))),
    Case(name="PUT", ask=put(FEATURE, _published(**{OWN_KEY: "7"}))),
    Case(name="256 labels", ask=merge(FEATURE, {"spec": {"labels": mig_labels(255)}})),
]


def core_event(
    name: str, subject: dict[str, str], *, reporter: str = "gpuscape-agent", **more: Any
) -> dict[str, Any]:
    """An Event as the core group has it."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": subject,
        "reason": "Tried",
        "message": "tried",
        "type": "Normal",
        "action": "Try",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingComponent": reporter,
        "reportingInstance": "$pod",
        **more,
    }


def event(
    name: str, subject: dict[str, str], *, reporter: str = "gpuscape-agent", **more: Any
) -> dict[str, Any]:
    """An Event as events.k8s.io has it."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "regarding": subject,
        "reason": "Tried",
        "note": "tried",
        "type": "Normal",
        "action": "Try",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": reporter,
        "reportingInstance": "$pod",
        **more,
    }


SELF = {"apiVersion": "v1", "kind": "Node", "name": "$node", "uid": "$uid"}
POD = {"apiVersion": "v1", "kind": "Pod", "name": "$pod", "namespace": "$ns", "uid": "$poduid"}
WORKLOAD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "name": "workload",
    "namespace": "$ns",
    "uid": "$workloaduid",
}
NEIGHBOUR = {**SELF, "name": "$other"}

_SUBJECT, _REPORTER, _KEPT = (f"{_EVENT}/{rule}" for rule in ("subject", "reporter", "kept"))
_CORE, _NEW = CORE_EVENTS.format("default"), EVENTS.format("default")
_CORE_HOME, _NEW_HOME = CORE_EVENTS.format("$ns"), EVENTS.format("$ns")

EVENT_REFUSED = [
    Case(name="another node (core)", ask=post(_CORE, core_event("$new", NEIGHBOUR)), only=_SUBJECT),
    Case(name="another node (events)", ask=post(_NEW, event("$new", NEIGHBOUR)), only=_SUBJECT),
    Case(
        name="another pod (core)", ask=post(_CORE_HOME, core_event("$new", WORKLOAD)), only=_SUBJECT
    ),
    Case(name="another pod (events)", ask=post(_NEW_HOME, event("$new", WORKLOAD)), only=_SUBJECT),
    Case(
        name="a pod of our name elsewhere",
        ask=post(_CORE, core_event("$new", {**POD, "namespace": "default"})),
        only=_SUBJECT,
    ),
    Case(
        name="something else of our name",
        ask=post(_CORE_HOME, core_event("$new", {**POD, "kind": "ConfigMap"})),
        only=_SUBJECT,
    ),
    Case(
        name="as the kubelet (core)",
        ask=post(_CORE, core_event("$new", SELF, reporter="kubelet")),
        only=_REPORTER,
    ),
    Case(
        name="as the kubelet (events)",
        ask=post(_NEW, event("$new", SELF, reporter="kubelet")),
        only=_REPORTER,
    ),
    Case(
        name="as the kubelet by the old field (core)",
        ask=post(_CORE, core_event("$new", SELF, source={"component": "kubelet"})),
        only=_REPORTER,
    ),
    Case(
        name="patched to another reporter",
        ask=merge(f"{_CORE}/$node.agent", {"reportingComponent": "kubelet"}),
    ),
    Case(
        name="taken over",
        ask=merge(
            f"{_CORE}/$node.kubelet",
            {"reportingComponent": "gpuscape-agent", "source": {"component": "gpuscape-agent"}},
        ),
        only=_KEPT,
    ),
    Case(
        name="the kubelet's patched",
        ask=merge(f"{_CORE}/$node.kubelet", {"message": "all is well"}),
        only=_REPORTER,
    ),
    Case(
        name="pulled over from another node",
        ask=merge(f"{_CORE}/$other.agent", {"involvedObject": SELF}),
        only=_KEPT,
    ),
    Case(
        name="pushed to another node",
        ask=merge(f"{_CORE}/$node.agent", {"involvedObject": NEIGHBOUR}),
    ),
    Case(
        name="in a third namespace",
        ask=post(
            CORE_EVENTS.format("kube-system"),
            core_event("$new", {**POD, "namespace": "kube-system"}),
        ),
    ),
    Case(name="delete", ask=delete(f"{_CORE}/$node.agent")),
    Case(
        name="delete all",
        ask=delete(f"{_CORE}?fieldSelector=metadata.name=$node.agent"),
    ),
]
EVENT_ALLOWED = [
    Case(name="own Node (core)", ask=post(_CORE, core_event("$new", SELF))),
    Case(name="own Node (events)", ask=post(_NEW, event("$new", SELF))),
    Case(name="own pod (core)", ask=post(_CORE_HOME, core_event("$new", POD))),
    Case(name="own pod (events)", ask=post(_NEW_HOME, event("$new", POD))),
    Case(
        name="patched (core)",
        ask=merge(f"{_CORE}/$node.agent", {"message": "again", "count": 2}),
    ),
    Case(
        name="patched (events)",
        ask=merge(
            f"{_NEW}/$node.agent",
            {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}},
        ),
    ),
]

REFUSED = {"Lease": LEASE_REFUSED, "NodeFeature": FEATURE_REFUSED, "Event": EVENT_REFUSED}
ALLOWED = {"Lease": LEASE_ALLOWED, "NodeFeature": FEATURE_ALLOWED, "Event": EVENT_ALLOWED}
