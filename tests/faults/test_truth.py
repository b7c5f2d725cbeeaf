# SPDX-License-Identifier: Apache-2.0
"""A scrape that shows what no GPU measures, or measured too long ago, is noticed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from simulator.simulation import Simulation
from tests.faults.truth import PLACES, Truth


@pytest.fixture
def truth(tmp_path: Path) -> Truth:
    """Two GPUs in their first step."""
    truth = Truth(Simulation.create("a30-pair", tmp_path), every_seconds=3600)
    truth.step()
    return truth


def gpus(truth: Truth) -> list[str]:
    return list(truth.simulation.state.gpus)


def scrape(gpu: str, number: int) -> str:
    """Both readings of a GPU, as the agent serves them."""
    labels = f'{{gpu="0",pci_bus_id="0000{gpu.upper()}",device="nvidia0"}}'
    return (
        f"DCGM_FI_DEV_POWER_USAGE{labels} {number / 1000:.6f}\n"
        f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{labels} {number}\n"
    )


def test_the_simulated_gpus_measure_what_is_held_for_true(truth: Truth) -> None:
    readings = [gpu.readings for gpu in truth.simulation.state.gpus.values()]
    assert [it.power_milliwatts for it in readings] == [1, 2]
    assert [it.energy_millijoules for it in readings] == [1, 2]


def test_what_a_gpu_measures_now_is_true_and_fresh(truth: Truth) -> None:
    (first, second), now = gpus(truth), time.monotonic()
    text = scrape(first, 1) + scrape(second, 2)
    assert truth.untrue(text, now) == []
    assert truth.fresh(text, now) == {first, second}


def test_what_a_gpu_measured_once_is_true_for_as_long_as_it_may_be_shown(truth: Truth) -> None:
    (first, _), before = gpus(truth), time.monotonic()
    truth.step()
    after = time.monotonic()
    assert truth.untrue(scrape(first, 1), before) == []
    assert len(truth.untrue(scrape(first, 1), after)) == 2
    assert truth.fresh(scrape(first, 1), after) == frozenset()


@pytest.mark.parametrize("number", [2, 0, PLACES + 1, 2**64 - 1])
def test_a_number_of_another_gpu_and_one_that_none_ever_measured_are_untrue(
    truth: Truth, number: int
) -> None:
    first, _ = gpus(truth)
    assert len(truth.untrue(scrape(first, number), 0)) == 2
    assert truth.fresh(scrape(first, number), 0) == frozenset()


def test_a_gpu_of_which_one_reading_is_missing_is_true_and_not_fresh(truth: Truth) -> None:
    first, _ = gpus(truth)
    text = scrape(first, 1).splitlines()[0]
    assert truth.untrue(text, time.monotonic()) == []
    assert truth.fresh(text, 0) == frozenset()
