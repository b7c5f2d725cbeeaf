# SPDX-License-Identifier: Apache-2.0
"""Labels by an admin's rules on a real API server: which are let through, and whose they are."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from simulator.simulation import Simulation
from tests.agent.agent_process import AgentProcess, until
from tests.cluster.agents import Site, agent, has_topology
from tests.controlplane.plane import Plane
from tests.examples import FOLDER

pytestmark = pytest.mark.cluster

TYPE, MEMORY, FORGOTTEN = "example.com/gpu-type", "example.com/gpu-memory", "example.com/forgotten"
BY_HAND: Final = "example.com/room"
RULES: Final = """\
labels:
- key: example.com/gpu-type
  values:
  - {match: {product: "*A30*"}, value: a30}
- key: example.com/gpu-memory
  value: "{memory-gib}Gi"
- key: example.com/forgotten
  value: "{family}"
"""
"""Of which the admin has allowed all but the last."""
WRITE_SECONDS: Final = 120.0
"""For a write of the Node that is not among the first three: one a minute."""


@pytest.fixture
def site(plane: Plane) -> Site:
    return Site.create(plane, label_keys=(TYPE, MEMORY, BY_HAND))


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


@pytest.fixture
def node(site: Site) -> str:
    """Somebody has labelled it by hand."""
    return site.plane.make_node(labels={BY_HAND: "b12", TYPE: "unknown"})


@pytest.fixture
def process(site: Site, node: str, rules: Path, tmp_path: Path) -> Iterator[AgentProcess]:
    simulation = Simulation.create("a30-pair", tmp_path / "machine")
    options = {
        "GPUSCAPE_DISCOVER_INTERVAL": "1s",
        "GPUSCAPE_SAMPLE_INTERVAL": "1s",
        "GPUSCAPE_LABEL_RULES": str(rules),
    }
    with agent(site, node, simulation, tmp_path, options=options) as started:
        until(lambda: has_topology(site, node), WRITE_SECONDS)
        yield started


@pytest.mark.parametrize(
    ("machine", "labels"),
    [
        ("dgx-a100-80gb", {TYPE: "a100-80", MEMORY: "80Gi"}),
        ("a30-pair", {MEMORY: "24Gi"}),
    ],
)
def test_the_rules_of_the_examples_label_nodes(
    site: Site, tmp_path: Path, machine: str, labels: dict[str, str]
) -> None:
    """As they stand; a node of a model that no value is for gets no type."""
    node = site.plane.make_node()
    options = {"GPUSCAPE_LABEL_RULES": str(FOLDER / "labels" / "rules.yaml")}
    simulation = Simulation.create(machine, tmp_path / "machine")
    with agent(site, node, simulation, tmp_path, options=options):
        until(lambda: MEMORY in site.labels(node), WRITE_SECONDS)
    assert own(site, node) == labels


def own(site: Site, node: str) -> dict[str, str]:
    """The Node's labels under the admin's prefix."""
    return {key: text for key, text in site.labels(node).items() if key.startswith("example.com/")}


def test_the_policies_let_the_named_keys_through_and_no_other_one(
    site: Site, node: str, process: AgentProcess
) -> None:
    """What is refused costs nothing else, and is named in the log."""

    def refused() -> str:
        return str([it for it in process.logged if it["message"] == "keys refused"])

    until(lambda: FORGOTTEN in refused(), WRITE_SECONDS)
    until(lambda: MEMORY in own(site, node), WRITE_SECONDS)
    assert BY_HAND not in refused()
    assert own(site, node) == {BY_HAND: "b12", TYPE: "a30", MEMORY: "24Gi"}


def test_a_label_goes_with_its_rule_and_what_somebody_else_wrote_stays(
    site: Site, node: str, process: AgentProcess, rules: Path
) -> None:
    until(lambda: MEMORY in own(site, node), WRITE_SECONDS)
    rules.write_text("labels: []\n")
    process.signal(signal.SIGHUP)
    until(lambda: not own(site, node).keys() & {TYPE, MEMORY}, WRITE_SECONDS)
    assert own(site, node) == {BY_HAND: "b12"}
