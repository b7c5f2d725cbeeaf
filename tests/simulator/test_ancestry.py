# SPDX-License-Identifier: Apache-2.0
"""The common ancestor follows from where two devices sit in the PCIe tree."""

from __future__ import annotations

import pytest

from discovery.model import PciFacts
from discovery.topology import ancestor_level
from simulator.answers.topology_answers import common_ancestor
from simulator.description.machine_catalog import load_machine, machine_names
from tests import machines


@pytest.mark.parametrize(
    ("a", "b", "level"),
    [
        ({"path": ("p", "s")}, {"path": ("p", "s")}, 10),
        ({"path": ("p", "s", "d1")}, {"path": ("p", "s", "d2")}, 10),
        ({"path": ("p", "s", "d1", "t", "e")}, {"path": ("p", "s", "d2")}, 20),
        ({"path": ("p",)}, {"path": ("q",)}, 30),
        ({"path": ()}, {"path": ()}, 30),
        ({"path": ("p",)}, {"path": ("q",), "root": "0000:80"}, 40),
        ({"path": ("p",)}, {"path": ("q",), "root": "0000:80", "numa_node": 1}, 50),
    ],
)
def test_the_nearest_thing_in_common_decides(
    a: dict[str, object], b: dict[str, object], level: int
) -> None:
    """Switch, several switches, host bridge, NUMA node, system; the same both ways."""
    one, other = machines.gpu(0, **a), machines.gpu(1, **b)

    assert (common_ancestor(one, other), common_ancestor(other, one)) == (level, level)


def test_a_device_and_itself_are_one_board() -> None:
    """INTERNAL, as for two GPUs on one board."""
    assert common_ancestor(machines.gpu(0), machines.gpu(0)) == 0


@pytest.mark.parametrize("name", machine_names())
def test_nvml_and_sysfs_agree_on_every_machine(name: str) -> None:
    """What the simulated NVML says is what the simulated sysfs means."""
    gpus = load_machine(name).gpus
    facts = [
        PciFacts(
            bus_id=gpu.bus_id,
            numa_node=gpu.numa_node if gpu.numa_node >= 0 else None,
            root=f"pci{gpu.root}",
            bridges=gpu.path,
        )
        for gpu in gpus
    ]

    for gpu, fact in zip(gpus, facts, strict=True):
        for other, other_fact in zip(gpus, facts, strict=True):
            level = ancestor_level(fact, other_fact)
            if gpu is not other and level is not None:
                assert common_ancestor(gpu, other) == 10 * level
