# SPDX-License-Identifier: Apache-2.0
"""What a device reader prints is kept to its last lines, and printing never waits."""

from __future__ import annotations

import pytest

from discovery.reader.standard_error import KEPT_BYTES, KEPT_LINES, StandardError


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
