# SPDX-License-Identifier: Apache-2.0
"""nvidia-mig-parted, which NVIDIA's MIG manager runs, exports the layout that we print."""

from __future__ import annotations

from pathlib import Path

import pytest

from discovery.simulator.description.machine_catalog import load_machine, machine_names
from tests.foreign.discovered import discovered, layouts
from tests.foreign.foreign_programs import foreign
from tests.foreign.mig_layouts import exported

pytestmark = pytest.mark.cluster

NO_KERNEL_MODULE = "wsl2"
WITH_DRIVER = [
    name for name in machine_names() if load_machine(name).driver and name != NO_KERNEL_MODULE
]


@pytest.mark.parametrize("name", WITH_DRIVER)
def test_the_exported_layout_is_that_which_discover_prints(name: str, programs: Path) -> None:
    with foreign(name) as there:
        theirs = exported(there, programs)
        printed = discovered(there)

    assert theirs == layouts(printed)


def test_it_refuses_a_machine_without_nvidias_kernel_module(programs: Path) -> None:
    """On WSL2 the driver is the hypervisor's, and mig-parted wants /proc/modules to name nvidia."""
    with foreign(NO_KERNEL_MODULE) as there:
        done = there.run(programs / "nvidia-mig-parted", "export", covered=("sys", "proc"))

    assert done.returncode != 0
    assert "error checking if nvidia module loaded" in done.stderr
