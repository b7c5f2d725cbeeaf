# SPDX-License-Identifier: Apache-2.0
"""Commands next to a running actuator: it changes MIG on the node, and nobody else."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import pynvml
import pytest
from click.testing import CliRunner, Result

from actuator.journal_owner import owner_of
from api.actuator.actuator_messages import ChangeAnswer
from api.mig_outcome import Outcome
from cli.failures import REFUSED, UNFINISHED
from cli.main import main
from simulator.simulation import Return
from tests.actuator.actuator_process import (
    GPUSCAPE,
    SEVENTHS,
    THIRDS,
    ActuatorProcess,
    on_a_node,
    started,
    until,
)

CREATE = "nvmlDeviceCreateGpuInstance*"


@pytest.fixture(scope="module")
def actuator() -> Iterator[ActuatorProcess]:
    """One for all: what is refused leaves it as it was."""
    with on_a_node() as ready:
        yield ready


def run(on: ActuatorProcess, *arguments: str) -> Result:
    """A command for the node of this actuator."""
    places = ("--simulate", str(on.on.simulation.state_file), "--journal", str(on.on.journal))
    return CliRunner().invoke(main, ("mig", *arguments, *places))


@pytest.mark.parametrize(
    "arguments", [("apply", "all-disabled", "--yes"), ("apply", "all-disabled"), ("selftest", "-y")]
)
def test_commands_that_change_are_refused_next_to_an_actuator(
    actuator: ActuatorProcess, arguments: tuple[str, ...]
) -> None:
    """Before a plan is made or a question asked; the actuator is named, and what to do."""
    unchanged = actuator.unchanged()

    result = run(actuator, *arguments)

    assert (result.exit_code, result.stdout) == (REFUSED, "")
    assert f"process {actuator.process.pid} of " in result.stderr
    assert "annotate the Node with gpuscape.io/mig-layout" in result.stderr
    unchanged()


def test_a_second_actuator_on_another_socket_is_refused(actuator: ActuatorProcess) -> None:
    result = subprocess.run(
        [
            GPUSCAPE,
            "actuator",
            *("--simulate", str(actuator.on.simulation.state_file)),
            *("--socket", str(actuator.path.with_name("more") / "a.sock")),
            *("--journal", str(actuator.on.journal)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert result.returncode == 3
    assert f"process {actuator.process.pid} of " in result.stderr
    assert actuator.state().running is None


def test_restore_is_the_actuator_s_where_one_runs() -> None:
    """A held change ends when the cause is mended and a person asks for it; by hand nothing is."""
    with on_a_node() as actuator:
        actuator.on.simulation.fault(Return(code=pynvml.NVML_ERROR_NO_PERMISSION), CREATE)
        answer = actuator.ask(actuator.apply("a-change-that-is-held", THIRDS))
        assert isinstance(answer, ChangeAnswer)
        assert answer.outcome is Outcome.STUCK, answer

        alone = run(actuator, "restore")
        assert alone.exit_code == REFUSED
        assert "name it with --socket" in alone.stderr
        still = run(actuator, "restore", "--socket", str(actuator.path))
        assert still.exit_code == UNFINISHED, still.output

        actuator.on.simulation.clear()
        ended = run(actuator, "restore", "--socket", str(actuator.path))
        assert ended.exit_code == 0, ended.output
        assert "every GPU has the previous layout" in ended.stderr + ended.stdout
        assert actuator.state().open is None
        again = run(actuator, "restore", "--socket", str(actuator.path), "-o", "json")
        assert again.exit_code == 0


def test_the_owner_s_lock_is_gone_with_an_actuator_that_is_killed() -> None:
    """Also while its worker still runs, which has the lock of a change."""
    with on_a_node() as actuator:
        actuator.process.send_signal(signal.SIGKILL)
        actuator.process.wait()
        assert owner_of(actuator.on.journal) == ""
        with started(actuator.on, actuator.path) as second:
            assert f"process {second.process.pid} of" in owner_of(second.on.journal)
            answer = second.ask(second.apply("a-change-of-the-second", SEVENTHS))
            assert isinstance(answer, ChangeAnswer)
            assert answer.outcome is Outcome.APPLIED
    until(lambda: owner_of(actuator.on.journal) == "")
