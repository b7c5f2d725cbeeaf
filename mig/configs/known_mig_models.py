# SPDX-License-Identifier: Apache-2.0
"""GPU instance profiles by PCI id, for drivers that report none while MIG is off (535 and older).

If the driver reports profiles, those and their places are used. A family may have more profiles
than one of its boards: a profile that is not listed surely does not exist, and a listed profile may
be missing on some boards.

Sources: NVIDIA's MIG user guide, "Supported MIG profiles"; mig-parted v0.15.0,
deployments/systemd/config-default.yaml. Ids of the RTX PRO 6000's workstation boards: the PCI ID
repository, and nvidia-smi's output in akash-network/provider-configs#79.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

_VENDOR: Final = 0x10DE


@dataclass(frozen=True, slots=True, kw_only=True)
class MigFamily:
    """GPUs with the same profiles."""

    title: str
    """Products, for people."""
    devices: tuple[int, ...]
    """PCI ids, packed as a GPU's ``device_id`` is."""
    max_instances: Mapping[str, int]
    """Profile to how many fit on an empty GPU."""
    units: int = 8
    """Memory units in which instances have their places.
    Source: MIG user guide, ``nvidia-smi mig -lgipp``."""


def _family(title: str, devices: str, counts: Mapping[str, int], *, units: int = 8) -> MigFamily:
    """``devices`` are PCI device ids in hex."""
    return MigFamily(
        title=title,
        devices=tuple(int(digits, 16) << 16 | _VENDOR for digits in devices.split()),
        max_instances=MappingProxyType(dict(counts)),
        units=units,
    )


def _seven(gb_1: int, gb_2: int, gb_4: int, gb_8: int) -> dict[str, int]:
    """Profiles of a GPU with seven compute slices and eight memory units.

    ``gb_1`` to ``gb_8``: gigabytes of one, two, four and eight units, as names have them.
    """
    return {
        f"1g.{gb_1}gb": 7,
        f"1g.{gb_1}gb+me": 1,
        f"1g.{gb_2}gb": 4,
        f"2g.{gb_2}gb": 3,
        f"3g.{gb_4}gb": 2,
        f"4g.{gb_4}gb": 1,
        f"7g.{gb_8}gb": 1,
    }


_GB200_LARGER: Final = {"3g.95gb": 2, "4g.95gb": 1, "7g.189gb": 1}
"""Profiles of boards that have the same PCI id and 189 instead of 186 GB."""

_A30: Final = {"1g.6gb": 4, "1g.6gb+me": 1, "2g.12gb": 2, "2g.12gb+me": 1, "4g.24gb": 1}

_RTX_PRO: Final = {
    "1g.24gb": 4,
    "1g.24gb+me": 1,
    "1g.24gb+gfx": 4,
    "1g.24gb+me.all": 1,
    "1g.24gb-me": 4,
    "2g.48gb": 2,
    "2g.48gb+gfx": 2,
    "2g.48gb+me.all": 1,
    "2g.48gb-me": 2,
    "4g.96gb": 1,
    "4g.96gb+gfx": 1,
}

FAMILIES: Final = (
    _family("A100 40GB, A800 40GB", "20B0 20B1 20F1 20F6", _seven(5, 10, 20, 40)),
    _family(
        "A100 80GB, A800 80GB, H100 80GB, H800 80GB",
        "20B2 20B5 20F3 20F5 2330 2331 2322 2324",
        _seven(10, 20, 40, 80),
    ),
    _family("A30", "20B7", _A30, units=4),
    _family("H100 NVL, H800 NVL", "2321 233A", _seven(12, 24, 47, 94)),
    _family("H100 96GB, GH200 96GB, H20, PG506", "233D 2342 2329 20B6", _seven(12, 24, 48, 96)),
    _family("H200, H200 NVL", "2335 233B", _seven(18, 35, 71, 141)),
    _family("GH200 144GB", "2348", _seven(18, 36, 72, 144)),
    _family("B200", "2901", _seven(23, 45, 90, 180)),
    _family("GB200", "2941", _seven(23, 47, 93, 186) | _GB200_LARGER),
    _family("B300", "3182", _seven(34, 67, 135, 269)),
    _family("GB300", "31C2", _seven(35, 70, 139, 278)),
    _family(
        "RTX PRO 6000 Blackwell: Server, Workstation and Max-Q Edition",
        "2BB5 2BB1 2BB4",
        _RTX_PRO,
        units=12,
    ),
)
"""All known families; no PCI id stands in two of them."""

_BY_DEVICE: Final = {device: family for family in FAMILIES for device in family.devices}


def known_family(device_id: int) -> MigFamily | None:
    """The family of a GPU by its PCI id; None for a GPU that is newer than this table."""
    return _BY_DEVICE.get(device_id)
