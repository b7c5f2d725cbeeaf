# SPDX-License-Identifier: Apache-2.0
"""nvidia-mig-parted, which NVIDIA's MIG manager runs, exports the layout that we print."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.state import edits
from simulator.state.machine_state import GpuInstance
from tests.catalog import WITH_DRIVER, by_kind
from tests.foreign.discovered import discovered, layouts, printed_by
from tests.foreign.foreign_programs import foreign
from tests.foreign.mig_layouts import by_index, exported_document, in_full

pytestmark = pytest.mark.cluster

NO_KERNEL_MODULE = "wsl2"
NO_GPU = "empty"
"""There mig-parted exports a configuration without an entry, which it does not read itself."""


@pytest.mark.parametrize("name", by_kind(name for name in WITH_DRIVER if name != NO_KERNEL_MODULE))
def test_the_exported_layout_is_that_which_discover_and_mig_export_print(
    name: str, programs: Path
) -> None:
    with foreign(name) as there:
        theirs = exported_document(there, programs)
        printed = discovered(there)
        ours = theirs if name == NO_GPU else printed_by(there, "mig", "export")
        counted = by_index(theirs, there.simulation)

    assert counted == layouts(printed)
    assert in_full(ours) == in_full(theirs)


def test_a_gpu_instance_without_a_compute_instance_is_in_neither_file(programs: Path) -> None:
    """nvidia-mig-parted does not see it; ours leaves it out when that is allowed."""
    unused = GpuInstance(id=1, profile="3g.20gb", start=0)
    with foreign("dgx-a100-mig-mixed") as there:
        sixth = sorted(there.simulation.state.gpus)[6]
        there.simulation.edit(edits.with_gpu_changed(sixth, instances=(unused,)))
        theirs = exported_document(there, programs)
        ours = printed_by(there, "mig", "export", "--allow-loss")

    assert in_full(ours) == in_full(theirs)


def test_it_refuses_a_machine_without_nvidias_kernel_module(programs: Path) -> None:
    """On WSL2 the driver is the hypervisor's, and mig-parted wants /proc/modules to name nvidia."""
    with foreign(NO_KERNEL_MODULE) as there:
        done = there.run(programs / "nvidia-mig-parted", "export", covered=("sys", "proc"))

    assert done.returncode != 0
    assert "error checking if nvidia module loaded" in done.stderr
