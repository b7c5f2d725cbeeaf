# SPDX-License-Identifier: Apache-2.0
"""Begin and end of the certificates in PEM text. Pure.

The ssl module has the validity of a verified peer alone, and never that of one's own certificate.
So the few bytes that lead to it are read here. Source: RFC 5280, 4.1, and X.690 for their form.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

_CERTIFICATE: Final = re.compile(
    "-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
"""Tag of a time with two digits of the year, for 1950 to 2049."""
_FORMS: Final = {_UTC_TIME: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}


def ends(pem: bytes) -> tuple[float, ...]:
    """Expiry of each certificate in PEM text, in their order, in Unix seconds.

    Keys and comments between them are passed over. Raises ValueError where one of them cannot be
    read.
    """
    return tuple(end for _, end in periods(pem))


def periods(pem: bytes) -> tuple[tuple[float, float], ...]:
    """Begin and end of each certificate in PEM text; order, units and errors as :func:`ends`."""
    certificates = _CERTIFICATE.findall(pem.decode("ascii", errors="replace"))
    return tuple(_period(ssl.PEM_cert_to_DER_cert(certificate)) for certificate in certificates)


def _period(der: bytes) -> tuple[float, float]:
    ((_, certificate),) = _items(der)
    (_, body), *_ = _items(certificate)
    fields = [field for field in _items(body) if field[0] != _VERSION]
    # serial number, algorithm, issuer, validity
    tag, validity = fields[3] if len(fields) > 3 else (0, b"")
    if tag != _SEQUENCE:
        raise ValueError("no validity where a certificate has it")
    begin, end = _items(validity)
    ends_at = _time(*end)
    return _time(*begin), ends_at


def _time(form: int, text: bytes) -> float:
    if form not in _FORMS:
        raise ValueError(f"its end is no time: {text!r}")
    end = datetime.strptime(text.decode("ascii"), _FORMS[form]).replace(tzinfo=UTC)
    if form == _UTC_TIME and end.year >= 2050:
        end = end.replace(year=end.year - 100)
    return end.timestamp()


def _items(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each DER value in a row of them. Raises ValueError."""
    offset = 0
    while offset < len(der):
        if offset + 2 > len(der):
            raise ValueError("it ends too soon")
        tag, length = der[offset], der[offset + 1]
        offset += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(der[offset : offset + size])
            offset += size
        if offset + length > len(der):
            raise ValueError("it ends too soon")
        yield tag, der[offset : offset + length]
        offset += length
