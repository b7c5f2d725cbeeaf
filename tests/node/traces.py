# SPDX-License-Identifier: Apache-2.0
"""All that a cluster with real nodes holds, by name, so that two moments can be compared.

Every object of every kind that the API server lists, what of a Node an admin or a program may
write, and every file on the nodes' disks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tests.controlplane.plane import Object
from tests.node.machine import DISK
from tests.node.real_cluster import RealCluster
from tests.node.real_node import RealNode

_NAMED: Final = "{range .items[*]}{.kind} {.metadata.namespace} {.metadata.name}{'\\n'}{end}"
_HISTORY: Final = ("events", "events.events.k8s.io")
"""They say what happened, and go by themselves."""
_RUNTIMES: Final = ("containerd", "cni", "kubelet/pods", "gpus")
"""Below /var/lib: what containerd, the network and the kubelet keep of pods, and the driver."""
_KUBELETS: Final = ("allocated_pods_state", "actuated_pods_state")
"""The kubelet's own, from the first pod with limits on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """A cluster at one moment."""

    objects: frozenset[str]
    """Kind, namespace and name of each."""
    nodes: Mapping[str, Object]
    """Labels, annotations and specification of each, taints in it."""
    files: frozenset[str]
    """Of the nodes' disks: node and path."""

    @classmethod
    def of(cls, cluster: RealCluster) -> Self:
        """As it is now."""
        return cls(
            objects=frozenset(_objects(cluster)),
            nodes={name: _node(node) for name, node in cluster.nodes.items()},
            files=frozenset(
                f"{name} {path}" for name, node in cluster.nodes.items() for path in _below(node)
            ),
        )

    def left_since(self, before: Self) -> list[str]:
        """What was not there before; of a Node also what is otherwise."""
        changed = [
            f"{name} {part} {key}"
            for name, parts in self.nodes.items()
            for part, now in parts.items()
            for key in sorted(now.keys() | before.nodes[name][part].keys())
            if now.get(key) != before.nodes[name][part].get(key)
        ]
        new = (*(self.objects - before.objects), *(self.files - before.files))
        return [*sorted(new), *changed]


def _objects(cluster: RealCluster) -> list[str]:
    listed = cluster.plane.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    kinds = ",".join(sorted(set(listed) - set(_HISTORY)))
    named = cluster.plane.kubectl("get", kinds, "--all-namespaces", "-o", f"jsonpath={_NAMED}")
    return named.splitlines()


def _node(node: RealNode) -> Object:
    now = node.object()
    metadata = {key: now["metadata"].get(key, {}) for key in ("labels", "annotations")}
    return {**metadata, "spec": now["spec"]}


def _below(node: RealNode) -> Iterator[str]:
    disk = node.folder / DISK
    left_out = [disk / it for it in _RUNTIMES]
    for folder, below, names in os.walk(disk):
        below[:] = [it for it in below if Path(folder, it) not in left_out]
        for name in (*below, *(it for it in names if it not in _KUBELETS)):
            yield str(Path("/var/lib", Path(folder, name).relative_to(disk)))
