# SPDX-License-Identifier: Apache-2.0
"""GPUs by their product's name, against what the simulator's models report."""

from __future__ import annotations

import pytest

from labelers.label_values import sanitise
from mig.configs.known_gpus import possible_gpus
from mig.configs.known_mig_models import FAMILIES
from simulator.description.machine_catalog import load_models
from tests.mig import grids
from tests.mig.mig_gpus import A30, A100, H100

WITH_MIG = sorted(name for name, one in load_models().items() if one.mig)
AMPERE = 7
"""NVML_DEVICE_ARCH_AMPERE."""


@pytest.mark.parametrize("model", WITH_MIG)
def test_a_product_has_the_profiles_that_its_driver_reports(model: str) -> None:
    described = load_models()[model]
    boards = possible_gpus(sanitise(described.name), index=3, uuid="GPU-x", bus_id="b", mig=True)
    (board,) = (one for one in boards if one.device_id == described.device_id)
    reported = {one.name: one for one in grids.profiles(model)}
    found = {one.name: one for one in board.profiles if one.name in reported}
    assert found.keys() == reported.keys()
    for name, one in found.items():
        known = reported[name]
        assert (one.number, one.slices, one.size, one.starts, one.max_instances) == (
            known.number,
            known.slices,
            known.size,
            known.starts,
            known.max_instances,
        ), name
    assert board.resetless is (described.architecture > AMPERE)
    assert (board.index, board.uuid, board.bus_id) == (3, "GPU-x", "b")


def test_every_family_has_places_for_all_of_its_profiles() -> None:
    """A profile that the table of places does not have would end the command."""
    for product in ("NVIDIA-A30", "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "NVIDIA-GB300"):
        (board,) = possible_gpus(product, index=0, uuid="u", bus_id="b", mig=False)
        (family,) = (one for one in FAMILIES if board.device_id in one.devices)
        assert {one.name for one in board.profiles} == set(family.max_instances)
        assert len({one.number for one in board.profiles}) == len(board.profiles)


def test_a_name_of_two_boards_gives_both_and_another_gives_none() -> None:
    found = possible_gpus("NVIDIA-A100-PCIE-40GB", index=0, uuid="u", bus_id="b", mig=False)
    assert [f"{one.device_id:#010x}" for one in found] == ["0x20b110de", "0x20f110de"]
    assert possible_gpus("Tesla-T4", index=0, uuid="u", bus_id="b", mig=False) == ()


def test_the_models_of_the_tests_are_among_them() -> None:
    assert {A30, A100, H100} <= set(WITH_MIG)
