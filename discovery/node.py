"""A snapshot of this node: what the device reader gave, and the host around the GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from discovery.host import MACHINE_TYPE_FILE, read_host
from discovery.model import Driver, GpuSnapshot, NodeSnapshot
from discovery.pci import pci_facts
from discovery.snapshot import assemble


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the host's facts are read."""

    root: Path = Path("/")
    name: str
    """The node's name."""
    machine_type_file: str = MACHINE_TYPE_FILE
    """Below ``root``."""

    def snapshot(self, driver: Driver, gpus: Sequence[GpuSnapshot]) -> NodeSnapshot:
        """These GPUs with the host's facts of now about them, and how they are linked."""
        host = read_host(self.root, self.name, self.machine_type_file)
        devices = [gpu.bus_id for gpu in gpus] + [nic.bus_id for nic in host.nics]
        pci = {bus_id: pci_facts(self.root, bus_id) for bus_id in devices}
        return assemble(host, driver, gpus, pci)
