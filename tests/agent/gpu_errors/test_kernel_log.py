# SPDX-License-Identifier: Apache-2.0
"""The kernel log as a source: new records only, without ever waiting, whatever goes wrong."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.gpu_errors.kernel_log import (
    AGAIN_SECONDS,
    MOST_EVENTS,
    MOST_RECORDS,
    PATH,
    RECORD_BYTES,
    KernelLog,
    open_at_end,
)
from agent.gpu_errors.kernel_records import SxidSeen
from discovery.reader.protocol import EventsLost, XidSeen
from tests.log_lines import log_lines


def line(code: int = 79, bus_id: str = "0000:1b:00", more: str = "") -> bytes:
    return f"3,1,2,-;NVRM: Xid (PCI:{bus_id}): {code}, text{more}\n".encode()


LOST = EventsLost(text="records of the kernel log were lost")


def xid(code: int) -> XidSeen:
    return XidSeen(bus_id="0000:1b:00.0", code=code)


class Kmsg:
    """A pipe of packets: each read gives one record, or says that there is none yet."""

    def __init__(self) -> None:
        self.reading, self._writing = os.pipe2(os.O_DIRECT | os.O_NONBLOCK | os.O_CLOEXEC)

    def log(self, *records: bytes) -> None:
        for record in records:
            os.write(self._writing, record)

    def open(self, path: Path) -> int:
        """A descriptor of its own, as opening the device gives one."""
        del path
        return os.dup(self.reading)

    def close(self) -> None:
        for descriptor in (self.reading, self._writing):
            os.close(descriptor)


@pytest.fixture
def kmsg() -> Iterator[Kmsg]:
    with contextlib.closing(Kmsg()) as it:
        yield it


@pytest.fixture
def kernel_log(kmsg: Kmsg) -> Iterator[KernelLog]:
    with contextlib.closing(KernelLog(Path("/kmsg"), open_log=kmsg.open)) as it:
        it.events(0.0)
        yield it


def test_errors_come_in_their_order_and_once(kmsg: Kmsg, kernel_log: KernelLog) -> None:
    kmsg.log(line(31), b"6,2,3,-;usb 1-1: new device\n", line(79))
    assert kernel_log.events(1.0) == (xid(31), xid(79))
    assert kernel_log.events(2.0) == ()
    kmsg.log(line(48))
    assert kernel_log.events(3.0) == (xid(48),)


def test_what_was_logged_before_is_not_told(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    file.write_bytes(line(79))
    with contextlib.closing(KernelLog(file)) as kernel_log:
        assert kernel_log.events(0.0) == ()
        with file.open("ab") as more:
            more.write(line(31))
        assert kernel_log.events(1.0) == (xid(31),)


def test_the_device_is_opened_so_that_it_never_waits(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    file.write_bytes(line())
    descriptor = open_at_end(file)
    try:
        assert not os.get_blocking(descriptor)
        assert not os.get_inheritable(descriptor)
        assert os.read(descriptor, 1) == b""
    finally:
        os.close(descriptor)


def test_records_overwritten_before_they_were_read_are_counted_and_the_rest_is_told(
    kmsg: Kmsg, caplog: pytest.LogCaptureFixture
) -> None:
    gone = iter([True, False, True])

    def read(descriptor: int, size: int) -> bytes:
        if next(gone, False):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        return os.read(descriptor, size)

    with contextlib.closing(KernelLog(Path("/kmsg"), open_log=kmsg.open, read=read)) as kernel_log:
        kmsg.log(line(31), line(79))
        assert kernel_log.events(0.0) == (xid(31), xid(79), LOST)
        assert kernel_log.overruns == 2
        assert kernel_log.events(0.0) == ()
    assert log_lines(caplog) == [("WARNING", "kernel log records lost", {})]


def test_a_burst_is_read_in_portions_and_errors_beyond_them_are_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    left = [line(31)] * (MOST_RECORDS + 5)

    def read(descriptor: int, size: int) -> bytes:
        del descriptor
        assert size == RECORD_BYTES
        if not left:
            raise BlockingIOError
        return left.pop()

    def nothing(path: Path) -> int:
        del path
        return os.open(os.devnull, os.O_RDONLY)

    with contextlib.closing(KernelLog(Path("/kmsg"), open_log=nothing, read=read)) as kernel_log:
        *found, lost = kernel_log.events(0.0)
        assert (len(found), lost) == (MOST_EVENTS, LOST)
        assert len(left) == 5
        assert len(kernel_log.events(1.0)) == 5
    fields = {"errors": MOST_RECORDS - MOST_EVENTS}
    assert log_lines(caplog) == [("WARNING", "kernel log errors dropped", fields)]


def test_bursts_are_logged_once_a_minute_with_a_count_of_the_rest(
    kmsg: Kmsg, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[bytes] = []

    def read(descriptor: int, size: int) -> bytes:
        del descriptor, size
        if not left:
            raise BlockingIOError
        return left.pop()

    with contextlib.closing(KernelLog(Path("/kmsg"), open_log=kmsg.open, read=read)) as kernel_log:
        for now, errors in ((0.0, 1), (10.0, 2), (20.0, 3), (60.0, 4), (61.0, 0)):
            left += [line(31)] * (MOST_EVENTS + errors)
            assert (LOST in kernel_log.events(now)) is (errors > 0)
    assert log_lines(caplog) == [
        ("WARNING", "kernel log errors dropped", {"errors": 1}),
        ("WARNING", "kernel log errors dropped", {"errors": 4, "left_out": 2}),
    ]


def test_that_the_log_was_opened_is_logged_and_a_failure_after_it_again(
    kmsg: Kmsg, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    failing = iter([True, False, True])

    def open_log(path: Path) -> int:
        if next(failing, False):
            raise PermissionError(errno.EACCES, "Permission denied")
        return kmsg.open(path)

    kernel_log = KernelLog(Path("/kmsg"), open_log=open_log)
    for now in (0.0, AGAIN_SECONDS, 3 * AGAIN_SECONDS):
        kernel_log.events(now)
        kernel_log.close()
    refused = {
        "path": "/kmsg",
        "why": "Permission denied",
        "action": "it belongs to root: run as uid 0",
    }
    assert log_lines(caplog) == [
        ("WARNING", "kernel log not readable", refused),
        ("INFO", "kernel log opened", {"path": "/kmsg"}),
        ("WARNING", "kernel log not readable", refused),
    ]


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOENT, "mount the host's /dev/kmsg there"),
        (errno.EACCES, "it belongs to root: run as uid 0"),
        (errno.EPERM, "a container has to be privileged to open it"),
        (errno.ENODEV, "none: XIDs come from NVML alone"),
    ],
)
def test_a_missing_right_is_said_once_with_what_to_do(
    number: int, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 0

    def refuse(path: Path) -> int:
        nonlocal tries
        tries += 1
        raise OSError(number, os.strerror(number), str(path))

    kernel_log = KernelLog(Path("/host/dev/kmsg"), open_log=refuse)
    for now in (0.0, AGAIN_SECONDS - 1, AGAIN_SECONDS, AGAIN_SECONDS + 1, 2 * AGAIN_SECONDS):
        assert kernel_log.events(now) == ()

    assert tries == 3
    (logged,) = (record.__dict__ for record in caplog.records)
    assert (logged["message"], logged["path"]) == ("kernel log not readable", "/host/dev/kmsg")
    assert logged["why"] == os.strerror(number)
    assert logged["action"].startswith(advice)


def test_it_begins_to_read_once_the_right_is_given(kmsg: Kmsg) -> None:
    refused = iter([True])

    def open_log(path: Path) -> int:
        if next(refused, False):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return kmsg.open(path)

    with contextlib.closing(KernelLog(Path("/kmsg"), open_log=open_log)) as kernel_log:
        assert kernel_log.events(0.0) == ()
        kmsg.log(line(79))
        assert kernel_log.events(AGAIN_SECONDS) == (xid(79),)


def test_a_log_that_fails_is_opened_again_later(
    kmsg: Kmsg, caplog: pytest.LogCaptureFixture
) -> None:
    failing = iter([True])

    def read(descriptor: int, size: int) -> bytes:
        if next(failing, False):
            raise OSError(errno.EIO, "Input/output error")
        return os.read(descriptor, size)

    with contextlib.closing(KernelLog(Path("/kmsg"), open_log=kmsg.open, read=read)) as kernel_log:
        kmsg.log(line(79))
        assert kernel_log.events(0.0) == ()
        assert kernel_log.events(1.0) == ()
        assert kernel_log.events(AGAIN_SECONDS) == (xid(79),)
    (logged,) = (record.__dict__ for record in caplog.records)
    assert logged["why"] == "Input/output error"
    assert logged["action"] == "none: XIDs come from NVML alone"


def test_closing_leaves_no_descriptor_behind(kmsg: Kmsg) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    kernel_log = KernelLog(Path("/kmsg"), open_log=kmsg.open)
    kernel_log.events(0.0)
    kernel_log.close()
    kernel_log.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_this_machines_own_log_is_read_where_it_may_be() -> None:
    path = Path("/") / PATH
    if not os.access(path, os.R_OK):
        pytest.skip("no right to read the kernel log here")
    with contextlib.closing(KernelLog(path)) as kernel_log:
        assert all(isinstance(it, XidSeen | SxidSeen) for it in kernel_log.events(0.0))
