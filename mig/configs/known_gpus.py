# SPDX-License-Identifier: Apache-2.0
"""GPUs and their profiles by product name, to plan without the driver. Pure.

A label of a Node has the name, and nothing has the profiles. What is made of it here is good for a
forecast: engines are not counted, and the node's own agent judges with what its driver reports.

Sources: the PCI ID repository for ids by name; MIG user guide, ``nvidia-smi mig -lgip`` and
``-lgipp``, for numbers and places; nvml.h, NVML_GPU_INSTANCE_PROFILE_*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from discovery.mig_state import ComputeProfile, MigGpu, MigProfile
from discovery.model import Mode
from mig.configs.known_mig_models import MigFamily, known_family

_VENDOR: Final = 0x10DE
_PRODUCTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "NVIDIA-A100-SXM4-40GB": "20B0",
        "NVIDIA-A100-PCIE-40GB": "20B1 20F1",
        "NVIDIA-A100-SXM4-80GB": "20B2",
        "NVIDIA-A100-80GB-PCIe": "20B5",
        "NVIDIA-A800-SXM4-80GB": "20F3",
        "NVIDIA-A800-80GB-PCIe": "20F5",
        "NVIDIA-A30": "20B7",
        "NVIDIA-H100-80GB-HBM3": "2330",
        "NVIDIA-H100-PCIe": "2331",
        "NVIDIA-H100-NVL": "2321",
        "NVIDIA-H800": "2324",
        "NVIDIA-H800-PCIe": "2322",
        "NVIDIA-H20": "2329",
        "NVIDIA-GH200-480GB": "2342",
        "NVIDIA-GH200-144G-HBM3e": "2348",
        "NVIDIA-H200": "2335",
        "NVIDIA-H200-NVL": "233B",
        "NVIDIA-B200": "2901",
        "NVIDIA-GB200": "2941",
        "NVIDIA-B300-SXM6-AC": "3182",
        "NVIDIA-GB300": "31C2",
        "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition": "2BB5",
        "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition": "2BB1",
        "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition": "2BB4",
    }
)
"""Product as labels have it to the PCI device ids that it may have."""

_Place = tuple[int, tuple[int, ...]]
"""Memory units of an instance, and where it may start."""
_PLACES: Final[Mapping[int, Mapping[int, _Place]]] = MappingProxyType(
    {
        8: {
            1: (1, (0, 1, 2, 3, 4, 5, 6)),
            2: (2, (0, 2, 4)),
            3: (4, (0, 4)),
            4: (4, (0,)),
            7: (8, (0,)),
        },
        4: {1: (1, (0, 1, 2, 3)), 2: (2, (0, 2)), 4: (4, (0,))},
        12: {1: (3, (0, 3, 6, 9)), 2: (6, (0, 6)), 4: (12, (0,))},
    }
)
"""Memory units of the GPU, then slices of the profile, to size and starts."""
_DOUBLE: Final[_Place] = (2, (0, 2, 4, 6))
"""Size and starts of the profile that has one slice and twice the memory."""
_NUMBERS: Final[Mapping[str, Mapping[int, int]]] = MappingProxyType(
    {
        "": {1: 0, 2: 1, 3: 2, 4: 3, 7: 4},
        "double": {1: 9},
        "+me": {1: 7, 2: 8},
        "+gfx": {1: 10, 2: 11, 4: 12},
        "-me": {1: 13, 2: 14},
        "+me.all": {1: 15, 2: 16},
    }
)
"""Attributes, then slices of the profile, to its number; the device plugin sorts by number."""
_COMPUTE: Final = tuple(
    ComputeProfile(slices=slices, id=number) for number, slices in enumerate((1, 2, 3, 4, 7))
)
_A30: Final = 0x20B7_10DE
_GA100: Final = 0x20
"""The upper half of the PCI device ids of GPUs that change the MIG mode with a reset alone."""


def possible_gpus(
    product: str, *, index: int, uuid: str, bus_id: str, mig: bool
) -> tuple[MigGpu, ...]:
    """Models that a GPU of this product may be, without instances: one for each possible PCI id.

    ``product``: as labels have it. ``mig``: its mode. Empty for a product that is newer than this
    table, or that has no MIG.
    """
    devices = [int(digits, 16) << 16 | _VENDOR for digits in _PRODUCTS.get(product, "").split()]
    return tuple(
        MigGpu(
            index=index,
            uuid=uuid,
            bus_id=bus_id,
            model=product,
            device_id=device,
            subsystem_id=0,
            mode=Mode(current=mig, pending=mig),
            resetless=device >> 24 != _GA100,
            profiles=profiles,
        )
        for device in devices
        if (profiles := known_profiles(device))
    )


def offered_profiles(gpu: MigGpu) -> tuple[MigProfile, ...]:
    """Profiles of a GPU by its driver, or those of its model; empty if neither is known.

    The counts of an A30 are the model's: the driver reports too many instances of its profiles.
    Source: mig-parted, pkg/mig/discovery.
    """
    if not gpu.profiles or gpu.device_id != _A30:
        return gpu.profiles or known_profiles(gpu.device_id)
    most = {profile.name: profile.max_instances for profile in known_profiles(_A30)}
    return tuple(
        replace(profile, max_instances=most.get(profile.name, profile.max_instances))
        for profile in gpu.profiles
    )


def known_profiles(device_id: int) -> tuple[MigProfile, ...]:
    """Profiles of a GPU by its packed PCI id, without engines; empty for one that is not known.

    For drivers that report none while MIG is off. What does not fit these never fits the GPU.
    """
    family = known_family(device_id)
    return () if family is None else _profiles(family)


def _profiles(family: MigFamily) -> tuple[MigProfile, ...]:
    profiles = (_profile(name, count, family.units) for name, count in family.max_instances.items())
    return tuple(sorted(profiles, key=lambda profile: (profile.number, profile.name)))


def _profile(name: str, count: int, units: int) -> MigProfile:
    slices = int(name.partition("g.")[0])
    attributes = name.partition("gb")[2]
    places = _PLACES[units]
    is_double = units == 8 and slices == 1 and not attributes and count < len(places[1][1])
    size, starts = _DOUBLE if is_double else places[slices]
    number = _NUMBERS["double" if is_double else attributes][slices]
    return MigProfile(
        number=number,
        id=number,
        name=name,
        slices=slices,
        size=size,
        starts=starts,
        max_instances=count,
        memory_bytes=0,
        multiprocessors=0,
        compute=tuple(compute for compute in _COMPUTE if compute.slices <= slices),
    )
