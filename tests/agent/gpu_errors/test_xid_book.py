# SPDX-License-Identifier: Apache-2.0
"""XIDs are counted by code and instance; the newest stands last."""

from __future__ import annotations

from agent.gpu_errors.xid_book import XidBook
from discovery.reader.protocol import XidSeen
from tests import build

GPU = build.gpu(0)


def _seen(code: int, instance: int | None = None) -> XidSeen:
    return XidSeen(bus_id=GPU.bus_id, code=code, gpu_instance_id=instance)


def test_repeated_errors_are_one_entry_with_their_count_and_newest_time() -> None:
    book = XidBook()
    for second in (10.0, 20.0, 30.0):
        book.add(_seen(79), second)
    (xid,) = book.enter(build.node([GPU])).gpus[0].xids
    assert (xid.code, xid.count, xid.last_seen_seconds) == (79, 3, 30.0)


def test_the_newest_error_stands_last() -> None:
    book = XidBook()
    for second, code in enumerate((13, 79, 13)):
        book.add(_seen(code), float(second))
    assert [xid.code for xid in book.enter(build.node([GPU])).gpus[0].xids] == [79, 13]


def test_errors_of_different_instances_are_kept_apart() -> None:
    book = XidBook()
    book.add(_seen(43, instance=1), 0.0)
    book.add(_seen(43, instance=2), 1.0)
    xids = book.enter(build.node([GPU])).gpus[0].xids
    assert [xid.gpu_instance_id for xid in xids] == [1, 2]


def test_a_gpu_without_errors_has_none() -> None:
    book = XidBook()
    book.add(_seen(79), 0.0)
    assert book.enter(build.node([GPU, build.gpu(1)])).gpus[1].xids == ()
