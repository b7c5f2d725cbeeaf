# SPDX-License-Identifier: Apache-2.0
"""Who holds which GPUs, in words: what ``holders`` prints in the cluster of ``make cluster``.

    kubectl get nodes,leases,pods -A -o json | python -m tests.kubelet_nodes.holders

Read from what the agents publish: the topology on each Node, and the state on each Lease.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from api import keys, names, state_annotation, topology_annotation
from api.state_annotation import StateAnnotation, pod_key
from api.topology_annotation import TopologyAnnotation


def main() -> int:
    """Print the sentences for the objects on standard input."""
    print("\n".join(lines(json.load(sys.stdin)["items"])))  # noqa: T201  # it is a command
    return 0


def lines(objects: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each pod that holds GPUs, and one for what is free on each node."""
    pods = {
        pod_key(meta["namespace"], meta["name"]): f"{meta['namespace']}/{meta['name']}"
        for meta in _metadata(objects, "Pod")
    }
    states = {
        meta["name"]: annotations[keys.STATE]
        for meta in _metadata(objects, "Lease")
        if keys.STATE in (annotations := meta.get("annotations") or {})
    }
    for meta in _metadata(objects, "Node"):
        text = (meta.get("annotations") or {}).get(keys.TOPOLOGY)
        topology = topology_annotation.decode(text) if text else None
        lease = names.agent_lease(meta["name"])
        found = state_annotation.decode(states[lease]) if lease in states else None
        if topology is not None and found is not None:
            yield from (f"{meta['name']}: {each}" for each in _holders(topology, found, pods))


def _holders(
    topology: TopologyAnnotation, found: StateAnnotation, pods: Mapping[str, str]
) -> Iterator[str]:
    for key, mask in found.pods.items():
        gpus = _places(int(mask, 16))
        yield f"{pods.get(key, 'a pod that is gone')} holds {_gpus(gpus)}{_linked(topology, gpus)}"
    yield f"free: {_gpus(_places(found.free))}"


def _linked(topology: TopologyAnnotation, gpus: list[int]) -> str:
    """The fewest NVLinks between any two of these; nothing about a single GPU."""
    pairs = [topology.links(a, b) for a, b in combinations(gpus, 2)]
    if not pairs:
        return ""
    fewest, more = min(pairs), " or more" if len(pairs) > 1 else ""
    if not fewest:
        return ", not all linked" if more else ", not linked"
    return f", linked by {fewest} NVLink{'s' if fewest > 1 else ''}{more}"


def _places(mask: int) -> list[int]:
    return [at for at in range(mask.bit_length()) if mask >> at & 1]


def _gpus(places: list[int]) -> str:
    if not places:
        return "no GPU"
    *most, last = map(str, places)
    return f"GPUs {', '.join(most)} and {last}" if most else f"GPU {last}"


def _metadata(objects: list[dict[str, Any]], kind: str) -> Iterator[dict[str, Any]]:
    return (each["metadata"] for each in objects if each["kind"] == kind)


if __name__ == "__main__":
    sys.exit(main())
