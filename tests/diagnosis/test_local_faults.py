# SPDX-License-Identifier: Apache-2.0
"""``gpuscape doctor`` on a node: each planted fault is found by its name, and nothing else is."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest
import yaml
from msgspec import structs

from agent.settings.agent_settings import AgentSettings
from api import keys, names
from api.actuator.actuator_messages import KnownChange, StateAnswer
from base.settings.version_skew import VersionSkew
from diagnosis.checks import gpu_checks
from diagnosis.facts.certificate_facts import Credential, read_certificates
from diagnosis.facts.cluster_facts import STOPPED_WRITES
from diagnosis.facts.kubelet_facts import REGISTRY
from diagnosis.facts.local_facts import LocalFacts
from diagnosis.facts.machine_facts import (
    EVERY_HOST,
    DeviceFile,
    HostRootFiles,
    device_file,
    read_host_tree,
)
from diagnosis.finding import CheckOutcome, FindingSeverity
from diagnosis.finding_catalog import CATALOG
from discovery.gpu_counts import GpuCounts
from discovery.topology import node_topology
from health.gpu_rules import GPU_RULES
from kube.api import CONFIG_MAPS, LEASES, NODES, PODS
from kube.api_errors import Busy, Forbidden, Unauthorized, Unreachable
from simulator.simulation import Crash, Hang, Return
from simulator.state import edits
from simulator.state.machine_state import MachineState
from tests.diagnosis.examined_node import (
    ALL_POLICIES,
    NAME,
    UNKNOWN_GPU,
    ExaminedNode,
    listening,
)
from tests.kubelet_nodes.devices import Pod
from tests.kubelet_nodes.offer import GPU, Device
from tests.web import certificates

Plant = Callable[[ExaminedNode], object]
PRODUCT = "nvidia.com/gpu.product"
MEMORY = "example.com/gpu-memory"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: those of sockets have an end."""
    made = Path(tempfile.mkdtemp(prefix="d-", dir="/dev/shm"))  # in memory
    yield made
    shutil.rmtree(made)


@pytest.fixture
def node(folder: Path) -> Iterator[ExaminedNode]:
    """A healthy one."""
    made = ExaminedNode(folder)
    yield made
    made.close()


# what is planted


def readings(**values: object) -> Plant:
    return lambda node: node.machine.set_readings(node.bus_id, **values)


def of_gpu(**values: object) -> Plant:
    return lambda node: node.machine.edit(edits.with_gpu_changed(node.bus_id, **values))


def same_uuids(node: ExaminedNode) -> None:
    """The driver reports the first GPU's UUID for the second one too."""

    def change(state: MachineState) -> MachineState:
        assert state.machine is not None
        first, second, *others = state.machine.gpus
        both = (structs.replace(gpu, uuid=node.uuid) for gpu in (first, second))
        machine = structs.replace(state.machine, gpus=(*both, *others))
        return structs.replace(state, machine=machine)

    node.machine.edit(change)


def denies(verb: str, plural: str) -> Plant:
    return lambda node: node.api.server.denied.add((node.api.user, verb, plural))


def no_plugin(node: ExaminedNode) -> None:
    node.loses_plugin()
    not_registered(node)


def not_registered(node: ExaminedNode) -> None:
    node.shows({GPU: ()})
    node.reports(allocatable={GPU: "0"})


def offers_unknown(node: ExaminedNode) -> None:
    node.shows(node.with_unknown())
    node.reports(allocatable={GPU: "9"})


def offers_less(node: ExaminedNode) -> None:
    node.shows(node.without_first())
    node.reports(allocatable={GPU: "7"})


def holds_what_is_gone(policy: str) -> Plant:
    def plant(node: ExaminedNode) -> None:
        node.shows(node.offered, {"train": [UNKNOWN_GPU]})
        node.configures(policy)

    return plant


def holds_what_is_sick(node: ExaminedNode) -> None:
    node.shows(node.without_first(), {"train": [node.uuid]})
    node.reports(allocatable={GPU: "7"})


def wiped(node: ExaminedNode) -> None:
    """MIG is on, and of two devices that were there one is offered and one is held."""
    of_gpu(mig=True, mig_pending=True)(node)
    offered = Device(id=UNKNOWN_GPU.replace("GPU", "MIG"), bus_id=node.bus_id)
    node.shows({GPU: (*node.offered[GPU][1:], offered)}, {"train": [offered.id[:-1] + "0"]})
    node.configures("restricted")


def few_numa_nodes(node: ExaminedNode) -> None:
    options = 'topologyManagerPolicyOptions:\n  max-allowable-numa-nodes: "4"\n'
    node.configures("best-effort", options)


def actuator(answer: StateAnswer | None) -> Plant:
    def plant(node: ExaminedNode) -> None:
        node.with_settings(mig_mode="enforce")
        if answer is not None:
            node.answers_as_actuator(answer)

    return plant


def lacks_device_file(name: str) -> Plant:
    """Real files in a folder, one of them missing; the machine is simulated and has none."""

    def plant(node: ExaminedNode) -> None:
        there = [node.folder / each for each in ("nvidiactl", "nvidia0")]
        for each in there:
            each.touch()
        (node.folder / name).unlink()
        files = tuple(device_file(each) for each in there)
        node.change = lambda facts: replace(facts, device_files=files)

    return plant


def forbidden_device_file(node: ExaminedNode) -> None:
    files = (DeviceFile(path="/dev/nvidia0", exists=True, allowed=False),)
    node.change = lambda facts: replace(facts, device_files=files)


def no_gpu(node: ExaminedNode) -> None:
    not_registered(node)
    gone = dict.fromkeys(node.api.get(NODES, NAME)["metadata"]["labels"])
    node.patches(labels=gone)
    node.change = lambda facts: replace(facts, machine=replace(node.snapshot, gpus=()))


def without_boot_id(facts: LocalFacts) -> LocalFacts:
    missing = EVERY_HOST[:1]
    tree = HostRootFiles(root=Path("/host"), expected=EVERY_HOST, missing=missing)
    return replace(facts, host_tree=tree)


def counts_of(**counts: Any) -> Plant:
    return lambda node: setattr(
        node,
        "change",
        lambda facts: replace(
            facts, machine=replace(node.snapshot, counts=replace(node.snapshot.counts, **counts))
        ),
    )


def no_list(**counts: Any) -> Plant:
    def plant(node: ExaminedNode) -> None:
        no_gpu(node)
        none = replace(node.snapshot, gpus=(), counts=GpuCounts(**counts))
        node.change = lambda facts: replace(facts, machine=none)

    return plant


def versions(server: str, kubelet: str) -> Plant:
    def plant(node: ExaminedNode) -> None:
        node.api.server.kubernetes = server
        node.reports(nodeInfo={"kubeletVersion": kubelet})

    return plant


def web_config(days: float, *, shift_seconds: float = 0.0, other_key: bool = False) -> Plant:
    """Metrics by TLS with a certificate that ends in so many days, made yesterday."""

    def plant(node: ExaminedNode) -> None:
        authority = certificates.authority(days=100)
        certificates.issued(authority, days=days).write(node.folder)
        if other_key:
            (node.folder / "tls.key").write_bytes(authority.key_pem())
        file = node.folder / "web.yaml"
        file.write_text("tls_server_config: {cert_file: tls.crt, key_file: tls.key}\n")
        node.with_settings(web_config_file=file)
        node.change = lambda facts: replace(facts, now=facts.now + shift_seconds)

    return plant


def slow_clock(node: ExaminedNode) -> None:
    node.api.server.clock = lambda: time.time() + 60


def applied_by_other(node: ExaminedNode) -> None:
    body = {"metadata": {"labels": {PRODUCT: "Other"}}}
    node.api.server.apply(NODES, NAME, body, manager="somebody")


def rules(*keys: str) -> Plant:
    """The agent has rules for these labels."""

    def plant(node: ExaminedNode) -> None:
        file = node.folder / "rules.yaml"
        listed = [{"key": key, "value": "{memory-gib}Gi"} for key in keys]
        file.write_text(yaml.safe_dump({"labels": listed}))
        node.with_settings(label_rules=file)

    return plant


def of_other_lease(**lease: object) -> Plant:
    return lambda node: node.makes_lease(**lease)  # type: ignore[arg-type]  # its own arguments


def policies_but(one: str) -> Plant:
    return lambda node: node.enforces(*(each for each in ALL_POLICIES if each != one))


def forged_permits(node: ExaminedNode) -> None:
    """The agent acts on permits, and anybody may write one."""
    node.with_settings(mig_mode="enforce")
    node.answers_as_actuator()
    policies_but(names.MIG_PERMIT)(node)


def overloaded(node: ExaminedNode) -> None:
    """The server answers no dry run of a Lease, so that nobody knows who would refuse it."""
    policies_but(names.AGENT_LEASE)(node)
    node.api.fail("create", Busy("overloaded"), times=None, resource=LEASES)


def stopped_writes(node: ExaminedNode) -> None:
    """Of several policies that refuse the API server names any one."""
    node.api.heal()
    node.api.refuse(STOPPED_WRITES, lambda call: call.dry_run)


def mig_manager(mode: str) -> Plant:
    def plant(node: ExaminedNode) -> None:
        node.with_settings(mig_mode=mode)
        if mode == "enforce":
            node.answers_as_actuator()
        node.runs("nvidia-mig-manager-x7k2p")

    return plant


def seen_in_its_pod_alone(name: str) -> Plant:
    """The kubelet lists the pod; the account may not list pods, as the shipped one may not."""

    def plant(node: ExaminedNode) -> None:
        node.api.fail("watch", Forbidden("not allowed"), times=None, resource=PODS)
        node.kubelet.show(node.offered, [Pod(namespace="gpu-operator", name=name, containers=())])

    return plant


def broken(setting: str, text: str) -> Plant:
    """A file that a setting names is not as it has to be."""

    def plant(node: ExaminedNode) -> None:
        file = node.folder / f"{setting}.yaml"
        file.write_text(text)
        node.with_settings(**{setting: file})

    return plant


def counters_map(data: dict[str, str] | None) -> Plant:
    """A setting names this ConfigMap; None: there is none."""

    def plant(node: ExaminedNode) -> None:
        if data is not None:
            node.api.server.add_namespace("monitoring")
            config_map = {"metadata": {"name": "counters"}, "data": data}
            node.api.server.create(CONFIG_MAPS, config_map, "monitoring")
        node.with_settings(counters_from="monitoring:counters")

    return plant


def started_by(manifests: str) -> Plant:
    skew = VersionSkew(image="0.1.0", manifests=manifests)
    return lambda node: setattr(node, "change", lambda facts: replace(facts, skew=skew))


HELD = KnownChange(change="c", origin="all-1g.5gb", started="", gpus=(), reason="GPU lost")
LOST = Return(code=pynvml.NVML_ERROR_GPU_IS_LOST)
FORBIDDEN = Return(code=pynvml.NVML_ERROR_NO_PERMISSION)

FAULTS: Mapping[str, tuple[Plant, frozenset[str]]] = {
    name: (plant, frozenset(follow))
    for name, plant, follow in (
        ("host-root-incomplete", lambda node: setattr(node, "change", without_boot_id), ()),
        ("driver-absent", lambda node: node.machine.set_driver("absent"), ()),
        ("driver-mismatch", lambda node: node.machine.set_driver("mismatch"), ()),
        ("driver-stuck", lambda node: node.machine.fault(Hang(), "nvmlInit*"), ()),
        ("reader-ends", lambda node: node.machine.fault(Crash(), "nvmlInit*"), ()),
        ("no-gpu", no_gpu, ()),
        ("device-node-missing", lacks_device_file("nvidia0"), ()),
        ("device-node-forbidden", forbidden_device_file, ()),
        ("gpu-unaddressable", counts_of(unaddressed=1), ()),
        ("gpus-not-counted", no_list(nvml=None, why_uncounted="Unknown Error"), ()),
        ("integrated-gpu", no_list(nvml=1, integrated=1, on_pci=False), ()),
        ("host-tree-missing", lambda node: node.machine.hide_pci(), ()),
        ("gpu-lost", lambda node: node.machine.fault(LOST, bus_id=node.bus_id), ()),
        (
            "gpu-hung",
            lambda node: node.machine.fault(Hang(), "nvmlDeviceGetName", bus_id=node.bus_id),
            (),
        ),
        ("row-remap-failed", readings(remap_failed=True), ()),
        ("row-remap-pending", readings(remap_pending=True), ()),
        ("nvlink-inactive", lambda node: node.machine.links_down(node.bus_id, 0, 1), ()),
        (
            "readings-forbidden",
            lambda node: node.machine.fault(FORBIDDEN, "nvmlDeviceGetSerial", bus_id=node.bus_id),
            (),
        ),
        ("identity-shared", same_uuids, ("gpu-not-offered", "offered-device-gone")),
        ("mode-pending", of_gpu(mig_pending=True), ()),
        ("mig-empty", of_gpu(mig=True, mig_pending=True), ()),
        ("pod-resources-silent", lambda node: node.kubelet.stop(), ()),
        ("no-device-plugin", no_plugin, ()),
        ("plugin-not-registered", not_registered, ()),
        ("allocatable-ghost", lambda node: node.loses_plugin(), ()),
        ("allocatable-differs", lambda node: node.reports(allocatable={GPU: "16"}), ()),
        ("offered-device-gone", offers_unknown, ()),
        ("gpu-not-offered", offers_less, ()),
        ("kubelet-will-die", holds_what_is_gone("single-numa-node"), ()),
        ("held-device-gone", holds_what_is_gone("none"), ()),
        ("held-device-unhealthy", holds_what_is_sick, ("gpu-not-offered",)),
        ("kubelet-numa-limit", few_numa_nodes, ()),
        ("actuator-silent", actuator(None), ()),
        ("mig-change-stuck", actuator(StateAnswer(open=HELD)), ()),
        ("mig-journal-damaged", actuator(StateAnswer(problem="no such version")), ()),
        (
            "api-unreachable",
            lambda node: node.api.fail("*", Unreachable("refused"), times=None),
            (),
        ),
        (
            "api-credentials-refused",
            lambda node: node.api.fail("*", Unauthorized("401"), times=None),
            (),
        ),
        ("api-right-missing", denies("patch", "nodes"), ()),
        (
            "api-right-excess",
            lambda node: node.api.server.denied.remove((node.api.user, "get", "secrets")),
            (),
        ),
        ("policy-not-in-force", policies_but(names.AGENT_NODE), ()),
        ("permit-policy-not-in-force", forged_permits, ()),
        ("policy-not-confirmed", overloaded, ()),
        ("writes-stopped", stopped_writes, ()),
        (
            "clock-skew",
            lambda node: setattr(node.api.server, "clock", lambda: time.time() + 60),
            (),
        ),
        ("kubernetes-too-old", versions("v1.28.3", "v1.28.3"), ()),
        ("kubernetes-not-tested", versions("v1.31.2", "v1.31.2"), ()),
        ("kubelet-version-skew", versions("v1.37.1", "v1.33.9"), ()),
        ("version-skew", started_by("0.2.0"), ()),
        ("node-unknown", lambda node: node.api.server.delete(NODES, NAME), ()),
        (
            "lease-missing",
            lambda node: node.api.server.delete(LEASES, names.agent_lease(NAME), names.NAMESPACE),
            (),
        ),
        ("lease-released", of_other_lease(holder=""), ()),
        ("lease-stale", of_other_lease(age_seconds=400), ()),
        ("lease-held-by-other", of_other_lease(holder="another"), ()),
        ("gpus-released", lambda node: node.patches(annotations={keys.RELEASE: "true"}), ()),
        ("labels-missing", lambda node: node.patches(labels={PRODUCT: None}), ()),
        ("labels-differ", lambda node: node.patches(labels={PRODUCT: "Other"}), ()),
        ("rule-labels-differ", rules(MEMORY), ()),
        ("keys-left-alone", applied_by_other, ()),
        ("rival-feature-discovery", lambda node: node.runs("gpu-feature-discovery-abcde"), ()),
        ("other-dcgm-exporter", lambda node: node.runs("nvidia-dcgm-exporter-abcde"), ()),
        ("rival-mig-manager", mig_manager("enforce"), ()),
        ("other-mig-manager", mig_manager("observe"), ()),
        ("certificate-ended", web_config(-0.5), ()),
        ("certificate-ends-soon", web_config(0.05), ()),
        ("certificate-not-yet-valid", web_config(5, shift_seconds=-3 * 86400), ()),
        ("certificate-unusable", web_config(5, other_key=True), ()),
        ("settings-file-unusable", broken("label_rules", "labels:\n- kye: a/b\n"), ()),
        ("counters-not-served", broken("counters", "NO_FIELD, gauge, x\n"), ()),
        ("counters-config-map-unread", counters_map({"counters.csv": "x"}), ()),
    )
}
"""Name of the finding, how its fault is planted, and what follows of necessity."""


def test_a_healthy_node_has_no_finding(node: ExaminedNode) -> None:
    made = node.examined()

    assert made.findings == ()
    assert {
        each.check: each.why for each in made.checks if each.outcome is not CheckOutcome.OK
    } == {
        "host-root": "a simulated machine has a host tree of its own",
        "device-nodes": "a simulated machine has no device nodes",
        "actuator": "MIG layouts are not changed here",
        "image": "neither chart nor manifests started this",
        "settings-files": "no setting names a file of labels, counters or MIG configurations",
    }
    assert not made.missed_checks


def test_an_empty_host_root_lacks_all_that_a_host_has(tmp_path: Path) -> None:
    tree = read_host_tree(AgentSettings(host_root=tmp_path))

    assert isinstance(tree, HostRootFiles)
    assert tree.missing == EVERY_HOST


def test_the_root_of_this_system_lacks_nothing() -> None:
    tree = read_host_tree(AgentSettings())

    assert isinstance(tree, HostRootFiles)
    assert tree.missing == ()


def test_a_host_root_with_the_three_trees_alone_lacks_nothing(tmp_path: Path) -> None:
    for tree_of_host in ("proc", "sys", "dev"):
        (tmp_path / tree_of_host).symlink_to(f"/{tree_of_host}")

    tree = read_host_tree(AgentSettings(host_root=tmp_path))

    assert isinstance(tree, HostRootFiles)
    assert tree.missing == ()


def test_a_403_is_an_answer_and_not_a_server_that_does_not_answer(node: ExaminedNode) -> None:
    node.api.fail("*", Forbidden("403: system:anonymous cannot get path /version"), times=None)

    findings = {finding.name for finding in node.examined().findings}

    assert findings & {"api-unreachable", "api-credentials-refused"} == {"api-credentials-refused"}


@pytest.mark.parametrize("machine", ["hgx-h100", "a30-pair", "t4", "gb200", "dgx1-v100"])
def test_other_healthy_machines_have_none_either(folder: Path, machine: str) -> None:
    node = ExaminedNode(folder, machine)
    try:
        found = node.examined().findings
    finally:
        node.close()

    assert found == ()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_by_its_name_and_nothing_else_is(node: ExaminedNode, name: str) -> None:
    plant, follow = FAULTS[name]
    plant(node)

    made = node.examined()

    assert {each.name for each in made.findings} == {name} | follow
    assert all(each.cause and each.fix and each.about for each in made.findings)
    assert [each for each in made.checks if "bug" in each.why] == []


def test_every_kind_of_finding_on_a_node_is_planted() -> None:
    kinds = {
        kind.name for part in ("gpus", "kubelet", "cluster", "others") for kind in CATALOG[part]
    }
    of_hardware = set(gpu_checks.HEALTH_KINDS)

    assert kinds - set(FAULTS) - of_hardware == set()
    assert len(FAULTS) > 50


def test_every_reason_of_ill_health_has_a_fix() -> None:
    assert set(gpu_checks.HEALTH_KINDS) == {rule.reason for rule in GPU_RULES}


def test_what_is_not_looked_at_is_said_with_its_reason(node: ExaminedNode) -> None:
    node.machine.set_driver("absent")
    node.api.fail("*", Unreachable("no route"), times=None)

    made = node.examined()

    missed = {each.check: each.why for each in made.missed_checks}
    assert missed["gpus"].startswith("no NVIDIA driver")
    assert missed["clock"] == "no route"
    assert "held-devices" in missed
    assert {each.name for each in made.findings} == {"driver-absent", "api-unreachable"}


@pytest.mark.parametrize(
    ("keys_of_rules", "text", "named"),
    [
        ((MEMORY,), "40Gi", set()),
        ((MEMORY,), "80Gi", {MEMORY}),
        ((MEMORY, "example.com/new"), "40Gi", {"example.com/new"}),
        ((), "40Gi", {MEMORY}),  # the agent made it by a rule that is gone
    ],
)
def test_labels_by_rules_are_compared_with_what_the_rules_make(
    node: ExaminedNode, keys_of_rules: tuple[str, ...], text: str, named: set[str]
) -> None:
    rules(*keys_of_rules)(node)
    wrote = {"metadata": {"labels": {MEMORY: text}}}
    node.api.server.patch(NODES, NAME, wrote, manager=names.AGENT)
    node.patches(labels={"example.com/team": "vision"})

    found = node.examined().findings

    assert {each.name for each in found} == ({"rule-labels-differ"} if named else set())
    assert {key for each in found for key in each.cause.partition(": ")[2].split(", ")} == named


@pytest.mark.parametrize(
    ("data", "name", "words"),
    [
        (None, "counters-config-map-unread", "monitoring:counters: "),
        ({"counters.csv": "x"}, "counters-config-map-unread", "it has no key metrics"),
        ({"metrics": "NO_FIELD, gauge, x\n"}, "counters-not-served", "line 1: 'NO_FIELD'"),
    ],
)
def test_counters_of_a_config_map_are_looked_at_as_those_of_a_file_are(
    node: ExaminedNode, data: dict[str, str] | None, name: str, words: str
) -> None:
    counters_map(data)(node)

    (finding,) = node.examined().findings

    assert finding.name == name
    assert words in finding.cause


def test_a_config_map_with_counters_that_are_served_is_no_finding(node: ExaminedNode) -> None:
    counters_map({"metrics": "DCGM_FI_DEV_GPU_TEMP, gauge, x.\n"})(node)

    assert node.examined().findings == ()


@pytest.mark.parametrize(
    ("setting", "text", "words"),
    [
        ("counters", "version: 2\nmetrcs: {}\n", "counters.yaml:2"),
        ("mig_config", "version: v1\nmig-configs:\n  a: []\n", "mig_config.yaml:3"),
        ("mig_config", "apiVersion: v1\nkind: ConfigMap\ndata: {}\n", "this is a ConfigMap"),
    ],
)
def test_a_broken_file_of_counters_or_layouts_is_named_with_its_line(
    node: ExaminedNode, setting: str, text: str, words: str
) -> None:
    broken(setting, text)(node)

    made = node.examined()

    (finding,) = made.findings
    assert finding.name == "settings-file-unusable"
    assert words in finding.cause
    assert made.missed_checks == ()


@pytest.mark.parametrize(
    ("setting", "text", "words"),
    [
        ("label_rules", "labels:\n- kye: a/b\n", "label_rules.yaml:2"),
        ("sharing_config", "sharing: [\n", "sharing_config.yaml:"),
    ],
)
def test_a_broken_file_of_a_setting_is_named_with_its_line_and_costs_the_labels_alone(
    node: ExaminedNode, setting: str, text: str, words: str
) -> None:
    broken(setting, text)(node)
    node.loses_plugin()

    made = node.examined()

    assert {each.name for each in made.findings} == {"settings-file-unusable", "allocatable-ghost"}
    (cause,) = (each.cause for each in made.findings if each.name == "settings-file-unusable")
    assert words in cause
    assert {each.check: each.why for each in made.missed_checks} == {"labels": cause}


@pytest.mark.parametrize(
    ("pod", "name"),
    [
        ("nvidia-mig-manager-x7k2p", "rival-mig-manager"),
        ("gpu-feature-discovery-abcde", "rival-feature-discovery"),
        ("nvidia-dcgm-exporter-abcde", "other-dcgm-exporter"),
    ],
)
def test_an_agent_that_may_not_list_pods_knows_them_by_the_kubelet(
    node: ExaminedNode, pod: str, name: str
) -> None:
    node.with_settings(mig_mode="enforce")
    node.answers_as_actuator()
    seen_in_its_pod_alone(pod)(node)

    (found,) = node.examined().findings

    assert found.name == name
    assert f"gpu-operator/{pod}" in found.cause


@pytest.mark.parametrize(
    ("running", "cause"),
    [
        ("gpu-feature-discovery", "process gpu-feature-discovery runs here"),
        ("gpu-feature-dis", "process gpu-feature-dis runs here"),  # as the kernel cuts it
        ("gpu-feature-display", None),
    ],
)
def test_a_process_of_the_host_is_known_by_its_whole_name(
    node: ExaminedNode, running: str, cause: str | None
) -> None:
    node.change = lambda facts: replace(facts, programs=frozenset({running}))

    assert [each.cause for each in node.examined().findings] == ([cause] if cause else [])


def test_gpus_that_are_to_be_left_alone_are_not_read(node: ExaminedNode) -> None:
    node.patches(annotations={keys.RELEASE: "true"})
    node.machine.log_calls()

    made = node.examined()

    assert node.machine.calls() == {}
    assert {"driver", "gpus", "held-devices"} <= {each.check for each in made.missed_checks}


def test_errors_come_before_warnings_and_notes(node: ExaminedNode) -> None:
    node.runs("nvidia-dcgm-exporter-abcde")
    node.patches(labels={PRODUCT: "Other"})
    node.loses_plugin()

    severities = [each.severity for each in node.examined().findings]

    assert severities == [FindingSeverity.ERROR, FindingSeverity.WARNING, FindingSeverity.NOTE]


def test_a_configuration_that_cannot_be_seen_makes_no_prophecy(node: ExaminedNode) -> None:
    """Whether the kubelet will die depends on its policy."""
    holds_what_is_gone("single-numa-node")(node)
    (node.host / "var/lib/kubelet/config.yaml").unlink()

    made = node.examined()

    assert {each.name for each in made.findings} == {"held-device-gone"}
    assert "numa-nodes" in {each.check for each in made.missed_checks}


def test_an_older_kubelet_does_not_die(node: ExaminedNode) -> None:
    holds_what_is_gone("single-numa-node")(node)
    versions("v1.33.5", "v1.33.5")(node)

    assert {each.name for each in node.examined().findings} == {"held-device-gone"}


def test_mig_devices_that_a_container_may_not_see_are_not_gone(node: ExaminedNode) -> None:
    """It sees that MIG is on, and nothing of what is on the GPU."""
    wiped(node)
    node.machine.revoke("mig-monitor", "mig-access")

    assert {each.name for each in node.examined().findings} == {"readings-forbidden"}


def test_a_wipe_that_leaves_nothing_is_seen_by_who_may_look(node: ExaminedNode) -> None:
    wiped(node)

    names_found = {each.name for each in node.examined().findings}

    assert names_found == {"kubelet-will-die", "offered-device-gone", "mig-empty"}


def test_a_plugin_that_registers_by_its_own_socket_is_one(node: ExaminedNode) -> None:
    node.loses_plugin()
    folder = node.host / REGISTRY
    folder.mkdir()
    with listening(folder / "nvidia.sock"):
        assert node.examined().findings == ()


def test_certificates_are_read_with_when_they_hold(folder: Path) -> None:
    node = ExaminedNode(folder)
    web_config(30)(node)
    node.close()

    (read,) = read_certificates(node.settings, None)

    assert isinstance(read, Credential)
    assert getattr(read, "ends", 0) - time.time() == pytest.approx(30 * 86400, abs=60)


def test_a_gpu_of_another_vendor_ends_no_check_and_is_no_finding_of_its_own(
    node: ExaminedNode,
) -> None:
    gpus = node.snapshot.gpus
    other = replace(gpus[0], bus_id="0000:fe:00.0", index=len(gpus), uuid="another", nvidia=None)
    mixed = (*gpus, other)
    topology = node_topology(mixed, node.snapshot.host.nics, {})
    machine = replace(node.snapshot, gpus=mixed, topology=topology)
    node.change = lambda facts: replace(facts, machine=machine)

    examined = node.examined()

    assert not [check for check in examined.checks if "which is a bug" in check.why]
    assert not [finding for finding in examined.findings if other.bus_id in finding.about]
