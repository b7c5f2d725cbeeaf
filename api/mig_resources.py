# SPDX-License-Identifier: Apache-2.0
"""How MIG devices become resources of a node, as NVIDIA's device plugin offers them."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final

GPU_RESOURCE: Final = "nvidia.com/gpu"
MIG_PREFIX: Final = "nvidia.com/mig-"
SHARED_SUFFIX: Final = ".shared"
"""End of the name of a resource with shared devices, where the device plugin is so configured."""
GPU_RESOURCES: Final = (GPU_RESOURCE, MIG_PREFIX)
"""Whole GPUs and MIG devices, as NVIDIA's device plugin names them."""
_BEGINNINGS: Final = ("-", ".", "_", "/")
"""Last characters by which a name counts as a beginning: no name of a resource ends in them.
Source: Kubernetes documentation, "Object names and IDs"."""
MOST_OFFERS: Final = 16
"""Resources that an annotation may name for a node's layouts; with more it names none."""


class MigStrategy(StrEnum):
    """The device plugin's setting of the same name, which its labels follow."""

    NONE = "none"  # MIG devices are no resource
    SINGLE = "single"  # every GPU cut alike: they are nvidia.com/gpu
    MIXED = "mixed"  # a resource for each profile


def is_gpu_resource(resource: str, named: Collection[str] = GPU_RESOURCES) -> bool:
    """Whether devices of a resource are GPUs, MIG devices or shares of these.

    ``named``: names of such resources, each also with the suffix ``.shared``; a name that ends
    in ``-``, ``.``, ``_`` or ``/`` is how names begin. So ``nvidia.com/gpumem`` is none: HAMi
    counts memory by it. Source: HAMi, docs, "Device resources"; NVIDIA k8s-device-plugin, README,
    ``renameByDefault``.
    """
    names = (resource, resource.removesuffix(SHARED_SUFFIX))
    return any(
        resource.startswith(name) if name.endswith(_BEGINNINGS) else name in names for name in named
    )


def mig_resource(profile: str) -> str:
    """``nvidia.com/mig-1g.5gb.me`` for ``1g.5gb+me``."""
    return MIG_PREFIX + resource_suffix(profile)


def resource_suffix(profile: str) -> str:
    """The profile as it stands in names of resources and labels, where ``+`` is not allowed."""
    return profile.replace("+", ".")
