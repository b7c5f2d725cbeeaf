# SPDX-License-Identifier: Apache-2.0
"""The agent's NodeFeature: its content, and the patch that brings it there. Pure.

nfd-master makes Node labels of ``spec.labels``. Nothing else in the object is used: raw
features could set off other people's rules. Its owner is the Node and never a pod, whose
end would take the labels with it. The owner is written at the start only: clusters that
guard ownerReferences ask for the right to delete of whoever changes them.

Source: node-feature-discovery, api/nfd/v1alpha1 and pkg/nfd-master; for name and label of the
object NVIDIA/k8s-device-plugin v0.20.0, internal/lm/output.go; for the owner
NVIDIA/gpu-operator issue 2914.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from api import keys, limits, names
from api.key_kinds import is_rule_key
from kube.api import NODE_FEATURES, NODES, Object
from kube.lease import owner
from kube.objects.typed_object import Metadata, TypedObject, field_managers
from labelers.decision import Decisions
from labelers.diff import applied

NO_KIND = "no NodeFeature can be made: install Node Feature Discovery, or choose the Node sink"
"""Meaning of a 404 on creation."""

_RAW_FEATURES = ("flags", "attributes", "instances")


class NodeFeatureSpec(TypedObject, frozen=True):
    """Spec of a NodeFeature."""

    features: Mapping[str, Any] = {}
    labels: Mapping[str, str] = {}


class NodeFeature(TypedObject, frozen=True):
    """A NodeFeature of Node Feature Discovery."""

    metadata: Metadata = Metadata()
    spec: NodeFeatureSpec = NodeFeatureSpec()


msgspec.convert({}, NodeFeature)  # before there is a thread, as in kube.objects.pod


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFeatureLabels:
    """Labels for ``spec.labels``, and those that cannot be in it."""

    texts: Mapping[str, str]
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Labels that cannot be in it, and why."""


def feature_labels(present: Object | None, desired: Decisions) -> NodeFeatureLabels:
    """The labels to publish; one to be kept stays as the object ``present`` has it.

    What a rule made once and none makes now is not among them: the object is ours alone.
    Texts that start with ``@`` are references to nfd-master, and never a label's own.
    """
    present_labels = NodeFeature.from_object(present or {}).spec.labels
    ours = {
        key: text
        for key, text in applied(present_labels, desired).items()
        if keys.label(key) is not None or (key in desired and is_rule_key(key))
    }
    dropped = {
        key: f"{text!r} would be a reference" for key, text in ours.items() if text[:1] == "@"
    }
    fitting = [key for key in ours if key not in dropped]
    surplus = fitting[limits.MOST_LABELS :]
    dropped |= dict.fromkeys(surplus, f"a NodeFeature may have {limits.MOST_LABELS} labels")
    return NodeFeatureLabels(
        texts={key: text for key, text in ours.items() if key not in dropped}, dropped=dropped
    )


def new_node_feature(node: Object, texts: Mapping[str, str]) -> Object:
    """The object to create for ``node``, of which name and uid are used."""
    name = node["metadata"]["name"]
    return {
        "apiVersion": NODE_FEATURES.api_version,
        "kind": NODE_FEATURES.kind,
        "metadata": {
            "name": names.node_feature(name),
            "labels": {names.NODE_FEATURE_NODE_LABEL: name},
            "ownerReferences": [owner(node)],
        },
        "spec": {"features": {part: {} for part in _RAW_FEATURES}, "labels": dict(texts)},
    }


def feature_patch(present: Object, node_name: str, texts: Mapping[str, str]) -> Object:
    """The JSON merge patch that leaves exactly this in ``present``; empty when it is so.

    Labels that others added to it are removed, for admission judges the whole object.
    """
    feature = NodeFeature.from_object(present)
    spec = feature.spec
    return _difference(
        {
            "metadata": {"labels": feature.metadata.labels},
            "spec": {"features": spec.features, "labels": spec.labels},
        },
        {
            "metadata": {"labels": {names.NODE_FEATURE_NODE_LABEL: node_name}},
            "spec": {"features": {part: {} for part in spec.features}, "labels": texts},
        },
    )


def is_ours(present: Object, manager: str) -> bool:
    """Whether we made it: ``manager`` wrote some of it, or a Node owns it and nobody else.

    gpu-feature-discovery's has the same name, and its DaemonSet and pod for owners.
    """
    owners = Metadata.from_object(present["metadata"]).owner_references
    is_a_nodes = [owner.kind for owner in owners] == [NODES.kind]
    return is_a_nodes or manager in field_managers(present["metadata"])


def is_doomed(present: Object, uid: str) -> bool:
    """Whether its owner was a Node of another uid, so that the garbage collector takes it."""
    owners = Metadata.from_object(present["metadata"]).owner_references
    return bool(owners) and all(owner.uid != uid for owner in owners)


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> Object:
    """The merge patch from one to the other; empty when they are equal."""
    changes: Object = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := _difference(before, value):
                changes[key] = inner
        elif key not in old or before != value:
            changes[key] = value
    return changes
