# SPDX-License-Identifier: Apache-2.0
"""Through the C library every entry point gives what the Python side of the simulator gives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from discovery.nvml_abi.entry_point_table import TABLE
from simulator import simulation as simulations
from simulator.answers import ANSWERS
from simulator.answers.change_answers import CHANGES
from simulator.computed_machine import ComputedMachine
from simulator.description.machine_schema import FabricSpec, MigInstanceSpec
from simulator.driver.gpm_samples import ENTRIES as GPM_ENTRIES
from simulator.driver.library import Library
from simulator.driver.simulated_driver import OWN_ENTRIES
from simulator.simulation import Simulation
from simulator.state.state_file import StateFile
from tests import machines
from tests.catalog import WITH_DRIVER, by_kind
from tests.controlplane.lifetime import end_with_parent
from tests.simulator.clibrary import raw_calls
from tests.simulator.clibrary.serving import Serve


@pytest.fixture
def standing_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings that go on with time stay as they are."""
    monkeypatch.setattr(
        simulations, "ComputedMachine", lambda _: ComputedMachine(lambda: 10_000_000.0)
    )


@pytest.mark.usefixtures("standing_clock")
@pytest.mark.parametrize("name", by_kind(WITH_DRIVER))
def test_on_a_machine_every_call_gives_the_same_code_and_bytes(
    name: str, tmp_path: Path, serve: Serve
) -> None:
    """Thousands of calls: real, missing and wrong handles, room for one, for many and none."""
    compare(Simulation.create(name, tmp_path / "machine"), serve)


@pytest.mark.usefixtures("standing_clock")
def test_every_entry_point_that_can_succeed_does_so(tmp_path: Path, serve: Serve) -> None:
    """A machine of everything: MIG devices, fabric, profiling, processes, events, retired pages."""
    three = MigInstanceSpec(profile="3g.20gb", start=0, id=1, compute=(1,))
    split = machines.gpu(0, mig=True, instances=(three,), uuid="GPU-aa", serial="1650522003820")
    fabric = FabricSpec(cluster_uuid="11112222-3333-4444-5555-666677778888", clique_id=7)
    rich = machines.gpu(1, model="rich", fabric=fabric, numa_id=4)
    left = machines.gpu(2, excluded=True)
    old = machines.gpu(3, model="old")
    models = {
        "small": machines.model(profiling=True),
        "rich": machines.model(fabric=True, profiling=True, fan=True, architecture=10),
        "old": machines.model(row_remapping=False, architecture=5, mig=()),
    }
    simulation = machines.simulation(tmp_path / "machine", split, rich, left, old, models=models)
    simulation.add_process(rich.bus_id, 71, memory_mib=1000, percent=50)
    simulation.xid(rich.bus_id, 79)
    simulation.set_readings(rich.bus_id, margin_celsius=20)
    simulation.set_readings(old.bus_id, retired_pages=(4096, 8192))

    succeeded = compare(simulation, serve, "combined")

    answered = set(ANSWERS) | set(CHANGES) | OWN_ENTRIES | GPM_ENTRIES
    assert set(TABLE) - succeeded == set(TABLE) - answered


def compare(simulation: Simulation, serve: Serve, *combined: str) -> set[str]:
    """Make all calls on both sides, from the same state. Gives the names that went well."""
    served = serve(simulation)
    texts = ["GPU-aa", "1650522003820", *simulation.state.gpus]
    before = simulation.state
    ours = raw_calls.outcomes(Library(simulation.driver()), texts, combined=bool(combined))
    StateFile(simulation.state_file).write(before)

    done = subprocess.run(
        [sys.executable, raw_calls.__file__, json.dumps(texts), *combined],
        env=served.environment,
        capture_output=True,
        text=True,
        preexec_fn=end_with_parent(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)

    assert len(theirs) == len(ours)
    different = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
    assert not different[:5]
    assert {name for name, *_ in ours} == set(TABLE)
    return {name for name, _, result, _ in ours if result in (0, "Success")}
