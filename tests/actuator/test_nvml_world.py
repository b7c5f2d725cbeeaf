# SPDX-License-Identifier: Apache-2.0
"""The world of a change through NVML: what it sees on a simulated node, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from actuator.nvml_world import NvmlWorld
from mig.holders import MigHolders
from tests.actuator.simulated_node import FIVE, SimulatedNode, node


@contextmanager
def world_of(on: SimulatedNode, named: MigHolders | None = None) -> Iterator[NvmlWorld]:
    """The world of this process."""
    with on.simulation, NvmlWorld(on.start, named) as world:
        yield world


def test_each_boot_and_each_load_of_the_driver_has_a_name_of_its_own(tmp_path: Path) -> None:
    """A session begun anew is the same load."""
    on = node(tmp_path, *FIVE)

    def load() -> str:
        with world_of(on) as world:
            world.reopen()
            return world.driver_load()

    first, again = load(), load()
    on.simulation.reload_driver()
    second = load()
    on.simulation.reboot()
    third = load()

    assert first == again
    assert len({first, second, third}) == 3
