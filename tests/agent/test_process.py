# SPDX-License-Identifier: Apache-2.0
"""The agent's process: what it serves, how it obeys signals, what it leaves behind."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator.simulation import Crash, Hang, Simulation
from tests import machines
from tests.agent.agent_process import SOON, AgentProcess, running, until


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation.create("a30-pair", tmp_path / "machine")


@pytest.fixture
def agent(simulation: Simulation) -> Iterator[AgentProcess]:
    with running(simulation) as agent:
        until(lambda: agent.gpus("present") == 2)
        yield agent


def test_it_serves_readings_under_the_node_s_name_and_is_ready(agent: AgentProcess) -> None:
    until(lambda: 'hostname="node-a"' in agent.metrics())
    assert agent.get("probes", "/livez")[0] == 200
    assert agent.get("probes", "/readyz")[0] == 200
    assert agent.get("metrics", "/nonsense")[0] == 404


def test_scrapes_and_refusals_of_both_ports_are_in_the_next_scrape(agent: AgentProcess) -> None:
    def value(series: str) -> float:
        line = next(it for it in agent.metrics().splitlines() if it.startswith(f"{series} "))
        return float(line.rpartition(" ")[2])

    scrapes = value("gpuscape_scrape_duration_seconds_count")
    assert value('gpuscape_http_refusals_total{reason="certificate"}') == 0
    refused = value('gpuscape_http_refusals_total{reason="request"}')
    for server in ("metrics", "probes"):
        with contextlib.closing(
            http.client.HTTPConnection(agent.address(server), timeout=SOON)
        ) as connection:
            connection.request("POST", "/livez")
            assert connection.getresponse().status == http.client.METHOD_NOT_ALLOWED

    until(lambda: value('gpuscape_http_refusals_total{reason="request"}') == refused + 2)
    until(lambda: value("gpuscape_scrape_duration_seconds_count") > scrapes + 2)
    assert value("gpuscape_scrape_duration_seconds_sum") > 0
    logged = [record for record in agent.logged if record["message"] == "client refused"]
    assert [(record["reason"], record["client"]) for record in logged] == [
        ("request", "127.0.0.1"),
        ("request", "127.0.0.1"),
    ]


def test_settings_read_again_leave_gpus_in_their_places(tmp_path: Path) -> None:
    """Else a reload in the middle of an incident would rename the healthy ones."""
    simulation = Simulation.create("t4", tmp_path)
    with running(simulation, "--discover-interval", "1s", "--sample-interval", "1s") as agent:
        until(lambda: agent.gpus("present") == 4)
        machines.unplug(simulation, next(iter(simulation.state.gpus)))
        until(lambda: agent.gpus("lost") == 1)
        agent.signal(signal.SIGHUP)
        until(lambda: any(each["message"] == "settings reloaded" for each in agent.logged))
        until(lambda: agent.gpus("lost") == 1)
        until(lambda: "DCGM_FI_DEV_GPU_TEMP{" in agent.metrics())
        assert set(re.findall(r'DCGM_FI_DEV_GPU_TEMP{gpu="(.)"', agent.metrics())) == set("123")


def test_settings_read_again_leave_xids_counted_once(agent: AgentProcess) -> None:
    bus_id = next(iter(agent.simulation.state.gpus))
    agent.simulation.xid(bus_id, 48)
    until(lambda: 'xid="48"} 1.0' in agent.metrics())
    agent.signal(signal.SIGHUP)
    until(lambda: any(each["message"] == "settings reloaded" for each in agent.logged))
    until(lambda: agent.gpus("present") == 2)
    agent.simulation.xid(bus_id, 48)
    until(lambda: 'xid="48"} 2.0' in agent.metrics())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_success_and_leaves_no_reader(
    agent: AgentProcess, number: signal.Signals
) -> None:
    reader = agent.reader()
    agent.signal(number)
    assert agent.process.wait(SOON) == 0
    assert not reader.is_running()
    assert agent.simulation.clients() == 0


def test_a_signal_ends_it_even_while_a_gpu_hangs(agent: AgentProcess) -> None:
    agent.simulation.fault(Hang(uninterruptible=True))
    agent.signal(signal.SIGTERM)
    assert agent.process.wait(SOON) == 0


def test_a_signal_ends_it_even_while_a_probe_hangs(simulation: Simulation) -> None:
    gpu = next(iter(simulation.state.gpus))
    limits = ("--deadline", "1h", "--tick-limit", "24h")
    with running(simulation, *limits, "--discover-interval", "1s") as agent:
        until(lambda: agent.gpus("present") == 2)
        simulation.fault(Crash(), "nvmlDeviceGetUUID", bus_id=gpu, times=2)
        until(lambda: agent.gpus("unreadable") == 1)
        simulation.fault(Hang(uninterruptible=True), "nvmlDeviceGetUUID", bus_id=gpu)
        until(lambda: simulation.clients() == 2)
        agent.signal(signal.SIGTERM)
        assert agent.process.wait(SOON) == 0


def test_a_hangup_leaves_released_handles_released(agent: AgentProcess) -> None:
    agent.signal(signal.SIGUSR1)
    until(lambda: agent.simulation.clients() == 0)
    agent.signal(signal.SIGHUP)
    until(lambda: [it["message"] for it in agent.logged].count("NVML handles released") == 2)
    assert agent.simulation.clients() == 0
    agent.signal(signal.SIGUSR2)
    until(lambda: agent.gpus("present") == 2)


def test_labels_stay_in_the_feature_file_when_it_ends(
    simulation: Simulation, tmp_path: Path
) -> None:
    file = tmp_path / "features"
    with running(simulation, "--feature-file", str(file)) as agent:
        until(lambda: file.exists() and "nvidia.com/gpu.count=2" in file.read_text())
        agent.signal(signal.SIGTERM)
        agent.process.wait(SOON)
    assert "nvidia.com/gpu.count=2" in file.read_text()


def test_hangup_reads_the_settings_again(simulation: Simulation, tmp_path: Path) -> None:
    file, features = tmp_path / "agent.yaml", tmp_path / "features"
    file.write_text(f"feature-file: {features}\n")
    with running(simulation, "--config", str(file)) as agent:
        until(lambda: features.exists() and "mig.strategy" not in features.read_text())
        file.write_text(f"feature-file: {features}\nmig-strategy: mixed\n")
        agent.signal(signal.SIGHUP)
        until(lambda: "nvidia.com/mig.strategy=mixed" in features.read_text())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("mig-stratgy: mixed\n", "mig-strategy"),
        ("sharing-config: /nonexistent/plugin.yaml\n", "/nonexistent/plugin.yaml"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_a_hangup_with_bad_settings_changes_nothing_and_says_why(
    simulation: Simulation, tmp_path: Path, text: str, named: str
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("")
    with running(simulation, "--config", str(file)) as agent:
        until(lambda: agent.gpus("present") == 2)
        file.write_text(text)
        agent.signal(signal.SIGHUP)
        until(lambda: any(named in str(record.get("why")) for record in agent.logged))
        until(lambda: agent.gpus("present") == 2)


def test_a_hangup_brings_other_rules_for_labels_and_keeps_the_old_ones_where_they_are_broken(
    simulation: Simulation, tmp_path: Path
) -> None:
    rules, features = tmp_path / "rules.yaml", tmp_path / "features"
    rule = "- {key: example.com/gpus, value: %s}\n"
    rules.write_text("labels:\n" + rule % "old")
    options = ("--label-rules", str(rules), "--feature-file", str(features))
    with running(simulation, *options) as agent:
        until(lambda: features.exists() and "example.com/gpus=old\n" in features.read_text())
        rules.write_text("labels:\n" + rule % "new")
        agent.signal(signal.SIGHUP)
        until(lambda: "example.com/gpus=new\n" in features.read_text())
        rules.write_text("labels:\n" + rule % "new" + rule % "twice")
        agent.signal(signal.SIGHUP)
        until(lambda: any(f"{rules}:3" in str(each.get("why")) for each in agent.logged))
        agent.signal(signal.SIGUSR1)
        until(lambda: any(it["message"] == "NVML handles released" for it in agent.logged))
        agent.signal(signal.SIGUSR2)  # all is read and decided again
        until(lambda: agent.gpus("present") == 2)
        assert "example.com/gpus=new\n" in features.read_text()
        rules.write_text("labels: []\n")
        agent.signal(signal.SIGHUP)
        until(lambda: "example.com" not in features.read_text())
        assert "nvidia.com/gpu.count=2\n" in features.read_text()


def test_another_counters_file_is_served_without_a_hangup(
    simulation: Simulation, tmp_path: Path
) -> None:
    """With the readings that only its families need."""
    file = tmp_path / "counters.csv"
    file.write_text("DCGM_FI_DEV_SM_CLOCK, gauge, x\nnonsense\n")
    with running(simulation, "--counters", str(file), "--sample-interval", "1h") as agent:
        until(lambda: "\nDCGM_FI_DEV_SM_CLOCK{" in agent.metrics())
        assert "gpuscape_counters_skipped 1.0" in agent.metrics()
        file.write_text("DCGM_EXP_P2P_STATUS, gauge, x\n")
        until(lambda: agent.metrics().count("\nDCGM_EXP_P2P_STATUS{") == 2)
        assert "DCGM_FI_DEV_SM_CLOCK" not in agent.metrics()
        assert "gpuscape_counters_skipped 0.0" in agent.metrics()
