# SPDX-License-Identifier: Apache-2.0
"""A fact that does not change stays as it was last read; what changes by itself is not known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api import keys, topology_annotation
from discovery import remember
from discovery.model import (
    Driver,
    Gap,
    GpuSnapshot,
    GpuState,
    Host,
    NodeSnapshot,
    NumaNode,
    NvLink,
    PciFacts,
    Reason,
    Vgpu,
)
from discovery.nvml_terms import LinkPeer
from labelers.annotations import node_annotations
from labelers.compose import decide_labels
from labelers.diff import applied
from labelers.label_settings import LabelSettings
from simulator.simulation import Return, Simulation
from tests import build
from tests.observed import Watcher

UNKNOWN = 999
"""NVML_ERROR_UNKNOWN."""

Texts = dict[str, str]

ENTRIES = (
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetPciInfo*",
    "nvmlDeviceGetMemoryInfo*",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo*",
    "nvmlDeviceGetNvLinkRemote*",
    "nvmlDeviceGetNvLink*",
    "nvmlDeviceGetGpuFabricInfo*",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlSystemGet*Version*",
)


class Node:
    """What a Node shows, look after look."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.labels: Texts = {}
        self.annotations: Texts = {}
        self._watcher = Watcher(simulation)

    def look(self) -> NodeSnapshot:
        snapshot = self._watcher.look()
        labels = decide_labels(snapshot, LabelSettings()).decisions
        self.labels = applied(self.labels, labels)
        self.annotations = applied(self.annotations, node_annotations(snapshot))
        return snapshot

    @property
    def shown(self) -> tuple[Texts, Texts]:
        return self.labels, self.annotations


@pytest.fixture(scope="module", params=["dgx1-v100", "hgx-h100-rdma"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Node:
    node = Node(Simulation.create(request.param, tmp_path_factory.mktemp("machine")))
    node.look()
    return node


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_call_that_fails_changes_nothing_that_the_node_shows(node: Node, entry: str) -> None:
    """Neither links nor peers nor identity: no other class, generation or health."""
    before, bus_ids = node.shown, list(node.simulation.state.gpus)
    bus_id = None if entry.startswith("nvmlSystem") else bus_ids[1]
    fault = node.simulation.fault(Return(code=UNKNOWN), entry, bus_id=bus_id)

    during = node.look()
    shown = node.shown
    node.simulation.clear(fault)
    after = node.look()

    assert shown == before
    assert node.shown == before
    assert [gpu.uuid for gpu in during.gpus] == [gpu.uuid for gpu in after.gpus]
    assert during != after  # gaps say what failed


@pytest.mark.parametrize("what", ["numa_node", "local_cpulist", "device"])
def test_a_file_of_sysfs_that_cannot_be_read_changes_nothing(node: Node, what: str) -> None:
    before = node.shown
    bus_id = next(iter(node.simulation.state.gpus))
    file = node.simulation.host_root / "sys/bus/pci/devices" / bus_id / what
    text = file.read_text()
    file.write_text("?")

    node.look()
    shown = node.shown
    file.write_text(text)

    assert shown == before


def test_nics_that_cannot_be_listed_are_still_there(tmp_path: Path) -> None:
    node = Node(Simulation.create("hgx-h100-rdma", tmp_path))
    node.look()
    before = node.shown
    folder = node.simulation.host_root / "sys/class/infiniband"
    folder.rename(folder.with_name("aside"))
    folder.write_text("")

    found = node.look()

    assert len(found.host.nics) == 12
    assert [(gap.what, gap.kept) for gap in found.host.gaps] == [("nics", True)]
    assert node.shown == before


def test_a_link_that_is_read_as_down_is_published(tmp_path: Path) -> None:
    """That is a state, and it was read."""
    node = Node(Simulation.create("hgx-h100", tmp_path))
    node.look()
    before = topology_annotation.decode(node.annotations[keys.TOPOLOGY])
    node.simulation.links_down(next(iter(node.simulation.state.gpus)), 0, 1)
    node.look()
    after = topology_annotation.decode(node.annotations[keys.TOPOLOGY])
    assert before is not None
    assert after is not None
    assert (before.links(0, 1), after.links(0, 1)) == (18, 16)
    assert before.gen != after.gen
    assert node.labels[keys.HEALTH_REASON] == "nvlink-inactive"


def lacking(of: GpuSnapshot, what: str, reason: Reason = Reason.FAILED) -> GpuSnapshot:
    return build.lacking(of, what, reason)


def test_what_is_kept_has_a_gap_that_says_so() -> None:
    before = build.gpu(0, serial="1")
    now = remember.gpu_with_kept_facts(lacking(lacking(before, "serial"), "vbios_version"), before)
    assert (now.serial, now.vbios_version) == ("1", None)
    assert [(gap.what, gap.kept) for gap in now.gaps] == [
        ("serial", True),
        ("vbios_version", False),
    ]


def test_what_a_gpu_says_it_does_not_have_is_gone() -> None:
    before = build.gpu(0, serial="1")
    assert (
        remember.gpu_with_kept_facts(lacking(before, "serial", Reason.UNSUPPORTED), before).serial
        is None
    )


@pytest.mark.parametrize(
    "other", [{"uuid": "GPU-other"}, {"uuid": None, "pci_device_id": 0x1EB810DE}]
)
def test_another_gpu_in_its_place_has_nothing_of_it(other: dict[str, object]) -> None:
    before = build.gpu(0, serial="1", pci_device_id=0x20B010DE)
    now = lacking(replace(before, **other), "serial")  # type: ignore[arg-type]  # fields of it
    assert remember.gpu_with_kept_facts(now, before).serial is None


def test_a_state_is_never_remembered() -> None:
    before = build.gpu(0, recovery_action=1, persistence=True, mig=build.SPLIT)
    silent = remember.gpu_with_kept_facts(build.silent(0), before)
    now = remember.gpu_with_kept_facts(lacking(lacking(before, "recovery_action"), "mig"), before)
    facts = build.nvidia(silent)
    assert (facts.recovery_action, facts.persistence, facts.mig) == (None, None, None)
    assert (build.nvidia(now).recovery_action, build.nvidia(now).mig) == (None, None)
    assert silent.uuid == before.uuid


def test_a_link_keeps_where_it_ends_and_not_whether_it_is_active() -> None:
    link = NvLink(link=0, active=True, peer=LinkPeer.SWITCH, version=6, bytes_per_second=25)
    before = build.gpu(0, links=(link, replace(link, link=1)))
    now = build.changed(
        before, links=(NvLink(link=0), NvLink(link=1, active=False)), gaps=(LINKS_GAP,)
    )

    found = remember.gpu_with_kept_facts(now, before)

    assert build.nvidia(found).links == (
        replace(link, active=None),
        replace(link, link=1, active=False),
    )
    assert found.gaps == (LINKS_GAP,)


def test_levels_to_a_gpu_that_is_silent_stay() -> None:
    before = build.gpu(0, ancestors=(("0000:11:00.0", 1), ("0000:12:00.0", 3)))
    now = build.changed(before, ancestors=(("0000:12:00.0", 3),))
    found = remember.gpu_with_kept_facts(now, before)
    assert build.nvidia(found).ancestors == build.nvidia(before).ancestors


def test_a_gpu_that_was_silent_for_a_while_still_keeps_its_links(tmp_path: Path) -> None:
    node = Node(Simulation.create("dgx1-v100", tmp_path))
    node.look()
    before = node.annotations
    bus_id = next(iter(node.simulation.state.gpus))
    lost = node.simulation.fault(Return(code=15), bus_id=bus_id)
    assert node.look().gpus[0].state is GpuState.LOST
    node.simulation.clear(lost)
    node.simulation.fault(Return(code=UNKNOWN), "nvmlDeviceGetNvLinkRemote*", bus_id=bus_id)
    found = node.look()
    assert node.annotations == before
    assert found.topology.nvlinks[0][1] == 1


LINKS_GAP = Gap(what="links", reason=Reason.FAILED, source="nvml")
RATES_GAP = Gap(what="link_rates", reason=Reason.FAILED, source="nvml")


@pytest.mark.parametrize(
    ("before", "now", "kept"),
    [
        # all that was missing is known from before
        ({}, {"peer": None, "bytes_per_second": None}, ["links", "link_rates"]),
        # it may be active or not
        ({}, {"active": None}, ["link_rates"]),
        # where it ends was never read
        ({"peer": None}, {"peer": None}, ["link_rates"]),
        ({"bytes_per_second": None}, {"bytes_per_second": None}, ["links"]),
        # of a link that is down neither matters
        (
            {"peer": None, "bytes_per_second": None},
            {"peer": None, "bytes_per_second": None, "active": False},
            ["links", "link_rates"],
        ),
    ],
)
def test_gaps_of_links_are_kept_ones_where_all_that_counts_is_known_again(
    before: dict[str, Any], now: dict[str, Any], kept: list[str]
) -> None:
    link = NvLink(link=0, active=True, peer=LinkPeer.SWITCH, version=6, bytes_per_second=25)
    known = build.gpu(0, links=(replace(link, **before),))
    read = build.changed(known, links=(replace(link, **now),), gaps=(LINKS_GAP, RATES_GAP))

    found = remember.gpu_with_kept_facts(read, known)

    assert [gap.what for gap in found.gaps if gap.kept] == kept


def test_a_link_that_was_not_there_before_stays_as_it_is_read() -> None:
    link = NvLink(link=1, active=True)
    known = build.gpu(0, links=(NvLink(link=0, active=True, peer=LinkPeer.SWITCH, version=6),))
    again = remember.gpu_with_kept_facts(build.changed(known, links=(link,)), known)
    assert build.nvidia(again).links == (link,)


def test_what_outlives_a_process_comes_back_without_any_state() -> None:
    link = NvLink(link=0, active=True, peer=LinkPeer.SWITCH, version=6, bytes_per_second=25)
    gpu = build.gpu(
        0, serial="1", links=(link,), ancestors=(("0000:11:00.0", 1),), mig=build.SPLIT,
        recovery_action=1,
    )  # fmt: skip

    found = remember.gpu_of_lasting_facts(gpu.bus_id, remember.lasting_facts(gpu))

    assert (found.bus_id, found.state) == (gpu.bus_id, GpuState.PRESENT)
    assert (found.uuid, found.serial, found.model) == (gpu.uuid, "1", gpu.model)
    facts = build.nvidia(found)
    assert facts.links == (replace(link, active=None),)
    assert facts.ancestors == build.nvidia(gpu).ancestors
    assert (facts.mig, facts.recovery_action, found.gaps) == (None, None, ())


def gap(what: str) -> Gap:
    return Gap(what=what, reason=Reason.FAILED, source="a test")


def test_the_driver_keeps_the_versions_that_it_does_not_report_now() -> None:
    before = Driver(version="550.54.15", nvml_version="12.550.54.15", cuda_version=(12, 4))
    now = Driver(version="550.90.07", gaps=(gap("nvml_version"), gap("cuda_version")))
    assert remember.driver_with_kept_facts(now, before) == Driver(
        version="550.90.07",
        nvml_version="12.550.54.15",
        cuda_version=(12, 4),
        gaps=(replace(gap("nvml_version"), kept=True), replace(gap("cuda_version"), kept=True)),
    )
    assert remember.driver_with_kept_facts(now, None) == now


def test_the_host_keeps_what_its_files_had() -> None:
    before = Host(
        name="a", machine_type="DGX", cpus=64, memory_bytes=1 << 40,
        numa_nodes=(NumaNode(node=0, cpus="0-63"),), vgpu=Vgpu(present=False),
    )  # fmt: skip
    whats = ("machine_type", "cpus", "memory_bytes", "numa_nodes", "nics", "vgpu")
    found = remember.host_with_kept_facts(Host(name="a", gaps=tuple(map(gap, whats))), before)
    assert replace(found, gaps=()) == before
    assert [it.what for it in found.gaps if not it.kept] == ["nics"]  # there were none before
    assert remember.host_with_kept_facts(Host(name="a", gaps=(gap("cpus"),)), None).cpus is None


def test_a_pci_function_keeps_its_place_and_its_ids_with_it() -> None:
    before = PciFacts(
        bus_id="0000:1b:00.0", pci_class=0x030200, device_id=0x20B010DE, subsystem_id=0x134F10DE,
        numa_node=1, cpu_affinity="8-15", root="pci0000:17", bridges=("0000:17:00.0",),
    )  # fmt: skip
    whats = ("pci_class", "numa_node", "cpu_affinity", "ancestors")
    now = PciFacts(bus_id="0000:1b:00.0", gaps=tuple(map(gap, whats)))
    found = remember.pci_with_kept_facts(now, before)
    assert replace(found, gaps=()) == before
    assert [(it.what, it.kept) for it in found.gaps] == [(what, True) for what in whats]
    assert remember.pci_with_kept_facts(now, None) == now


def test_a_gpu_that_does_not_answer_keeps_its_levels_to_others() -> None:
    before = build.gpu(0, ancestors=(("0000:11:00.0", 1),))
    found = remember.gpu_with_kept_facts(build.silent(0), before)
    assert build.nvidia(found).ancestors == build.nvidia(before).ancestors


def test_links_whose_far_end_was_never_read_are_not_known(tmp_path: Path) -> None:
    """To a GPU, but to which one is not known: that is no measured 0."""
    simulation = Simulation.create("dgx1-v100", tmp_path)
    bus_id = list(simulation.state.gpus)[1]
    simulation.fault(Return(code=UNKNOWN), "nvmlDeviceGetNvLinkRemotePciInfo*", bus_id=bus_id)

    found = Watcher(simulation).look()

    assert {link.peer for link in build.nvidia(found.gpus[1]).links} == {None}
    others = [count for at, count in enumerate(found.topology.nvlinks[1]) if at != 1]
    assert others == [None] * 7
