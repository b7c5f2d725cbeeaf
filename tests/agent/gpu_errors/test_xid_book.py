# SPDX-License-Identifier: Apache-2.0
"""XIDs are counted by code and instance; the newest stands last."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from agent.gpu_errors.xid_book import XidBook
from discovery.model import Driver, GpuSnapshot, GpuState, RemappedRows
from discovery.reader.protocol import XidSeen
from tests import build
from tests.log_lines import LogLine, log_lines, whys

GPU = build.gpu(0)


def _seen(code: int, instance: int | None = None) -> XidSeen:
    return XidSeen(bus_id=GPU.bus_id, code=code, gpu_instance_id=instance)


def test_repeated_errors_are_one_entry_with_their_count_and_newest_time() -> None:
    book = XidBook()
    for second in (10.0, 20.0, 30.0):
        book.add(_seen(79), second)
    (xid,) = build.nvidia(book.enter(build.node([GPU])).gpus[0]).xids
    assert (xid.code, xid.count, xid.last_seen_seconds) == (79, 3, 30.0)


def test_the_newest_error_stands_last() -> None:
    book = XidBook()
    for second, code in enumerate((13, 79, 13)):
        book.add(_seen(code), float(second))
    assert [xid.code for xid in build.nvidia(book.enter(build.node([GPU])).gpus[0]).xids] == [
        79,
        13,
    ]


def test_errors_of_different_instances_are_kept_apart() -> None:
    book = XidBook()
    book.add(_seen(43, instance=1), 0.0)
    book.add(_seen(43, instance=2), 1.0)
    xids = build.nvidia(book.enter(build.node([GPU])).gpus[0]).xids
    assert [xid.gpu_instance_id for xid in xids] == [1, 2]


def test_a_gpu_without_errors_has_none() -> None:
    book = XidBook()
    book.add(_seen(79), 0.0)
    assert build.nvidia(book.enter(build.node([GPU, build.gpu(1)])).gpus[1]).xids == ()


def _over(book: XidBook, gpu: GpuSnapshot = GPU, version: str | None = "550") -> list[int]:
    """Codes that are over after a snapshot with this GPU."""
    snapshot = replace(build.node([gpu]), driver=Driver(version=version))
    return [xid.code for xid in build.nvidia(book.enter(snapshot).gpus[0]).xids if xid.over]


LOST = build.gpu(0, state=GpuState.LOST)
PENDING = RemappedRows(correctable=0, uncorrectable=1, pending=True, failed=False)
DONE = replace(PENDING, pending=False)


@pytest.mark.parametrize(
    ("needing", "well"),
    [
        (LOST, GPU),
        (build.gpu(0, recovery_action=1), build.gpu(0, recovery_action=0)),
        (build.gpu(0, remapped_rows=PENDING), build.gpu(0, remapped_rows=DONE)),
        (
            build.gpu(0, retired_pages_pending=True),
            build.gpu(0, retired_pages_pending=False),
        ),
    ],
    ids=["lost", "recovery action", "rows", "pages"],
)
def test_what_a_gpu_needed_and_needs_no_more_ends_its_xids(
    needing: GpuSnapshot, well: GpuSnapshot
) -> None:
    book = XidBook()
    book.add(_seen(95), 0.0)
    assert _over(book, well) == []
    assert _over(book, needing) == []
    assert _over(book, replace(needing, state=GpuState.HUNG)) == []
    assert _over(book, well) == [95]


def test_a_need_that_is_not_reported_any_more_is_not_met() -> None:
    book = XidBook()
    book.add(_seen(95), 0.0)
    _over(book, build.gpu(0, recovery_action=1, remapped_rows=PENDING))
    assert _over(book, build.gpu(0, recovery_action=0, remapped_rows=None)) == []
    assert _over(book, build.gpu(0, recovery_action=1, remapped_rows=DONE)) == []
    assert _over(book, build.gpu(0, recovery_action=0, remapped_rows=DONE)) == [95]


def test_what_was_needed_before_an_error_says_nothing_of_it() -> None:
    book = XidBook()
    book.add(_seen(95), 0.0)
    _over(book, LOST)
    book.add(_seen(48), 1.0)
    assert _over(book) == []
    _over(book, LOST)
    book.add(_seen(154), 2.0)  # reports the recovery, and is no error
    assert _over(book) == [95, 48]


def test_other_gpus_and_errors_of_applications_are_left_as_they_are() -> None:
    book, other = XidBook(), build.gpu(1)
    book.add(_seen(13), 0.0)
    book.add(msgspec.structs.replace(_seen(95), bus_id=other.bus_id), 0.0)
    _over(book, LOST)
    assert _over(book) == []
    assert _over(book, other) == []


def test_another_driver_ends_all_xids_and_one_that_is_silent_does_not() -> None:
    book = XidBook()
    book.add(_seen(95), 0.0)
    assert _over(book) == []
    assert _over(book, version=None) == []
    assert _over(book) == []
    assert _over(book, version="570") == [95]


def test_a_gpu_that_hung_and_answers_again_has_not_recovered() -> None:
    """Unlike a lost one it needed no reset to answer."""
    book = XidBook()
    book.add(_seen(95), 0.0)
    assert _over(book, replace(GPU, state=GpuState.HUNG)) == []
    assert _over(book) == []


def test_another_driver_is_noticed_though_none_answered_in_between() -> None:
    book = XidBook()
    book.add(_seen(95), 0.0)
    assert _over(book, version="550") == []
    assert _over(book, version=None) == []
    assert _over(book, version="570") == [95]


def test_an_error_that_comes_again_is_not_over() -> None:
    book = XidBook()
    book.add(_seen(95), 0.0)
    _over(book, LOST)
    assert _over(book) == [95]
    book.add(_seen(95), 1.0)
    assert _over(book) == []
    assert [xid.count for _, xid in book.record.xids] == [2]


@pytest.mark.parametrize(
    ("wish", "over"),
    [
        ("all", [95]),
        (GPU.bus_id, [95]),
        (f"0000:99:00.0, {GPU.bus_id.upper()}", [95]),
        ("0000:99:00.0", []),
        ("everything", []),
        ("", []),
        ("All", []),
    ],
)
def test_a_person_clears_the_errors_of_the_gpus_that_are_named(wish: str, over: list[int]) -> None:
    book = XidBook()
    book.clear(None)
    book.add(_seen(95), 0.0)
    assert book.clear(wish) == (wish not in ("everything", "", "All"))
    assert _over(book) == over


def test_a_wish_is_obeyed_once_when_it_changes() -> None:
    book = XidBook()
    book.clear(None)
    book.add(_seen(95), 0.0)
    book.clear("all")
    book.add(_seen(48), 1.0)
    assert not book.clear("all")
    assert _over(book) == [95]
    book.clear(None)
    assert book.clear("all")
    assert _over(book) == [95, 48]


def test_a_wish_from_before_the_start_clears_nothing_unless_the_book_goes_on_from_one() -> None:
    book = XidBook()
    book.add(_seen(95), 0.0)
    assert not book.clear("all")
    assert not XidBook(book.record).clear("all")
    assert XidBook(book.record).clear(GPU.bus_id)
    assert _over(book) == []


def test_the_end_of_errors_is_logged_for_each_gpu_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    other = build.gpu(1)
    book = XidBook()
    book.clear(None)

    def errors() -> None:
        for code in (95, 79):
            book.add(_seen(code), 0.0)
        book.add(XidSeen(bus_id=other.bus_id, code=79), 0.0)

    def line(bus_id: str, xids: str, why: str) -> LogLine:
        return ("INFO", "XID errors over", {"gpu": bus_id, "xids": xids, "why": why})

    errors()
    book.clear("all")
    errors()
    lost = build.changed(LOST, recovery_action=None)
    book.enter(build.node([lost, other]))
    book.enter(build.node([GPU, other]))
    book.end_recovered([_seen(79), XidSeen(bus_id=other.bus_id, code=154, recovered=True)])
    errors()
    book.enter(replace(build.node([GPU, other]), driver=Driver(version="999")))
    assert log_lines(caplog) == [
        line(GPU.bus_id, "79,95", "a person cleared them"),
        line(other.bus_id, "79", "a person cleared them"),
        line(GPU.bus_id, "79,95", "it was lost"),
        line(other.bus_id, "79", "the kernel log reports its recovery"),
        line(GPU.bus_id, "79,95", "another driver runs"),
        line(other.bus_id, "79", "another driver runs"),
    ]


def test_all_that_a_gpu_needed_is_in_the_line_about_its_recovery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    book = XidBook()
    book.add(_seen(95), 0.0)
    for gpu in (
        LOST,
        build.changed(GPU, remapped_rows=PENDING),
        build.changed(GPU, remapped_rows=DONE),
    ):
        book.enter(build.node([gpu]))
    assert whys(caplog, "XID errors over") == ["it was lost, memory rows waited for a reset"]


def test_a_wish_that_names_no_gpu_is_logged_with_what_to_write(
    caplog: pytest.LogCaptureFixture,
) -> None:
    book = XidBook()
    book.clear(None)
    assert not book.clear("gpu 0")
    fields = {
        "why": "'gpu 0' names no GPUs",
        "action": "write all, or PCI bus ids as nvidia-smi has them",
    }
    assert log_lines(caplog) == [("WARNING", "XID clearance not understood", fields)]
