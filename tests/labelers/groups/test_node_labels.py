# SPDX-License-Identifier: Apache-2.0
"""Timestamp, machine type and vGPU."""

from __future__ import annotations

import pytest

from discovery.model import Gap, GpuSnapshot, Host, Reason, Vgpu
from discovery.nvml_terms import Virtualization
from labelers.decision import Absent, Decision, Keep, Value
from labelers.groups.node_labels import node_labels
from labelers.label_settings import LabelSettings
from tests import build

VGPU = "nvidia.com/vgpu."
HOSTS = (f"{VGPU}host-driver-version", f"{VGPU}host-driver-branch")


def decided(settings: LabelSettings | None = None, **host: object) -> dict[str, Decision]:
    machine = Host(name="node-a", **host)  # type: ignore[arg-type] # facts by test
    node = build.node([build.gpu()], host=machine)
    return dict(node_labels(node, settings or LabelSettings()))


def test_the_timestamp_is_the_one_given() -> None:
    labels = decided(LabelSettings(timestamp_seconds=1_700_000_000))

    assert labels["nvidia.com/gfd.timestamp"] == Value(text="1700000000")


def test_without_a_timestamp_given_there_is_none() -> None:
    assert isinstance(decided()["nvidia.com/gfd.timestamp"], Absent)


@pytest.mark.parametrize(
    ("text", "label"),
    [("PowerEdge XE9680 (A)", "PowerEdge-XE9680-A"), ("", ""), (None, "unknown")],
)
def test_the_machine_type_is_sanitised_and_unknown_when_unreadable(
    text: str | None, label: str
) -> None:
    assert decided(machine_type=text)["nvidia.com/gpu.machine"] == Value(text=label)


def test_a_vgpu_tells_its_hosts_driver() -> None:
    vgpu = Vgpu(present=True, host_driver_version="460.16", host_driver_branch="r460_00")

    labels = decided(vgpu=vgpu)

    assert [labels[key] for key in (f"{VGPU}present", *HOSTS)] == [
        Value(text="true"),
        Value(text="460.16"),
        Value(text="r460_00"),
    ]


def test_without_a_vgpu_there_is_no_host_driver() -> None:
    labels = decided(vgpu=Vgpu(present=False))

    assert labels[f"{VGPU}present"] == Value(text="false")
    assert {type(labels[key]) for key in HOSTS} == {Absent}


def test_a_vgpu_without_the_record_still_counts_as_one() -> None:
    labels = decided(vgpu=Vgpu(present=True))

    assert labels[f"{VGPU}present"] == Value(text="true")
    assert {type(labels[key]) for key in HOSTS} == {Absent}


UNREAD = Gap(what="vgpu", reason=Reason.FORBIDDEN, source="sys/bus/pci", detail="64 bytes only")
"""Configuration space cut short, as the kernel gives it to those without CAP_SYS_ADMIN."""


def unprivileged(*gpus: GpuSnapshot) -> dict[str, Decision]:
    """The vGPU's labels of a node whose configuration space cannot be read."""
    node = build.node(gpus, host=Host(name="node-a", gaps=(UNREAD,)))
    labels = node_labels(node, LabelSettings())
    return {key: decision for key, decision in labels.items() if key.startswith(VGPU)}


def given_as(mode: Virtualization | None, at: int = 0) -> GpuSnapshot:
    return build.gpu(at, virtualization=mode)


def test_nvml_tells_a_vgpu_where_configuration_space_cannot_be_read_but_not_its_host() -> None:
    labels = unprivileged(given_as(None), given_as(Virtualization.VGPU, 1))

    assert labels.pop(f"{VGPU}present") == Value(text="true")
    assert labels == dict.fromkeys(HOSTS, Keep(reason="sys/bus/pci: 64 bytes only"))


@pytest.mark.parametrize("mode", sorted(set(Virtualization) - {Virtualization.VGPU}))
def test_gpus_given_in_any_other_way_are_no_vgpus(mode: Virtualization) -> None:
    labels = unprivileged(given_as(mode), given_as(Virtualization.NONE, 1))

    assert labels.pop(f"{VGPU}present") == Value(text="false")
    assert labels == dict.fromkeys(HOSTS, Absent(reason="no GPU here is a vGPU"))


@pytest.mark.parametrize(
    "gpus",
    [
        pytest.param((), id="no GPU"),
        pytest.param((given_as(Virtualization.NONE), given_as(None, 1)), id="one does not say"),
        pytest.param((given_as(Virtualization.NONE), build.silent(1)), id="one does not answer"),
    ],
)
def test_what_neither_source_tells_is_kept_as_it_was(gpus: tuple[GpuSnapshot, ...]) -> None:
    labels = unprivileged(*gpus)

    assert labels == dict.fromkeys(
        (f"{VGPU}present", *HOSTS), Keep(reason="sys/bus/pci: 64 bytes only")
    )
