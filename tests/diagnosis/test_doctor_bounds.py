# SPDX-License-Identifier: Apache-2.0
"""Where the doctor's checks begin to find something, and what they take for no fault."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from api.actuator.actuator_messages import KnownChange, StateAnswer
from base.settings.version_skew import minor_version
from diagnosis.checks import cluster_checks, credential_checks
from diagnosis.checks.rival_checks import EXPORTER, FEATURE_DISCOVERY, MIG_MANAGER
from diagnosis.facts.certificate_facts import Validity
from diagnosis.facts.cluster_facts import ClusterFacts, ServerFacts, read_server
from diagnosis.facts.kubelet_facts import REGISTRY, parse_kubelet_configuration
from diagnosis.facts.local_facts import LocalFacts
from diagnosis.facts.machine_facts import kernel_cut_name, read_program_names
from diagnosis.finding import Unread
from discovery.host.device_files import process_name
from kube.api import NODES, PODS, ServerInfo
from kube.api_errors import Forbidden
from tests.diagnosis.examined_node import NAME, UNKNOWN_GPU, ExaminedNode, listening
from tests.fakes.api import FakeApi
from tests.kubelet_nodes.checkpoint_file import write_claims
from tests.kubelet_nodes.offer import GPU, Device

DAY = 86400.0


@pytest.fixture
def node() -> Iterator[ExaminedNode]:
    """A healthy one."""
    folder = Path(tempfile.mkdtemp(prefix="d-", dir="/dev/shm"))  # in memory
    made = ExaminedNode(folder)
    yield made
    made.close()
    shutil.rmtree(folder)


def the_names(node: ExaminedNode) -> set[str]:
    return {each.name for each in node.examined().findings}


# clocks and versions


def skewed(seconds: float, unsure: float = 0.5) -> list[str]:
    info = ServerInfo(version="v1.37.1", unix_seconds=0.0)
    server = ServerFacts(info=info, skew_seconds=seconds, unsure_seconds=unsure)
    return [each.cause for each in cluster_checks.clock_findings(server)]


def test_a_clock_is_wrong_only_beyond_what_the_measurement_leaves_open() -> None:
    assert skewed(10.4) == []
    assert skewed(-10.4) == []
    assert skewed(12.0, unsure=3.0) == []
    assert skewed(11.0) == ["this clock is 11 s ahead of the API server's"]
    assert skewed(-90.0) == ["this clock is 90 s behind the API server's"]


@pytest.mark.parametrize("ahead", [-60.0, 0.0, 60.0])
def test_the_servers_date_is_compared_with_the_middle_of_the_request(ahead: float) -> None:
    api = FakeApi()
    api.server.clock = lambda: time.time() - ahead

    skew = read_server(api).skew_seconds

    assert skew == pytest.approx(ahead, abs=2)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v1.37.1", (1, 37)),
        ("v1.30.4-gke.1348000", (1, 30)),
        ("1.32+", (1, 32)),
        ("", None),
        ("x", None),
    ],
)
def test_versions_are_read_as_clusters_write_them(
    text: str, version: tuple[int, int] | None
) -> None:
    assert minor_version(text) == version


@pytest.mark.parametrize(
    ("server", "found"),
    [
        ("v1.29.9", ["kubernetes-too-old"]),
        ("v1.30.0", ["kubernetes-not-tested"]),
        ("v1.31.9", ["kubernetes-not-tested"]),
        ("v1.32.0", []),
    ],
)
def test_a_version_of_kubernetes_is_judged_by_its_minor(server: str, found: list[str]) -> None:
    assert [each.name for each in cluster_checks.version_findings(server)] == found


@pytest.mark.parametrize(
    ("kubelet", "is_found"),
    [("v1.34.0", False), ("v1.33.0", True), ("v1.37.9", False), ("v1.38.0", True)],
)
def test_a_kubelet_may_be_three_minors_older_and_not_newer(
    node: ExaminedNode, kubelet: str, is_found: bool
) -> None:
    node.reports(nodeInfo={"kubeletVersion": kubelet})

    assert the_names(node) == ({"kubelet-version-skew"} if is_found else set())


@pytest.mark.parametrize(
    ("kubelet", "name"), [("v1.33.9", "held-device-gone"), ("v1.34.0", "kubelet-will-die")]
)
def test_kubelets_die_from_the_version_on_in_which_they_were_changed(
    node: ExaminedNode, kubelet: str, name: str
) -> None:
    node.api.server.kubernetes = "v1.35.0"
    node.reports(nodeInfo={"kubeletVersion": kubelet})
    node.shows(node.offered, {"train": [UNKNOWN_GPU]})
    node.configures("restricted")

    assert the_names(node) == {name}


def test_a_kubelets_configuration_is_read_with_its_defaults() -> None:
    assert parse_kubelet_configuration({}).topology_manager == "none"
    assert parse_kubelet_configuration({}).most_numa_nodes == 8
    assert parse_kubelet_configuration({"topologyManagerPolicy": "restricted"}).most_numa_nodes == 8
    options = {"topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "16"}}
    assert parse_kubelet_configuration(options).most_numa_nodes == 16


# certificates


def found_of(begins: float, ends: float) -> list[str]:
    """Of one that began and ends so many days from now."""
    validity = Validity(title="a certificate", where="x", begins=begins * DAY, ends=ends * DAY)
    return [each.name for each in credential_checks.validity_findings(validity, now=0.0)]


@pytest.mark.parametrize(
    ("begins", "ends", "found"),
    [
        (-80, 10, []),
        (-82, 8, ["certificate-ends-soon"]),
        (-0.9, 0.11, []),
        (-0.95, 0.05, ["certificate-ends-soon"]),
        (-3600, 50, []),
        (-3600, 29, ["certificate-ends-soon"]),
        (-90, 0, ["certificate-ended"]),
        (0.0001, 90, []),
        (1, 90, ["certificate-not-yet-valid"]),
    ],
)
def test_a_certificate_ends_soon_when_it_should_have_been_renewed(
    begins: float, ends: float, found: list[str]
) -> None:
    assert found_of(begins, ends) == found


# what is no fault


def test_gpus_that_are_claimed_need_no_device_plugin(node: ExaminedNode) -> None:
    node.loses_plugin()
    node.shows({GPU: ()})
    node.reports(allocatable={GPU: "0"})
    write_claims(node.host, {"train": ["gpu-0"]})

    assert the_names(node) == set()


def test_a_driver_of_claims_is_no_device_plugin_that_failed(node: ExaminedNode) -> None:
    node.loses_plugin()
    node.shows({GPU: ()})
    node.reports(allocatable={GPU: "0"})
    folder = node.host / REGISTRY
    folder.mkdir()
    with listening(folder / "gpu.nvidia.com-reg.sock"):
        assert the_names(node) == set()


def test_shares_of_gpus_are_devices_of_the_machine(node: ExaminedNode) -> None:
    shares = tuple(
        Device(id=f"{gpu.uuid}::{number}", bus_id=gpu.bus_id)
        for gpu in node.snapshot.gpus
        for number in range(4)
    )
    node.shows({GPU: shares}, {"train": [shares[0].id]})
    node.reports(allocatable={GPU: "32"})

    assert the_names(node) == set()


def test_devices_whose_names_say_nothing_are_not_called_gone(node: ExaminedNode) -> None:
    devices = tuple(Device(id=str(number), bus_id="") for number in range(8))
    node.shows({GPU: devices}, {"train": ["9"]})
    node.configures("restricted")

    assert the_names(node) == set()


def test_a_gpu_that_is_ill_need_not_be_offered(node: ExaminedNode) -> None:
    node.machine.set_readings(node.bus_id, remap_failed=True)
    node.shows(node.without_first())
    node.reports(allocatable={GPU: "7"})

    assert the_names(node) == {"row-remap-failed"}


def test_a_change_of_mig_that_is_under_way_is_not_held(node: ExaminedNode) -> None:
    change = KnownChange(change="c", origin="all-1g.5gb", started="", gpus=())
    node.with_settings(mig_mode="enforce")
    node.answers_as_actuator(StateAnswer(open=change, running="c"))

    assert the_names(node) == set()


def test_labels_that_nfd_writes_for_us_are_not_left_alone(node: ExaminedNode) -> None:
    body = {"metadata": {"labels": {"nvidia.com/gpu.product": "Other"}}}
    node.api.server.apply(NODES, NAME, body, manager="nfd-master")
    node.with_settings(sink="nodefeature")

    assert "keys-left-alone" not in the_names(node)


# who else is there


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (FEATURE_DISCOVERY, "rival-feature-discovery"),
        (EXPORTER, "other-dcgm-exporter"),
        (MIG_MANAGER, "other-mig-manager"),
    ],
)
def test_a_program_of_the_host_is_found_by_its_process(
    node: ExaminedNode, program: str, name: str
) -> None:
    node.change = lambda facts: replace(facts, programs=frozenset({kernel_cut_name(program)}))

    assert the_names(node) == {name}


def test_programs_are_read_by_the_names_that_the_kernel_keeps() -> None:
    assert process_name(os.getpid()) in read_program_names()
    assert kernel_cut_name("gpu-feature-discovery") == "gpu-feature-dis"


def test_where_neither_pods_nor_the_hosts_processes_are_seen_nothing_is_said(
    node: ExaminedNode,
) -> None:
    node.api.fail("watch", Forbidden("not allowed"), times=None, resource=PODS)

    def seen(facts: LocalFacts, program: str) -> LocalFacts:
        kubelet = replace(facts.kubelet, pods=Unread("its folder is not mounted"))
        return replace(facts, kubelet=kubelet, programs=frozenset({program}))

    node.change = lambda facts: seen(facts, "gpuscape")

    made = node.examined()

    assert made.findings == ()
    assert {each.check for each in made.missed_checks} == {
        "feature-discovery",
        "dcgm-exporter",
        "mig-managers",
    }

    node.change = lambda facts: seen(facts, "kthreadd")
    assert not node.examined().missed_checks, "the host's processes are seen"


def test_facts_of_a_cluster_are_whole(node: ExaminedNode) -> None:
    cluster = node.facts().cluster

    assert isinstance(cluster, ClusterFacts)
    parts = (cluster.rights, cluster.confinement, cluster.node, cluster.lease, cluster.pods)
    assert not any(isinstance(each, Unread) for each in parts)
