# SPDX-License-Identifier: Apache-2.0
"""A snapshot of this node: GPUs from the device reader, and the host around them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from discovery import remember
from discovery.assemble import assemble
from discovery.gpu_counts import NO_GPUS, GpuCounts
from discovery.host.host_facts import MACHINE_TYPE_FILE, read_host
from discovery.host.pci import pci_facts
from discovery.model import Driver, GpuSnapshot, Host, NodeSnapshot, PciFacts


class NodeHost:
    """Reads the facts of a host, and keeps those that it has read before."""

    def __init__(
        self, *, root: Path = Path("/"), name: str, machine_type_file: str = MACHINE_TYPE_FILE
    ) -> None:
        """``name`` is the node's; ``machine_type_file`` is a path below ``root``."""
        self.root = root
        self.name = name
        self.machine_type_file = machine_type_file
        self._host: Host | None = None
        self._pci: dict[str, PciFacts] = {}

    def snapshot(
        self, driver: Driver, gpus: Sequence[GpuSnapshot], counts: GpuCounts = NO_GPUS
    ) -> NodeSnapshot:
        """A snapshot of these GPUs, with the host's facts about them and the links between them.

        A fact that cannot be read stays as it was last read here.
        """
        self._host = remember.host_with_kept_facts(
            read_host(self.root, self.name, self.machine_type_file), self._host
        )
        devices = [gpu.bus_id for gpu in gpus] + [nic.bus_id for nic in self._host.nics]
        self._pci = {
            bus_id: remember.pci_with_kept_facts(
                pci_facts(self.root, bus_id), self._pci.get(bus_id)
            )
            for bus_id in devices
        }
        return assemble(self._host, driver, gpus, self._pci, counts)
