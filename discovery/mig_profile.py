# SPDX-License-Identifier: Apache-2.0
"""The name of a MIG profile: ``1g.5gb``, ``1c.3g.20gb``, ``1g.10gb+me``."""

from __future__ import annotations

import math

GIB = 1 << 30

ATTRIBUTES = {7: "+me", 8: "+me", 10: "+gfx", 11: "+gfx", 12: "+gfx", 13: "-me", 14: "-me"} | {
    15: "+me.all",
    16: "+me.all",
    17: "+gfx",
}
"""Suffix by GPU instance profile number (NVML_GPU_INSTANCE_PROFILE_*); others have none."""


def mig_profile_name(
    *,
    gpu_slices: int,
    compute_slices: int,
    memory_bytes: int,
    total_bytes: int,
    attribute: str = "",
) -> str:
    """Profile name from slices and memory, as NVIDIA's tools write it.

    The memory is rounded up to eighths of the GPU, then to whole GB, halves away
    from zero (22.5 gives 23, where ``round`` gives 22). Slices of the compute
    instance are named only where it takes part of its GPU instance.
    Source: MIG user guide, section on naming; go-nvlib's mig_profile.go.
    """
    eighths = math.ceil(8 * memory_bytes / total_bytes)
    gigabytes = math.floor(eighths / 8 * math.ceil(total_bytes / GIB) + 0.5)
    return f"{compute_part(gpu_slices, compute_slices)}{gpu_slices}g.{gigabytes}gb{attribute}"


def compute_part(gpu_slices: int, compute_slices: int) -> str:
    """``1c.`` where a compute instance takes one slice of several, nothing where it takes all."""
    return f"{compute_slices}c." if compute_slices != gpu_slices else ""
