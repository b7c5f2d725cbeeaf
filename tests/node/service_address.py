# SPDX-License-Identifier: Apache-2.0
"""A Service for pods, where no kube-proxy and no cluster DNS run: its name and its address.

``python -m tests.node.service_address HOST @FILE``, started in the network of a cluster, joins it
as a machine of its own. It answers DNS for HOST, which is NAME.NAMESPACE.svc, with its address,
and passes on what comes there to the endpoint that FILE names at the time. All other names do not
exist.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from typing import Final, cast

from tests.node import machine, relay
from tests.node.network import BRIDGE, GATEWAY

ADDRESS: Final = "10.44.0.250"
DOMAIN: Final = "cluster.local"
KUBELET: Final = {"clusterDNS": [ADDRESS], "clusterDomain": DOMAIN}
"""Settings with which a kubelet's pods ask here."""

_DNS, _HTTPS = 53, 443
_HEADER: Final = 12
"""Bytes before the question. Source: RFC 1035, 4.1."""
_IPV4: Final = b"\x00\x01\x00\x01"
"""Type A, class IN: what an IPv4 address is asked with."""
_TTL: Final = (1).to_bytes(4, "big")
_NO_SUCH_NAME: Final = 3


def answer(query: bytes, host: str) -> bytes:
    """The answer to a DNS query; ``host`` has the address, no other name is there.

    Raises ValueError for what is no query of one question.
    """
    if len(query) < _HEADER or query[4:6] != b"\x00\x01":
        raise ValueError("no DNS query of one question")
    labels, at = [], _HEADER
    while size := query[at]:
        labels.append(query[at + 1 : at + 1 + size].decode())
        at += 1 + size
    question = query[_HEADER : at + 5]
    is_ours = ".".join(labels).lower() in (host, f"{host}.{DOMAIN}")
    found = is_ours and question.endswith(_IPV4)
    flags = bytes((0x85, 0x80 | (0 if is_ours else _NO_SUCH_NAME)))
    counts = b"\x00\x01" + (b"\x00\x01" if found else b"\x00\x00") + b"\x00\x00\x00\x00"
    # the name once more, by a pointer to the question
    record = b"\xc0\x0c" + _IPV4 + _TTL + b"\x00\x04" + socket.inet_aton(ADDRESS) if found else b""
    return query[:2] + flags + counts + question + record


class _Dns(asyncio.DatagramProtocol):
    def __init__(self, host: str) -> None:
        self._host = host

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        try:
            self._transport.sendto(answer(data, self._host), addr)
        except (ValueError, IndexError):  # not for us to judge: who asked asks again
            return


async def _serve(host: str, to: str) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(lambda: _Dns(host), local_addr=(ADDRESS, _DNS))
    listener = socket.create_server((ADDRESS, _HTTPS), backlog=relay.WAITING)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await relay.pass_on(listener, to)


def main(host: str, to: str) -> None:
    """Join the network, and serve."""
    _join()
    asyncio.run(_serve(host, to))


def _join() -> None:
    """Leave the network for a cable into it: the API server has this port on all addresses."""
    cable = (
        f"link add to-service type veth peer name eth0 netns {os.getpid()}",
        f"link set to-service master {BRIDGE} up",
    )
    lay = "read _; " + "; ".join(f"ip {words}" for words in cable)
    with subprocess.Popen(["sh", "-ec", lay], stdin=subprocess.PIPE) as outside:
        machine.unshare(machine.NEW_NETWORK)
        outside.communicate(b"\n")
    for words in (
        "link set lo up",
        f"address add {ADDRESS}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {GATEWAY}",
    ):
        subprocess.run(["ip", *words.split()], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
