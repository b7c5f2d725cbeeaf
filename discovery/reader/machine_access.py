# SPDX-License-Identifier: Apache-2.0
"""What a process that calls NVML does first: put the library under pynvml, and list the GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from discovery.host.pci import PciGpus, pci_gpus
from discovery.nvml.session import bus_ids_by_index, excluded_bus_ids, use_library
from discovery.reader.protocol import Start


def choose_library(start: Start) -> None:
    """Let pynvml load what ``start`` names: a simulated machine, a library, or the loader's choice.

    Raises BadInput for a state file that is none.
    """
    if start.simulation is not None:
        from discovery.simulator.simulation import Simulation  # never loaded on real hardware

        Simulation.open(Path(start.simulation)).install()
    elif start.library is not None:
        use_library(start.library)


def listed_gpus(start: Start) -> PciGpus:
    """The GPUs that should answer: by sysfs; where that shows none bound to the driver, by NVML.

    Raises DriverAbsent or DriverMismatch when the whole session is gone.
    """
    gpus = pci_gpus(Path(start.host_root))
    if not gpus.ours:
        return replace(gpus, ours=bus_ids_by_index())
    excluded = excluded_bus_ids()
    return PciGpus(
        ours=tuple(bus_id for bus_id in gpus.ours if bus_id not in excluded),
        elsewhere=(*gpus.elsewhere, *excluded),
    )


def allowed(start: Start, listed: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the listed GPUs that may be touched."""
    return tuple(
        it for it in listed if it not in start.skip and (start.only is None or it in start.only)
    )
