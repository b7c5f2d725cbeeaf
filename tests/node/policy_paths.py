# SPDX-License-Identifier: Apache-2.0
"""Connections between pods on real nodes: which come about, tried from a pod's own network."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.node import handed_out
from tests.node.chart_cluster import HOST
from tests.node.real_node import RealNode
from tests.node.service_address import ADDRESS

NAMES: Final = (ADDRESS, 53)
"""Asked by UDP for the name of a Service; all others by TCP."""

Place = tuple[str, int]
"""Address and port."""

_TRY: Final = """
import json, socket, sys

def answers(host, port):
    if port == 53:
        labels = b"".join(bytes([len(it)]) + it for it in sys.argv[2].encode().split(b"."))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(5)
            client.connect((host, port))
            client.send(b"\\0\\1\\1\\0\\0\\1" + bytes(6) + labels + b"\\0\\0\\1\\0\\1")
            return len(client.recv(512)) > 12
    socket.create_connection((host, port), timeout=5).close()
    return True

def tried(host, port):
    try:
        return answers(host, port)
    except OSError:
        return False

print(json.dumps([tried(*it) for it in json.loads(sys.argv[1])]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A pod that connections are tried from; without a name the node itself."""

    node: RealNode
    namespace: str = ""
    pod: str = ""

    def reaches(self, places: Iterable[Place]) -> Mapping[Place, bool]:
        """Whether somebody answers there, by place."""
        asked = list(places)
        enter: list[str] = []
        if self.pod:
            enter = ["nsenter", f"--net=/proc/{self.process}/ns/net"]
        command = [*enter, sys.executable, "-c", _TRY, json.dumps(asked), HOST]
        return dict(zip(asked, json.loads(self.node.run(*command)), strict=True))

    def listen(self, port: int) -> None:
        """Have somebody answer at a port of the pod."""
        self.node.programs.start(
            f"listener-{self.pod}-{port}",
            [
                "nsenter",
                f"--net=/proc/{self.process}/ns/net",
                *(sys.executable, "-m", "http.server", str(port)),
            ],
        )

    @property
    def process(self) -> int:
        """The one that holds the pod's network, on the node."""
        return handed_out.sandbox(self.node, self.namespace, self.pod)
