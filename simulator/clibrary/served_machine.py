# SPDX-License-Identifier: Apache-2.0
"""A machine as programs that are not ours see it: a library, a driver root, a sysfs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from base.errors import BadInput
from simulator.clibrary.compiler import place_library
from simulator.clibrary.machine_server import MachineServer
from simulator.simulation import Simulation
from simulator.smi.smi_server import served_smi

LIBRARY_FOLDER: Final = "usr/lib64"
"""Below the driver root; one of the places where NVIDIA's own programs look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedMachine:
    """Paths of a machine while it is served to programs; all are absolute."""

    name: str
    library: Path | None
    """Its folder belongs into LD_LIBRARY_PATH. None: the machine has no driver."""
    driver_root: Path
    """Holds the library, nvidia-smi, dev and proc as an installed driver does; sys too."""
    sysfs_root: Path
    """The machine's /sys."""
    state_file: Path
    """Path that ``--simulate`` takes for the same machine."""


@contextmanager
def served_machine(simulation: Simulation) -> Iterator[ServedMachine]:
    """Serve a machine within; afterwards there is no socket, no library and no nvidia-smi.

    Raises BadInput where there is no C compiler, no room, or another process that serves it.
    """
    root = simulation.host_root.resolve()
    folder = root / LIBRARY_FOLDER
    library = None
    with ExitStack() as ending:
        if simulation.state.driver != "absent":
            try:
                folder.mkdir(parents=True, exist_ok=True)
                server = MachineServer(simulation, folder)
                ending.callback(server.close)
                library = place_library(folder)
            except OSError as error:
                raise BadInput(
                    f"cannot serve the machine in {folder}: {error.strerror}; name another folder"
                ) from error
            ending.callback(library.unlink, missing_ok=True)
            server.start()
            ending.enter_context(served_smi(simulation))
        yield ServedMachine(
            name=simulation.state.name,
            library=library,
            driver_root=root,
            sysfs_root=root / "sys",
            state_file=simulation.state_file.resolve(),
        )
