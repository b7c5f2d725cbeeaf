# SPDX-License-Identifier: Apache-2.0
"""Where our servers listen: the address as a setting, and the socket on it."""

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
        """Whether it is served over IPv4 and IPv6, as Go's ``net.Listen`` takes all three forms.

        Source: the package's documentation of Listen, "literal unspecified IP address".
        """
        try:
            found = ipaddress.ip_address(self.host or "::")
        except ValueError:
            return False
        mapped = found.ipv4_mapped if found.version == 6 else None
        return (mapped or found).is_unspecified

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


def listening(address: Address) -> socket.socket:
    """A socket that listens. Raises Permanent with the fix.

    What it accepts sends at once, as Linux inherits that: else the last part of an answer waits
    40 ms for the client's delayed acknowledgement of the parts before. asyncio sees to it only
    where a socket has its protocol set, and these do not.
    """
    made = _bound(address)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


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
