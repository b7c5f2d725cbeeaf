# SPDX-License-Identifier: Apache-2.0
"""An XID has an end: real agents on a simulated machine whose GPUs fail, are reset and return."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from simulator.simulation import Hang, Return, Simulation
from tests.agent.agent_process import AgentProcess, running, until

QUICK = ("--discover-interval", "1s", "--sample-interval", "500ms", "--deadline", "2s")
HEALTH, REASON = "gpuscape.io/gpu.health", "gpuscape.io/gpu.health-reason"
RECOVERED = "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
NOT_RECOVERED = "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x2 (Reboot)"


@dataclass(frozen=True)
class Node:
    """An agent, the first GPU of its machine, and the labels that it writes."""

    agent: AgentProcess
    bus_id: str
    file: Path
    host: Path

    @property
    def health(self) -> tuple[str | None, str | None]:
        """The labels of the node's health and its reason."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        labels = dict(line.split("=", 1) for line in lines)
        return labels.get(HEALTH), labels.get(REASON)

    def becomes(self, health: str, reason: str | None = None) -> None:
        """Wait until the labels say so."""
        until(lambda: self.health == (health, reason))

    def stays(self, health: str, reason: str | None) -> None:
        """The labels say so after several more discoveries."""
        cycles = self.cycles
        until(lambda: self.cycles >= cycles + 4)
        assert self.health == (health, reason)

    @property
    def cycles(self) -> int:
        """Discoveries up to now."""
        return sum(it["message"] == "discovery cycle finished" for it in self.agent.logged)

    def kernel_logs(self, message: str) -> None:
        """The kernel's own record about the GPU."""
        record = f"3,1187,5140900,-;NVRM: Xid (PCI:{self.bus_id[:-2]}): {message}\n"
        with (self.host / "dev" / "kmsg").open("a") as log:
            log.write(record)


@contextmanager
def node(tmp_path: Path, machine: str = "a30-pair") -> Iterator[Node]:
    simulation, file = Simulation.create(machine, tmp_path / "machine"), tmp_path / "features"
    kmsg = tmp_path / "host" / "dev" / "kmsg"
    kmsg.parent.mkdir(parents=True)
    kmsg.touch()
    options = ("--feature-file", str(file), "--host-root", str(tmp_path / "host"), "--kernel-log")
    with running(simulation, *QUICK, *options) as agent:
        found = Node(agent, next(iter(simulation.state.gpus)), file, tmp_path / "host")
        found.becomes("healthy")
        yield found


def test_a_gpu_that_was_lost_is_healthy_once_it_answers_again(tmp_path: Path) -> None:
    with node(tmp_path) as it:
        it.agent.simulation.fault(Return(code=15), bus_id=it.bus_id)
        it.agent.simulation.xid(it.bus_id, 79)
        it.becomes("unhealthy", "gpu-lost")
        until(lambda: 'xid="79"} 1.0' in it.agent.metrics())
        it.agent.simulation.clear()
        it.becomes("healthy")
        assert 'xid="79"} 1.0' in it.agent.metrics()
        ended = [each for each in it.agent.logged if each["message"] == "XID errors over"]
        assert [(each["gpu"], each["xids"]) for each in ended] == [(it.bus_id, "79")]


@pytest.mark.parametrize(
    ("machine", "code", "before", "readings"),
    [
        ("a30-pair", 94, "row-remap-pending", {"remap_pending": True}),
        ("dgx1-v100", 48, "page-retirement-pending", {"retired_pending": True}),
        ("hgx-h100", 95, "recovery-reset", {"recovery_action": 1}),
    ],
    ids=["memory rows", "memory pages", "recovery action"],
)
def test_a_reset_while_the_gpus_are_released_ends_an_xid(
    tmp_path: Path, machine: str, code: int, before: str, readings: dict[str, int]
) -> None:
    with node(tmp_path, machine) as it:
        it.agent.simulation.set_readings(it.bus_id, **readings)
        it.agent.simulation.xid(it.bus_id, code)
        until(lambda: it.health[1] in (before, f"xid-{code}"))
        until(lambda: f'xid="{code}"}} 1.0' in it.agent.metrics())
        it.stays(str(it.health[0]), it.health[1])
        it.agent.signal(signal.SIGUSR1)
        until(lambda: it.agent.simulation.clients() == 0)
        it.agent.simulation.reset_gpu(it.bus_id)
        it.agent.signal(signal.SIGUSR2)
        it.becomes("healthy")


def test_the_kernel_log_ends_an_xid_when_the_driver_asks_for_nothing_any_more(
    tmp_path: Path,
) -> None:
    with node(tmp_path) as it:
        it.agent.simulation.xid(it.bus_id, 94)
        it.becomes("degraded", "xid-94")
        it.kernel_logs(NOT_RECOVERED)
        until(lambda: 'xid="154"} 1.0' in it.agent.metrics())
        it.stays("degraded", "xid-94")
        it.kernel_logs(RECOVERED)
        it.becomes("healthy")


def test_an_xid_stands_while_nothing_shows_a_recovery(tmp_path: Path) -> None:
    """The driver never asked for anything; and a hang that ends is no reset."""
    with node(tmp_path) as it:
        it.agent.simulation.xid(it.bus_id, 94)
        it.becomes("degraded", "xid-94")
        it.agent.simulation.fault(Hang(), "nvmlDeviceGetPowerUsage", bus_id=it.bus_id)
        it.becomes("unhealthy", "gpu-hung")
        it.agent.simulation.clear()
        it.becomes("degraded", "xid-94")
        it.stays("degraded", "xid-94")


def test_an_xid_after_the_recovery_counts_again(tmp_path: Path) -> None:
    with node(tmp_path) as it:
        it.agent.simulation.xid(it.bus_id, 94)
        it.becomes("degraded", "xid-94")
        it.kernel_logs(RECOVERED)
        it.becomes("healthy")
        it.agent.simulation.xid(it.bus_id, 94)
        it.becomes("degraded", "xid-94")
        it.stays("degraded", "xid-94")
