# SPDX-License-Identifier: Apache-2.0
"""Times of day as text: those of the API server, and what is none."""

from __future__ import annotations

import pytest

from base.text import rfc3339

AT = 1_795_658_400.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-26T02:00:00Z", AT),
        ("2026-11-26T02:00:00.250000Z", AT + 0.25),
        ("2026-11-26T03:00:00+01:00", AT),
        ("0001-01-01T00:00:00", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        (5, None),
        ({}, None),
    ],
)
def test_a_time_is_read_and_what_is_none_is_none(text: object, seconds: float | None) -> None:
    assert rfc3339.unix_seconds(text) == seconds


@pytest.mark.parametrize("part", [0.0, 0.25, 0.999])
def test_a_time_is_written_in_whole_seconds(part: float) -> None:
    assert rfc3339.whole_seconds(AT + part) == "2026-11-26T02:00:00Z"
