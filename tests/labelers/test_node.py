"""Timestamp, machine type and vGPU."""

from __future__ import annotations

import pytest

from discovery.model import Gap, Host, Reason, Vgpu
from labelers.decision import Absent, Decision, Keep, Value
from labelers.node import node_labels
from labelers.settings import LabelSettings
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


def test_configuration_space_that_cannot_be_read_keeps_what_was_known() -> None:
    gap = Gap(what="vgpu", reason=Reason.FORBIDDEN, source="sys/bus/pci", detail="64 bytes only")

    labels = decided(gaps=(gap,))

    assert {labels[key] for key in (f"{VGPU}present", *HOSTS)} == {
        Keep(reason="sys/bus/pci: 64 bytes only")
    }
