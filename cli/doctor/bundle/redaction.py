# SPDX-License-Identifier: Apache-2.0
"""Texts without secrets and without the identities of devices. Pure."""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

GONE: Final = "REDACTED"

_SECRETS: Final = (
    # a private key, and what of one is left where the text was cut
    re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S
    ),
    re.compile(r"\A[A-Za-z0-9+/=\s]*-----END [A-Z ]*PRIVATE KEY-----"),
    # a JSON web token: RFC 7515, compact form
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]*\.?[\w-]*"),
    re.compile(r"(?i)(?<=bearer )[^\s\"',]+"),
    re.compile(r"(?i)(?<=basic )[A-Za-z0-9+/=]{6,}"),
    # a password's hash: crypt(5), bcrypt
    re.compile(r"\$2[abxy]?\$\d\d\$[./A-Za-z0-9]{20,}"),
    # user and password in an address: RFC 3986, userinfo
    re.compile(r"(?<=://)[^/\s:@\"']+:[^/\s@\"']+(?=@)"),
)
_NAMED: Final = re.compile(
    r"(?im)(?P<name>(?:password|passwd|secret|token|api[_-]?key|client-key-data)[\w-]{0,200}"
    r"[\"']?\s*[:=]\s*)(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s,}\]]+)"
)
"""A value whose name says that it is secret.

What may stand in front is left out, and what follows is bounded: a log may hold one word of a
megabyte, and no part of it is to be read again and again.
"""
_UUID: Final = re.compile(r"(?<=GPU-|MIG-)[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Redaction:
    """Takes secrets out of texts; equal devices stay equal in all texts of one bundle."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def text(self, text: str) -> str:
        """The text without secrets, and with numbers in place of devices' UUIDs."""
        for pattern in _SECRETS:
            text = pattern.sub(GONE, text)
        text = _NAMED.sub(lambda match: match["name"] + GONE, text)
        return _UUID.sub(lambda match: self._device(match[0]), text)

    def _device(self, uuid: str) -> str:
        number = self._known.setdefault(uuid.lower(), 1 + len(self._known))
        return str(UUID(int=number, version=4))
