# SPDX-License-Identifier: Apache-2.0
"""GPUs by model, and which model speaks for a node that has several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from discovery.model import GpuSnapshot, GpuState, NodeSnapshot
from labelers.decision import Decision, gap_text, value
from labelers.groups.labelled_gpus import all_gpus, unsure
from labelers.label_values import sanitise


def by_model(gpus: Sequence[GpuSnapshot]) -> Mapping[str, tuple[GpuSnapshot, ...]]:
    """Sanitised model name to its GPUs in bus order; a GPU without a known name is left out."""
    names = {gpu.bus_id: sanitise(gpu.model) for gpu in gpus if gpu.model is not None}
    return {
        name: tuple(gpu for gpu in gpus if names.get(gpu.bus_id) == name)
        for name in dict.fromkeys(names.values())
    }


def leading_model(gpus: Sequence[GpuSnapshot], known: Sequence[GpuSnapshot]) -> str:
    """The model that ``nvidia.com/gpu.*`` describes: the most frequent, then the lower name.

    The candidates are the models of ``gpus``, counted in ``known``. A model with a whole GPU comes
    before one whose GPUs are all cut by MIG: a whole GPU's labels win upstream too. Needs at least
    one GPU with a name.
    """
    counts = Counter(model_names(known).values())
    whole = by_model([gpu for gpu in gpus if not gpu.mig_enabled])
    return min(whole or by_model(gpus), key=lambda name: (-counts[name], name))


def model_names(gpus: Sequence[GpuSnapshot]) -> Mapping[str, str | None]:
    """Bus id to sanitised model: the GPU's own, else that of a GPU with the same PCI ids.

    The driver takes the name from device and subsystem id, which sysfs has of a GPU that never
    answered, too. None where neither gives it.
    """
    by_ids = {_pci_ids(gpu): gpu.model for gpu in gpus if gpu.model is not None}
    by_ids.pop(None, None)
    names = {gpu.bus_id: gpu.model or by_ids.get(_pci_ids(gpu)) for gpu in gpus}
    return {bus_id: name and sanitise(name) for bus_id, name in names.items()}


def _pci_ids(gpu: GpuSnapshot) -> tuple[int, int] | None:
    if gpu.pci_device_id is None or gpu.pci_subsystem_id is None:
        return None
    return gpu.pci_device_id, gpu.pci_subsystem_id


def model_gpu_count(model: str, snapshot: NodeSnapshot) -> Decision:
    """The number of a model's GPUs on the node, whether they answer or not.

    A GPU whose model is not known may be of this model too: then the label is kept.
    """
    names = model_names(all_gpus(snapshot))
    count = sum(name == model for name in names.values())
    why = why_unnamed(snapshot)
    return unsure(snapshot, why, count) if why else value(count)


def why_unnamed(snapshot: NodeSnapshot) -> str:
    """The GPUs whose model is not known, and why, as a sentence; empty where all are known.

    The reason of a GPU that answers is its gap, such as a name that is not in UTF-8.
    """
    names = model_names(all_gpus(snapshot))
    unnamed = [gpu for gpu in all_gpus(snapshot) if names[gpu.bus_id] is None]
    reasons = dict.fromkeys(
        gap_text(gpu.gaps, "model") if gpu.state is GpuState.PRESENT else "it did not answer"
        for gpu in unnamed
    )
    if not unnamed:
        return snapshot.counts.why_unaddressed
    listed = ", ".join(gpu.bus_id for gpu in unnamed)
    return f"the model of {listed} is not known: {'; '.join(reasons)}"
