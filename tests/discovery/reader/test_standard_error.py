# SPDX-License-Identifier: Apache-2.0
"""What a device reader prints is kept to its last lines, and logged when it ends."""

from __future__ import annotations

import os

import pytest

from discovery.reader.standard_error import KEPT_BYTES, KEPT_LINES, ReaderEnds, StandardError


@pytest.fixture
def error() -> StandardError:
    return StandardError()


def test_the_last_lines_are_kept_however_much_came(error: StandardError) -> None:
    with error.writer as writer:
        for number in range(2000):
            writer.write(f"line {number}\n".encode())
            error.read()
    assert not error.read()
    error.close()
    assert error.last_lines == " | ".join(f"line {n}" for n in range(2000 - KEPT_LINES, 2000))


def test_one_endless_line_is_cut(error: StandardError) -> None:
    with error.writer as writer:
        writer.write(b"x" * 10 * KEPT_BYTES)
    error.read()
    error.close()
    assert error.last_lines == "x" * KEPT_BYTES


def test_who_writes_into_a_full_pipe_does_not_wait(error: StandardError) -> None:
    with error.writer as writer:
        while writer.write(b"x" * 4096):  # None where it would have to wait
            pass
    error.close()


def test_output_that_is_not_text_stays_on_one_printable_line(error: StandardError) -> None:
    with error.writer as writer:
        writer.write(b"NVRM: \x1b[31mfailed\t\xff\n\n   \nlast\xe2\x80\x8bline")
    while error.read():
        pass
    error.close()
    assert error.last_lines == r"NVRM: \x1b[31mfailed\t\xff | last\u200bline"


def test_an_open_pipe_with_nothing_in_it_is_not_over(error: StandardError) -> None:
    assert error.read()
    error.writer.close()
    assert not error.read()
    error.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(error.fileno())


# how readers ended

Ended = dict[str, object]


class Ends:
    """Ends of readers on a clock that the test sets, and the fields of what is logged of them."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now = 1000.0
        self._ends = ReaderEnds(lambda: self.now)
        self._caplog = caplog

    def log(self, status: int | None, *, printed: bytes = b"", expected: bool = False) -> Ended:
        """What the end of reader 7 logs, empty where it logs nothing."""
        self._caplog.clear()
        error = StandardError()
        with error.writer as writer:
            writer.write(printed)
        error.read()
        error.close()
        self._ends.log(7, status, error, expected=expected)
        if not self._caplog.records:
            return {}
        (record,) = self._caplog.records
        assert (record.levelname, record.getMessage()) == ("WARNING", "device reader ended")
        names = ("reader", "how", "stderr", "left_out")
        return {name: vars(record)[name] for name in names if name in vars(record)}


@pytest.fixture
def ends(caplog: pytest.LogCaptureFixture) -> Ends:
    return Ends(caplog)


@pytest.mark.parametrize(
    ("status", "how"),
    [
        (0, "exit status 0"),
        (70, "exit status 70"),
        (-9, "SIGKILL"),
        (-1, "SIGHUP"),
        (-40, "signal 40"),  # a real-time signal, which has no name
        (None, "not known"),
    ],
)
def test_the_end_of_a_reader_is_logged_with_what_ended_it(
    ends: Ends, status: int | None, how: str
) -> None:
    assert ends.log(status) == {"reader": 7, "how": how, "stderr": "empty"}


def test_the_end_that_was_asked_for_is_logged_where_the_reader_wrote_something(
    ends: Ends,
) -> None:
    assert ends.log(0, expected=True) == {}
    logged = ends.log(0, expected=True, printed=b"a\nb\n")
    assert logged == {"reader": 7, "how": "exit status 0", "stderr": "a | b"}


def test_each_way_to_end_is_logged_once_a_minute_with_the_count_of_the_rest(ends: Ends) -> None:
    killed = {"reader": 7, "how": "SIGKILL", "stderr": "empty"}
    assert ends.log(-9) == killed
    assert ends.log(1) == killed | {"how": "exit status 1"}
    ends.now += 59.0
    assert [ends.log(-9) for _ in range(3)] == [{}, {}, {}]
    ends.now += 1.0
    assert ends.log(-9) == killed | {"left_out": 3}
    assert ends.log(1) == killed | {"how": "exit status 1"}


def test_a_timeout_is_logged_once_a_minute_of_each_thing_that_was_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 1000.0
    ends = ReaderEnds(lambda: now)
    for what in ("driver", "0000:00:06.0", "driver"):
        ends.log_timeout(7, what, 5.0)
    now += 60.0
    ends.log_timeout(8, "driver", 5.0)

    assert {(it.levelname, it.getMessage()) for it in caplog.records} == {
        ("WARNING", "device reader timed out")
    }
    fields = [(vars(it)["reader"], vars(it)["what"], vars(it)["seconds"]) for it in caplog.records]
    assert fields == [(7, "driver", 5.0), (7, "0000:00:06.0", 5.0), (8, "driver", 5.0)]
    assert [vars(it).get("left_out") for it in caplog.records] == [None, None, 1]
