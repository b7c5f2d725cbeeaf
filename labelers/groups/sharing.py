# SPDX-License-Identifier: Apache-2.0
"""How one GPU, or one MIG device, is handed out to several pods: the device plugin's sharing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SharingStrategy(StrEnum):
    """How shares of one device run; the words are label values."""

    NONE = "none"
    TIME_SLICING = "time-slicing"
    MPS = "mps"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedResource:
    """A resource, and the number of shares of each of its devices."""

    name: str
    """Name with prefix: ``nvidia.com/gpu``, ``nvidia.com/mig-1g.5gb``."""
    replicas: int = 1
    renamed: bool = False
    """Offered as ``<name>.shared``; labels keep the name, and take no ``-SHARED``."""

    @property
    def is_shared(self) -> bool:
        """Whether each device of the resource is cut into more than one share."""
        return self.replicas > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """The strategy in force and the resources that it applies to; by default none is shared."""

    strategy: SharingStrategy = SharingStrategy.NONE
    resources: tuple[SharedResource, ...] = ()

    def resource(self, name: str) -> SharedResource:
        """The first resource of this name; an unshared one where none is listed."""
        matching = (shared for shared in self.resources if shared.name == name)
        return next(matching, SharedResource(name=name))

    @property
    def uses_mps(self) -> bool:
        """Whether MPS is configured for at least one resource."""
        return self.strategy is SharingStrategy.MPS and any(r.is_shared for r in self.resources)


NOTHING_SHARED = Sharing()
