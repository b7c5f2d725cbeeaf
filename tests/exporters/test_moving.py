# SPDX-License-Identifier: Apache-2.0
"""What is computed from two samples moves on a busy machine, and is 0 or smaller on an idle one.

The families are taken from the catalogues: all counters, and all that GPM measures between two
samples. A series that stayed at 0 for ever would look like an idle machine's.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from agent.processes.gpu_processes import process_uses
from agent.processes.pids import ProcessOwner
from discovery.gpu_part import GpuPart
from discovery.model import NodeSnapshot
from discovery.sample import PROFILED, GpuSample, ReadingGroup
from exporters.dcgm.catalog import CATALOG
from exporters.dcgm.render import Renderer, SeriesIdentity
from exporters.device_user_names import ContainerUser
from exporters.gpuscape.families import FAMILIES as OWN
from exporters.gpuscape.families import GpuscapeFamilies
from exporters.gpuscape.node_view import GpuAllocation
from exporters.gpuscape.waste import WINDOW_SECONDS
from exporters.prometheus_text import MetricType
from simulator.simulation import Simulation
from tests import exposition
from tests.discovery.sampling import sampler
from tests.exporters.dcgm.test_catalog import full_reading
from tests.observed import observed

MACHINES = ("dgx-a100", "hgx-h100", "hgx-b200", "gb200", "hgx-h100-mig-mixed")
GPUS = 2
"""So many are sampled; where some have MIG instances, one of those and one that is whole."""
GROUPS = tuple(group for group in ReadingGroup if group is not ReadingGroup.P2P)

FAULTS = re.compile(
    r"DCGM_\w+(_ERRORS?(_COUNT)?(_TOTAL|_L\d+)?|_DISCARDS|_EVENTS|_REPLAY_COUNTER|_REMAPPED_ROWS"
    r"|_(SBE|DBE)(_(VOL|AGG)_\w+)?|_RETIRED_PENDING|_FEC_HISTORY_\d+|_C2C_LINK_ERROR_\w+"
    r"|_(THERMAL|SYNC_BOOST|BOARD_LIMIT|LOW_UTIL|RELIABILITY|TOTAL_(APP|BASE)_CLOCKS)_VIOLATION"
    r"|_REASON_(SYNC_BOOST|(SW|HW)_THERM_SLOWDOWN|HW_POWER_BRAKE_SLOWDOWN)_NS)"
    r"|gpuscape_\w+(_errors|_retired_pages|_remapped_rows|_replays)_total"
)
"""Counters of what does not happen on a machine that is well; they stand still, busy or not."""

HELD_DOWN = "gpuscape_gpu_held_down_seconds_total"
"""Of its causes only power is there: a busy GPU is at its limit."""

NOBODY_HAS = {
    *(f"DCGM_FI_PROF_{engine}_ACTIVE" for engine in ("NVDEC7", "NVJPG7", "NVOFA1")),
    *(f"gpuscape_gpu_pcie_{way}_bytes_total" for way in ("sent", "received")),
}
"""Families of engines that DCGM counts and no simulated GPU has, and PCIe counters of 64 bits."""

IDLE_SECONDS = "gpuscape_allocated_idle_seconds_total"
OF_WASTE = {
    IDLE_SECONDS,
    *(f"gpuscape_allocated_{it}" for it in ("idle", "idle_ratio", "unmeasured")),
}
"""Not 0 where a device is held and idle, or where nothing tells; a test of their own is below."""

OF_TIME = "gpuscape_allocated_seconds_total"
"""Moves where a device is held."""

OF_CLOCKS = "DCGM_FI_PROF_SM_CYCLES_ELAPSED_TOTAL"
"""Moves with a clock, busy or not."""

Key = tuple[str, tuple[tuple[str, str], ...]]
Scrape = Mapping[tuple[str, Key], float]
"""Family and series to the value."""


COUNTERS = {
    *(it.name for it in CATALOG if it.kind is MetricType.COUNTER),
    *(it.name for it in OWN if it.kind is MetricType.COUNTER),
}


def from_two_samples() -> set[str]:
    """Names of all families of which a number follows from more than one sample."""
    dcgm = {it.name for it in CATALOG if it.group in PROFILED}
    dcgm |= {it.name for it in CATALOG if "_BANDWIDTH_" in it.name}
    own = {it.name for it in OWN if not PROFILED.keys().isdisjoint(it.groups)}
    return (COUNTERS | dcgm | own | {"gpuscape_process_busy_ratio"}) - OF_WASTE


@functools.cache
def scrapes(machine: str, *, busy: bool) -> tuple[Scrape, Scrape]:
    """Two scrapes, 10 s apart, of GPUs that are held; the window for idle ones has passed."""
    snapshot = observed(machine).snapshot
    split = [gpu for gpu in snapshot.gpus if gpu.mig_devices]
    gpus = (*split[:1], *(gpu for gpu in snapshot.gpus if gpu not in split))[:GPUS]
    rounds: list[tuple[GpuSample, ...]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        sampler(lambda: Simulation.create(machine, Path(folder))) as taken,
    ):
        if busy:
            for pid, gpu in enumerate(gpus, 71):
                taken.simulation.set_readings(gpu.bus_id, decoder_percent=30, encoder_percent=20)
                parts: list[int | None] = [*{it.gpu_instance_id for it in gpu.mig_devices}]
                for part in parts or [None]:
                    compute = None if part is None else 0
                    taken.simulation.add_process(
                        gpu.bus_id,
                        pid,
                        percent=60,
                        gpu_instance_id=part,
                        compute_instance_id=compute,
                    )
        for wait in (10.0, 10.0, WINDOW_SECONDS, 10.0, 10.0):
            taken.wait(wait)
            rounds.append(tuple(taken.sample(gpu.bus_id, GROUPS, after=0.0) for gpu in gpus))
    first, second = list(_served(replace(snapshot, gpus=gpus), rounds))[-2:]
    return first, second


def _served(snapshot: NodeSnapshot, rounds: list[tuple[GpuSample, ...]]) -> list[Scrape]:
    dcgm, own = Renderer(CATALOG, ()), GpuscapeFamilies()
    held = (ContainerUser(namespace="n", pod="p", container="c"),)
    parts: list[GpuPart] = [GpuPart(gpu.bus_id) for gpu in snapshot.gpus]
    parts += [
        GpuPart(gpu.bus_id, it.gpu_instance_id) for gpu in snapshot.gpus for it in gpu.mig_devices
    ]
    allocation = GpuAllocation(users=dict.fromkeys(parts, held))
    found: list[Scrape] = []
    before: tuple[GpuSample, ...] = ()
    for samples in rounds:
        uses = [use for it in samples for use in process_uses(it, lambda _pid: ProcessOwner())]
        body = dcgm.render(snapshot, samples, before, SeriesIdentity(hostname="a"))
        body += own.render(snapshot, samples, allocation=allocation, processes=uses)
        before = samples
        found.append(
            {
                (name, key): float(value)
                for name, family in exposition.parse(body).items()
                for key, value in family.series.items()
            }
        )
    return found


def moves(name: str, first: Scrape, second: Scrape) -> dict[Key, float]:
    """Each series of a family to how much it moves: a counter's increase, a gauge's value."""
    grows = name in COUNTERS
    return {
        key: value - (first[family, key] if grows else 0.0)
        for (family, key), value in second.items()
        if family == name and not _at_rest(name, dict(key[1]))
    }


def _at_rest(name: str, labels: Mapping[str, str]) -> bool:
    """Some series stand still for good where others move: a GPU in MIG mode has no NVLinks."""
    if name == HELD_DOWN:
        return labels["cause"] != "power"
    return "_NVLINK_" in name and "GPU_I_ID" in labels


def test_what_a_reading_of_the_sample_before_changes_is_among_these_families() -> None:
    full = full_reading()
    alone = structs.replace(full, before=None, links_before={})
    changed = {it.name for it in CATALOG if it.value(full) != it.value(alone)}

    assert changed
    assert changed <= from_two_samples()


@pytest.mark.parametrize("machine", MACHINES)
def test_every_series_of_them_moves_on_a_busy_machine(machine: str) -> None:
    first, second = scrapes(machine, busy=True)
    still = {
        name
        for name in from_two_samples()
        if not FAULTS.fullmatch(name) and min(moves(name, first, second).values(), default=1) <= 0
    }
    assert still == set()


def test_each_of_them_is_served_by_some_machine() -> None:
    served = {name for machine in MACHINES for name, _ in scrapes(machine, busy=True)[1]}
    assert {it for it in from_two_samples() if not FAULTS.fullmatch(it)} - served == NOBODY_HAS


@pytest.mark.parametrize("machine", MACHINES)
def test_on_an_idle_machine_they_are_0_or_less_than_on_a_busy_one(machine: str) -> None:
    """Ratios of what processes do are 0; a link or a clock at rest still moves a little."""
    idle, busy = (scrapes(machine, busy=how) for how in (False, True))
    wrong = set()
    for name in from_two_samples() - {OF_TIME, OF_CLOCKS}:
        at_work, at_rest = moves(name, *busy), moves(name, *idle)
        if "_ACTIVE" in name or "OCCUPANCY" in name or name.endswith("_ratio"):
            right = not any(at_rest.values())
        elif FAULTS.fullmatch(name):
            right = not any((*at_rest.values(), *at_work.values()))
        else:
            right = sum(at_rest.values()) < sum(at_work.values()) or not at_work
        if not right:
            wrong.add(name)
    assert wrong == set()


@pytest.mark.parametrize(("busy", "idle_seconds"), [(True, 0.0), (False, 10.0)])
def test_seconds_in_vain_grow_where_a_held_gpu_is_idle_and_only_there(
    busy: bool, idle_seconds: float
) -> None:
    first, second = scrapes("hgx-h100", busy=busy)
    for name, seconds in ((IDLE_SECONDS, idle_seconds), (OF_TIME, 10.0)):
        moved = moves(name, first, second)
        assert len(moved) == GPUS
        assert list(moved.values()) == pytest.approx([seconds] * GPUS)
    for name in OF_WASTE - {IDLE_SECONDS, "gpuscape_allocated_unmeasured"}:
        assert {*moves(name, first, second).values()} == {float(not busy)}
