# SPDX-License-Identifier: Apache-2.0
"""Reading expositions: everything comes back, and what breaks the format is named with its line."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.compare.exposition_parser import (
    ExpositionFault,
    Labels,
    Malformed,
    Parser,
    exposition_labels,
    parse_exposition,
)
from tests import exposition

GOLDEN = Path(__file__).parents[2] / "golden"

NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,20}", fullmatch=True)
LABEL_NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,10}", fullmatch=True)
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
BLANKS = st.text(" \t", max_size=3)
SOME_BLANKS = st.text(" \t", min_size=1, max_size=3)


def written_by_hand(text: str, *, quotes: bool) -> str:
    """The escaped text, one character after the other."""
    out = ""
    for character in text:
        if character == "\\":
            out += "\\\\"
        elif character == "\n":
            out += "\\n"
        elif character == '"' and quotes:
            out += '\\"'
        else:
            out += character
    return out


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[str, object]]:
    """An exposition with all the freedom that the format leaves, and what it says."""
    lines: list[str] = []
    said: dict[str, object] = {}
    for name in draw(st.lists(NAMES, max_size=4, unique=True)):
        kind = draw(st.sampled_from([None, "counter", "gauge", "untyped"]))
        help_text = draw(st.none() | TEXT.map(lambda text: text.lstrip(" \t")))
        if help_text is not None:
            lines.append(
                f"# HELP{draw(SOME_BLANKS)}{name} {written_by_hand(help_text, quotes=False)}"
            )
        lines.append(draw(st.sampled_from(["", "# about nothing", " \t", "#"])))
        if kind is not None:
            lines.append(f"#{draw(SOME_BLANKS)}TYPE {name}{draw(SOME_BLANKS)}{kind}")
        series = {}
        for labels in draw(
            st.lists(st.dictionaries(LABEL_NAMES, TEXT, max_size=3), max_size=3, unique_by=str)
        ):
            value = draw(st.floats())
            timestamp = draw(st.none() | st.integers(-(2**53), 2**53))
            inner = ",".join(
                f'{draw(BLANKS)}{label}{draw(BLANKS)}={draw(BLANKS)}"'
                f'{written_by_hand(text, quotes=True)}"'
                for label, text in labels.items()
            )
            comma = draw(st.sampled_from(["", ","])) if labels else ""
            braces = f"{{{inner}{comma}}}" if labels else draw(st.sampled_from(["", "{}", " { }"]))
            number = draw(st.sampled_from([repr(value).replace("nan", "NaN")]))
            number = number.replace("inf", "Inf")
            time = "" if timestamp is None else f"{draw(SOME_BLANKS)}{timestamp}"
            key = tuple(sorted(labels.items()))
            if key not in series:
                lines.append(f"{draw(BLANKS)}{name}{braces}{draw(SOME_BLANKS)}{number}{time}")
                series[key] = (value, timestamp)
        if help_text is not None or kind is not None or series:
            said[name] = (kind, help_text, series)
    return "".join(f"{line}\n" for line in lines), said


@given(documents())
def test_whatever_is_written_comes_back(document: tuple[str, dict[str, object]]) -> None:
    text, said = document

    families = parse_exposition(text.encode())

    found = {
        family.name: (
            family.kind,
            family.help,
            {
                labels: (value, family.timestamps.get((name, labels)))
                for (name, labels), value in family.series.items()
            },
        )
        for family in families.values()
    }
    assert repr(found) == repr(said)  # so that NaN equals itself


@given(st.dictionaries(LABEL_NAMES, TEXT, min_size=1, max_size=4))
def test_labels_as_we_write_them_are_read_back(labels: dict[str, str]) -> None:
    key: Labels = tuple(sorted(labels.items()))

    families = parse_exposition(f"x{{{exposition_labels(key)}}} 1\n".encode())

    assert list(families["x"].series) == [("x", key)]


def test_long_label_values_are_cut_where_they_are_shown() -> None:
    assert exposition_labels((("a", "x" * 10_000),)) == f'a="{"x" * 256}"'


@pytest.mark.parametrize(
    "machine", sorted(path.parent.name for path in GOLDEN.glob("*/metrics.txt"))
)
def test_it_reads_our_own_expositions_as_an_independent_reader_does(machine: str) -> None:
    body = (GOLDEN / machine / "metrics.txt").read_bytes()

    families = parse_exposition(body)

    ours = {
        (name, labels): value
        for family in families.values()
        for (name, labels), value in family.series.items()
    }
    assert ours == exposition.series(body)
    assert [(it.name, it.kind, it.help) for it in families.values()] == [
        (it.name, it.kind, it.help) for it in exposition.parse(body).values()
    ]


def test_counters_keep_their_names() -> None:
    families = parse_exposition(b"# HELP a_total x\n# TYPE a_total counter\na_total 1\n")
    assert list(families) == ["a_total"]
    assert families["a_total"].kind == "counter"


def test_a_histogram_and_a_summary_hold_the_series_of_their_suffixes() -> None:
    text = (
        b"# TYPE h histogram\n"
        b'h_bucket{le="+Inf"} 2\nh_sum 3\nh_count 2\n'
        b"# TYPE s summary\n"
        b's{quantile="0.5"} 1\ns_sum 3\ns_count 2\n'
    )
    names = {name: [key[0] for key in it.series] for name, it in parse_exposition(text).items()}
    assert names == {"h": ["h_bucket", "h_sum", "h_count"], "s": ["s", "s_sum", "s_count"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a 1", "line 1: the last line has no end"),
        (b"a 1\nb", "line 2: '' is no value with an optional timestamp"),
        (b"ok 1\na\n", "line 2: '' is no value with an optional timestamp"),
        (b"ok 1\n\n# c\na x\n", "line 4: 'x' is no value with an optional timestamp"),
        (b"a 1_000\n", "line 1: '1_000' is no value"),
        (b"a 0x10\n", "line 1: '0x10' is no value"),
        (b"a 1 2 3\n", "line 1: '1 2 3' is no value"),
        (b"a 1 2.5\n", "line 1: '1 2.5' is no value"),
        (b"a 1\x0b2\n", "line 1: '1\\x0b2' is no value"),
        (b"a 1\r\n", "line 1: "),
        ("a \u0661\n".encode(), "line 1: '\u0661' is no value"),
        (b"1a 1\n", "line 1: '1a' is no name of a metric"),
        (b"a.b 1\n", "line 1: 'a.b' is no name of a metric"),
        (b"<html>\n", "line 1: '<html>' is no name of a metric"),
        (b'a} 1\n', "line 1: 'a' is no name of a metric"),
        (b'{x="1"} 1\n', "line 1: "),
        (b'a{x="1" 1\n', "line 1: "),
        (b'a{x="1"}\n', "line 1: '' is no value"),
        (b'a{x=1} 1\n', "line 1: not a label: 'x=1'"),
        (b'a{x="1"y="2"} 1\n', "line 1: not a label"),
        (b'a{x="1",,} 1\n', "line 1: not a label: ','"),
        (b'a{x="b"c"} 1\n', "line 1: not a label"),
        (b'a{x="\\t"} 1\n', "line 1: not a label"),
        (b'a{x="\\"} 1\n', "line 1: not a label"),
        (b'a{1x="1"} 1\n', "line 1: not a label"),
        (b'a{x="1",x="2"} 1\n', "line 1: label 'x' stands there twice"),
        (b'a{x="1"} 1\na{x="1"} 2\n', "line 2: 'a' with the same labels for the second time"),
        (b'a{x="1",y="2"} 1\na{y="2",x="1"} 2\n', "line 2: 'a' with the same labels"),
        (b"a 1\nb 1\na{x=\"1\"} 1\n", "line 3: lines of 'a' are apart from each other"),
        (b"a 1\n# TYPE a gauge\n", "line 2: TYPE of 'a' comes after its series"),
        (b"# TYPE a gauge\n# TYPE a gauge\n", "line 2: a second TYPE for 'a'"),
        (b"# HELP a x\n# HELP a x\n", "line 2: a second HELP for 'a'"),
        (b"# HELP a \\x\n", "line 1: HELP of 'a' has a backslash that escapes nothing"),
        (b"# TYPE a thing\n", "line 1: TYPE of 'a' is 'thing': no such type"),
        (b"# TYPE a\n", "line 1: TYPE of 'a' is '': no such type"),
        (b"# TYPE 1a gauge\n", "line 1: HELP or TYPE without the name of a metric"),
        (b"# TYPE h histogram\nh 1\n", "line 2: 'h' is a histogram: it has no such series"),
        (b"ok 1\na\xff 1\n", "line 2: it is not UTF-8 text"),
        (b"a" * 2_000_000 + b" 1\n", "line 1: longer than 1048576 characters"),
    ],
)  # fmt: skip
def test_what_breaks_the_format_is_named_with_its_line(text: bytes, message: str) -> None:
    with pytest.raises(Malformed, match=f"^{re.escape(message)}"):
        parse_exposition(text)


def test_messages_show_no_more_than_a_few_words_of_foreign_text() -> None:
    with pytest.raises(Malformed) as raised:
        parse_exposition(b"\x1b[31m" + b"x" * 10_000 + b"\n")
    assert len(str(raised.value)) < 200
    assert "\x1b" not in str(raised.value)
    shown = repr("\x1b[31m" + "x" * 52 + "...")
    assert str(raised.value).startswith(f"line 1: {shown} is ")
    with pytest.raises(Malformed, match=f"'{'x' * 60}'"):  # 60 characters are shown whole
        parse_exposition(b"a " + b"x" * 60 + b"\n")


def test_with_faults_asked_for_the_rest_is_read() -> None:
    faults: list[ExpositionFault] = []

    families = parse_exposition(b'a{x="b"c"} 1\na{x="2"} 2\nb{y="\xff"} 3\nc 4\na 5\nd', faults)

    values = [value for family in families.values() for value in family.series.values()]
    assert values == [2, 5, 3, 4]
    assert [fault.line for fault in faults] == [3, 1, 5, 6, 6]


def test_faults_are_as_few_as_one_can_read() -> None:
    faults: list[ExpositionFault] = []
    parse_exposition(b"?\n" * 1000, faults)
    assert len(faults) == 100


def test_spaces_and_tabs_around_everything_do_not_count() -> None:
    text = (
        b" \t# TYPE h \thistogram \t\n"
        b'\t h_bucket \t{ le = "+Inf" , } 1 \t 1700000000000 \t\n'
        b"h_sum\t3\n \th_count 1\n\t \n"
        b' \t# h_count{x="1"} 5\n'
    )
    (family,) = parse_exposition(text).values()
    assert (family.name, family.kind) == ("h", "histogram")
    assert family.series == {
        ("h_bucket", (("le", "+Inf"),)): 1.0,
        ("h_sum", ()): 3.0,
        ("h_count", ()): 1.0,
    }
    assert family.timestamps == {("h_bucket", (("le", "+Inf"),)): 1700000000000}


def test_series_of_several_families_go_back_to_their_own() -> None:
    """Each under the longest name that fits; they are apart, and so a fault each."""
    faults: list[ExpositionFault] = []
    text = (
        b"# TYPE h histogram\n# TYPE s summary\n"
        b'h_bucket{le="+Inf"} 1\ns_sum 2\nh_sum 3\ns_count 4\nh_count 5\ns_sum_sum 6\n'
    )
    families = parse_exposition(text, faults)
    assert {name: [key[0] for key in it.series] for name, it in families.items()} == {
        "h": ["h_bucket", "h_sum", "h_count"],
        "s": ["s_sum", "s_count"],
        "s_sum_sum": ["s_sum_sum"],
    }
    assert [str(fault) for fault in faults] == [
        "line 5: lines of 'h' are apart from each other",
        "line 6: lines of 's' are apart from each other",
        "line 7: lines of 'h' are apart from each other",
    ]


@pytest.mark.parametrize("faults", [None, []])
def test_more_series_than_are_read_are_refused(faults: list[ExpositionFault] | None) -> None:
    text = "".join(f'a{{x="{i}"}} 1\n' for i in range(11)).encode()
    assert len(Parser(most_series=11).parse(text, faults)["a"].series) == 11
    with pytest.raises(Malformed, match="line 11: more than 10 series"):
        Parser(most_series=10).parse(text, faults)


def test_one_parser_reads_one_exposition_after_the_other() -> None:
    parser = Parser()
    first = parser.parse(b'a{x="1"} 1\nb 2\n')
    second = parser.parse(b'a{x="1"} 3\n')
    assert (first["a"].series, second["a"].series) == (
        {("a", (("x", "1"),)): 1.0},
        {("a", (("x", "1"),)): 3.0},
    )
    with pytest.raises(Malformed):
        parser.parse(b"b} 1\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("-2.5", -2.5), (".5", 0.5), ("3.", 3), ("1e3", 1000), ("+Inf", math.inf),
     ("-Inf", -math.inf), ("34.000000", 34)],
)  # fmt: skip
def test_values_are_what_they_say(text: str, value: float) -> None:
    assert parse_exposition(f"a {text}\n".encode())["a"].series == {("a", ()): value}
