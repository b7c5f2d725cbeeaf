# SPDX-License-Identifier: Apache-2.0
"""How a MIG change ended and what it left, by objects of the API server and a simulator's state
file alone: keys and values stand here as text, and no code of the product is used."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

Places = tuple[tuple[str, int], ...]
"""Profiles of GPU instances, with the memory unit at which each begins."""

BEFORE: Final[Places] = (
    ("1g.5gb", 0),
    ("1g.5gb", 1),
    ("2g.10gb", 2),
    ("2g.10gb", 4),
    ("1g.5gb", 6),
)
AFTER: Final[Places] = (("4g.20gb", 0), ("2g.10gb", 4), ("1g.5gb", 6))
_OURS: Final = (
    "gpuscape.io/mig-permit",
    "gpuscape.io/mig-request",
    "gpuscape.io/mig-cordon",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
    "karpenter.sh/do-not-disrupt",
)
_RECORD: Final = "gpuscape.io/mig-rollback-record"


def instances(state_file: Path) -> dict[tuple[str, int], int]:
    """Instances of the only GPU, with the births that tell one from its successor."""
    (gpu,) = json.loads(state_file.read_text("utf-8"))["gpus"].values()
    return {
        (instance["profile"], instance.get("start", 0)): instance.get("birth", 0)
        for instance in gpu.get("instances", ())
    }


def leftovers(node: Mapping[str, Any], leases: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What a change has left on its Node, and on the Leases of the coordinator's namespace."""
    if node["spec"].get("unschedulable"):
        yield "the node is cordoned"
    notes = node["metadata"].get("annotations") or {}
    yield from (key for key in _OURS if key in notes)
    for lease in leases:
        name = lease["metadata"]["name"]
        if not name.startswith("mig-slot-"):
            continue
        if lease["spec"].get("holderIdentity"):
            yield f"{name} has a holder"
        if _RECORD in (lease["metadata"].get("annotations") or {}):
            yield f"{name} has a record"


def is_settled(node: Mapping[str, Any], places: Iterable[tuple[str, int]]) -> bool:
    """Whether the agent's status names the outcome that the GPU's instances show."""
    text = (node["metadata"].get("annotations") or {}).get("gpuscape.io/mig-status", "{}")
    status, current = json.loads(text), sorted(places)
    if status.get("outcome") == "applied":
        return status["phase"] == "unchanged" and current == sorted(AFTER)
    return status.get("outcome") == "rolled-back" and current == sorted(BEFORE)
