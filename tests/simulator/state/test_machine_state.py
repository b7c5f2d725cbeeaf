# SPDX-License-Identifier: Apache-2.0
"""The state file outlives processes, is changed by one at a time, and can be mended by people."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from base.errors import BadInput
from simulator.description.machine_schema import MigInstanceSpec
from simulator.simulation import Return, Simulation
from simulator.state.state_file import StateFile
from tests import machines

FIRST = machines.gpu(0)

CHANGES = """
import sys
from pathlib import Path
from simulator.simulation import Return, Simulation

simulation = Simulation.open(Path(sys.argv[1]))
simulation.fault(Return(code=19), "nvmlDeviceGetName")
simulation.add_process("0000:10:00.0", 4711, memory_mib=9)
simulation.set_driver("mismatch")
"""


def test_what_another_process_changed_is_there(tmp_path: Path) -> None:
    """And is still there when that process has ended."""
    simulation = machines.simulation(tmp_path)
    before = simulation.state

    subprocess.run([sys.executable, "-c", CHANGES, str(simulation.state_file)], check=True)

    now = simulation.state
    assert before.faults == ()
    assert [fault.action for fault in now.faults] == [Return(code=19)]
    assert [(process.pid, process.memory_mib) for process in now.processes] == [(4711, 9)]
    assert now.driver == "mismatch"


def test_a_layout_starts_as_the_machine_says(tmp_path: Path) -> None:
    """Compute instances are numbered and lie side by side; none named is one that takes all."""
    cut = MigInstanceSpec(profile="3g.20gb", start=4, id=2, compute=(1, 2))
    whole = MigInstanceSpec(profile="1g.5gb", start=0, id=7)
    split = machines.gpu(0, mig=True, instances=(cut, whole))

    gpu = machines.simulation(tmp_path, split).state.gpus[FIRST.bus_id]

    assert (gpu.mig, gpu.mig_pending) == (True, True)
    assert [
        [(compute.id, compute.start, compute.slices) for compute in one.compute]
        for one in gpu.instances
    ] == [[(0, 0, 1), (1, 1, 2)], [(0, 0, 1)]]


def test_a_file_that_did_not_change_is_read_once(tmp_path: Path) -> None:
    """The same state object comes back; after an edit another one."""
    file = StateFile(machines.simulation(tmp_path).state_file)

    first, second = file.read(), file.read()
    StateFile(file.path).edit(lambda state: replace(state, driver="mismatch"))

    assert first is second
    assert file.read().driver == "mismatch"


def test_edits_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    """Each sees the one before it, whichever order they come in."""
    simulation = machines.simulation(tmp_path)

    def add(pids: range) -> None:
        own = Simulation.open(simulation.state_file)
        for pid in pids:
            own.add_process(FIRST.bus_id, pid)

    threads = [threading.Thread(target=add, args=(range(at, at + 20),)) for at in (0, 20, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(process.pid for process in simulation.state.processes) == list(range(60))


def test_an_edit_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the state nor the folder: no half-written file stays."""
    simulation = machines.simulation(tmp_path)
    before = simulation.state

    def fail(source: Path, target: Path) -> None:
        raise OSError(source.name, target.name)

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match=r"state\.json"):
        simulation.set_driver("mismatch")

    assert simulation.state == before
    assert not list(tmp_path.glob(".state.json*"))


def test_a_state_survives_being_written_and_read(tmp_path: Path) -> None:
    """Nothing of the machine is lost in the file."""
    simulation = machines.simulation(tmp_path)
    simulation.fault(Return(code=3), "nvmlDeviceGetName", after=1)
    simulation.xid(FIRST.bus_id, 79)

    again = Simulation.open(simulation.state_file).state

    assert again == simulation.state
    assert again.machine == machines.machine(machines.gpu(0), machines.gpu(1))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda text: text[: len(text) // 2], r"json:\d+: not valid JSON"),
        (lambda text: text.replace("simulation/1", "simulation/2"), "this version reads"),
        (lambda text: text.replace('"driver": "ok"', '"driver": "fine"'), r"json:\d+: driver: "),
        (lambda text: text.replace('"clients"', '"cleints"'), "cleints: .*did you mean 'clients'"),
        (lambda text: text.replace('"name": "custom",', ""), "key 'name' is missing"),
        (
            lambda text: re.sub(r'("gpus": \{\s*"[^"]+": )\{\}', r'\1{"links_down": 3}', text),
            r"gpus\..*links_down",
        ),
        (lambda _: "", "json:1: not valid JSON"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(
    tmp_path: Path, spoil: object, why: str
) -> None:
    """File, line or key, in one sentence."""
    simulation = machines.simulation(tmp_path)
    text = simulation.state_file.read_text()
    damaged = spoil(text)  # type: ignore[operator]  # the parameters are functions
    simulation.state_file.write_text(damaged)

    with pytest.raises(BadInput, match=why) as raised:
        Simulation.open(simulation.state_file)

    assert damaged != text
    assert str(raised.value).startswith(str(simulation.state_file))
    assert "\n" not in str(raised.value)


def test_a_file_that_is_no_text_or_not_there_is_named(tmp_path: Path) -> None:
    """As any other damage."""
    binary = tmp_path / "state.json"
    binary.write_bytes(b"\xff\xfe\x00")

    for path in (binary, tmp_path / "missing.json"):
        with pytest.raises(BadInput, match=path.name):
            Simulation.open(path)


def test_the_file_can_be_read_by_people(tmp_path: Path) -> None:
    """One value a line, the schema first, the machine's own names."""
    lines = machines.simulation(tmp_path).state_file.read_text().splitlines()

    assert lines[1].strip() == '"schema": "gpuscape-simulation/1",'
    assert ' "name": "custom",' in lines
    assert msgspec.json.decode("\n".join(lines))["machine"]["summary"] == "small"
