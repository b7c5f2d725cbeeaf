# SPDX-License-Identifier: Apache-2.0
"""NVSwitch errors are counted by switch, code and severity."""

from __future__ import annotations

from agent.gpu_errors.kernel_records import SxidSeen
from agent.gpu_errors.sxid_book import MOST_KINDS, SxidBook
from exporters.gpuscape.switch_errors import Severity, Sxid

FATAL = SxidSeen(bus_id="0000:04:00.0", code=12028, severity=Severity.FATAL, link=32)
OTHER_LINK = SxidSeen(bus_id="0000:04:00.0", code=12028, severity=Severity.FATAL, link=33)
HARMLESS = SxidSeen(bus_id="0000:04:00.0", code=11012, severity=Severity.CORRECTABLE)


def test_the_same_error_is_one_entry_with_its_count_and_newest_time() -> None:
    book = SxidBook()
    for at, event in enumerate((FATAL, HARMLESS, OTHER_LINK), start=100):
        book.add(event, float(at))
    assert book.seen == (
        Sxid(
            bus_id="0000:04:00.0",
            code=11012,
            severity=Severity.CORRECTABLE,
            count=1,
            last_seen_seconds=101.0,
        ),
        Sxid(
            bus_id="0000:04:00.0",
            code=12028,
            severity=Severity.FATAL,
            count=2,
            last_seen_seconds=102.0,
        ),
    )


def test_there_are_only_so_many_kinds() -> None:
    book = SxidBook()
    for code in range(MOST_KINDS + 10):
        book.add(SxidSeen(bus_id="0000:04:00.0", code=code, severity=Severity.UNTOLD), 0.0)
    book.add(SxidSeen(bus_id="0000:04:00.0", code=0, severity=Severity.UNTOLD), 1.0)
    assert (len(book.seen), book.seen[0].count) == (MOST_KINDS, 2)
