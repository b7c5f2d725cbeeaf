# SPDX-License-Identifier: Apache-2.0
"""Our own families on simulated machines, against NVML's raw answers and what is known of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pynvml
import pytest

from discovery.model import GpuSnapshot
from exporters.gpuscape.families import GpuscapeFamilies
from simulator import simulation
from simulator.description.machine_catalog import machine_names
from tests import exposition, promlint
from tests.exporters.gpuscape_series import by_gpu
from tests.machines import session
from tests.observed import look_at, observed

RAW: dict[str, Callable[[Any], float]] = {
    "power_watts": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "energy_joules_total": lambda gpu: pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000,
    "temperature_celsius": lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, 0),
    "sm_clock_hertz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, 1) * 1_000_000,
    "memory_clock_hertz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, 2) * 1_000_000,
    "busy_ratio": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "memory_busy_ratio": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).memory / 100,
    "encoder_busy_ratio": lambda gpu: pynvml.nvmlDeviceGetEncoderUtilization(gpu)[0] / 100,
    "decoder_busy_ratio": lambda gpu: pynvml.nvmlDeviceGetDecoderUtilization(gpu)[0] / 100,
    "memory_bytes": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).total,
    "memory_used_bytes": lambda gpu: _memory(gpu).used,
    "memory_free_bytes": lambda gpu: _memory(gpu).free,
    "memory_reserved_bytes": lambda gpu: _memory(gpu).reserved,
    "pcie_replays_total": pynvml.nvmlDeviceGetPcieReplayCounter,
    "persistence_enabled": pynvml.nvmlDeviceGetPersistenceMode,
    "ecc_enabled": lambda gpu: pynvml.nvmlDeviceGetEccMode(gpu)[0],
    "mig_enabled": lambda gpu: pynvml.nvmlDeviceGetMigMode(gpu)[0],
    "row_remap_pending": lambda gpu: pynvml.nvmlDeviceGetRemappedRows(gpu)[2],
}


def _memory(gpu: Any) -> Any:
    return pynvml.nvmlDeviceGetMemoryInfo(gpu, pynvml.nvmlMemory_v2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What we tell of a machine at which time stands still, and a way to ask it."""

    simulated: simulation.Simulation
    gpus: tuple[GpuSnapshot, ...]
    body: bytes


@pytest.fixture(scope="module", params=["dgx-a100", "hgx-h100-mig-mixed", "t4", "hgx-b200"])
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Seen]:
    clock = SimpleNamespace(monotonic=lambda: 1000.0)
    with mock.patch.object(simulation, "time", clock):
        simulated = simulation.Simulation.create(request.param, tmp_path_factory.mktemp("machine"))
        clock.monotonic = lambda: 2000.0
        found = look_at(simulated, "node")
        body = GpuscapeFamilies().render(found.snapshot, found.samples)
        yield Seen(simulated=simulated, gpus=found.snapshot.gpus, body=body)


@pytest.mark.parametrize("name", RAW)
def test_a_number_is_what_nvml_says_of_every_gpu(seen: Seen, name: str) -> None:
    raw = {}
    with session(seen.simulated) as gpu_at:
        for gpu in seen.gpus:
            with contextlib.suppress(pynvml.NVMLError_NotSupported):
                raw[gpu.bus_id] = float(RAW[name](gpu_at(gpu.index or 0)))

    assert by_gpu(seen.body, f"gpuscape_gpu_{name}") == pytest.approx(raw)


@pytest.mark.parametrize("name", machine_names())
def test_a_machine_has_a_well_formed_exposition(name: str) -> None:
    seen = observed(name)

    families = exposition.parse(GpuscapeFamilies().render(seen.snapshot, seen.samples))

    assert [it.name for it in families.values() if promlint.problems(it)] == []


@pytest.mark.parametrize(
    ("name", "links"),
    [("dgx-a100", {12}), ("hgx-h100", {18}), ("dgx1-v100", {0, 1, 2}), ("t4", {0})],
)
def test_pairs_have_the_links_that_the_machine_is_known_for(name: str, links: set[int]) -> None:
    seen = observed(name)
    n = len(seen.snapshot.gpus)

    body = GpuscapeFamilies().render(seen.snapshot, ())

    pairs = exposition.parse(body)["gpuscape_topology_nvlinks"].series
    assert len(pairs) == n * (n - 1)
    assert {int(number) for number in pairs.values()} == links


@pytest.mark.parametrize("name", ["dgx-a100-mig-mixed", "hgx-h100-mig-mixed"])
def test_shares_of_a_gpus_instances_never_come_to_more_than_the_gpu(name: str) -> None:
    seen = observed(name)

    series = exposition.series(GpuscapeFamilies().render(seen.snapshot, seen.samples))

    shares: dict[str, float] = {}
    for (each, labels), share in series.items():
        if each == "gpuscape_mig_instance_share_ratio":
            bus_id = dict(labels)["pci_bus_id"]
            shares[bus_id] = shares.get(bus_id, 0.0) + share
    split = {gpu.bus_id for gpu in seen.snapshot.gpus if gpu.mig_devices}
    assert shares.keys() == split
    assert all(0 < share <= 1 + 1e-9 for share in shares.values())


@pytest.mark.parametrize("name", ["dgx-a100", "hgx-b200", "dgx1-v100"])
def test_on_a_sound_machine_all_links_that_are_expected_are_up(name: str) -> None:
    body = GpuscapeFamilies().render(observed(name).snapshot, ())

    expected = by_gpu(body, "gpuscape_gpu_nvlinks_expected")
    assert len(expected) == 8
    assert by_gpu(body, "gpuscape_gpu_nvlinks_active") == expected
