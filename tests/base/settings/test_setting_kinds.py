# SPDX-License-Identifier: Apache-2.0
"""Text of a setting becomes its value, or is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.settings import setting_kinds as kinds
from exporters.dcgm.series_setting_kinds import HOSTNAME_LABEL
from web.address import ADDRESS


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("1m30s", 90), ("500ms", 0.5), ("90", 90), ("0.25", 0.25), ("1h", 3600)],
)
def test_a_duration_reads_as_seconds(text: str, seconds: float) -> None:
    assert kinds.duration_kind("100ms").read(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "1m30", "-1s", "1d", "1 s", "nan", "inf", "1e3", "50ms", "25h", "9" * 400]
)
def test_what_is_no_duration_or_too_short_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected "):
        kinds.duration_kind("100ms").read(text)


@given(st.integers(1, 86400))
def test_a_duration_is_shown_as_text_that_gives_it_back(seconds: int) -> None:
    kind = kinds.duration_kind("1s")
    assert kind.read(kind.show(float(seconds))) == seconds


@pytest.mark.parametrize("text", ["-0.1", "0.51", "nan", "x", "1/2"])
def test_a_ratio_outside_its_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected "):
        kinds.ratio_kind(0.5).read(text)


@pytest.mark.parametrize("text", ["-1", "65", "8.0", "", "eight", "9999999999"])
def test_a_count_outside_its_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected "):
        kinds.count_kind(64).read(text)


@pytest.mark.parametrize("text", ["", " , ", "a,b", " a , b,"])
def test_names_stand_between_commas(text: str) -> None:
    expected = tuple(word for word in ("a", "b") if word in text)
    assert kinds.NAMES.read(text) == expected


@pytest.mark.parametrize("text", ["a b", "a,(", "a=b", "a\nb"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected names"):
        kinds.NAMES.read(text)


@pytest.mark.parametrize("text", ["(", "a,*", "[z-a]", "(" * 5000])
def test_what_is_no_regular_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected regular expressions"):
        kinds.PATTERNS.read(text)


@pytest.mark.parametrize("kind", [kinds.NAMES, kinds.PATTERNS], ids=["names", "patterns"])
def test_a_list_is_shown_as_text_that_gives_it_back(kind: kinds.SettingKind[object]) -> None:
    assert kind.show(kind.read("a, b.c")) == "a,b.c"


class Colour(StrEnum):
    """An enumeration, for a setting whose value is one of its members."""

    RED = "red"
    DARK_BLUE = "dark-blue"


def test_a_member_of_an_enumeration_is_read_by_its_value_and_shown_as_it() -> None:
    kind = kinds.member_kind(Colour)
    assert kind.read("dark-blue") is Colour.DARK_BLUE
    assert kind.show(Colour.DARK_BLUE) == "dark-blue"
    assert kind.metavar == "red|dark-blue"
    with pytest.raises(ValueError, match="expected red or dark-blue"):
        kind.read("DARK_BLUE")


@pytest.mark.parametrize(
    ("make", "metavar", "expects", "text", "value", "shown"),
    [
        (
            lambda: kinds.duration_kind("1s"),
            "DURATION",
            "a duration from 1s to 24h, such as 90, 60s or 1m30s",
            "1m30s",
            90.0,
            "90s",
        ),
        (lambda: kinds.ratio_kind(0.5), "RATIO", "a number from 0 to 0.5", "0.25", 0.25, "0.25"),
        (lambda: kinds.count_kind(64), "COUNT", "a whole number from 0 to 64", "12", 12, "12"),
        (lambda: kinds.choice_kind("a", "b", "c"), "a|b|c", "a, b or c", "b", "b", "b"),
        (lambda: kinds.text_kind("NAME"), "NAME", "text", "any thing", "any thing", "any thing"),
        (
            lambda: kinds.pattern_kind("HEX", "hex digits", "[0-9a-f]+"),
            "HEX",
            "hex digits",
            "0f",
            "0f",
            "0f",
        ),
        (lambda: kinds.FLAG, "", "true or false", "TRUE", True, "true"),
        (lambda: kinds.FLAG, "", "true or false", "false", False, "false"),
        (lambda: kinds.PATH, "PATH", "a path", "/etc/x", Path("/etc/x"), "/etc/x"),
        (
            lambda: kinds.NAMES,
            "NAME,…",
            "names with commas between",
            "a/B, c-9",
            ("a/B", "c-9"),
            "a/B,c-9",
        ),
    ],
)
def test_a_kind_names_what_it_expects_reads_it_and_shows_it(
    make: Callable[[], kinds.SettingKind[object]],
    metavar: str,
    expects: str,
    text: str,
    value: object,
    shown: str,
) -> None:
    kind = make()
    assert (kind.metavar, kind.expects) == (metavar, expects)
    assert kind.read(text) == value
    assert kind.show(value) == shown


@pytest.mark.parametrize(
    ("make", "lowest", "highest", "outside"),
    [
        (lambda: kinds.duration_kind("100ms"), "100ms", "24h", ("99ms", "24h1s")),
        (lambda: kinds.ratio_kind(0.5), "0", "0.5", ("-0.01", "0.51")),
        (lambda: kinds.count_kind(64), "0", "64", ("65", "064000000")),
    ],
)
def test_both_bounds_are_right_and_what_lies_past_them_is_refused(
    make: Callable[[], kinds.SettingKind[float]],
    lowest: str,
    highest: str,
    outside: tuple[str, str],
) -> None:
    kind = make()
    assert kind.read(lowest) < kind.read(highest)
    for text in outside:
        with pytest.raises(ValueError, match=f"^expected {re.escape(kind.expects)}$"):
            kind.read(text)


def test_text_that_matches_only_in_part_is_refused() -> None:
    kind = kinds.pattern_kind("HEX", "hex digits", "[0-9a-f]+")
    for text in ("0fx", "x0f", ""):
        with pytest.raises(ValueError, match=r"^expected hex digits$"):
            kind.read(text)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(100.0, "100s"), (0.5, "0.5s"), (1.25, "1.25s"), (0.001, "0.001s"), (86400.0, "86400s")],
)
def test_a_duration_is_shown_in_seconds_without_needless_digits(seconds: float, shown: str) -> None:
    assert kinds.duration_kind("1ms").show(seconds) == shown


TEXTS = (
    *(
        "",
        "0",
        "1",
        "9",
        "90",
        "00",
        "64",
        "65",
        "0.5",
        ".5",
        "5.",
        "0.51",
        "1e-2",
        "1e5",
        "-1",
        "+1",
    ),
    *("nan", "inf", "1_0", "1s", "1 s", "60s", "1m30s", "1m30", "500ms", "99ms", "100ms", "0.5h"),
    *(
        "23h60m",
        "24h",
        "24h1ms",
        "25h",
        "1d",
        "s",
        "true",
        "TRUE",
        "False",
        "yes",
        "red",
        "dark-blue",
    ),
    *("DARK_BLUE", "red|dark-blue", "a", "a,b", " a , b ,", "a b", "a,(", ",", "a/b.c_d-e", "a\nb"),
    *("0f", "0fx", "x0f", "9" * 10, "\u0661"),
)


@pytest.mark.parametrize(
    "kind",
    [
        *(
            kinds.duration_kind("100ms"),
            kinds.duration_kind("1s"),
            kinds.ratio_kind(0.5),
            kinds.count_kind(64),
        ),
        *(kinds.FLAG, kinds.NAMES, kinds.choice_kind("a", "b"), kinds.member_kind(Colour)),
        *(kinds.pattern_kind("HEX", "hex digits", "[0-9a-f]+"), ADDRESS, HOSTNAME_LABEL),
    ],
    ids=lambda kind: kind.expects,
)
def test_who_knows_form_and_bounds_alone_judges_a_text_as_the_program_does(
    kind: kinds.SettingKind[Any],
) -> None:
    """The port of an address apart, which its form has no bound for."""
    assert kind.form is not None
    for text in TEXTS:
        try:
            value = kind.read(text)
        except ValueError:
            taken = False
        else:
            taken = True
        fits = re.fullmatch(kind.form, text) is not None
        if fits and kind.bounds is not None:
            number = value if taken else _number(text)
            fits = kind.bounds[0] <= number <= kind.bounds[1]
        assert fits == taken, text


def _number(text: str) -> float:
    """Of a text that is refused: a duration without bounds reads more, else it is one."""
    try:
        return float(text)
    except ValueError:
        units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
        parts = re.findall(r"([0-9.]+)(ms|s|m|h)", text)
        return sum(float(number) * units[unit] for number, unit in parts)
