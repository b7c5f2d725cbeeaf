# SPDX-License-Identifier: Apache-2.0
"""The labels that every resource has, whole GPUs and MIG devices alike; keyed by suffix."""

from __future__ import annotations

from collections.abc import Sequence

from api import keys
from discovery.model import Bytes, GpuSnapshot
from labelers.decision import Decision, value, why_none
from labelers.groups.sharing import SharedResource, Sharing, SharingStrategy

_MIB = 1 << 20


def base_block(
    name: str, count: Decision, shared: SharedResource, sharing: Sharing
) -> dict[str, Decision]:
    """Labels that GPUs and MIG devices have in common: product, count, replicas, sharing strategy.

    ``-SHARED`` marks a product that is divided into shares and keeps its resource name.
    Source: NVIDIA/k8s-device-plugin v0.20.0, internal/lm/resource.go.
    """
    suffix = "-SHARED" if shared.is_shared and not shared.renamed else ""
    strategy = sharing.strategy if shared.is_shared else SharingStrategy.NONE
    return {
        keys.PRODUCT: value(name + suffix),
        keys.COUNT: count,
        keys.REPLICAS: value(shared.replicas),
        keys.SHARING: value(strategy),
    }


def memory_mib(memory_bytes: Bytes) -> Decision:
    """A label with an amount of memory in whole MiB, rounded down."""
    return value(memory_bytes // _MIB)


def gpu_memory(gpus: Sequence[GpuSnapshot]) -> Decision:
    """MiB of the last of ``gpus`` that reports its memory, as upstream; 0 is no answer."""
    memory = next((gpu.memory_bytes for gpu in reversed(gpus) if gpu.memory_bytes), None)
    return why_none(gpus, "memory_bytes") if memory is None else memory_mib(memory)
