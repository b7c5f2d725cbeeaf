# SPDX-License-Identifier: Apache-2.0
"""The network of one run: a bridge that machines are connected to, and nothing of the outside.

Each run has the same addresses, in a network namespace of its own. The kernel takes the bridge
and all cables away with the last process in it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from tests.controlplane.components import LOOPBACK, free_port
from tests.controlplane.programs import ROOT, Programs
from tests.node.machine import Spec

SERVICE_IP: Final = "10.96.0.1"
"""Of the service ``kubernetes``: the first address of the control plane's range."""
GATEWAY: Final = "10.44.0.1"
BRIDGE: Final = "nodes"
_LENGTH: Final = 24

# the service's address belongs to the loopback device, so whoever listens there needs no proxy
_SET_UP: Final = f"""\
set -e
ip link set lo up
ip address add {SERVICE_IP}/32 dev lo
ip link add {BRIDGE} type bridge
ip address add {GATEWAY}/{_LENGTH} dev {BRIDGE}
ip link set {BRIDGE} up
echo 1 > /proc/sys/net/ipv4/ip_forward
echo ready
exec sleep infinity
"""


class NetworkPrograms(Programs):
    """Programs, some of which run in a network of their own, into which relays lead."""

    def __init__(self, folder: Path, *, inside: Collection[str] = ()) -> None:
        """``inside``: the names of those that run in the network.

        Raises ProgramError where there can be no network.
        """
        super().__init__(folder)
        self._inside = frozenset(inside)
        self.network = self.start("network", ["unshare", "--net", "sh", "-c", _SET_UP])
        """A process in it, for nsenter."""
        try:
            self.wait("network", lambda: "ready\n" in self.log("network").read_text())
        except BaseException:
            self.end()
            raise

    def command_of(self, name: str, command: Sequence[str | Path]) -> Sequence[str | Path]:
        """The command, in the network if the program belongs there."""
        if name in self._inside:
            return ["nsenter", f"--net=/proc/{self.network}/ns/net", "--", *command]
        return command

    def way_to(self, name: str, port: int) -> int:
        """A relay's, if the program belongs into the network."""
        return self.relay(f"{LOOPBACK}:{port}") if name in self._inside else port

    def relay(self, to: str, port: int | None = None) -> int:
        """Have a port of loopback outside lead to an address inside; the port.

        ``@FILE``: to the address that a file has at the time.
        """
        port = port or free_port()
        command = [sys.executable, "-m", "tests.node.relay", str(port), str(self.network), to]
        self.start(f"relay-{port}", command, cwd=ROOT)
        return port

    def machine(self, name: str, number: int, folder: Path) -> Spec:
        """A machine of this network; ``number`` is 1 to 200 and no other machine's."""
        return Spec(
            name=name,
            folder=str(folder),
            until=self.until,
            network=self.network,
            bridge=BRIDGE,
            address=f"10.44.0.{number + 1}/{_LENGTH}",
            gateway=GATEWAY,
            pods=f"10.244.{number}.0/24",
        )
