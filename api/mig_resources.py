# SPDX-License-Identifier: Apache-2.0
"""How MIG devices become resources of a node, as NVIDIA's device plugin offers them."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final

GPU_RESOURCE: Final = "nvidia.com/gpu"
MIG_PREFIX: Final = "nvidia.com/mig-"
SHARED_SUFFIX: Final = ".shared"
"""Of a resource whose devices are shared out, where the plugin is told to name it so."""
MOST_OFFERS: Final = 16
"""Resources that an annotation names for a node's layouts; with more it names none."""


class MigStrategy(StrEnum):
    """The device plugin's setting of the same name, which its labels follow."""

    NONE = "none"  # MIG devices are no resource
    SINGLE = "single"  # every GPU cut alike: they are nvidia.com/gpu
    MIXED = "mixed"  # a resource for each profile


def is_gpu_resource(resource: str, named: Collection[str] = (GPU_RESOURCE,)) -> bool:
    """Its devices are GPUs or MIG devices; ``named``: resources of whole GPUs."""
    names = {resource, resource.removesuffix(SHARED_SUFFIX)}
    return not names.isdisjoint(named) or resource.startswith(MIG_PREFIX)


def mig_resource(profile: str) -> str:
    """``nvidia.com/mig-1g.5gb.me`` for ``1g.5gb+me``."""
    return MIG_PREFIX + resource_suffix(profile)


def resource_suffix(profile: str) -> str:
    """The profile as it stands in names of resources and labels, where ``+`` is not allowed."""
    return profile.replace("+", ".")
