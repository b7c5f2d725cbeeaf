# SPDX-License-Identifier: Apache-2.0
"""Real agents, scraped by a real Prometheus: what the simulated fleet serves, they serve."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import yaml

from simulator.simulation import Simulation
from tests.agent.agent_process import AgentProcess, running, until
from tests.deploy.dockerfile import REPOSITORY
from tests.monitoring import page, promtool
from tests.monitoring import prometheus as real
from tests.monitoring.fleet import NODES
from tests.monitoring.prometheus import Prometheus
from tests.monitoring.shipped import CHOSEN, asked, filled

pytestmark = pytest.mark.cluster

MACHINES = {it.name: it.machine for it in NODES if it.name in ("a100-mig", "b200-0")}
"""Nodes of the simulated fleet for which agents are started, without a cluster."""

NOT_HERE = re.compile(
    r"gpuscape_(allocated|api_writes|confinement|free_gpus|gpu_allocated|keys_left_alone|keys_refused|"
    r"label_changes|labeler_failures|lease|mig_instance_allocated|mig_phase|mig_requests|mig_retries|"
    r"pod_gpu|process_|"
    r"resource_|unknown_devices|xid)"
)
"""Families of what needs a kubelet, an API server, processes, or trouble."""


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, AgentProcess]]:
    """By node, with readings."""
    with ExitStack() as stack:
        started = {}
        for node, machine in MACHINES.items():
            simulation = Simulation.create(machine, tmp_path_factory.mktemp(node))
            process = running(simulation, "--sample-interval", "1s")
            started[node] = stack.enter_context(process)
        for agent in started.values():
            until(partial(has_readings, agent))
        yield started


def has_readings(agent: AgentProcess) -> bool:
    return "DCGM_FI_DEV_GPU_TEMP{" in agent.metrics()


@pytest.fixture(scope="module")
def watching(
    agents: dict[str, AgentProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """A Prometheus that scrapes them, GPM's second sample included."""
    targets = [(agent.address("metrics"), {"instance": node}) for node, agent in agents.items()]
    config = real.configuration([real.job("gpuscape", targets)])
    with real.running(tmp_path_factory.mktemp("prometheus"), config) as prometheus:
        prometheus.wait_for("DCGM_FI_PROF_GR_ENGINE_ACTIVE")
        yield prometheus


def families(prometheus: Prometheus, node: str) -> set[str]:
    """Names of the node's metrics."""
    of_scrapes = 'job="gpuscape", __name__!~"scrape_.*|up"'
    return set(prometheus.label_values("__name__", f'{{instance="{node}", {of_scrapes}}}'))


@pytest.mark.parametrize("node", MACHINES)
def test_an_agent_serves_each_family_that_the_fleet_serves_for_its_machine(
    watching: Prometheus, prometheus: Prometheus, node: str
) -> None:
    """Some only with an agent's second sample."""
    expected = {name for name in families(prometheus, node) if not NOT_HERE.match(name)}

    with contextlib.suppress(AssertionError):  # what is missing is told below
        until(lambda: expected <= families(watching, node))

    assert expected - families(watching, node) == set()


def test_promtool_finds_nothing_in_what_an_agent_says_of_its_own(
    agents: dict[str, AgentProcess],
) -> None:
    for agent in agents.values():
        assert promtool.check_metrics(agent.metrics(), prefix="gpuscape_") == []


def test_prometheus_keeps_every_series_of_a_scrape(
    agents: dict[str, AgentProcess], watching: Prometheus
) -> None:
    """None is a duplicate, none has a name or a value that it refuses."""
    for node in agents:
        added = f'scrape_samples_post_metric_relabeling{{instance="{node}"}}'
        assert watching.query(f'{added} == scrape_samples_scraped{{instance="{node}"}}')
    assert {it["lastError"] for it in watching.targets()} == {""}


def test_a_prometheus_on_the_same_machine_fills_the_dashboard_of_a_node(
    agents: dict[str, AgentProcess], tmp_path: Path
) -> None:
    """By the page's configuration; what nobody holds and what did not happen is empty."""
    (tmp_path / "gpuscape").symlink_to(REPOSITORY)
    text = page.configuration_of_one_machine()
    assert "127.0.0.1:9400" in text
    text = text.replace("127.0.0.1:9400", agents["b200-0"].address("metrics"))
    config = real.configuration([]) | yaml.safe_load(text)
    assert config["rule_files"]
    chosen = CHOSEN | {"$instance": "laptop"}
    with real.running(tmp_path, config) as prometheus:
        prometheus.wait_for('gpuscape_topology_nvlinks_row{instance="laptop"}')
        prometheus.wait_for("instance:gpuscape_gpus:count")
        of_node = [it for it in asked() if it.dashboard == "gpuscape-node"]
        full = {it.panel for it in of_node if prometheus.query(filled(it.expression, chosen))}
    assert full >= {
        *("GPUs that answer", "NVLinks between GPUs", "PCIe between GPUs", "NVLinks that are up"),
        *("GPU memory", "Power", "Temperature", "Health", "What the GPUs are"),
    }
