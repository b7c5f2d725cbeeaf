# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's device plugin as a service of the node, started by no kubelet.

So it can be there before the kubelet has any pod, as with a unit of systemd or a static pod.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final

from api.mig_resources import MigStrategy
from simulator.clibrary.served_machine import LIBRARY_FOLDER
from tests.controlplane.builds import binaries
from tests.controlplane.families import NVIDIA
from tests.node.node_mig import HOST
from tests.node.nvidia_plugin import REGISTERED
from tests.node.real_node import RealNode

NAME: Final = "device-plugin"
"""Of the program, and its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlugin:
    """The plugin of one node."""

    node: RealNode
    strategy: MigStrategy

    def start(self) -> None:
        """Start it: it registers when there is a kubelet, and again with each new one."""
        # it sees the GPUs' /sys and /proc as a container has them
        steps = (
            f"mount --rbind {HOST}/sys /sys",
            f"mount --bind {HOST}/proc/driver /proc/driver",
            f"exec {binaries(NVIDIA)}/nvidia-device-plugin",
        )
        self.node.programs.start(
            NAME,
            ["unshare", "--mount", "sh", "-ec", "; ".join(steps)],
            environment={
                "LD_LIBRARY_PATH": str(HOST / LIBRARY_FOLDER),
                "MIG_STRATEGY": self.strategy.value,
                "DEVICE_DISCOVERY_STRATEGY": "nvml",
            },
        )

    def stop(self) -> None:
        """End it."""
        self.node.programs.stop(NAME, signal.SIGTERM)

    def registrations(self) -> int:
        """How often it has registered a resource so far."""
        log = self.node.programs.log(NAME)
        return log.read_text(errors="replace").count(REGISTERED) if log.exists() else 0
