# SPDX-License-Identifier: Apache-2.0
"""Labels by way of the real nfd-master and nfd-worker, and beside gpu-feature-discovery's."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from api import keys, names
from simulator.simulation import Return, Simulation
from tests.agent.agent_process import GPUSCAPE, until
from tests.cluster import nfd
from tests.cluster.agents import Site, agent, has_topology
from tests.controlplane.own import OwnPlane, start_nfd_master, start_nfd_worker
from tests.controlplane.plane import Plane
from tests.controlplane.programs import Programs

pytestmark = pytest.mark.cluster

QUICK = {"GPUSCAPE_DISCOVER_INTERVAL": "1s", "GPUSCAPE_SAMPLE_INTERVAL": "1s"}
FEATURE = {**QUICK, "GPUSCAPE_SINK": "nodefeature"}
MIXED = {"GPUSCAPE_MIG_STRATEGY": "mixed"}

PRODUCT = "nvidia.com/gpu.product"
THEIRS = {"nvidia.com/gpu.count": "2", PRODUCT: "NVIDIA-A30", keys.MIG_CAPABLE: "true"}
"""What gpu-feature-discovery publishes of an a30-pair, as far as it matters; so do we."""
BY_RULE = "example.com/gpu-memory"
"""A key of the admin's own, which the policies let through."""
ONLY_THEIRS = "nvidia.com/gpu.color"
"""It stands on the Node as long as nfd-master works with their NodeFeature."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnPlane]:
    """A cluster with Node Feature Discovery."""
    folder = tmp_path_factory.mktemp("plane")
    with Plane.start(folder, controller_manager=False) as plane:
        nfd.start(plane)
        yield plane


@pytest.fixture(scope="module")
def site(plane: OwnPlane) -> Site:
    """The agent's manifests, applied to it."""
    return Site.create(plane, "gpuscape", label_keys=(BY_RULE,))


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation.create("a30-pair", tmp_path)


@pytest.fixture
def mig(tmp_path: Path) -> Simulation:
    """A machine with labels of every kind."""
    return Simulation.create("hgx-h100-mig-mixed", tmp_path)


def ours(site: Site, node: str) -> dict[str, str]:
    """The labels of ours on a Node, but for the time at which an agent started."""
    there = site.labels(node)
    return {key: text for key, text in there.items() if keys.label(key) and key != keys.TIMESTAMP}


def told(simulation: Simulation, options: Mapping[str, str]) -> dict[str, str]:
    """The labels that ``gpuscape labels`` says this machine gets."""
    command = [str(GPUSCAPE), "labels", "-o", "json", "--no-timestamp"]
    environment = {"GPUSCAPE_SIMULATE": str(simulation.state_file), **options}
    printed = subprocess.run(command, env=environment, check=True, capture_output=True).stdout
    labels: dict[str, str] = json.loads(printed)
    return labels


def lose_a_gpu(simulation: Simulation) -> None:
    """Have one GPU fall off the bus."""
    simulation.fault(Return(code=15), bus_id=next(iter(simulation.state.gpus)))


def follows_the_machine(site: Site, node: str, simulation: Simulation) -> None:
    """A GPU is lost and comes back: labels change, and one appears that goes again."""
    before = ours(site, node)
    lose_a_gpu(simulation)
    until(lambda: keys.HEALTH_REASON in site.labels(node))
    lost = ours(site, node)
    simulation.clear()
    until(lambda: keys.HEALTH_REASON not in site.labels(node))

    assert int(lost[keys.FOUND]) == int(before[keys.FOUND]) - 1
    assert lost.keys() ^ before.keys() == {keys.HEALTH_REASON}
    assert ours(site, node) == before


def test_nfd_master_labels_the_node_as_the_agent_would_itself(
    site: Site, mig: Simulation, tmp_path: Path
) -> None:
    """It has no setting that lets our prefixes through, and needs none."""
    node = site.plane.make_node()
    with agent(site, node, mig, tmp_path, options={**FEATURE, **MIXED}):
        until(lambda: keys.FOUND in site.labels(node) and has_topology(site, node))

        assert ours(site, node) == told(mig, MIXED)
        assert keys.TIMESTAMP in site.labels(node)
        follows_the_machine(site, node, mig)


def test_nfd_worker_and_nfd_master_make_the_same_labels_of_a_feature_file(
    site: Site, mig: Simulation, tmp_path: Path
) -> None:
    node, namespace = site.plane.make_node(), site.plane.namespace("nfd")
    file = tmp_path / "worker" / "features.d" / "gpuscape"
    options = {**QUICK, **MIXED, "GPUSCAPE_SINK": "none", "GPUSCAPE_FEATURE_FILE": str(file)}
    with Programs(tmp_path / "logs") as programs:
        folder = file.parents[1]
        start_nfd_worker(site.plane, programs, node=node, namespace=namespace, folder=folder)
        with agent(site, node, mig, tmp_path, options=options):
            until(lambda: keys.FOUND in site.labels(node))

            assert ours(site, node) == told(mig, MIXED)
            follows_the_machine(site, node, mig)
    assert not has_topology(site, node)


def test_labels_by_rules_come_and_go_by_way_of_nfd_master(
    site: Site, simulation: Simulation, tmp_path: Path
) -> None:
    """It lets a prefix of an admin's own through without a setting."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(f'labels:\n- {{key: {BY_RULE}, value: "{{memory-gib}}Gi"}}\n')
    node = site.plane.make_node(labels={"example.com/room": "b12"})
    options = {**FEATURE, "GPUSCAPE_LABEL_RULES": str(rules)}
    with agent(site, node, simulation, tmp_path, options=options) as process:
        until(lambda: site.labels(node).get(BY_RULE) == "24Gi")
        rules.write_text("labels: []\n")
        process.signal(signal.SIGHUP)
        until(lambda: BY_RULE not in site.labels(node))

    assert site.labels(node)["example.com/room"] == "b12"
    assert site.labels(node)[PRODUCT] == "NVIDIA-A30"


def test_labels_outlive_the_agent_and_its_pod(
    site: Site, simulation: Simulation, tmp_path: Path
) -> None:
    """The garbage collector takes what the pod owns, and our NodeFeature is not of it."""
    node = site.plane.make_node()
    pod = site.plane.bound_pod(site.namespace, names.AGENT, node)
    pods, maps = (f"/api/v1/namespaces/{site.namespace}/{of}" for of in ("pods", "configmaps"))
    with agent(site, node, simulation, tmp_path, options=FEATURE, pod=pod):
        until(lambda: keys.FOUND in site.labels(node))
    before = site.labels(node)

    owned = {"name": f"of-{node}", "ownerReferences": [nfd.owner("v1", "Pod", pod)]}
    site.plane.demand("POST", maps, {"metadata": owned})
    site.plane.demand("DELETE", f"{pods}/{pod['metadata']['name']}?gracePeriodSeconds=0")
    until(lambda: site.plane.request("GET", f"{maps}/of-{node}").status == 404)

    assert site.plane.request("GET", nfd.node_feature(site.namespace, node)).status == 200
    assert site.labels(node) == before


def test_take_over_from_gpu_feature_discovery_and_hand_back_have_no_gap(
    site: Site, simulation: Simulation, tmp_path: Path
) -> None:
    node, operator = site.plane.make_node(), site.plane.namespace("gpu-operator")

    def install() -> nfd.FeatureDiscovery:
        labels = {**THEIRS, ONLY_THEIRS: "green"}
        installed = nfd.FeatureDiscovery.install(site.plane, operator, node, labels)
        until(lambda: ONLY_THEIRS in site.labels(node))
        return installed

    theirs = install()
    mark = site.plane.mark()
    with agent(site, node, simulation, tmp_path, options=FEATURE):
        until(lambda: keys.FOUND in site.labels(node))
        theirs.uninstall()
        until(lambda: ONLY_THEIRS not in site.labels(node))
        install()
    site.plane.demand("DELETE", nfd.node_feature(site.namespace, node))
    until(lambda: keys.FOUND not in site.labels(node))

    seen = nfd.versions(site.plane, node, mark)
    assert nfd.seconds_without(seen, THEIRS) == 0
    assert all(THEIRS.items() <= version.labels.items() for version in seen)
    made_of = {(ONLY_THEIRS in version.labels, keys.FOUND in version.labels) for version in seen}
    assert made_of >= {(True, True), (False, True), (True, False)}


def test_a_change_from_the_node_sink_to_a_node_feature_has_no_gap(
    site: Site, simulation: Simulation, tmp_path: Path
) -> None:
    node = site.plane.make_node()
    with agent(site, node, simulation, tmp_path, options=QUICK):
        until(lambda: keys.FOUND in site.labels(node))
    before = ours(site, node)
    mark = site.plane.mark()
    with agent(site, node, simulation, tmp_path, options=FEATURE):
        until(lambda: names.FEATURE_LABELS in site.annotations(node))

    assert nfd.seconds_without(nfd.versions(site.plane, node, mark), before) == 0
    assert ours(site, node) == before


def test_the_node_sink_leaves_keys_of_nfd_master_alone_until_it_lets_go_of_them(
    site: Site, simulation: Simulation, tmp_path: Path
) -> None:
    """Even where it would write other values; then there is the gap that the docs tell of."""
    node, operator = site.plane.make_node(), site.plane.namespace("gpu-operator")
    labels = {**THEIRS, PRODUCT: "NVIDIA-A30-SHARED"}
    theirs = nfd.FeatureDiscovery.install(site.plane, operator, node, labels)
    until(lambda: labels.items() <= site.labels(node).items())
    mark = site.plane.mark()
    with agent(site, node, simulation, tmp_path, options=QUICK) as process:
        until(lambda: has_topology(site, node))
        lose_a_gpu(simulation)
        until(lambda: keys.HEALTH_REASON in site.labels(node))
        beside = site.labels(node)
        written = nfd.labels_written(site.plane, node, mark)
        metrics = process.metrics()

        theirs.uninstall()
        until(lambda: site.labels(node).get(PRODUCT) == THEIRS[PRODUCT])

    assert labels.items() <= beside.items()
    assert keys.FOUND in written
    assert written & labels.keys() == set()
    assert f'gpuscape_keys_left_alone{{object="Node"}} {float(len(labels))}' in metrics
    (said, withdrawn) = (it for it in process.logged if it["message"] == "keys left alone")
    assert all(of in str(said["why"]) for of in ("nfd-master", *labels))
    assert withdrawn["why"] == "none any more"
    gap_seconds = nfd.seconds_without(nfd.versions(site.plane, node, mark), labels)
    assert 0 < gap_seconds < 60


def test_nfd_master_that_starts_again_strips_nothing(
    plane: OwnPlane, site: Site, simulation: Simulation, tmp_path: Path
) -> None:
    node = plane.make_node()
    with agent(site, node, simulation, tmp_path, options=FEATURE):
        until(lambda: keys.FOUND in site.labels(node))
        before = ours(site, node)
        mark = plane.mark()

        plane.programs.stop("nfd-master", signal.SIGKILL)
        start_nfd_master(plane, plane.programs)
        until(lambda: nfd.master_looked_at(plane, node, mark))
        lose_a_gpu(simulation)
        until(lambda: keys.HEALTH_REASON in site.labels(node))

    assert nfd.seconds_without(nfd.versions(plane, node, mark), before) == 0
