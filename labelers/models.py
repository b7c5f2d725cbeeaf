"""GPUs by model, and which model speaks for a node that has several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from discovery.model import GpuSnapshot
from labelers.values import sanitise


def by_model(gpus: Sequence[GpuSnapshot]) -> Mapping[str, tuple[GpuSnapshot, ...]]:
    """Sanitised model name to its GPUs in bus order; a GPU that told no name is left out."""
    names = {gpu.bus_id: sanitise(gpu.model) for gpu in gpus if gpu.model is not None}
    return {
        name: tuple(gpu for gpu in gpus if names.get(gpu.bus_id) == name)
        for name in dict.fromkeys(names.values())
    }


def leading_model(gpus: Sequence[GpuSnapshot]) -> str:
    """The model that ``nvidia.com/gpu.*`` describes: the most frequent, then the lower name.

    Models of which a GPU is whole come before those that are all cut by MIG: a
    whole GPU's labels win upstream too. Needs at least one GPU with a name.
    """
    named = by_model(gpus)
    whole = by_model([gpu for gpu in gpus if not gpu.mig_enabled])
    return min(whole or named, key=lambda name: (-len(named[name]), name))
