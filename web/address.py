# SPDX-License-Identifier: Apache-2.0
"""Addresses on which our servers listen: as a setting, and as a socket."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from dataclasses import dataclass

from base.errors import Permanent
from base.settings.setting_kinds import SettingKind

_ADVICE = {
    errno.EADDRINUSE: "another program listens there, end it or choose another port",
    errno.EACCES: "ports below 1024 need a right, choose a higher one",
    errno.EADDRNOTAVAIL: "no interface has this address, choose one that this machine has",
}
_FORM = r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:\[\]]*)):([0-9]{1,5})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Host and port on which a server listens."""

    host: str
    """Empty, ``0.0.0.0`` or ``::``: all interfaces."""
    port: int
    """0: any free port."""

    @property
    def is_of_all_interfaces(self) -> bool:
        """Whether the server listens on all interfaces, over IPv4 and IPv6, as Go's ``net.Listen``.

        Source: the package's documentation of Listen, "literal unspecified IP address".
        """
        try:
            address = ipaddress.ip_address(self.host or "::")
        except ValueError:
            return False
        mapped = address.ipv4_mapped if address.version == 6 else None
        return (mapped or address).is_unspecified

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse ``:9400``, ``127.0.0.1:9400``, ``node:9400`` or ``[::]:9400``; else ValueError."""
    match = re.fullmatch(_FORM, text)
    if match is None or int(match[3]) > 65535:
        raise ValueError(text)
    return Address(host=match[1] or match[2], port=int(match[3]))


ADDRESS = SettingKind(
    metavar="ADDRESS", expects=":port or host:port", parse=parse_address, form=_FORM
)
"""The kind of a setting that names an address to listen on."""


def listening_socket(address: Address) -> socket.socket:
    """A socket that listens. Raises Permanent with the fix.

    Connections that it accepts inherit TCP_NODELAY and so send at once: else the last part of an
    answer waits 40 ms for the client's delayed acknowledgement of the parts before. asyncio sets
    the option only where a socket has its protocol set, and these do not.
    """
    listener = _bound(address)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _bound(address: Address) -> socket.socket:
    try:
        if not address.is_of_all_interfaces:
            family, *_, where = socket.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM
            )[0]
            return socket.create_server(where, family=family)
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        return socket.create_server(("", address.port), family=family, dualstack_ipv6=both)
    except OSError as error:
        advice = _ADVICE.get(
            error.errno or 0, f"{error.strerror}, choose an address of this machine"
        )
        raise Permanent(f"cannot listen on {address}: {advice}") from error
