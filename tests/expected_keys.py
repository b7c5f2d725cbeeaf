# SPDX-License-Identifier: Apache-2.0
"""The nvidia.com/ label keys of a node, written by hand from gpu-feature-discovery's test data.

Source: NVIDIA k8s-device-plugin v0.20.0, tests/expected-output*.txt. No code of
gpuscape makes these lists, so that they can judge it.
"""

from __future__ import annotations

from collections.abc import Iterable

TIMESTAMP = frozenset({"nvidia.com/gfd.timestamp"})
VGPU_PRESENT = frozenset({"nvidia.com/vgpu.present"})
VGPU_HOST = frozenset({"nvidia.com/vgpu.host-driver-version", "nvidia.com/vgpu.host-driver-branch"})
CLIQUE = frozenset({"nvidia.com/gpu.clique"})
STRATEGY = frozenset({"nvidia.com/mig.strategy"})

NONE = frozenset(
    {
        "nvidia.com/cuda.driver.major",
        "nvidia.com/cuda.driver.minor",
        "nvidia.com/cuda.driver.rev",
        "nvidia.com/cuda.runtime.major",
        "nvidia.com/cuda.runtime.minor",
        "nvidia.com/cuda.driver-version.major",
        "nvidia.com/cuda.driver-version.minor",
        "nvidia.com/cuda.driver-version.revision",
        "nvidia.com/cuda.driver-version.full",
        "nvidia.com/cuda.runtime-version.major",
        "nvidia.com/cuda.runtime-version.minor",
        "nvidia.com/cuda.runtime-version.full",
        "nvidia.com/gpu.machine",
        "nvidia.com/gpu.count",
        "nvidia.com/gpu.replicas",
        "nvidia.com/gpu.sharing-strategy",
        "nvidia.com/gpu.product",
        "nvidia.com/gpu.memory",
        "nvidia.com/gpu.family",
        "nvidia.com/gpu.mode",
        "nvidia.com/gpu.compute.major",
        "nvidia.com/gpu.compute.minor",
        "nvidia.com/mig.capable",
        "nvidia.com/mps.capable",
    }
)
"""Strategy none; also single where no GPU has MIG on, less the strategy."""

MEMORY = frozenset({"nvidia.com/gpu.memory"})
"""Of NONE, absent where the GPU has no memory of its own."""

SINGLE = frozenset(
    {
        "nvidia.com/gpu.multiprocessors",
        "nvidia.com/gpu.slices.gi",
        "nvidia.com/gpu.slices.ci",
        "nvidia.com/gpu.engines.copy",
        "nvidia.com/gpu.engines.decoder",
        "nvidia.com/gpu.engines.encoder",
        "nvidia.com/gpu.engines.jpeg",
        "nvidia.com/gpu.engines.ofa",
    }
)
"""Added by the strategy single where all GPUs are cut alike."""

_PROFILE = (
    "product",
    "count",
    "replicas",
    "sharing-strategy",
    "memory",
    "multiprocessors",
    "slices.gi",
    "slices.ci",
    "engines.copy",
    "engines.decoder",
    "engines.encoder",
    "engines.jpeg",
    "engines.ofa",
)

NO_GPU = TIMESTAMP | VGPU_PRESENT
"""With 0 GPUs, or where no driver ever answered."""


def mixed(profiles: Iterable[str]) -> frozenset[str]:
    """Added by the strategy mixed for profiles as they stand in labels: ``1g.5gb.me``."""
    return frozenset(
        f"nvidia.com/mig-{profile}.{suffix}" for profile in profiles for suffix in _PROFILE
    )


def nvidia(keys: Iterable[str]) -> frozenset[str]:
    """The compatible ones among ``keys``."""
    return frozenset(key for key in keys if key.startswith("nvidia.com/"))
