# SPDX-License-Identifier: Apache-2.0
"""Refused clients are counted each, and logged as often as a person can read."""

from __future__ import annotations

import errno
import logging
import re
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from web.refusals import ClientRefusals, RefusalReason, host_of, names_of


class Refused:
    """What becomes of refusals, with a clock that a test turns."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        caplog.set_level(logging.WARNING)
        self.now = 0.0
        self.counted = Counter[RefusalReason]()
        self.refusals = ClientRefusals(self._count, clock=lambda: self.now)

    def _count(self, reason: RefusalReason) -> None:
        self.counted[reason] += 1

    def lines(self) -> list[dict[str, Any]]:
        """The fields of each line since the last call."""
        assert all(record.message == "client refused" for record in self._caplog.records)
        found = [vars(record) for record in self._caplog.records]
        self._caplog.clear()
        names = ("reason", "client", "detail", "more")
        return [{name: line[name] for name in names if name in line} for line in found]


PAGE = Path(__file__).parents[2] / "docs" / "web-config.md"


@pytest.fixture
def refused(caplog: pytest.LogCaptureFixture) -> Refused:
    return Refused(caplog)


def test_a_refusal_is_counted_and_logged_with_address_and_reason(refused: Refused) -> None:
    refused.refusals.refused(RefusalReason.NAME, "10.0.0.7", "DNS:other")

    assert refused.counted == {RefusalReason.NAME: 1}
    assert refused.lines() == [{"reason": "name", "client": "10.0.0.7", "detail": "DNS:other"}]


def test_a_flood_is_counted_whole_and_logged_a_few_times(refused: Refused) -> None:
    for _ in range(1000):
        refused.refusals.refused(RefusalReason.CREDENTIALS, "10.0.0.7")

    assert refused.counted == {RefusalReason.CREDENTIALS: 1000}
    assert 0 < len(refused.lines()) <= 5


def test_a_line_after_a_flood_counts_those_that_have_none(refused: Refused) -> None:
    for _ in range(1000):
        refused.refusals.refused(RefusalReason.CREDENTIALS, "10.0.0.7")
    logged = len(refused.lines())
    refused.now = 60.0
    refused.refusals.refused(RefusalReason.CREDENTIALS, "10.0.0.7")
    refused.now = 120.0
    refused.refusals.refused(RefusalReason.CREDENTIALS, "10.0.0.7")

    after, calm = refused.lines()
    assert after["more"] == f"{1000 - logged} not logged"
    assert "more" not in calm


def test_a_flood_for_one_reason_hides_no_other(refused: Refused) -> None:
    for _ in range(1000):
        refused.refusals.refused(RefusalReason.HANDSHAKE, "10.0.0.7")
    refused.lines()
    refused.refusals.refused(RefusalReason.CREDENTIALS, "10.0.0.8")

    assert refused.lines() == [{"reason": "credentials", "client": "10.0.0.8"}]


@pytest.mark.parametrize(
    ("address", "host"),
    [
        (("10.0.0.7", 5522), "10.0.0.7"),
        (("::ffff:10.0.0.7", 5522, 0, 0), "10.0.0.7"),
        (("fe80::1", 5522, 0, 2), "fe80::1"),
        ("", ""),
        (None, ""),
    ],
)
def test_a_client_is_named_by_its_host(address: object, host: str) -> None:
    assert host_of(address) == host


def test_the_names_of_a_certificate_are_one_line() -> None:
    certificate = {
        "subject": ((("organizationName", "x"),), (("commonName", "prometheus"),)),
        "subjectAltName": (("DNS", "a.b"), ("IP Address", "10.0.0.1")),
    }
    assert names_of(certificate) == "CN=prometheus, DNS=a.b, IP Address=10.0.0.1"
    assert (names_of({}), names_of(None)) == ("", "")


def test_a_client_that_goes_away_in_a_handshake_is_not_refused(refused: Refused) -> None:
    refused.refusals.no_handshake(ssl.SSLEOFError(8, "EOF occurred"), "10.0.0.7")

    assert refused.counted == {}
    assert refused.lines() == []


def test_what_the_machine_lacks_is_counted_each_time_and_logged_once_for_each_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted = Counter[RefusalReason]()
    refusals = ClientRefusals(lambda reason: counted.update([reason]))
    no_descriptor = OSError(errno.EMFILE, "Too many open files")
    for error in (
        no_descriptor,
        no_descriptor,
        OSError(errno.ENOBUFS, "No buffer space available"),
        RuntimeError("can't start new thread"),
        RuntimeError("can't start new thread"),
        no_descriptor,
    ):
        refusals.not_accepted(error)

    assert counted == {RefusalReason.RESOURCES: 6}
    assert [(line.levelname, line.message, vars(line)["why"]) for line in caplog.records] == [
        ("WARNING", "connection not accepted", "[Errno 24] Too many open files"),
        ("WARNING", "connection not accepted", "[Errno 105] No buffer space available"),
        ("WARNING", "connection not accepted", "can't start new thread"),
    ]


def test_a_failed_handshake_is_explained_in_openssls_words(refused: Refused) -> None:
    for reason, client in (("UNSUPPORTED_PROTOCOL", "10.0.0.7"), ("", "10.0.0.8")):
        error = ssl.SSLError(1, "no handshake")
        error.reason = reason
        refused.refusals.no_handshake(error, client)

    assert refused.lines() == [
        {"reason": "handshake", "client": "10.0.0.7", "detail": "unsupported protocol"},
        {"reason": "handshake", "client": "10.0.0.8"},
    ]


def test_the_page_explains_each_reason() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert set(RefusalReason) <= set(rows)
