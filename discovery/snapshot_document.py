# SPDX-License-Identifier: Apache-2.0
"""The snapshot as ``gpuscape discover -o json`` prints it: a GPU's facts of all vendors in one
mapping. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from discovery.model import NodeSnapshot
from discovery.unread import UNREAD_NVIDIA_FACTS

_KEYS: Final = (
    "bus_id",
    "state",
    "index",
    "minor",
    "uuid",
    "serial",
    "model",
    "architecture",
    "compute_capability",
    "pci_device_id",
    "pci_subsystem_id",
    "pci_class",
    "vbios_version",
    "memory_bytes",
    "memory_bus_bits",
    "ecc",
    "mig",
    "max_mig_devices",
    "mig_devices",
    "fabric",
    "links",
    "remapped_rows",
    "retired_pages_pending",
    "recovery_action",
    "virtualization",
    "persistence",
    "numa_node",
    "own_numa_node",
    "cpu_affinity",
    "ancestors",
    "xids",
    "gaps",
)
"""Keys of a GPU, in their order."""


def snapshot_document(snapshot: NodeSnapshot) -> dict[str, Any]:
    """The snapshot of plain values; a GPU without a vendor's facts has null or no item there."""
    document: dict[str, Any] = msgspec.to_builtins(snapshot)
    unread = msgspec.to_builtins(UNREAD_NVIDIA_FACTS)
    document["gpus"] = [_in_order(gpu, gpu["nvidia"] or unread) for gpu in document["gpus"]]
    return document


def snapshot_schema() -> dict[str, Any]:
    """JSON Schema of the document."""
    schema = msgspec.json.schema(NodeSnapshot)
    gpu, nvidia = schema["$defs"]["GpuSnapshot"], schema["$defs"].pop("NvidiaFacts")
    gpu["properties"] = _in_order(gpu["properties"], nvidia["properties"])
    gpu["required"] = list(_KEYS)
    return schema


def _in_order(gpu: Mapping[str, Any], nvidia: Mapping[str, Any]) -> dict[str, Any]:
    facts = {**gpu, **nvidia}
    return {key: facts[key] for key in _KEYS}
