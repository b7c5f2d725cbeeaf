# SPDX-License-Identifier: Apache-2.0
"""One node's kubelet, without an API server: its devices, who has them, and its socket."""

from __future__ import annotations

from pathlib import Path

from api.mig_resources import MigStrategy
from kube.api import Object
from labelers.groups.sharing import NOTHING_SHARED, Sharing
from simulator.simulation import Simulation
from tests.kubelet_nodes.claims import Claims
from tests.kubelet_nodes.devices import DeviceManager, Policy
from tests.kubelet_nodes.hardware import Hardware
from tests.kubelet_nodes.offer import offer
from tests.kubelet_nodes.podresources import PodResourcesServer


class Node:
    """A node of this machine. Its socket is served between start and stop of ``server``."""

    def __init__(
        self,
        name: str,
        simulation: Simulation,
        policy: Policy,
        folder: Path,
        *,
        seed: int | str = 0,
        strategy: MigStrategy = MigStrategy.NONE,
        sharing: Sharing = NOTHING_SHARED,
    ) -> None:
        """``folder`` is for the socket; ``strategy`` and ``sharing`` are the device plugin's."""
        self.name = name
        self.devices = DeviceManager(policy, seed)
        self.server = PodResourcesServer(folder)
        self._hardware = Hardware(simulation, name)
        self._strategy = strategy
        self._sharing = sharing
        self.look()

    @property
    def sockets(self) -> Path:
        """What an agent mounts as /var/lib/kubelet/pod-resources."""
        return self.server.path.parent

    def look(self) -> None:
        """Have the plugin register what the machine has now, if that is something new."""
        snapshot = self._hardware.news()
        if snapshot is None:
            return
        registered = offer(
            snapshot, strategy=self._strategy, sharing=self._sharing, before=self.devices.offer
        )
        self.devices.register(registered, snapshot)
        self._show()

    def admit(self, pod: Object, claims: Claims | None = None) -> None:
        """Take a pod, with its claims by the names that it has for them. Raises Refused."""
        self.devices.admit(pod, claims)
        self._show()

    def remove(self, uid: str) -> None:
        """Forget a pod, if it was taken."""
        if uid in self.devices.pods:
            self.devices.remove(uid)
            self._show()

    def resources(self) -> Object:
        """Capacity and allocatable of what the plugin registered, as a Node's status has them."""
        offered = self.devices.offer.items()
        healthy = {name: sum(device.healthy for device in devices) for name, devices in offered}
        return {
            "capacity": {name: str(len(devices)) for name, devices in offered},
            "allocatable": {name: str(count) for name, count in healthy.items()},
        }

    def _show(self) -> None:
        self.server.show(self.devices.offer, self.devices.pods.values())
