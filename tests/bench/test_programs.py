# SPDX-License-Identifier: Apache-2.0
"""Exporters as processes: they start, serve, are measured, and end with whoever started them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from simulator.simulation import Simulation
from tests import exposition
from tests.agent.agent_process import until
from tests.bench import exporters, growth, programs
from tests.bench.exporters import CLIENT, NAMES, OURS, THEIRS


def test_all_exporters_serve_one_machine_and_every_figure_is_there() -> None:
    """A moment of each: what they come to is not judged."""
    found = exporters.measure("t4", cpu_for_seconds=2, scrapes=3, settle_seconds=0)

    assert tuple(found) == NAMES
    for measured in found.values():
        assert measured.series > 0
        assert measured.text_bytes > 0
        assert 0 < measured.render_seconds < 60
        assert 0 < measured.scrape_seconds <= measured.scrape_p99_seconds
        assert measured.memory_mib > 0
        assert measured.simulated_mib > 0
    assert found[OURS].cpu_seconds > 0


@pytest.mark.parametrize("name", NAMES)
def test_simulated_calls_are_counted_apart(name: str, tmp_path: Path) -> None:
    simulation = Simulation.create("t4", tmp_path)

    with programs.running(name, simulation.state_file) as program:
        program.await_family(exporters.FAMILY[name])

        assert program.simulated_seconds > 0
        assert program.cpu_seconds() > 0
        assert bool(program.readers) == (name != THEIRS)


def test_a_program_ends_when_who_started_it_is_killed(tmp_path: Path) -> None:
    simulation = Simulation.create("t4", tmp_path)
    starter = (
        "import sys, time; from pathlib import Path; from tests.bench import programs\n"
        f"with programs.running({CLIENT!r}, Path(sys.argv[1])) as it:\n"
        "    print(it.pid, flush=True); time.sleep(600)\n"
    )
    command = [sys.executable, "-c", starter, str(simulation.state_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        started = psutil.Process(int(process.stdout.readline()))
        process.kill()

    until(lambda: not started.is_running() or started.status() == psutil.STATUS_ZOMBIE)


def test_processor_time_is_that_of_the_process() -> None:
    busy = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True); input()"
    command = [sys.executable, "-c", busy]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()

        seconds = programs.cpu_seconds(process.pid)

        process.communicate("\n")
    assert 0.2 <= seconds < 5


def test_exporters_whose_series_differ_are_not_compared() -> None:
    ours = b'# HELP DCGM_A x\n# TYPE DCGM_A counter\nDCGM_A{gpu="0"} 1\n'
    theirs = b'# HELP DCGM_A_total x\n# TYPE DCGM_A_total counter\nDCGM_A_total{gpu="0"} 2\n'

    exporters.check_same(ours, theirs)
    with pytest.raises(AssertionError):
        exporters.check_same(ours, theirs.replace(b'"0"', b'"1"'))


def test_a_machine_grows_as_it_is_told(tmp_path: Path) -> None:
    simulation = Simulation.create(growth.machine(2, 3), tmp_path)

    with programs.running(OURS, simulation.state_file) as program:
        program.await_family(exporters.FAMILY[OURS])
        families = exposition.parse(program.text())

    assert len(families[exporters.FAMILY[OURS]].series) == 2 * 3
