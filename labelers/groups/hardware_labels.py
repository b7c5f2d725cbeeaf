# SPDX-License-Identifier: Apache-2.0
"""Labels of the GPUs' hardware: mode, architecture, memory type, and the number of each model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from api import keys
from discovery.model import GpuSnapshot, NodeSnapshot, Reason
from discovery.nvml_terms import Architecture
from labelers.decision import Absent, Decision, Decisions, Keep, value, why_none
from labelers.groups.common_resource_labels import gpu_memory
from labelers.groups.labelled_gpus import (
    all_gpus,
    answering,
    nvidia_part,
    without_answers,
)
from labelers.groups.models import by_model, leading_model, model_gpu_count, why_unnamed
from labelers.label_settings import LabelSettings
from labelers.label_values import MAX_LENGTH

WIDE_BUS_BITS = 1024
"""From this width on memory is stacked: one HBM stack has 1,024 bits, and the widest GDDR
card 512. Source: JEDEC JESD235 (HBM), nvmlDeviceGetMemoryBusWidth of published cards."""

_MODES = {0x030200: "compute", 0x030000: "graphics"}
"""PCI class of a 3D controller and of a VGA controller. Source: PCI Code and ID Assignment."""


def hardware_labels(snapshot: NodeSnapshot, _: LabelSettings) -> Decisions:
    """Labels about the hardware of the GPUs that answer: architecture, memory, power and more."""
    none = without_answers(snapshot)
    if none is not None:
        return {key.name: none for key in keys.HARDWARE}
    gpus, nvidia = answering(snapshot), nvidia_part(snapshot)
    return {
        keys.MODE: without_answers(nvidia) or value(_mode(answering(nvidia))),
        keys.OWN_ARCHITECTURE: _architecture(gpus, all_gpus(snapshot)),
        keys.MEMORY_TYPE: _memory_type(gpus),
        **_inventory(snapshot),
    }


def _mode(gpus: Sequence[GpuSnapshot]) -> str:
    """``unknown`` as soon as GPUs differ or the class of one cannot be read, as upstream."""
    classes = {gpu.pci_class for gpu in gpus}
    return _MODES.get(classes.pop() or 0, "unknown") if len(classes) == 1 else "unknown"


def _architecture(gpus: Sequence[GpuSnapshot], counted: Sequence[GpuSnapshot]) -> Decision:
    """The architecture of the model that ``gpu.product`` names."""
    named = by_model(gpus)
    if not named:
        return why_none(gpus, "model")
    of_model = named[leading_model(gpus, counted)]
    reported = (gpu.architecture for gpu in of_model if gpu.architecture is not None)
    architecture = next(reported, None)
    if architecture is None:
        return why_none(of_model, "architecture")
    if architecture is Architecture.OTHER:
        return Absent(reason="an architecture newer than this version of gpuscape")
    return value(architecture)


def _memory_type(gpus: Sequence[GpuSnapshot]) -> Decision:
    """Type of the GPUs that report one; ``mixed`` where they differ."""
    types = {kind for gpu in gpus if (kind := memory_type(gpu)) is not None}
    if not types:
        return why_none(gpus, "memory_bus_bits")
    return value(types.pop() if len(types) == 1 else "mixed")


def memory_type(gpu: GpuSnapshot) -> str | None:
    """``hbm``, ``gddr``, or ``unified`` for a GPU that uses the host's memory; None if unknown.

    A GPU without memory of its own refuses nvmlDeviceGetMemoryInfo as unsupported
    (GB10). A GPU with both, such as Grace Hopper, is named by its own memory.
    """
    gap = gpu.gap("memory_bytes")
    if gap is not None and gap.reason is Reason.UNSUPPORTED:
        return "unified"
    if not gpu.memory_bus_bits:
        return None
    return "hbm" if gpu.memory_bus_bits >= WIDE_BUS_BITS else "gddr"


def _inventory(snapshot: NodeSnapshot) -> dict[str, Decision]:
    """Count and memory of each model; a model not seen is gone only when all models are known."""
    labels: dict[str, Decision] = {}
    for model, of_model in by_model(all_gpus(snapshot)).items():
        labels[model_key(keys.MODEL_COUNT_FAMILY, model)] = model_gpu_count(model, snapshot)
        labels[model_key(keys.MODEL_MEMORY_FAMILY, model)] = gpu_memory(of_model)
    why = why_unnamed(snapshot)
    other: Decision = Keep(reason=why) if why else Absent(reason="no GPU of another model")
    return labels | dict.fromkeys((keys.MODEL_COUNT_FAMILY, keys.MODEL_MEMORY_FAMILY), other)


def model_key(family: str, model: str) -> str:
    """The key of one model in a family such as ``gpuscape.io/count.<model>``.

    ``model`` is sanitised. The part after the prefix has 63 characters at most and
    ends in a letter or digit; a name that must be changed for that is cut and ends
    in six digits of its SHA-256, so that two such names stay apart.
    """
    stem = family.removesuffix("<model>")
    room = MAX_LENGTH - len(stem.partition("/")[2])
    if len(model) <= room and model[-1:].isalnum():
        return stem + model
    digest = hashlib.sha256(model.encode()).hexdigest()[:6]
    return f"{stem}{model[: room - 7]}-{digest}"
