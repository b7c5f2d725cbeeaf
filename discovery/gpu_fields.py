# SPDX-License-Identifier: Apache-2.0
"""Fields of a GPU by name, as gaps name them: its own, or those of its NVIDIA facts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from discovery.model import GpuSnapshot, NvidiaFacts

_OF_NVIDIA = frozenset(field.name for field in fields(NvidiaFacts))


def gpu_field(gpu: GpuSnapshot, name: str) -> Any:
    """The field's value; None where it is not read, or the GPU is another vendor's."""
    if name not in _OF_NVIDIA:
        return getattr(gpu, name)
    return None if gpu.nvidia is None else getattr(gpu.nvidia, name)


def with_gpu_fields(gpu: GpuSnapshot, values: Mapping[str, Any]) -> GpuSnapshot:
    """The GPU with these values by field; NVIDIA's fields need a GPU that has them."""
    changes = {name: value for name, value in values.items() if name not in _OF_NVIDIA}
    facts = {name: value for name, value in values.items() if name in _OF_NVIDIA}
    if facts:
        nvidia: Any = gpu.nvidia
        changes["nvidia"] = replace(nvidia, **facts)
    return replace(gpu, **changes)
