# SPDX-License-Identifier: Apache-2.0
"""Labels of the resources that a node offers, by MIG strategy: ``gpu.*`` and ``mig-<profile>.*``.

Source: NVIDIA/k8s-device-plugin v0.20.0, internal/lm/resource.go and internal/lm/mig-strategy.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from api import keys
from api.mig_resources import MIG_PREFIX, MigStrategy
from discovery.model import GpuSnapshot, NodeSnapshot, nvidia_gpus
from labelers.decision import (
    Absent,
    Decision,
    Decisions,
    Keep,
    Value,
    gap_text,
    value,
    why_none,
)
from labelers.groups.common_resource_labels import base_block, gpu_memory
from labelers.groups.labelled_gpus import (
    all_answer,
    all_gpus,
    answering,
    nvidia_part,
    unsure,
    without_answers,
)
from labelers.groups.mig_labels import (
    by_profile,
    device_block,
    devices_known,
    mode_known,
    single_fault,
)
from labelers.groups.models import by_model, leading_model, model_gpu_count
from labelers.groups.sharing import SharedResource, Sharing
from labelers.label_settings import LabelSettings
from labelers.label_values import sanitise

Block = dict[str, Decision]
"""Label suffix, such as ``product``, to decision."""

ARCHITECTURES: tuple[tuple[tuple[int, int], str], ...] = (
    ((1, 0), "tesla"),
    ((2, 0), "fermi"),
    ((3, 0), "kepler"),
    ((4, 0), "undefined"),
    ((5, 0), "maxwell"),
    ((6, 0), "pascal"),
    ((7, 0), "volta"),
    ((7, 5), "turing"),
    ((8, 0), "ampere"),
    ((8, 9), "ada-lovelace"),
    ((9, 0), "hopper"),
    ((10, 0), "blackwell"),
    ((11, 0), "undefined"),
    ((12, 0), "blackwell"),
    ((13, 0), "rubin"),
    ((14, 0), "undefined"),
)
"""Upstream's family from each compute capability on, ascending.

Upstream calls an architecture that it does not know ``undefined``;
``gpuscape.io/gpu.architecture`` has the driver's own word.
"""


def resource_labels(snapshot: NodeSnapshot, settings: LabelSettings) -> Decisions:
    """Labels about the resources of the node: names of GPUs and MIG devices, counts, sharing.

    Describes the NVIDIA GPUs with a known model, MIG mode and, unless the
    strategy is ``none``, their MIG devices. ``gpu.count`` counts all GPUs of the node, and what
    is counted of MIG devices is kept while not all of them are known.
    """
    snapshot = nvidia_part(snapshot)
    none = without_answers(snapshot)
    gpus = answering(snapshot)
    described = _described(gpus, settings.mig_strategy)
    if none is None and not described:
        none = _why_unknown(gpus)
    if none is not None:
        return {key.name: none for key in keys.RESOURCES}
    block = _whole_block(snapshot, described, settings.sharing) | _no_attributes(
        settings.mig_strategy
    )
    other = _other_profiles(snapshot, described)
    if settings.mig_strategy is MigStrategy.SINGLE:
        block |= _sure(_single_block(described, settings.sharing), snapshot, other)
    return {
        keys.MIG_STRATEGY: _strategy(settings.mig_strategy),
        **_prefixed(keys.GPU, block),
        **_profile_labels(snapshot, described, settings, other),
    }


def family(capability: tuple[int, int]) -> str:
    """Upstream's name of the architecture with this compute capability."""
    return next(
        (name for since, name in reversed(ARCHITECTURES) if capability >= since), "undefined"
    )


def _described(gpus: Sequence[GpuSnapshot], strategy: MigStrategy) -> list[GpuSnapshot]:
    enough = mode_known if strategy is MigStrategy.NONE else devices_known
    return [gpu for gpu in gpus if gpu.model is not None and enough(gpu)]


def _why_unknown(gpus: Sequence[GpuSnapshot]) -> Keep:
    gaps = [gap for gpu in gpus for gap in gpu.gaps]
    missed = {gap.what for gap in gaps}
    facts = ("model", "mig", "mig_devices", "max_mig_devices")
    return Keep(reason=gap_text(gaps, next((fact for fact in facts if fact in missed), "model")))


def _strategy(strategy: MigStrategy) -> Decision:
    if strategy is MigStrategy.NONE:
        return Absent(reason="the MIG strategy is none")
    return value(strategy)


def _prefixed(resource: str, block: Block) -> dict[str, Decision]:
    return {f"{resource}.{suffix}": decision for suffix, decision in block.items()}


def _sure(block: Block, snapshot: NodeSnapshot, other: Decision) -> Block:
    """A block of MIG devices; where a GPU may have more of them, their count is kept."""
    count = block.get(keys.COUNT)
    if not (isinstance(other, Keep) and isinstance(count, Value)):
        return block
    return {**block, keys.COUNT: unsure(snapshot, other.reason, count.text)}


def _whole_block(
    snapshot: NodeSnapshot, described: Sequence[GpuSnapshot], sharing: Sharing
) -> Block:
    """The labels of whole GPUs: of the leading model, whose GPUs with MIG on count as whole ones.

    Sharing applies where at least one GPU is whole; GPUs cut by MIG are not shared: replicas 0.
    """
    model = leading_model(described, all_gpus(snapshot))
    of_model = by_model(described)[model]
    whole = [gpu for gpu in of_model if not gpu.mig_enabled]
    shared = sharing.resource(keys.GPU) if whole else SharedResource(name=keys.GPU, replicas=0)
    return {
        **base_block(model, model_gpu_count(model, snapshot), shared, sharing),
        keys.MEMORY: gpu_memory(whole or of_model),
        **_architecture(whole or of_model),
    }


def _architecture(gpus: Sequence[GpuSnapshot]) -> Block:
    """Architecture of the last of ``gpus`` that reports its compute capability, as upstream."""
    reported = (nvidia.compute_capability for _, nvidia in nvidia_gpus(reversed(gpus)))
    capability = next(filter(None, reported), None)
    if capability is None:
        return dict.fromkeys(keys.ARCHITECTURE, why_none(gpus, "compute_capability"))
    if capability[0] == 0:
        none: Decision = Absent(reason="the driver gives compute capability 0")
        return dict.fromkeys(keys.ARCHITECTURE, none)
    major, minor = capability
    return dict(
        zip(keys.ARCHITECTURE, (value(family(capability)), value(major), value(minor)), strict=True)
    )


def _no_attributes(strategy: MigStrategy) -> Block:
    """Attributes of MIG devices, which ``gpu.*`` has only where they are offered as GPUs."""
    why = "no GPU has MIG on" if strategy is MigStrategy.SINGLE else f"MIG strategy {strategy}"
    return dict.fromkeys(keys.ATTRIBUTES, Absent(reason=why))


def _single_block(gpus: Sequence[GpuSnapshot], sharing: Sharing) -> Block:
    """The labels that override those of whole GPUs: none, the MIG devices', or INVALID."""
    cut = [gpu for gpu in gpus if gpu.mig_enabled]
    if not cut:
        return {}
    fault = single_fault(gpus)
    if fault is None:
        (profile,) = by_profile(gpus)
        return device_block(gpus, profile, keys.GPU, sharing)
    return {
        keys.PRODUCT: value(f"{sanitise(cut[0].model or '')}-MIG-INVALID"),
        keys.COUNT: value(0),
        keys.REPLICAS: value(0),
        keys.SHARING: value(""),
        keys.MEMORY: value(0),
        **dict.fromkeys(keys.ATTRIBUTES, Absent(reason=fault)),
    }


def _other_profiles(snapshot: NodeSnapshot, described: Sequence[GpuSnapshot]) -> Decision:
    """The decision for profiles that no GPU has: absent only when all MIG devices are known."""
    unknown = [gpu for gpu in answering(snapshot) if gpu not in described]
    if unknown:
        return _why_unknown(unknown)
    if not all_answer(snapshot):
        return Keep(reason="a GPU did not answer for its MIG devices")
    return Absent(reason="no MIG device of another profile")


def _profile_labels(
    snapshot: NodeSnapshot,
    gpus: Sequence[GpuSnapshot],
    settings: LabelSettings,
    other: Decision,
) -> dict[str, Decision]:
    """Blocks of the profiles under ``mixed``; ``other`` decides for the profiles without a GPU."""
    families = (f"{keys.MIG_FAMILY}.{suffix}" for suffix in (*keys.BASE, *keys.ATTRIBUTES))
    if settings.mig_strategy is not MigStrategy.MIXED:
        return dict.fromkeys(families, Absent(reason=f"MIG strategy {settings.mig_strategy}"))
    labels = dict.fromkeys(families, other)
    for profile in by_profile(gpus):
        resource = MIG_PREFIX + profile
        block = device_block(gpus, profile, resource, settings.sharing)
        labels |= _prefixed(resource, _sure(block, snapshot, other))
    return labels
