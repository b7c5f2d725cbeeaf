# SPDX-License-Identifier: Apache-2.0
"""What an agent may and may not do to Nodes: other nodes, labels, annotations, fields."""

from __future__ import annotations

from typing import Any

from tests.access.ask import (
    Case,
    annotation,
    apply,
    label,
    merge,
    pointer,
    post,
    put,
    steps,
    strategic,
)
from tests.access.ask import delete as remove

NODE = "/api/v1/nodes/$node"
STATUS = f"{NODE}/status"
OTHER = "/api/v1/nodes/$other"
OWN_KEY = "nvidia.com/gpu.count"
OWN = label(OWN_KEY, "7")

_OWN_NODE = "gpuscape-agent-node/own-node"
_LABELS = "gpuscape-agent-node/labels"
_ANNOTATIONS = "gpuscape-agent-node/annotations"
_FROZEN = "gpuscape-agent-node/frozen"
_METADATA = "gpuscape-agent-node/metadata"
_APPLIERS = "gpuscape-agent-node/appliers"
_MANAGER = "gpuscape-agent-floor/field-manager"
_GRANTS = "gpuscape-agent-floor/grants"


def node(patch: dict[str, Any], name: str = "$node") -> dict[str, Any]:
    """The patch with what server-side apply wants to be told."""
    metadata = {"name": name, **patch.get("metadata", {})}
    return {"apiVersion": "v1", "kind": "Node", **patch, "metadata": metadata}


LOOK_ALIKE_LABELS = (
    "xgpuscape.io/gpu.health",
    "gpuscape.io.evil.com/gpu.health",
    "gpuscapexio/gpu.health",
    "sub.gpuscape.io/gpu.health",
    "gpuscape.io/gpu.health.x",
    "gpuscape.io/xgpu.health",
    "gpuscape.io/gpu-health",
    "gpuscape.io/GPU.health",
    "gpuscape.io/topology",
    "gpuscape.io/mig-permit",
    "gpuscape.io/release",
    "gpuscape.io/count",
    "gpuscape.io/counts.T4",
    "gpuscape.io/xcount.T4",
    "gpuscapexio/count.T4",
    "gpuscape.io.x/count.T4",
    "xgpuscape.io/memory.T4",
    "nvidiaxcom/gpu.count",
    "nvidia.com/gpuxcount",
    "nvidia.com/gpu.countx",
    "nvidia.com/gpu.count.x",
    "xnvidia.com/gpu.count",
    "nvidia.com.evil.com/gpu.count",
    "gpu.count",
    "nvidia.com/gpu",
    "nvidia.com/gpu.present",
    "nvidia.com/gpu.workload.config",
    "nvidia.com/gpu-driver-upgrade-state",
    "nvidia.com/device-plugin.config",
    "nvidia.com/mig-1g.5gb.unheard",
    "nvidia.com/mig-1g.5gb.count.x",
    "nvidia.com/mig-1gx5gb.count",
    "nvidia.com/mig-manager.count",
    "xnvidia.com/mig-1g.5gb.count",
    "nvidiaxcom/mig-1g.5gb.count",
    "nvidia.com/mig.config.states",
    "nvidia.com/mig.configs",
)
LOOK_ALIKE_ANNOTATIONS = (
    "gpuscape.io/topologyx",
    "gpuscape.io/topology.x",
    "xgpuscape.io/topology",
    "gpuscapexio/topology",
    "gpuscape.io.x/topology",
    "gpuscape.io/state",
    "gpuscape.io/mig-rollback-record",
    "gpuscape.io/link",
    "gpuscape.io/gpu.health",
    "gpuscape.io/mig-permits",
    "gpuscape.io/mig-cordons",
    "nvidia.com/gpu.count",
)
RESERVED_LABELS = (
    "nvidia.com/gpu.deploy.device-plugin",
    "nvidia.com/gpu.deploy.driver",
    "nvidia.com/gpu.deploy.new",
    "nvidia.com/mig.config",
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "node-restriction.kubernetes.io/tenant",
    "node-role.kubernetes.io/control-plane",
    "node.kubernetes.io/exclude-from-external-load-balancers",
)
RESERVED_ANNOTATIONS = (
    "gpuscape.io/mig-layout",
    "gpuscape.io/release",
    "gpuscape.io/drain",
    "gpuscape.io/mig-permit",
    "gpuscape.io/mig-cordon",
    "gpuscape.io/clear-xids",
    "gpuscape.io/keep-cordoned",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
    "karpenter.sh/do-not-disrupt",
    "nfd.node.kubernetes.io/feature-labels",
    "node.alpha.kubernetes.io/ttl",
)

_MIG_SUFFIXES = (
    "product",
    "count",
    "replicas",
    "sharing-strategy",
    "memory",
    "multiprocessors",
    "slices.gi",
    "slices.ci",
    "engines.copy",
    "engines.decoder",
    "engines.encoder",
    "engines.jpeg",
    "engines.ofa",
)


def mig_labels(count: int) -> dict[str, str]:
    """As many labels of MIG profiles."""
    keys = [
        f"nvidia.com/mig-1c.2g.{size}gb.me.{suffix}"
        for size in range(10, 10 + count // len(_MIG_SUFFIXES) + 1)
        for suffix in _MIG_SUFFIXES
    ]
    return dict.fromkeys(keys[:count], "x")


_CROWDED = merge(
    NODE,
    {"metadata": {"labels": {f"nvidia.com/others.{n}": "x" for n in range(300)}}},
    manager="others",
)
"""More labels under nvidia.com/ than the agent may bring their number to."""
_LONG_STATUS = merge(NODE, annotation("gpuscape.io/mig-status", "x" * 9000), manager="kubectl-edit")
_TAINT = {"key": "example.com/new", "effect": "NoSchedule"}
_OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}
_STATUS = {"status": {"capacity": {"nvidia.com/gpu": "99"}}}
_APPLIER = {
    "manager": "other-applier",
    "operation": "Apply",
    "apiVersion": "v1",
    "time": "2026-01-01T00:00:00Z",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:metadata": {"f:labels": {f"f:{OWN_KEY}": {}}}},
}


def _on(what: str, path: str, name: str, only: str = _OWN_NODE) -> list[Case]:
    """Own labels and nothing at all, on a Node that is not the agent's."""
    at = f"/metadata/labels/{pointer(OWN_KEY)}"
    return [
        Case(name=f"{what}: merge", ask=merge(path, OWN), only=only),
        Case(name=f"{what}: JSON", ask=steps(path, ("add", at, "7")), only=only),
        Case(name=f"{what}: strategic", ask=strategic(path, OWN), only=only),
        Case(name=f"{what}: apply", ask=apply(path, node(OWN, name))),
        Case(name=f"{what}: PUT", ask=put(path, OWN), only=only),
        Case(name=f"{what}: empty patch", ask=merge(path, {}), only=only),
        Case(name=f"{what}: annotation", ask=merge(path, annotation("gpuscape.io/topology"))),
    ]


OTHER_NODE = [
    *_on("other node", OTHER, "$other"),
    *_on("node whose name starts with ours", f"{NODE}x", "$nodex"),
    *_on("node with ours plus a dot", f"{NODE}.x", "$node.x"),
    Case(name="other node: status", ask=merge(f"{OTHER}/status", _STATUS)),
    Case(name="other node: delete", ask=remove(OTHER)),
    Case(name="other node: create", ask=post("/api/v1/nodes", node({}, "$fresh")), only=_GRANTS),
    Case(name="own node: delete", ask=remove(NODE)),
    Case(
        name="collection of Nodes: delete",
        ask=remove("/api/v1/nodes?labelSelector=kubernetes.io/hostname=$other"),
    ),
]

LABELS = [
    Case(name="foreign: added by merge", ask=merge(NODE, label("example.com/new")), only=_LABELS),
    Case(
        name="foreign: added by JSON",
        ask=steps(NODE, ("add", "/metadata/labels/example.com~1new", "x")),
        only=_LABELS,
    ),
    Case(
        name="foreign: added by strategic",
        ask=strategic(NODE, label("example.com/n")),
        only=_LABELS,
    ),
    Case(name="foreign: added by apply", ask=apply(NODE, node(label("example.com/n")))),
    Case(name="foreign: added by PUT", ask=put(NODE, label("example.com/new")), only=_LABELS),
    Case(name="foreign: changed", ask=merge(NODE, label("example.com/team", "b")), only=_LABELS),
    Case(name="foreign: removed", ask=merge(NODE, label("example.com/team", None)), only=_LABELS),
    Case(
        name="foreign: removed by JSON",
        ask=steps(NODE, ("remove", "/metadata/labels/example.com~1team")),
        only=_LABELS,
    ),
    Case(
        name="foreign: emptied by JSON",
        ask=steps(NODE, ("replace", "/metadata/labels/example.com~1team", "")),
        only=_LABELS,
    ),
    Case(name="all: dropped by null", ask=merge(NODE, {"metadata": {"labels": None}})),
    Case(name="all: dropped by JSON", ask=steps(NODE, ("remove", "/metadata/labels"))),
    Case(
        name="all: replaced by strategic",
        ask=strategic(NODE, {"metadata": {"labels": {"$patch": "replace", OWN_KEY: "7"}}}),
    ),
    Case(name="all: replaced by JSON", ask=steps(NODE, ("add", "/metadata/labels", {}))),
    Case(
        name="own and foreign in one patch",
        ask=merge(NODE, {"metadata": {"labels": {OWN_KEY: "7", "example.com/new": "x"}}}),
        only=_LABELS,
    ),
    Case(
        name="moved from own to foreign",
        ask=steps(
            NODE,
            ("move", f"/metadata/labels/{pointer(OWN_KEY)}", "/metadata/labels/example.com~1x"),
        ),
        only=_LABELS,
    ),
    Case(
        name="moved from foreign to own",
        ask=steps(
            NODE,
            ("move", "/metadata/labels/example.com~1team", f"/metadata/labels/{pointer(OWN_KEY)}"),
        ),
        only=_LABELS,
    ),
    *(
        Case(name=f"look-alike {key}", ask=merge(NODE, label(key)), only=_LABELS)
        for key in LOOK_ALIKE_LABELS
    ),
    *(
        Case(name=f"reserved {key}", ask=merge(NODE, label(key)), only=_LABELS)
        for key in RESERVED_LABELS
    ),
    Case(
        name="admin's layout removed",
        ask=merge(NODE, label("nvidia.com/mig.config", None)),
        only=_LABELS,
    ),
    Case(
        name="deploy label removed",
        ask=merge(NODE, label("nvidia.com/gpu.deploy.device-plugin", None)),
        only=_LABELS,
    ),
    Case(
        name="300 own labels",
        ask=merge(NODE, {"metadata": {"labels": mig_labels(300)}}),
        only="gpuscape-agent-node/label-count",
    ),
    Case(
        name="one more beside 300 of others under nvidia.com",
        ask=merge(NODE, label("gpuscape.io/gpu.health")),
        only="gpuscape-agent-node/label-count",
        before=(_CROWDED,),
    ),
    Case(
        name="two more for one less beside 300 of others",
        ask=merge(NODE, {"metadata": {"labels": {OWN_KEY: None, **mig_labels(2)}}}),
        only="gpuscape-agent-node/label-count",
        before=(_CROWDED,),
    ),
]

ANNOTATIONS = [
    Case(name="foreign: added", ask=merge(NODE, annotation("example.com/new")), only=_ANNOTATIONS),
    Case(
        name="foreign: added by JSON",
        ask=steps(NODE, ("add", "/metadata/annotations/example.com~1new", "x")),
        only=_ANNOTATIONS,
    ),
    Case(
        name="foreign: added by strategic",
        ask=strategic(NODE, annotation("example.com/new")),
        only=_ANNOTATIONS,
    ),
    Case(
        name="foreign: changed", ask=merge(NODE, annotation("example.com/note")), only=_ANNOTATIONS
    ),
    Case(
        name="foreign: removed",
        ask=merge(NODE, annotation("example.com/note", None)),
        only=_ANNOTATIONS,
    ),
    Case(name="all: dropped", ask=merge(NODE, {"metadata": {"annotations": None}})),
    Case(name="all: dropped by JSON", ask=steps(NODE, ("remove", "/metadata/annotations"))),
    Case(
        name="own and foreign in one patch",
        ask=merge(
            NODE, {"metadata": {"annotations": {"gpuscape.io/topology": "x", "example.com/n": "x"}}}
        ),
        only=_ANNOTATIONS,
    ),
    *(
        Case(name=f"look-alike {key}", ask=merge(NODE, annotation(key)), only=_ANNOTATIONS)
        for key in LOOK_ALIKE_ANNOTATIONS
    ),
    *(
        Case(name=f"reserved {key}", ask=merge(NODE, annotation(key)), only=_ANNOTATIONS)
        for key in RESERVED_ANNOTATIONS
    ),
    Case(
        name="admin's layout removed",
        ask=merge(NODE, annotation("gpuscape.io/mig-layout", None)),
        only=_ANNOTATIONS,
    ),
    Case(
        name="9,000 characters",
        ask=merge(NODE, annotation("gpuscape.io/topology", "x" * 9000)),
        only="gpuscape-agent-node/annotation-size",
    ),
    Case(
        name="9,000 characters in two",
        ask=merge(
            NODE,
            {
                "metadata": {
                    "annotations": {
                        "gpuscape.io/mig-request": "x" * 4500,
                        "gpuscape.io/mig-status": "x" * 4500,
                    }
                }
            },
        ),
        only="gpuscape-agent-node/annotation-size",
    ),
    Case(
        name="one character more beside 9,000 that somebody else wrote",
        ask=merge(NODE, annotation("gpuscape.io/topology", "xxx")),
        only="gpuscape-agent-node/annotation-size",
        before=(_LONG_STATUS,),
    ),
]

_UNSCHEDULABLE = {"spec": {"unschedulable": True}}

FIELDS = [
    Case(name="cordon: merge", ask=merge(NODE, _UNSCHEDULABLE), only=_FROZEN),
    Case(name="cordon: JSON", ask=steps(NODE, ("add", "/spec/unschedulable", True)), only=_FROZEN),
    Case(name="cordon: strategic", ask=strategic(NODE, _UNSCHEDULABLE), only=_FROZEN),
    Case(name="cordon: apply", ask=apply(NODE, node(_UNSCHEDULABLE))),
    Case(name="cordon: PUT", ask=put(NODE, _UNSCHEDULABLE), only=_FROZEN),
    Case(
        name="taints: added",
        ask=steps(NODE, ("add", "/spec/taints/-", _TAINT)),
        only=_FROZEN,
    ),
    Case(
        name="taints: added by strategic",
        ask=strategic(NODE, {"spec": {"taints": [_TAINT]}}),
        only=_FROZEN,
    ),
    Case(name="taints: null", ask=merge(NODE, {"spec": {"taints": None}}), only=_FROZEN),
    Case(name="spec: null", ask=merge(NODE, {"spec": None})),
    Case(name="taints: replaced", ask=merge(NODE, {"spec": {"taints": [_TAINT]}}), only=_FROZEN),
    Case(
        name="taints: removed by JSON", ask=steps(NODE, ("remove", "/spec/taints/0")), only=_FROZEN
    ),
    Case(
        name="taints: hidden beside an own label",
        ask=merge(NODE, {**OWN, "spec": {"taints": [_TAINT]}}),
        only=_FROZEN,
    ),
    Case(name="provider", ask=merge(NODE, {"spec": {"providerID": "x"}}), only=_FROZEN),
    Case(name="status: merge", ask=merge(STATUS, _STATUS)),
    Case(
        name="status: JSON",
        ask=steps(STATUS, ("add", "/status/capacity", {"nvidia.com/gpu": "99"})),
    ),
    Case(name="status: strategic", ask=strategic(STATUS, _STATUS)),
    Case(name="status: apply", ask=apply(STATUS, node(_STATUS))),
    Case(name="status: PUT", ask=put(STATUS, _STATUS)),
    Case(name="status: an own label", ask=merge(STATUS, OWN), only=_GRANTS),
    Case(name="status: a foreign label", ask=merge(STATUS, label("example.com/new"))),
]

METADATA = [
    Case(
        name="finalizer added",
        ask=merge(NODE, {"metadata": {"finalizers": ["example.com/keep", "example.com/more"]}}),
        only=_METADATA,
    ),
    Case(
        name="finalizer removed",
        ask=merge(NODE, {"metadata": {"finalizers": None}}),
        only=_METADATA,
    ),
    Case(
        name="finalizer replaced by JSON",
        ask=steps(NODE, ("replace", "/metadata/finalizers/0", "example.com/mine")),
        only=_METADATA,
    ),
    Case(
        name="owner added",
        ask=merge(NODE, {"metadata": {"ownerReferences": [_OWNER]}}),
        only=_METADATA,
    ),
    Case(
        name="owner added by strategic",
        ask=strategic(NODE, {"metadata": {"ownerReferences": [_OWNER]}}),
        only=_METADATA,
    ),
    Case(
        name="owner hidden beside an own label",
        ask=merge(NODE, {"metadata": {"ownerReferences": [_OWNER], "labels": {OWN_KEY: "7"}}}),
        only=_METADATA,
    ),
    Case(
        name="managedFields reset",
        ask=merge(NODE, {"metadata": {"managedFields": [{}]}}),
    ),
    Case(
        name="managedFields enlarged",
        ask=steps(NODE, ("add", "/metadata/managedFields/-", _APPLIER)),
        only=_APPLIERS,
    ),
    Case(
        name="managedFields invented",
        ask=merge(NODE, {"metadata": {"managedFields": [_APPLIER]}}),
    ),
    Case(
        name="managedFields dropped",
        ask=steps(NODE, ("remove", "/metadata/managedFields/0")),
        only=_APPLIERS,
    ),
    Case(name="own label by apply", ask=apply(NODE, node(OWN)), only=_APPLIERS),
    Case(
        name="foreign label co-owned by apply",
        ask=apply(NODE, node(label("example.com/team", "a"))),
        only=_APPLIERS,
    ),
    Case(
        name="own key that another applier owns",
        ask=merge(NODE, label("nvidia.com/gpu.family", "ampere")),
        only=_APPLIERS,
    ),
    Case(
        name="foreign field manager",
        ask=merge(NODE, OWN, manager="kubectl-edit"),
        only=_MANAGER,
    ),
    Case(
        name="the coordinator's field manager",
        ask=merge(NODE, OWN, manager="gpuscape-coordinator"),
        only=_MANAGER,
    ),
    Case(name="no field manager", ask=merge(NODE, {}, manager=None), only=_MANAGER),
]

REFUSED = {
    "other node": OTHER_NODE,
    "labels": LABELS,
    "annotations": ANNOTATIONS,
    "spec and status": FIELDS,
    "metadata": METADATA,
}

_39 = dict.fromkeys(list(mig_labels(38)), "x") | {OWN_KEY: "7"}

ALLOWED = {
    "other node": [Case(name="empty patch on the own node", ask=merge(NODE, {}))],
    "labels": [
        Case(name="one", ask=merge(NODE, OWN)),
        Case(name="39 at once", ask=merge(NODE, {"metadata": {"labels": _39}})),
        Case(name="130 of MIG at once", ask=merge(NODE, {"metadata": {"labels": mig_labels(130)}})),
        Case(name="removed", ask=merge(NODE, label(OWN_KEY, None))),
        *(
            Case(
                name=f"{what} beside 300 of others under nvidia.com",
                ask=merge(NODE, {"metadata": {"labels": {**changes}}}),
                before=(_CROWDED,),
            )
            for what, changes in (
                ("removed", {OWN_KEY: None, "nvidia.com/gpu.product": None}),
                ("changed", {OWN_KEY: "7"}),
                ("one for another", {OWN_KEY: None, "gpuscape.io/gpu.health": "healthy"}),
            )
        ),
        Case(name="of a model", ask=merge(NODE, label("gpuscape.io/count.NVIDIA-H100", "8"))),
        Case(name="state of a MIG change", ask=merge(NODE, label("nvidia.com/mig.config.state"))),
        Case(
            name="by JSON",
            ask=steps(NODE, ("add", f"/metadata/labels/{pointer(OWN_KEY)}", "7")),
        ),
        Case(name="by strategic", ask=strategic(NODE, OWN)),
        Case(
            name="taken over from a plain updater",
            ask=merge(NODE, label("nvidia.com/gpu.product", "new")),
            before=(merge(NODE, label("nvidia.com/gpu.product", "old"), manager="gfd"),),
        ),
        Case(
            name="with the version",
            ask=merge(
                NODE, {"metadata": {"resourceVersion": "$version", "labels": {OWN_KEY: "7"}}}
            ),
        ),
    ],
    "annotations": [
        *(
            Case(name=key, ask=merge(NODE, annotation(key)))
            for key in (
                "gpuscape.io/topology",
                "gpuscape.io/known-gpus",
                "gpuscape.io/mig-request",
                "gpuscape.io/mig-status",
            )
        ),
        Case(
            name="topology of 8,192 characters",
            ask=merge(NODE, annotation("gpuscape.io/topology", "x" * 8192)),
        ),
        Case(name="removed", ask=merge(NODE, annotation("gpuscape.io/topology", None))),
        Case(
            name="a label beside 9,000 characters that somebody else wrote",
            ask=merge(NODE, OWN),
            before=(_LONG_STATUS,),
        ),
    ],
    "spec and status": [
        Case(name="status through the main resource is ignored", ask=merge(NODE, _STATUS)),
    ],
    "metadata": [
        Case(
            name="beside 14 other updaters",
            ask=merge(NODE, OWN),
            before=tuple(
                merge(NODE, label(f"example.com/u{n}"), manager=f"updater-{n}") for n in range(14)
            ),
        ),
        Case(
            name="beside 1,000 labels and 200 kB of others",
            ask=merge(NODE, OWN),
            before=(
                merge(
                    NODE, {"metadata": {"labels": {f"example.com/l{n}": "x" for n in range(1000)}}}
                ),
                merge(
                    NODE,
                    {
                        "metadata": {
                            "annotations": {f"example.com/a{n}": "x" * 1000 for n in range(200)}
                        }
                    },
                ),
            ),
        ),
    ],
}
