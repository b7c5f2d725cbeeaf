# SPDX-License-Identifier: Apache-2.0
"""A simulated fleet that Prometheus can scrape: nine machines, pods on them, and some trouble.

One process stands for all agents, since sixteen processes are too many for two cores:
fleet_process.py says what of it is real.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from discovery.model import Mode
from exporters.gpuscape.switch_errors import Severity, Sxid
from tests.controlplane.components import LOOPBACK
from tests.controlplane.programs import ROOT, Programs
from tests.monitoring.prometheus import Config, Target, job

PORTS = "ports.json"
"""Where each node serves /metrics, by its name, the scheduler extender and the coordinator; written
once all do."""

EXTENDER = "gpuscape-scheduler-0"
"""The replica of the scheduler extender."""

COORDINATOR = "gpuscape-coordinator-0"
"""The replica of the coordinator that acts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A pod's container on one GPU, or on one of its GPU instances."""

    gpu: int
    """By its place in PCI bus order."""
    pod: str
    namespace: str = "research"
    instance: int | None = None
    """By its place among the GPU's instances."""
    percent: int = 0
    """How busy it keeps the GPU."""
    memory_mib: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What is wrong on a node, by places of GPUs."""

    xids: Mapping[int, int] = field(default_factory=dict)
    lost: tuple[int, ...] = ()
    links_down: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    readings: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    fabric_masks: Mapping[int, int] = field(default_factory=dict)
    """healthMask of nvmlDeviceGetGpuFabricInfoV."""
    unregistered: tuple[int, ...] = ()
    """Their registration with the fabric does not end."""
    facts: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Fields of the snapshot that simulated GPUs cannot be made to have."""
    sxids: tuple[Sxid, ...] = ()
    """Of its NVSwitches; they come again and again, as XIDs do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of the fleet."""

    name: str
    machine: str
    works: tuple[Work, ...] = ()
    trouble: Trouble = Trouble()
    in_cluster: bool = True
    mig_phase: str = ""
    """Of the MIG layout that it is asked for; empty: of none."""


def _training(pod: str, *gpus: int, percent: int, namespace: str = "research") -> tuple[Work, ...]:
    return tuple(
        Work(gpu=gpu, pod=pod, namespace=namespace, percent=percent, memory_mib=30000)
        for gpu in gpus
    )


NODES = (
    Node(
        name="a100-0",
        machine="dgx-a100",
        works=(
            *_training("train-0", 0, 1, 2, 3, percent=92),
            Work(gpu=4, pod="notebook-0", namespace="students", memory_mib=4096),
        ),
        trouble=Trouble(
            links_down={6: (3,)},
            readings={
                5: {
                    "ecc_corrected": 3,
                    "pcie_replays": 9,
                    "recovery_action": 1,
                    "remap_failed": True,
                },
                7: {"remap_pending": True, "remapped_uncorrectable": 1},
            },
            facts={
                5: {
                    "ecc": Mode(current=True, pending=False),
                    "mig": Mode(current=False, pending=True),
                    "persistence": False,
                }
            },
        ),
        mig_phase="stuck",
    ),
    Node(
        name="a100-mig",
        machine="dgx-a100-mig-mixed",
        mig_phase="waiting",
        works=(
            Work(gpu=4, instance=0, pod="infer-a", namespace="serving", memory_mib=3000),
            Work(gpu=4, instance=1, pod="infer-b", namespace="serving", memory_mib=2000),
        ),
    ),
    Node(
        name="h100-0",
        machine="hgx-h100-rdma",
        works=(
            *_training("train-1", *range(6), percent=97),
            Work(gpu=7, pod="idle-0", namespace="students", memory_mib=1024),
        ),
        trouble=Trouble(
            xids={5: 94, 2: 13},
            readings={1: {"event_reasons": 0x44}},  # its power is capped, and it is too hot
            fabric_masks={3: 0b0101},
            unregistered=(6,),
            sxids=(
                Sxid(
                    bus_id="0000:05:00.0",
                    code=20034,
                    severity=Severity.FATAL,
                    count=1,
                    last_seen_seconds=0,
                ),
            ),
        ),
        mig_phase="failed",
    ),
    Node(
        name="h100-mig",
        machine="hgx-h100-mig-mixed",
        mig_phase="unchanged",
        works=(
            Work(gpu=7, instance=0, pod="infer-c", namespace="serving", percent=60),
            Work(gpu=7, instance=1, pod="infer-d", namespace="serving", memory_mib=512),
        ),
    ),
    Node(name="b200-0", machine="hgx-b200", works=_training("train-2", *range(8), percent=85)),
    Node(
        name="v100-0",
        machine="dgx1-v100",
        works=_training("train-3", 0, 1, 2, 3, percent=70),
        trouble=Trouble(readings={6: {"retired_pages": (4096,), "retired_pending": True}}),
    ),
    Node(name="hgx16-0", machine="hgx-16", works=_training("train-4", 2, 10, 15, percent=80)),
    Node(name="a30-0", machine="a30-pair", trouble=Trouble(lost=(1,)), mig_phase="refused"),
    Node(
        name="l40s-0",
        machine="l40s",
        works=(
            Work(gpu=0, pod="render-0", namespace="studio", percent=45),
            Work(gpu=0, pod="render-1", namespace="studio", percent=20, memory_mib=2048),
        ),
        in_cluster=False,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """One that runs."""

    ports: Mapping[str, int]
    """Where each node serves /metrics, by its name."""
    extender: int
    """Where the scheduler extender does."""
    coordinator: int
    """Where the coordinator does."""

    def jobs(self) -> list[Config]:
        """What a Prometheus scrapes of it."""
        extender = (f"{LOOPBACK}:{self.extender}", {"instance": EXTENDER, "cluster": "east"})
        coordinator = (
            f"{LOOPBACK}:{self.coordinator}",
            {"instance": COORDINATOR, "cluster": "east"},
        )
        return [
            job("gpuscape", self.targets()),
            job("gpuscape-scheduler", [extender]),
            job("gpuscape-coordinator", [coordinator]),
        ]

    def targets(self) -> list[Target]:
        """Each node under its name, as relabelling names the targets of a cluster.

        The one that is in none has no label of a cluster either.
        """
        return [
            (
                f"{LOOPBACK}:{self.ports[node.name]}",
                {"instance": node.name, **({"cluster": "east"} if node.in_cluster else {})},
            )
            for node in NODES
        ]


@contextmanager
def running(folder: Path) -> Iterator[Fleet]:
    """The fleet as a process of its own while the block lasts; every node has been read."""
    with Programs(folder / "logs") as programs:
        program = [sys.executable, "-m", "tests.monitoring.fleet_process", str(folder)]
        programs.start("fleet", program, cwd=ROOT)
        programs.wait("fleet", (folder / PORTS).exists)
        ports = json.loads((folder / PORTS).read_text())
        extender, coordinator = ports.pop(EXTENDER), ports.pop(COORDINATOR)
        yield Fleet(ports=ports, extender=extender, coordinator=coordinator)
