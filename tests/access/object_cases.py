# SPDX-License-Identifier: Apache-2.0
"""What an agent may and may not do to Leases, NodeFeatures and Events."""

from __future__ import annotations

from typing import Any

from tests.access.ask import Case, annotation, apply, delete, label, merge, post, put
from tests.access.node_cases import OWN_KEY, mig_labels

LEASES = "/apis/coordination.k8s.io/v1/namespaces/$ns/leases"
LEASE = f"{LEASES}/gpuscape-$node"
FEATURES = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/$ns/nodefeatures"
DAEMON_SETS = "/apis/apps/v1/namespaces/$ns/daemonsets"
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


def _held(by: str) -> dict[str, Any]:
    """A patch of a Lease's holder."""
    return {"spec": {"holderIdentity": by}}


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
    *(
        Case(
            name=f"holder of {len(holder)}",
            ask=merge(LEASE, _held(holder)),
            only=f"{_LEASE}/holder",
        )
        for holder in ("x" * 65, "x" * 100_000)
    ),
    Case(
        name="holder of 65: on create",
        ask=post(LEASES, lease() | _held("x" * 65)),
        only=f"{_LEASE}/holder",
        before=(delete(LEASE),),
    ),
    Case(
        name="a term of 601 seconds",
        ask=merge(LEASE, {"spec": {"leaseDurationSeconds": 601}}),
        only=f"{_LEASE}/term",
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
    Case(name="released", ask=merge(LEASE, _held(""))),
    Case(name="holder of 64", ask=merge(LEASE, _held("x" * 64))),
    Case(
        name="renewed under a state that somebody else made too long",
        ask=merge(LEASE, _renewed()),
        before=(merge(LEASE, annotation(STATE, "x" * 17_000), manager="x"),),
    ),
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
    Case(
        name="a value of 64",
        ask=merge(FEATURE, _published(**{OWN_KEY: "x" * 64})),
        only=f"{_FEATURE}/value-size",
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
    Case(name="a value of 63", ask=merge(FEATURE, _published(**{OWN_KEY: "x" * 63}))),
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

_SUBJECT, _NAMED, _REPORTER, _RELATED, _BARE = (
    f"{_EVENT}/{rule}" for rule in ("subject", "name", "reporter", "related", "bare")
)
_CORE, _NEW = CORE_EVENTS.format("default"), EVENTS.format("default")
_NEW_HOME = EVENTS.format("$ns")
NAMED = "$node.$digest"
"""As the agent names its Events; $digest is another one each time."""
KNOWN = "$node.0123456789abcdef"
"""One that the agent wrote before; the names of others in the cluster follow."""
OF_NEIGHBOUR = "$other.0123456789abcdef"
OF_KUBELET = "$node.17f0a0b1c2d3e4f5"

NOT_OF_EVENTS: tuple[tuple[str, Any], ...] = (
    ("labels", {"example.com/new": "x"}),
    ("annotations", {"example.com/new": "x"}),
    ("finalizers", ["example.com/keep"]),
    ("ownerReferences", [OWN_NODE]),
)
"""Parts of metadata that our Events do not have."""


def _new(name: str, subject: dict[str, str] | None = None, **more: Any) -> Any:
    """The request for a new Event about the agent's Node."""
    return post(_NEW, event(name, subject or SELF, **more))


EVENT_REFUSED = [
    Case(name="another node", ask=_new(NAMED, NEIGHBOUR), only=_SUBJECT),
    Case(name="another node by its name", ask=_new("$other.$digest", NEIGHBOUR)),
    Case(name="own pod", ask=post(_NEW_HOME, event("$pod.$digest", POD))),
    Case(name="own pod by the Node's name", ask=post(_NEW_HOME, event(NAMED, POD))),
    Case(name="another pod", ask=post(_NEW_HOME, event(NAMED, WORKLOAD))),
    Case(
        name="something else of our name",
        ask=_new(NAMED, {**SELF, "kind": "ConfigMap", "namespace": "default"}),
        only=_SUBJECT,
    ),
    *(
        Case(name=f"subject with {field}", ask=_new(NAMED, {**SELF, field: text}), only=_SUBJECT)
        for field, text in (
            ("apiVersion", "example.com/v1"),
            ("fieldPath", "x" * 10_000),
            ("resourceVersion", "x" * 10_000),
            ("uid", "x" * 65),
        )
    ),
    *(
        Case(name=f"named {name}", ask=_new(name), only=_NAMED)
        for name in (
            "$new",
            "$node",
            "$node.agent",
            "$node.$digestx",
            "$node.$digest0",
            "$node.x$digest",
            "$nodex.$digest",
            "$node.x.$digest",
            "$node-$digest",
            "x$node.$digest",
            "$other.$digest",
            "gpuscape-$uid",
        )
    ),
    Case(
        name="named by the server",
        ask=post(_NEW, {**event("", SELF), "metadata": {"generateName": "$node"}}),
        only=_NAMED,
    ),
    Case(name="as the kubelet", ask=_new(NAMED, reporter="kubelet"), only=_REPORTER),
    Case(
        name="the kubelet's patched",
        ask=merge(
            f"{_NEW}/{OF_KUBELET}",
            {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}},
        ),
        only=_REPORTER,
    ),
    Case(name="with a second object", ask=_new(NAMED, related=NEIGHBOUR), only=_RELATED),
    *(
        Case(name=f"with {part}", ask=_new(NAMED, metadata={"name": NAMED, part: it}), only=_BARE)
        for part, it in NOT_OF_EVENTS
    ),
    *(
        Case(
            name=f"{part} added", ask=merge(f"{_NEW}/{KNOWN}", {"metadata": {part: it}}), only=_BARE
        )
        for part, it in NOT_OF_EVENTS
    ),
    Case(name="by the core group", ask=post(_CORE, core_event(NAMED, SELF)), only=_GRANTS),
    Case(
        name="by the core group, longer than its own API allows",
        ask=post(_CORE, core_event(NAMED, SELF, message="x" * 100_000, eventTime=None)),
        only=_GRANTS,
    ),
    Case(
        name="patched by the core group",
        ask=merge(f"{_CORE}/{KNOWN}", {"message": "again", "count": 2}),
        only=_GRANTS,
    ),
    Case(
        name="taken over by the core group",
        ask=merge(
            f"{_CORE}/{OF_KUBELET}",
            {"reportingComponent": "gpuscape-agent", "source": {"component": "gpuscape-agent"}},
        ),
    ),
    Case(
        name="pulled over from another node by the core group",
        ask=merge(f"{_CORE}/{OF_NEIGHBOUR}", {"involvedObject": SELF}),
    ),
    Case(
        name="in the agent's namespace",
        ask=post(_NEW_HOME, event(NAMED, {**SELF, "namespace": "$ns"})),
    ),
    Case(
        name="in a third namespace",
        ask=post(EVENTS.format("kube-system"), event(NAMED, {**SELF, "namespace": "kube-system"})),
    ),
    Case(name="delete", ask=delete(f"{_NEW}/{KNOWN}")),
    Case(name="delete all", ask=delete(f"{_NEW}?fieldSelector=metadata.name={KNOWN}")),
]
EVENT_ALLOWED = [
    Case(name="own Node", ask=_new(NAMED)),
    Case(
        name="counted",
        ask=merge(
            f"{_NEW}/{KNOWN}",
            {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}},
        ),
    ),
    Case(name="empty patch, which shows the Event", ask=merge(f"{_NEW}/{KNOWN}", {})),
    Case(
        name="counted where somebody else annotated it",
        ask=merge(
            f"{_NEW}/{KNOWN}",
            {"series": {"count": 3, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}},
        ),
        before=(merge(f"{_CORE}/{KNOWN}", annotation("example.com/new"), manager="x"),),
    ),
]

REFUSED = {"Lease": LEASE_REFUSED, "NodeFeature": FEATURE_REFUSED, "Event": EVENT_REFUSED}
ALLOWED = {"Lease": LEASE_ALLOWED, "NodeFeature": FEATURE_ALLOWED, "Event": EVENT_ALLOWED}
