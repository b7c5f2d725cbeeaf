# SPDX-License-Identifier: Apache-2.0
"""A DGX Station has a display adapter among its GPUs; nothing that is published speaks of it."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from api import keys
from discovery.sample import ReadingGroup
from exporters.gpuscape.families import GpuscapeFamilies
from labelers.annotations import state_of, topology_of
from labelers.compose import decide_labels
from labelers.label_settings import LabelSettings
from simulator.description.machine_catalog import load_models
from simulator.description.machine_schema import DirectLinks, Gpu
from simulator.simulation import Simulation
from tests import machines
from tests.exporters.gpuscape_series import by_gpu
from tests.observed import Observed, look_at

BUSES = ("0000:01:00.0", "0000:47:00.0", "0000:81:00.0", "0000:c1:00.0", "0000:c2:00.0")
DISPLAY = 3
"""Its place on the bus, between the GPUs: NVIDIA's guide has containers take devices 0, 1, 2, 4."""


def station(directory: Path, name: str) -> Simulation:
    """A DGX Station A100: four GPUs that are each linked to each, and the display adapter."""
    models = load_models()
    display = machines.model(
        name=name,
        device_id=0x1FB810DE,
        pci_class=0x030000,
        compute_capability=(7, 5),
        architecture=6,
        memory_mib=4096,
        ecc=None,
        row_remapping=False,
        mig=(),
        nvlink_links=0,
        memory_temperature=False,
    )
    gpus = tuple(
        Gpu(
            model="display" if at == DISPLAY else "a100-sxm4-80gb",
            bus_id=bus_id,
            path=(f"{bus_id[:5]}{int(bus_id[5:7], 16) - 1:02x}:00.0",) if at < DISPLAY else (),
            root=f"{bus_id[:5]}{int(bus_id[5:6] + '0', 16):02x}",
            numa_node=0,
        )
        for at, bus_id in enumerate(BUSES)
    )
    compute = [at for at in range(len(BUSES)) if at != DISPLAY]
    links = tuple(DirectLinks(a=a, b=b, links=4) for a, b in combinations(compute, 2))
    machine = machines.machine(*gpus, switched=False, direct=links)
    both = {"display": display, "a100-sxm4-80gb": models["a100-sxm4-80gb"]}
    return Simulation.create(machine, directory, models=both)


@pytest.fixture(params=["DGX Display", "NVIDIA DGX Display"])
def seen(request: pytest.FixtureRequest, tmp_path: Path) -> Observed:
    return look_at(station(tmp_path, request.param), "station", (ReadingGroup.P2P,))


def test_labels_are_those_of_the_gpus(seen: Observed) -> None:
    labels = decide_labels(seen.snapshot, LabelSettings()).values
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-80GB"
    assert labels["nvidia.com/gpu.count"] == "4"
    assert labels["nvidia.com/gpu.mode"] == "compute"
    assert (labels[keys.EXPECTED], labels[keys.FOUND]) == ("4", "4")
    assert (labels[keys.NVLINK_CLASS], labels[keys.NVLINK_ISLAND]) == ("mesh", "4")
    assert not [key for key in labels if "Display" in key]


def test_matrix_and_masks_have_no_place_for_it(seen: Observed) -> None:
    written = topology_of(seen.snapshot)
    assert written.bus == tuple(bus_id for at, bus_id in enumerate(BUSES) if at != DISPLAY)
    assert (written.n, written.fab, written.nv) == (4, "mesh", "444444")
    now = state_of(seen.snapshot, gen=written.gen, whole=BUSES, pods={("a", "b"): [BUSES[4]]})
    assert (now.ok, now.used) == ("f", "8")


def test_metrics_and_the_list_of_gpus_are_without_it(seen: Observed) -> None:
    body = GpuscapeFamilies().render(seen.snapshot, seen.samples)
    assert set(by_gpu(body, "gpuscape_gpu_nvlinks_active")) == set(BUSES) - {BUSES[DISPLAY]}
    assert BUSES[DISPLAY].encode() not in body
    assert [gpu.bus_id for gpu in seen.snapshot.gpus if gpu.model and "Display" in gpu.model] == []
