# SPDX-License-Identifier: Apache-2.0
"""The fields that rules for labels may name: facts of the node, as the labels of the same name say.

They describe whole GPUs, whatever MIG strategy and sharing are, so that a label by a rule stays
when a GPU is cut or shared. On a node of several models they are of the model that ``gpu.product``
names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from api import keys
from discovery.model import NodeSnapshot
from labelers.decision import Absent, Decision, Keep, Value, written_value
from labelers.groups.capability_labels import capability_labels
from labelers.groups.driver_labels import driver_labels
from labelers.groups.hardware_labels import hardware_labels
from labelers.groups.node_labels import node_labels
from labelers.groups.resource_labels import resource_labels
from labelers.groups.topology_labels import link_labels
from labelers.label_settings import LabelSettings

_WHOLE = LabelSettings()
"""Settings by which no MIG device counts as a GPU, and nothing is shared."""
_LABELERS = (
    node_labels,
    driver_labels,
    capability_labels,
    resource_labels,
    hardware_labels,
    link_labels,
)
_MIB_IN_GIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleField:
    """A field of rules: a fact about the node."""

    summary: str
    example: str
    keys: tuple[str, ...]
    """The labels that the field is made of."""
    text: Callable[[Sequence[str]], str] = "".join
    """Makes the field's text of these labels' values."""


def _gibibytes(mebibytes: Sequence[str]) -> str:
    """Memory in GiB, rounded up as in MIG profile names: the driver keeps a part of the memory."""
    return str(-(-int(mebibytes[0]) // _MIB_IN_GIB))


FIELDS: Mapping[str, RuleField] = {
    "product": RuleField(
        summary="model of a GPU, without -MIG-… and -SHARED",
        example="NVIDIA-A100-SXM4-80GB",
        keys=(keys.GPU_PRODUCT,),
    ),
    "count": RuleField(
        summary="whole GPUs of that model",
        example="8",
        keys=(f"{keys.GPU}.{keys.COUNT}",),
    ),
    "memory-mib": RuleField(
        summary="memory of one whole GPU, MiB",
        example="81920",
        keys=(f"{keys.GPU}.{keys.MEMORY}",),
    ),
    "memory-gib": RuleField(
        summary="the same in GiB, rounded up",
        example="80",
        keys=(f"{keys.GPU}.{keys.MEMORY}",),
        text=_gibibytes,
    ),
    "memory-type": RuleField(
        summary="hbm, gddr, unified or mixed", example="hbm", keys=(keys.MEMORY_TYPE,)
    ),
    "family": RuleField(
        summary="architecture", example="ampere", keys=(f"{keys.GPU}.{keys.ARCHITECTURE[0]}",)
    ),
    "compute": RuleField(
        summary="compute capability",
        example="8.0",
        keys=tuple(f"{keys.GPU}.{part}" for part in keys.ARCHITECTURE[1:]),
        text=".".join,
    ),
    "mig-capable": RuleField(
        summary="true or false: a GPU here has MIG", example="true", keys=(keys.MIG_CAPABLE,)
    ),
    "nvlink-class": RuleField(
        summary="none, bridge, mesh or switch", example="switch", keys=(keys.NVLINK_CLASS,)
    ),
    "nvlink-island": RuleField(
        summary="GPUs in the largest set connected by NVLink",
        example="8",
        keys=(keys.NVLINK_ISLAND,),
    ),
    "driver-version": RuleField(
        summary="driver version",
        example="580.65.06",
        keys=("nvidia.com/cuda.driver-version.full",),
    ),
    "driver-major": RuleField(
        summary="its first part", example="580", keys=("nvidia.com/cuda.driver-version.major",)
    ),
    "cuda-version": RuleField(
        summary="newest CUDA that the driver supports",
        example="13.0",
        keys=("nvidia.com/cuda.runtime-version.full",),
    ),
    "machine": RuleField(
        summary="machine type, or unknown", example="DGXA100-920-23687", keys=(keys.MACHINE,)
    ),
}
"""Each field by its name in rules. All others are refused, so that a slip shows at the start."""


def field_decisions(snapshot: NodeSnapshot) -> Mapping[str, Decision]:
    """The decision for each field of a node: a value, not known now, or known to be absent."""
    decided = {
        key: decision
        for labeler in _LABELERS
        for key, decision in labeler(snapshot, _WHOLE).items()
    }
    return {
        name: combined([decided[key] for key in field.keys], field.text)
        for name, field in FIELDS.items()
    }


def combined(parts: Sequence[Decision], text: Callable[[Sequence[str]], str]) -> Decision:
    """A decision from several: absent where one part is, kept where one is, else their ``text``."""
    for part in parts:
        if isinstance(part, Absent):
            return part
    values = [value for part in parts if (value := written_value(part)) is not None]
    whole = text(values) if len(values) == len(parts) else None
    for part in parts:
        if isinstance(part, Keep):
            return Keep(reason=part.reason, otherwise=whole)
    return Value(text=text(values))
