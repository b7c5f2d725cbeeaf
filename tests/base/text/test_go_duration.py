# SPDX-License-Identifier: Apache-2.0
"""Durations are read as Go's time.ParseDuration reads them; its own test cases are retyped here."""

from __future__ import annotations

import pytest

from base.text.go_duration import go_nanoseconds

SECOND = 10**9
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("5s", 5 * SECOND),
        ("1478s", 1478 * SECOND),
        ("-5s", -5 * SECOND),
        ("+5s", 5 * SECOND),
        ("5.0s", 5 * SECOND),
        ("5.6s", 5_600_000_000),
        ("5.s", 5 * SECOND),
        (".5s", SECOND // 2),
        ("1.004s", 1_004_000_000),
        ("100.00100s", 100_001_000_000),
        ("10ns", 10),
        ("11us", 11_000),
        ("12µs", 12_000),
        ("12\u03bcs", 12_000),
        ("13ms", 13_000_000),
        ("3h30m", 3 * HOUR + 30 * MINUTE),
        ("10.5s4m", 4 * MINUTE + 10_500_000_000),
        ("1h2m3s4ms5us6ns", HOUR + 2 * MINUTE + 3 * SECOND + 4_005_006),
        ("0.9ns", 0),
        ("9007199254.740993ms", 9_007_199_254_740_993),
        ("9223372036854775807ns", 2**63 - 1),
        ("-9223372036854775808ns", -(2**63)),
        ("-2562047h47m16s854ms775us808ns", -(2**63)),
    ],
)
def test_a_duration_has_the_nanoseconds_that_go_takes(text: str, nanoseconds: int) -> None:
    assert go_nanoseconds(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "3", "-", "s", ".", "-.", ".s", "+.s", "1d", "1 s", " 1s", "1s ", "1e3s", "٣s"),
        *("9223372036854775808ns", "9223372036854775.808us", "3000000h", "-9223372036854775809ns"),
        "1" * 5000 + "s",
    ],
)
def test_what_go_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the text is the caller's to name
        go_nanoseconds(text)
