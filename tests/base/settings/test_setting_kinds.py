"""Text of a setting becomes its value, or is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.settings import setting_kinds as kinds
from web.address import Address


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("1m30s", 90), ("500ms", 0.5), ("90", 90), ("0.25", 0.25), ("1h", 3600)],
)
def test_a_duration_reads_as_seconds(text: str, seconds: float) -> None:
    assert kinds.duration("100ms").read(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "1m30", "-1s", "1d", "1 s", "nan", "inf", "1e3", "50ms", "25h", "9" * 400]
)
def test_what_is_no_duration_or_too_short_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected "):
        kinds.duration("100ms").read(text)


@given(st.integers(1, 86400))
def test_a_duration_is_shown_as_text_that_gives_it_back(seconds: int) -> None:
    kind = kinds.duration("1s")
    assert kind.read(kind.show(float(seconds))) == seconds


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":9400", "", 9400),
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("node-a:80", "node-a", 80),
        ("[::1]:9400", "::1", 9400),
    ],
)
def test_an_address_is_host_and_port_and_shows_as_it_was_written(
    text: str, host: str, port: int
) -> None:
    address = kinds.ADDRESS.read(text)
    assert address == Address(host=host, port=port)
    assert str(address) == text


@pytest.mark.parametrize("text", ["9400", "node", ":65536", "::1:9400", "a b:1", ":", ":-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected "):
        kinds.ADDRESS.read(text)


@pytest.mark.parametrize("text", ["-0.1", "0.51", "nan", "x", "1/2"])
def test_a_ratio_outside_its_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected "):
        kinds.ratio(0.5).read(text)


@pytest.mark.parametrize("text", ["-1", "65", "8.0", "", "eight", "9999999999"])
def test_a_count_outside_its_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected "):
        kinds.count(64).read(text)


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


@pytest.mark.parametrize("text", ["f", "g", "i", "g:0,2,3", "i:7", "g:1+i:0,2"])
def test_devices_are_shown_as_text_that_gives_them_back(text: str) -> None:
    assert kinds.DEVICES.show(kinds.DEVICES.read(text)) == text


@pytest.mark.parametrize("text", ["f:0", "x", "g:", "g:a", "g:3-2", "gi", "g+g", "f+i", "g+", ""])
def test_what_selects_no_devices_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected f, g, i"):
        kinds.DEVICES.read(text)


@pytest.mark.parametrize("kind", [kinds.NAMES, kinds.PATTERNS], ids=["names", "patterns"])
def test_a_list_is_shown_as_text_that_gives_it_back(kind: kinds.SettingKind) -> None:
    assert kind.show(kind.read("a, b.c")) == "a,b.c"
