# SPDX-License-Identifier: Apache-2.0
"""The agent's file of devices as plain JSON, made without the code that writes or reads it."""

from __future__ import annotations

import json
from typing import Any

BOOT = "0f0f0f0f-1111-4222-8333-444444444444"
OTHER_BOOT = "0f0f0f0f-1111-4222-8333-555555555555"


def gpu_uuid(at: int) -> str:
    """UUID of the GPU at this place."""
    return f"GPU-00000000-0000-0000-0000-{at:012d}"


def gpu_entry(at: int = 0, **fields: Any) -> dict[str, Any]:
    """A GPU at this place."""
    return {
        "uuid": gpu_uuid(at),
        "index": at,
        "bus_id": f"0000:{0x10 + at:02x}:00.0",
        "minor": at,
        "numa": 0,
        "product": "NVIDIA A100-SXM4-40GB",
        **fields,
    }


def mig_entry(gi: int = 1, ci: int = 0, at: int = 0, **fields: Any) -> dict[str, Any]:
    """A MIG device of the GPU at this place, with capability minors of its own."""
    return {
        "uuid": f"MIG-00000000-0000-{at:04d}-{ci:04d}-{gi:012d}",
        "profile": "1g.5gb",
        "gpu_instance": gi,
        "compute_instance": ci,
        "memory_bytes": 5 << 30,
        "capability_minors": [100 * (at + 1) + 10 * gi, 100 * (at + 1) + 10 * gi + 1 + ci],
        **fields,
    }


def links_entry(n: int, **fields: Any) -> dict[str, Any]:
    """Links of GPUs that reach each other through PCIe only."""
    pairs = n * (n - 1) // 2
    return {
        "v": 1,
        "gen": "0123456789",
        "n": n,
        "fab": "none",
        "lbw": [0],
        "nv": "0" * pairs,
        "pc": "5" * pairs,
        "numa": [0] * n,
        "ids": [""] * n,
        "bus": [""] * n,
        "nic": [],
        **fields,
    }


def document(*gpus: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A file with these GPUs, with two where none is named."""
    return {
        "v": 1,
        "generation": 3,
        "reading": 7,
        "boot_id": BOOT,
        "written_at": "2026-11-29T08:00:00Z",
        "gpus": list(gpus) or [gpu_entry(0), gpu_entry(1)],
        **fields,
    }


def text(content: dict[str, Any]) -> bytes:
    """The bytes of a file."""
    return json.dumps(content).encode()
