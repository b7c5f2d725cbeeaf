# SPDX-License-Identifier: Apache-2.0
"""SIGHUP builds the new before it lets go of the old: nothing is refused, forgotten or leaked."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from simulator.simulation import Hang, Simulation
from tests.agent.agent_process import AgentProcess, Scraper, running, until
from tests.cli.test_agent_command import free_address

GOOD = {
    "--counters": "DCGM_FI_DEV_GPU_TEMP, gauge, x\n",
    "--web-config-file": "http_server_config:\n  http2: false\n",
    "--config": "",
}
BROKEN = {
    "--counters": "nonsense",
    "--web-config-file": "http_server_config: [",
    "--config": "no-such-setting: 1\n",
}

GROWTH_BYTES = 300 << 10
"""By 30 reloads: less than half of what they took when each made everything anew."""
MOST_THREADS = 44
"""After 60 reloads: at rest there are 7, which executors fill up to 36 and keep; a thread that each
reload left would make 67."""


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation.create("a30-pair", tmp_path / "machine")


@pytest.fixture
def agent(simulation: Simulation) -> Iterator[AgentProcess]:
    with running(simulation) as agent:
        until(lambda: agent.gpus("present") == 2)
        yield agent


def _count(agent: AgentProcess, message: str) -> int:
    return sum(each["message"] == message for each in agent.logged)


def _reload(agent: AgentProcess, outcome: str = "settings reloaded") -> None:
    before = _count(agent, outcome)
    agent.signal(signal.SIGHUP)
    until(lambda: _count(agent, outcome) > before)


def _value(agent: AgentProcess, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", agent.metrics(), re.MULTILINE)
    assert found is not None, series
    return float(found[1])


@pytest.mark.parametrize("option", GOOD)
def test_a_broken_file_leaves_what_was_served_and_a_mended_one_is_taken(
    simulation: Simulation, tmp_path: Path, option: str
) -> None:
    file = tmp_path / "file"
    file.write_text(GOOD[option])
    with running(simulation, option, str(file)) as agent:
        until(lambda: "\nDCGM_FI_DEV_GPU_TEMP{" in agent.metrics())
        reader = agent.reader().pid
        with Scraper(agent, pause_seconds=0) as scraper:
            for _ in range(2):
                if option == "--counters":
                    file.unlink()
                else:
                    file.write_text(BROKEN[option])
                _reload(agent, "settings rejected, previous ones kept")
                file.write_text(GOOD[option])
                _reload(agent)
        assert scraper.failures == []
        assert scraper.answers > 0
        assert "\nDCGM_FI_DEV_GPU_TEMP{" in agent.metrics()
        assert agent.reader().pid == reader


def test_fifty_reloads_refuse_no_connection_and_keep_readings_counters_and_reader(
    agent: AgentProcess,
) -> None:
    until(lambda: "\nDCGM_FI_DEV_GPU_TEMP{" in agent.metrics())
    reader, counts = agent.reader().pid, []
    with Scraper(agent, pause_seconds=0) as scraper:
        for _ in range(50):
            _reload(agent)
            assert agent.metrics().count("\nDCGM_FI_DEV_GPU_TEMP{") == 2
            assert agent.get("probes", "/readyz")[0] == 200
            counts.append(_value(agent, "gpuscape_scrape_duration_seconds_count"))
    assert scraper.failures == []
    assert counts == sorted(counts)
    assert _value(agent, 'gpuscape_cycle_duration_seconds_count{cycle="discover"}') >= 50
    changed = [it["label_changes"] for it in agent.logged if "label_changes" in it]
    assert isinstance(changed[0], int)
    assert changed[0] > 1
    assert set(changed[1:]) <= {0, 1}, "only the time of the settings is another"
    assert _value(agent, "gpuscape_reader_restarts_total") == 0
    assert agent.reader().pid == reader
    assert _count(agent, "listening") == 2


def test_a_gpu_that_hangs_stays_in_quarantine(simulation: Simulation) -> None:
    """Its stuck reader is no reason to kill it, and the GPU none to start another one."""
    bus_id = next(iter(simulation.state.gpus))
    with running(simulation, "--deadline", "1s", "--discover-interval", "1s") as agent:
        until(lambda: agent.gpus("present") == 2)
        simulation.fault(Hang(uninterruptible=True), "nvmlDeviceGetUUID", bus_id=bus_id)
        until(lambda: agent.gpus("hung") == 1 and len(agent.readers()) == 2)
        before = {reader.pid for reader in agent.readers()}
        _reload(agent)
        assert agent.gpus("hung") == 1
        assert {reader.pid for reader in agent.readers()} >= before


def test_reloads_leave_memory_threads_and_descriptors_as_they_were(
    simulation: Simulation, tmp_path: Path
) -> None:
    counters, web = tmp_path / "counters.csv", tmp_path / "web.yaml"
    counters.write_text(GOOD["--counters"])
    web.write_text(GOOD["--web-config-file"])
    with running(simulation, "--counters", str(counters), "--web-config-file", str(web)) as agent:
        until(lambda: agent.gpus("present") == 2)
        process = psutil.Process(agent.process.pid)

        def reload(times: int) -> tuple[int, int]:
            for _ in range(times):
                _reload(agent)
            cycles = 'gpuscape_cycle_duration_seconds_count{cycle="discover"}'
            done = _value(agent, cycles)
            agent.signal(signal.SIGHUP)  # once more, so that the last one has come to rest
            until(lambda: _value(agent, cycles) > done)
            return process.memory_full_info().uss, process.num_fds()

        # the heap goes up and down by a hundred kilobytes: the most before, and the least after
        before, handles = max(reload(10)[0] for _ in range(2)), reload(1)[1]
        after = min(reload(count)[0] for count in (29, 10))
        assert after - before < GROWTH_BYTES
        assert process.num_threads() <= MOST_THREADS
        until(lambda: process.num_fds() <= handles + 5)  # those of connections come and go


def test_another_address_is_listened_on_before_the_old_one_is_left(
    simulation: Simulation, tmp_path: Path
) -> None:
    file, address = tmp_path / "agent.yaml", free_address()
    file.write_text("listen: 127.0.0.1:0\n")
    with running(simulation, "--config", str(file), listen=None) as agent:
        old = agent.address("metrics")
        probes = agent.address("probes")
        file.write_text(f"listen: {address}\n")
        _reload(agent)
        assert (agent.address("metrics"), agent.address("probes")) == (address, probes)
        assert "gpuscape_build_info" in agent.metrics()
        with pytest.raises(ConnectionRefusedError), socket.create_connection(_pair(old)):
            pass


def test_an_address_that_is_taken_leaves_the_old_one(
    simulation: Simulation, tmp_path: Path
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("listen: 127.0.0.1:0\n")
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        running(simulation, "--config", str(file), listen=None) as agent,
    ):
        until(lambda: agent.gpus("present") == 2)
        file.write_text(f"listen: 127.0.0.1:{other.getsockname()[1]}\n")
        _reload(agent, "settings rejected, previous ones kept")
        assert agent.gpus("present") == 2


def _pair(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
