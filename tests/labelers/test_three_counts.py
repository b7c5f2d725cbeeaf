# SPDX-License-Identifier: Apache-2.0
"""Every combination of what sysfs, NVML and the Node count, judged by what may never happen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pynvml
import pytest

from agent.cluster.gpus_before import GpusBefore
from api import keys, known_gpus_annotation
from discovery.known_node_gpus import KnownGpus, KnownGpusRecord
from discovery.model import NodeSnapshot
from health.node_health import expected_gpus, node_verdict
from labelers.annotations import node_annotations
from labelers.compose import decide_labels
from labelers.diff import applied
from labelers.label_settings import LabelSettings
from simulator.description.machine_schema import PciFunction
from simulator.simulation import Return
from tests import build, machines
from tests.discovery.test_gpu_counts import COUNT, snapshots
from tools.gpu_counts_tables import COUNTS, RECORDS, gpu_counts_table, snapshot

BOOT = "5e6ea2c4-4cb4-4b0c-9a30-1d1b6a2a7b11"
EARLIER = "00000000-1111-2222-3333-444444444444"
GPU_COUNT = "nvidia.com/gpu.count"
GPUS = [build.gpu(place) for place in range(5)]


def text(count: int, boot: str = BOOT) -> str:
    """What a Node has that had so many GPUs in this boot."""
    bus_ids = [gpu.bus_id for gpu in GPUS[:count]]
    return known_gpus_annotation.encode(
        known_gpus_annotation.known_gpus_of_boot(boot, bus_ids, count)
    )


BROKEN = {
    "no JSON": "{",
    "no object": "[]",
    "no text": "\0\ud800",
    "of another version": '{"v":2}',
    "of another kind": '{"v":1,"boot":7,"n":"eight"}',
    "with a negative number": f'{{"v":1,"boot":"{BOOT}","n":-1}}',
    "with a nonsensical number": f'{{"v":1,"boot":"{BOOT}","n":100000}}',
    "with more bus ids than GPUs": f'{{"v":1,"boot":"{BOOT}","n":0,"bus":["0000:10:00.0"]}}',
    "with a bus id twice": f'{{"v":1,"boot":"{BOOT}","n":2,"bus":["0000:10:00.0","0000:10:00.0"]}}',
    "with a bus id that is none": f'{{"v":1,"boot":"{BOOT}","n":2,"bus":["10:00"]}}',
    "with 100,000 bus ids": f'{{"v":1,"boot":"{BOOT}","n":9,"bus":["{"x" * 12}"'
    + f',"{"x" * 12}"' * 99_999
    + "]}",
    "with a boot that is none": '{"v":1,"boot":"yesterday","n":9}',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Counts of one moment; None of a source that gives none."""

    sysfs: int | None
    nvml: int | None
    known: int | None
    """By the Node."""
    is_same_boot: bool = True

    @property
    def annotation(self) -> str | None:
        """The Node's."""
        if self.known is None:
            return None
        return text(self.known, BOOT if self.is_same_boot else EARLIER)

    @property
    def had(self) -> set[int]:
        """The counts that bind: those that could be had, and the Node's unless it is replaced."""
        known = None if self.is_settled_anew else self.known
        return {it for it in (self.sysfs, self.nvml, known) if it is not None}

    @property
    def is_settled_anew(self) -> bool:
        """Whether sysfs and NVML agree after a boot."""
        return not self.is_same_boot and self.sysfs is not None and self.sysfs == self.nvml


NODES = [(None, True), (4, True), (5, True), (3, False), (4, False), (5, False)]
CASES = [
    Case(sysfs=sysfs, nvml=nvml, known=known, is_same_boot=is_same_boot)
    for sysfs, nvml, (known, is_same_boot) in product(COUNTS, COUNTS, NODES)
]


def taken(annotation: str | None, boot: str = BOOT) -> KnownGpusRecord:
    """What an agent takes from its Node."""
    offered: list[KnownGpusRecord] = []

    class Listening(KnownGpus):
        def offer_record(self, record: KnownGpusRecord) -> None:
            offered.append(record)

    GpusBefore(Listening(), boot).observe(annotation)
    (record,) = offered
    return record


def seen(case: Case) -> NodeSnapshot:
    """What an agent that has just started and read its Node has of it."""
    return snapshot(case.sysfs, case.nvml, taken(case.annotation), GPUS.__getitem__)


def labels_of_a_well_node(count: int | None) -> Mapping[str, str]:
    """What a Node shows that had so many GPUs, all well."""
    if not count:
        return {}
    well = snapshot(count, count, KnownGpusRecord(), GPUS.__getitem__)
    return decide_labels(well, LabelSettings()).values


def published(case: Case) -> Mapping[str, str]:
    """The Node's labels after the agent has written."""
    decisions = decide_labels(seen(case), LabelSettings()).decisions
    return applied(labels_of_a_well_node(case.known), decisions)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_within_one_boot_the_number_of_gpus_never_falls_below_any_source(case: Case) -> None:
    expected = int(published(case).get(keys.EXPECTED, "0"))
    assert expected == max(case.had, default=0)
    if case.is_settled_anew:
        assert expected == case.sysfs


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_node_is_healthy_of_which_two_sources_differ(case: Case) -> None:
    """A Node that knew of fewer is no fault: they have become more."""
    present = [it for it in (case.sysfs, case.nvml) if it is not None]
    differs = len(set(present)) > 1 or max(case.had, default=0) > max(present, default=0)
    is_healthy = published(case)[keys.HEALTH] == "healthy"
    assert is_healthy == (not differs and case.sysfs is not None)
    assert (keys.HEALTH_REASON in published(case)) != is_healthy


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_label_goes_but_the_reason_of_a_health_and_no_count_of_a_model_falls(
    case: Case,
) -> None:
    before, after = labels_of_a_well_node(case.known), published(case)
    assert before.keys() - after.keys() == set()
    counted = int(after.get(GPU_COUNT, "0"))
    assert counted >= min(case.had, default=0)
    if case.is_same_boot:
        assert counted >= int(before.get(GPU_COUNT, "0"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_node_gives_the_next_agent_of_this_boot_what_this_one_expects(case: Case) -> None:
    node = seen(case)
    annotations = node_annotations(node, BOOT)
    before = {} if case.annotation is None else {keys.KNOWN_GPUS: case.annotation}
    after = applied(before, {keys.KNOWN_GPUS: annotations[keys.KNOWN_GPUS]}).get(keys.KNOWN_GPUS)
    assert taken(after).total == (expected_gpus(node) if node.gpus else case.known or 0)
    for sysfs, nvml in product(COUNTS, COUNTS):
        following = replace(case, sysfs=sysfs, nvml=nvml)
        again = snapshot(sysfs, nvml, taken(after), GPUS.__getitem__)
        if not (following.is_settled_anew and taken(after).former):
            assert expected_gpus(again) >= expected_gpus(node)


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize(("sysfs", "nvml"), list(product(COUNTS, COUNTS)))
def test_an_annotation_that_cannot_be_read_counts_as_none(
    kind: str, sysfs: int | None, nvml: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    record = taken(BROKEN[kind])
    assert [it.message for it in caplog.records] == ["annotation not used"]
    assert snapshot(sysfs, nvml, record) == snapshot(sysfs, nvml, taken(None))


def test_the_table_has_every_combination_as_it_is_published() -> None:
    """The page has the table, which a check of all generated pages compares."""
    for name, known, boot in (("none", 0, BOOT), ("equal", 4, BOOT), ("more", 5, BOOT)):
        assert RECORDS[name] == taken(text(known, boot) if known else None)
    assert RECORDS["earlier"] == taken(text(5, EARLIER))
    rows = gpu_counts_table("more").splitlines()[2:]
    assert len(rows) == len(COUNTS)
    for row, sysfs in zip(rows, COUNTS, strict=True):
        for cell, nvml in zip(row.split(" | ")[1:], COUNTS, strict=True):
            shown = published(Case(sysfs=sysfs, nvml=nvml, known=5))
            assert cell.startswith(f"{shown[keys.EXPECTED]} {shown[keys.HEALTH]}")
            assert shown.get(keys.HEALTH_REASON, "") in cell


def machine(folder: Path, sysfs: int | None, nvml: int | None) -> NodeSnapshot:
    """A simulated machine with these counts, as a device reader reads it."""
    gpus = [machines.gpu(place) for place in range((sysfs if nvml is None else nvml) or 1)]
    lacking = [
        PciFunction(bus_id=f"0000:a{place}:00.0", device_id=0x20B010DE, pci_class=0x030200)
        for place in range((sysfs or 0) - len(gpus))
    ]
    simulation = machines.simulation(folder, *gpus, functions=tuple(lacking))
    for function in lacking:
        device = simulation.host_root / "sys/bus/pci/devices" / function.bus_id
        (device / "driver").symlink_to("../../../bus/pci/drivers/nvidia")
    if sysfs is None:
        simulation.hide_pci()
    elif hidden := list(simulation.state.gpus)[sysfs:]:
        simulation.hide_pci(*hidden)
    if nvml is None:
        simulation.fault(Return(code=pynvml.NVML_ERROR_UNKNOWN), COUNT)
    (node,) = snapshots(simulation)
    return node


@pytest.mark.parametrize(("sysfs", "nvml"), list(product(COUNTS, COUNTS)))
def test_a_simulated_machine_with_these_counts_is_as_the_table_has_it(
    sysfs: int | None, nvml: int | None, tmp_path: Path
) -> None:
    node = machine(tmp_path, sysfs, nvml)
    of_table = snapshot(sysfs, nvml, KnownGpusRecord())
    assert (node.counts.sysfs, node.counts.nvml) == (sysfs, nvml)
    assert expected_gpus(node) == expected_gpus(of_table)
    assert replace(node_verdict(node), bus_id=None) == replace(node_verdict(of_table), bus_id=None)
