# SPDX-License-Identifier: Apache-2.0
"""How soon the agent shows a fault, and how soon all is well after its end, at default settings.

A fault shows when the agent's metrics tell of it; its clock starts at the first
driver call that meets it, since no agent can know sooner. Scrapes go on all the time.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from simulator.simulation import Hang, Return, Simulation
from simulator.state.machine_state import Action
from tests.agent.agent_process import AgentProcess, Scraper, running, until
from tests.bench.page import Section

MACHINE = "dgx-a100"
GPUS = 8
SHOWN_SECONDS, RECOVERED_SECONDS, RELEASED_SECONDS = 10, 60, 5
DRIVER_LATE_SECONDS = 30.0
EVER = 1_000_000_000
PATIENCE_SECONDS = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What one fault took."""

    fault: str
    shown_seconds: float
    recovered_seconds: float

    @property
    def row(self) -> tuple[str, str]:
        """A row of the page."""
        return self.fault, f"{self.shown_seconds:.1f} s / {self.recovered_seconds:.1f} s"


def section() -> Section:
    """Let each fault happen to an agent of its own."""
    timed, slowest = [], 0.0
    for name, disturb in FAULTS.items():
        with _agent() as agent, Scraper(agent) as scraper:
            timed.append(disturb(name, agent))
        assert not scraper.failures, scraper.failures
        slowest = max(slowest, scraper.slowest_seconds)
    return Section(
        title="Faults",
        text=(
            "Time until a fault shows, from the first driver call that meets it (target "
            f"{SHOWN_SECONDS} s), and until all is well after its end (target "
            f"{RECOVERED_SECONDS} s). For a signal to the reader: from the signal, which the next "
            "driver call meets up to 11 s later, until another reader is there, and from then "
            "until its readings are. For a release: until no NVML client is left (target "
            f"{RELEASED_SECONDS} s), and from its end until new readings are there. "
            f"{GPUS} simulated GPUs, default intervals and deadline."
        ),
        rows=(
            *(each.row for each in timed),
            ("slowest scrape with its liveness probe meanwhile", f"{slowest:.2f} s"),
        ),
    )


@contextlib.contextmanager
def _agent() -> Iterator[AgentProcess]:
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Simulation.create(MACHINE, Path(folder))) as agent,
    ):
        until(lambda: _well(agent))
        yield agent


def _readings(agent: AgentProcess) -> int:
    lines = agent.metrics().splitlines()
    return sum(line.startswith("DCGM_FI_DEV_GPU_TEMP{") for line in lines)


def _age_seconds(agent: AgentProcess) -> float:
    """Age of the readings on show."""
    name = "gpuscape_samples_age_seconds "
    (age,) = (line for line in agent.metrics().splitlines() if line.startswith(name))
    return float(age.removeprefix(name))


def _well(agent: AgentProcess) -> bool:
    return agent.gpus("present") == GPUS and _readings(agent) == GPUS


def _scripted(action: Action, entry: str, *, one_gpu: bool, shows: str) -> Disturb:
    """A fault of the driver: from its first call until it shows, then from its end on."""

    def disturb(name: str, agent: AgentProcess) -> Timed:
        simulation = agent.simulation
        bus_id = next(iter(simulation.state.gpus)) if one_gpu else None
        simulation.fault(action, entry, bus_id=bus_id, times=EVER)
        until(lambda: simulation.state.faults[0].seen > 0, PATIENCE_SECONDS)
        shown = until(lambda: agent.gpus(shows) > 0, PATIENCE_SECONDS)
        simulation.clear()
        recovered = until(lambda: _well(agent), PATIENCE_SECONDS)
        return Timed(fault=name, shown_seconds=shown, recovered_seconds=recovered)

    return disturb


def _signalled(number: signal.Signals) -> Disturb:
    """A reader that is killed or stopped: the next one is there, then the readings are."""

    def disturb(name: str, agent: AgentProcess) -> Timed:
        reader = agent.reader()
        reader.send_signal(number)
        shown = until(
            lambda: any(other.pid != reader.pid for other in agent.readers()), PATIENCE_SECONDS
        )
        began = time.monotonic()  # the readings on show now are those of the reader before
        recovered = until(
            lambda: _well(agent) and _age_seconds(agent) < time.monotonic() - began,
            PATIENCE_SECONDS,
        )
        return Timed(fault=name, shown_seconds=shown, recovered_seconds=recovered)

    return disturb


def _driver_reload(name: str, agent: AgentProcess) -> Timed:
    """The driver goes when its handles are released, and comes back later."""
    agent.signal(signal.SIGUSR1)
    until(lambda: agent.simulation.clients() == 0)
    agent.simulation.set_driver("absent")
    agent.signal(signal.SIGUSR2)
    shown = until(lambda: agent.gpus("present") == 0, PATIENCE_SECONDS)
    time.sleep(DRIVER_LATE_SECONDS)
    agent.simulation.set_driver("ok")
    recovered = until(lambda: _well(agent), PATIENCE_SECONDS)
    return Timed(fault=name, shown_seconds=shown, recovered_seconds=recovered)


def _release(name: str, agent: AgentProcess) -> Timed:
    agent.signal(signal.SIGUSR1)
    released = until(lambda: agent.simulation.clients() == 0)
    return Timed(fault=name, shown_seconds=released, recovered_seconds=_resumed(agent))


def _resumed(agent: AgentProcess) -> float:
    """Seconds from the end of a release until readings are back, all of them new ones."""
    until(lambda: _readings(agent) == 0)  # else the old ones would count as back
    agent.signal(signal.SIGUSR2)
    return until(lambda: _well(agent), PATIENCE_SECONDS)


def _release_while_hanging(name: str, agent: AgentProcess) -> Timed:
    agent.simulation.fault(Hang(uninterruptible=True), "nvmlDeviceGetPowerUsage", times=EVER)
    until(lambda: agent.simulation.state.faults[0].seen > 0, PATIENCE_SECONDS)
    agent.signal(signal.SIGUSR1)
    released = until(lambda: agent.simulation.clients() == 0)
    agent.simulation.clear()
    return Timed(fault=name, shown_seconds=released, recovered_seconds=_resumed(agent))


Disturb = Callable[[str, AgentProcess], Timed]

_HANG = Hang(uninterruptible=True)

FAULTS: dict[str, Disturb] = {
    "one GPU hangs, SIGTERM does not end it": _scripted(
        _HANG, "nvmlDeviceGetPowerUsage", one_gpu=True, shows="hung"
    ),
    "the driver as a whole hangs": _scripted(_HANG, "nvmlDeviceGet*", one_gpu=False, shows="hung"),
    "one GPU is lost": _scripted(Return(code=15), "nvmlDeviceGet*", one_gpu=True, shows="lost"),
    "the reader is killed": _signalled(signal.SIGKILL),
    "the reader is stopped": _signalled(signal.SIGSTOP),
    "no driver for 30 s": _driver_reload,
    "release": _release,
    "release while a GPU hangs": _release_while_hanging,
}
