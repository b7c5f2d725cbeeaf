# SPDX-License-Identifier: Apache-2.0
"""The machines of the catalog as parameters of tests: one of each kind, or all in ``make long``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pytest
from _pytest.mark import ParameterSet

from simulator.description.machine_catalog import load_machine, machine_names

WITH_DRIVER: Final = tuple(name for name in machine_names() if load_machine(name).driver)

_KINDS: Final = {
    "a100-pcie-pairs": "bridged pairs",
    "dgx1-v100": "a mesh of NVLinks, no MIG",
    "dgx-a100-mig-mixed": "MIG devices, NVSwitches",
    "hgx-16": "sixteen GPUs",
    "gb10": "memory that is its host's",
    "gb200": "a fabric of several nodes",
    "mixed": "GPUs of several models",
    "vgpu-guest": "a virtual GPU",
    "wsl2": "a driver without kernel module",
    "empty": "no GPU",
    "no-driver": "no driver",
}
"""The machine that a kind is tried on in ``make test``."""


def by_kind(names: Iterable[str]) -> list[ParameterSet]:
    """These machines, of which those that are of no kind of their own are for ``make long``."""
    return [pytest.param(it, marks=() if it in _KINDS else pytest.mark.long) for it in names]
