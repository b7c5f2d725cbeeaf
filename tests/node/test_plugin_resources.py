# SPDX-License-Identifier: Apache-2.0
"""What a plan says is allocatable is what NVIDIA's device plugin offers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from api.mig_resources import MigStrategy
from discovery.mig_state import MigGpu
from mig.gpu_layout import current_layout
from mig.plugin_resources import allocatable
from simulator.description.machine_catalog import load_machine
from simulator.description.machine_schema import MachineDescription, MigInstanceSpec
from tests.agent.agent_process import until
from tests.node.gpu_cluster import gpu_cluster
from tests.node.nvidia_plugin import NvidiaPlugin
from tests.node.real_node import SOON
from tests.observed import mig_of

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1200)]

ON_RTX: Final = (
    {"1g.24gb+me": 0, "1g.24gb+gfx": 3, "1g.24gb-me": 6, "1g.24gb": 9},
    {"2g.48gb-me": 0, "2g.48gb+gfx": 6},
    {"4g.96gb+gfx": 0},
)
"""Profile to the unit where its instance begins, of the first GPUs: attributes of all kinds."""


def test_mixed_offers_what_a_plan_says(tmp_path: Path) -> None:
    """Parts of GPU instances and profiles with attributes are offered under other names."""
    machines: tuple[MachineDescription | str, ...] = ("dgx-a100-mig-mixed", rtx())
    with gpu_cluster(tmp_path, *machines) as there:
        for name, gpus in there.gpus.items():
            found = [gpu for gpu in mig_of(gpus.simulation) if isinstance(gpu, MigGpu)]
            wanted = allocatable([(gpu, current_layout(gpu)) for gpu in found], MigStrategy.MIXED)
            plane, node = there.cluster.plane, there.cluster.nodes[name]
            plugin = NvidiaPlugin.start(plane, node, strategy=MigStrategy.MIXED)
            settles_at(plugin, wanted)


def settles_at(plugin: NvidiaPlugin, wanted: Mapping[str, int]) -> None:
    """Resources come one after the other."""
    until(lambda: plugin.allocatable().keys() == wanted.keys(), SOON)
    assert plugin.allocatable() == wanted


def rtx() -> MachineDescription:
    """RTX PRO 6000 GPUs with an instance of each kind."""
    machine = load_machine("rtx-pro-6000")
    laid_out = (
        replace(gpu, mig=True, instances=instances(units))
        for gpu, units in zip(machine.gpus, ON_RTX, strict=False)
    )
    return replace(machine, gpus=(*laid_out, *machine.gpus[len(ON_RTX) :]))


def instances(units: Mapping[str, int]) -> tuple[MigInstanceSpec, ...]:
    """At these units, in the order of their ids."""
    return tuple(
        MigInstanceSpec(profile=profile, start=start, id=number)
        for number, (profile, start) in enumerate(units.items(), start=1)
    )
