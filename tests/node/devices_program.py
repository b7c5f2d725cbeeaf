# SPDX-License-Identifier: Apache-2.0
"""``gpuscape devices`` on a real node, with the file that the agent writes for it there."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.exchange.exchange_file import ExchangeFile
from discovery.model import NodeSnapshot
from tests.agent.agent_process import GPUSCAPE
from tests.node.handed_out import GPU
from tests.node.machine import DISK
from tests.node.real_node import RealNode

NAME: Final = "devices"
"""Of the program, and its log."""
FOLDER: Final = "gpuscape-devices"
"""Below the node's /var/lib: where the agent writes."""
REGISTERED: Final = "device plugin registered"
UNREGISTERED: Final = "device plugin not registered"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesProgram:
    """The program of one node, as a service there, which no kubelet starts."""

    node: RealNode
    name: str = NAME

    def write(self, snapshot: NodeSnapshot, *, boot_id: str = "") -> None:
        """Have the agent's file as this snapshot has it, of another boot where one is named."""
        root = self.node.folder / "agent-root"
        file = root / "proc/sys/kernel/random/boot_id"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{boot_id or self.node.boot_id}\n")
        exchange = ExchangeFile(self.node.folder / DISK / FOLDER, root)
        exchange.show(snapshot)
        exchange.write_due(0.0)

    def start(self) -> None:
        """Start it; it registers when there are a file and a kubelet."""
        self.node.programs.start(
            self.name,
            [GPUSCAPE, NAME, "--exchange-folder", Path("/var/lib", FOLDER), "--log-format=json"],
        )

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it; its exit code."""
        return self.node.programs.stop(self.name, how)

    def lines(self, message: str) -> list[dict[str, Any]]:
        """The lines of its log with this message, of all its starts."""
        log = self.node.programs.log(self.name)
        if not log.exists():
            return []
        lines = (json.loads(line) for line in log.read_text(errors="replace").splitlines())
        return [line for line in lines if line["message"] == message]

    def registrations(self) -> int:
        """How often it has registered a resource, at all its starts."""
        return len(self.lines(REGISTERED))

    def gpus(self) -> tuple[int, int]:
        """How many GPUs the Node has, and how many of them it offers."""
        status = self.node.object()["status"]
        capacity, allocatable = (
            int(status[key].get(GPU, 0)) for key in ("capacity", "allocatable")
        )
        return capacity, allocatable

    def sockets(self) -> set[str]:
        """Names of the plugins' sockets in the kubelet's folder."""
        folder = self.node.folder / DISK / "kubelet/device-plugins"
        return {path.name for path in folder.glob("*.sock")} - {"kubelet.sock"}
