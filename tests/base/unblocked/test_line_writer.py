# SPDX-License-Identifier: Apache-2.0
"""Nobody who logs or prints waits for who reads it: real pipes that nobody empties."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from base.unblocked.line_writer import (
    MOST_BYTES,
    MOST_LINES,
    BlockedOutput,
    LineWriter,
    UnblockedOutput,
)

SOON = 60.0
LINE = b"x" * 999 + b"\n"


@dataclass
class Pipe:
    """A pipe that is full until somebody reads."""

    reads: int
    writes: int
    said: list[int] = field(default_factory=list)

    def fill(self) -> int:
        """Fill it; how many bytes it took."""
        os.set_blocking(self.writes, False)
        taken = 0
        try:
            while True:
                taken += os.write(self.writes, b"y" * 4096)
        except BlockingIOError:
            os.set_blocking(self.writes, True)
        return taken

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += os.read(self.reads, size - len(data))
        return data


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe(*os.pipe())
    yield made
    os.close(made.reads)  # whoever writes ends with EPIPE


def test_lines_are_written_whole_and_in_their_order(pipe: Pipe) -> None:
    writer = LineWriter(pipe.writes, written_again=pipe.said.append)
    lines = [f"line {number}\n".encode() for number in range(500)]
    for line in lines:
        writer.put(line)
    expected = b"".join(lines)
    assert pipe.read(len(expected)) == expected
    assert writer.flush(SOON)
    assert (writer.dropped, pipe.said) == (0, [])


@pytest.mark.parametrize("blocking", [True, False])
def test_a_pipe_that_nobody_empties_keeps_nobody_waiting_and_drops_are_counted_and_reported(
    pipe: Pipe, blocking: bool
) -> None:
    filled = pipe.fill()
    os.set_blocking(pipe.writes, blocking)
    told = threading.Event()

    def written_again(lines: int) -> None:
        pipe.said.append(lines)
        told.set()

    writer = LineWriter(pipe.writes, written_again=written_again)
    for _ in range(MOST_LINES + 500):  # would never end if it waited
        writer.put(LINE)
    assert not writer.flush(0.0)
    dropped = writer.dropped
    assert dropped >= 500
    kept = MOST_LINES + 500 - dropped
    assert pipe.read(filled) == b"y" * filled
    assert pipe.read(kept * len(LINE)) == LINE * kept
    assert told.wait(SOON)
    assert pipe.said == [dropped]
    assert writer.flush(SOON)


def test_what_waits_is_bounded_in_bytes_too(pipe: Pipe) -> None:
    pipe.fill()
    writer = LineWriter(pipe.writes, written_again=pipe.said.append)
    for _ in range(10):
        writer.put(b"z" * 400_000)
    assert writer.dropped >= 7


def test_bytes_that_were_read_make_room_again(pipe: Pipe) -> None:
    writer = LineWriter(pipe.writes, written_again=pipe.said.append)
    line = b"z" * (MOST_BYTES // 4)
    for _ in range(9):
        writer.put(line)
        assert pipe.read(len(line)) == line
        assert writer.flush(SOON)
    assert writer.dropped == 0


def test_lines_that_nobody_can_ever_read_count_as_dropped() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    writer = LineWriter(writes, written_again=lambda _lines: None)
    writer.put(LINE)
    assert writer.flush(SOON)
    assert writer.dropped == 1


def test_output_that_is_blocked_is_refused_as_a_whole_and_taken_once_it_is_read(
    pipe: Pipe,
) -> None:
    filled = pipe.fill()
    output = UnblockedOutput(pipe.writes, "standard output")
    output.write_lines(["a=1", "b=2"])
    with pytest.raises(BlockedOutput, match="standard output is blocked"):
        output.write_lines(["a=3"])
    pipe.read(filled)
    assert pipe.read(8) == b"a=1\nb=2\n"
    end = threading.Event()
    for _ in range(1000):
        try:
            output.write_lines(["a=3"])
            break
        except BlockedOutput:
            end.wait(0.02)
    assert pipe.read(4) == b"a=3\n"
