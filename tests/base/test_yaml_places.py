# SPDX-License-Identifier: Apache-2.0
"""Values of a YAML file: what they read as, and the file, line and key of each mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from base.errors import BadInput
from base.files import MOST_BYTES
from base.words import MOST_QUOTED
from base.yaml_places import (
    MOST_LEVELS,
    MOST_REPEATED,
    CoreLoader,
    Loader,
    Yaml11Loader,
    YamlValue,
    misfit,
    read_yaml,
)

FILE = "some.yaml"
TEXT = """\
plain: word
flag: true
count: 12
nothing:
list:
- first
- second
inner:
  deep:
  - name: a
  - name: b
"""


def read(text: str = TEXT, **options: Any) -> YamlValue:
    return read_yaml(text, FILE, **options)


def entry(key: str, text: str = TEXT) -> YamlValue:
    return read(text).mapping()[key]


def refusal(of: Callable[[], object]) -> str:
    """The sentence with which it is refused."""
    with pytest.raises(BadInput) as caught:
        of()
    return str(caught.value)


# values


def test_each_kind_of_value_reads_as_what_it_is() -> None:
    assert entry("plain").text() == "word"
    assert entry("flag").flag() is True
    assert entry("count").count() == 12
    assert entry("nothing").text() == ""
    assert entry("list").texts() == ("first", "second")
    assert entry("plain").one_of(["other", "word"]) == "word"
    assert read().content()["inner"] == {"deep": [{"name": "a"}, {"name": "b"}]}


def test_kinds_are_told_apart() -> None:
    kinds = {
        key: (value.is_null, value.is_mapping, value.is_list)
        for key, value in read().mapping().items()
    }
    assert kinds == {
        "plain": (False, False, False),
        "flag": (False, False, False),
        "count": (False, False, False),
        "nothing": (True, False, False),
        "list": (False, False, True),
        "inner": (False, True, False),
    }


def test_null_has_no_entries_of_either_kind() -> None:
    assert entry("nothing").mapping() == {}
    assert entry("nothing").items() == ()
    assert read("# nothing\n").is_null
    assert (read("").line, read("").key, read("").place) == (1, "", f"{FILE}:1")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, True) for text in ("true", "True", "yes", "ON")),
        *((text, False) for text in ("false", "FALSE", "No", "off")),
    ],
)
def test_all_words_of_yaml_for_true_and_false_are_read(text: str, value: bool) -> None:
    assert entry("flag", f"flag: {text}").flag() is value


@pytest.mark.parametrize("text", ["0", "9", "999999999"])
def test_whole_numbers_of_up_to_nine_digits_are_counts(text: str) -> None:
    assert entry("count", f"count: {text}").count() == int(text)


# mistakes


@pytest.mark.parametrize(
    ("key", "ask", "place", "reason"),
    [
        ("plain", YamlValue.mapping, "1: plain", "expected lines of key: value"),
        ("list", YamlValue.mapping, "5: list", "expected lines of key: value"),
        ("plain", YamlValue.items, "1: plain", "expected a list"),
        ("inner", YamlValue.items, "8: inner", "expected a list"),
        ("list", YamlValue.text, "5: list", "expected one value"),
        ("inner", YamlValue.text, "8: inner", "expected one value"),
        ("plain", YamlValue.flag, "1: plain", "expected true or false"),
        ("count", YamlValue.flag, "3: count", "expected true or false"),
        ("nothing", YamlValue.flag, "4: nothing", "expected true or false"),
        ("plain", YamlValue.count, "1: plain", "expected a whole number"),
        ("nothing", YamlValue.count, "4: nothing", "expected a whole number"),
        ("plain", lambda it: it.one_of(["a", "b"]), "1: plain", "'word' is not one of a, b"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_file_line_and_key(
    key: str, ask: Callable[[YamlValue], object], place: str, reason: str
) -> None:
    assert refusal(lambda: ask(entry(key))) == f"{FILE}:{place}: {reason}"


@pytest.mark.parametrize("text", ["-1", "1.5", "'12'", "0x10", "1_000", "1000000000", "+1"])
def test_what_is_no_count_is_refused(text: str) -> None:
    sentence = refusal(entry("count", f"count: {text}").count)
    assert sentence == f"{FILE}:1: count: expected a whole number"


def test_an_entry_of_a_list_is_refused_at_its_own_line() -> None:
    values = entry("list", "list:\n- a\n- [b]\n")
    assert refusal(values.texts) == f"{FILE}:3: list: expected one value"


def test_inner_keys_stand_behind_their_outer_ones() -> None:
    inner = entry("inner").mapping()["deep"]
    assert (inner.key, inner.line, inner.file) == ("inner.deep", 9, FILE)
    assert [each.line for each in inner.items()] == [10, 11]
    assert str(inner.wrong("so")) == f"{FILE}:9: inner.deep: so"


def test_an_unknown_key_is_refused_with_its_line_and_the_one_that_was_meant() -> None:
    assert refusal(lambda: read().mapping(["plain", "flag", "count", "nothing", "lists"])) == (
        f"{FILE}:5: 'list' is not a key of this file: did you mean lists?"
    )
    assert refusal(lambda: entry("inner").mapping(["zzz"])) == (
        f"{FILE}:9: 'inner.deep' is not a key of this file"
    )
    assert list(entry("inner").mapping(["deep"])) == ["deep"]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("x" * MOST_QUOTED, "x" * MOST_QUOTED),
        ("x" * (MOST_QUOTED + 1), f"'{'x' * MOST_QUOTED}\\u2026'"),
        (r"\u2028", r"'\u2028'"),
    ],
)
def test_long_and_odd_keys_are_shown_short_and_in_ascii(written: str, shown: str) -> None:
    (value,) = read(f'"{written}": 1').mapping().values()
    assert value.key == shown


def test_a_key_that_is_a_list_reads_as_the_empty_text() -> None:
    assert [(key, value.key) for key, value in read("? [a]\n: 1\n").mapping().items()] == [("", "")]


@pytest.mark.parametrize(
    ("place", "at"),
    [
        ((), f"{FILE}:1"),
        (("inner", "deep", 1, "name"), f"{FILE}:11: inner.deep[1].name"),
        (("inner", "deep", 1), f"{FILE}:11: inner.deep[1]"),
        (("inner", "deep", 2), f"{FILE}:9: inner.deep[2]"),
        (("inner", "missing"), f"{FILE}:8: inner.missing"),
        (("plain", 0), f"{FILE}:1: plain[0]"),
        (("plain", "under"), f"{FILE}:1: plain.under"),
    ],
)
def test_a_place_has_its_line_and_one_where_nothing_stands_that_of_its_parent(
    place: tuple[str | int, ...], at: str
) -> None:
    assert read().at(place).place == at


def test_a_key_that_stands_twice_is_refused_wherever_it_is() -> None:
    assert refusal(lambda: read("a: 1\nb:\n- c: 1\n- d: 1\n  e: 2\n  d: 3\n")) == (
        f"{FILE}:6: b[1].d: it stands twice: keep one"
    )
    assert refusal(lambda: read("a: 1\na: 2\na: 3\n")).startswith(f"{FILE}:2: a: it stands twice")
    assert read("b:\n- c: 1\n- c: 1\n").content() == {"b": [{"c": 1}, {"c": 1}]}


@pytest.mark.parametrize("key", ["~", "null", "[a]", "{a: b}", ""])
def test_keys_that_programs_in_go_refuse_are_refused_as_they_read_a_file(key: str) -> None:
    text = f"plain: word\n? {key}\n: value\n"
    read(text)
    said = refusal(lambda: read(text, loader=Yaml11Loader, as_go=True))
    assert said == f"{FILE}:2: a key that is no text: put it in quotes"


@pytest.mark.parametrize("key", ["word", "12", "true", "'~'", "'null'"])
def test_keys_that_programs_in_go_take_are_taken_and_the_last_one_wins(key: str) -> None:
    read(f"{key}: 1\n{key}: 2\n", loader=Yaml11Loader, as_go=True)


def test_an_alias_is_not_a_second_key() -> None:
    assert read("a: &x {k: 1}\nb: *x\n").content() == {"a": {"k": 1}, "b": {"k": 1}}


# bounds


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_levels_are_counted_to_their_bound() -> None:
    read(nested(MOST_LEVELS))
    assert refusal(lambda: read(f"\n{nested(MOST_LEVELS + 1)}")) == (
        f"{FILE}: not valid YAML: it is nested too deeply in line 2"
    )


def test_levels_that_ended_do_not_count() -> None:
    read("".join(f"- {nested(2)}\n" for _ in range(MOST_LEVELS)))


def repeated(times: int, values: int) -> str:
    """A list of so many values and so many aliases of it; the list is one more value."""
    aliases = "".join("- *a\n" for _ in range(times))
    return f"- &a [{', '.join('x' * values)}]\n{aliases}"


def test_aliases_may_repeat_values_up_to_their_bound() -> None:
    read(repeated(MOST_REPEATED // 100, 99))
    assert refusal(lambda: read(repeated(MOST_REPEATED // 100 + 1, 99))) == (
        f"{FILE}:{MOST_REPEATED // 100 + 2}: not valid YAML: aliases repeat too many values"
    )


def test_an_alias_of_one_value_repeats_one() -> None:
    text = "- &a x\n" + "- *a\n" * MOST_REPEATED
    read(text)
    assert "aliases repeat too many values" in refusal(lambda: read(f"{text}- *a\n"))


def test_an_alias_inside_an_alias_counts_with_all_that_it_repeats() -> None:
    inner = f"- &a [{', '.join('x' * 99)}]\n- &b [{', '.join(['*a'] * 10)}]\n"
    most = (MOST_REPEATED - 10 * 100) // 1001
    read(inner + "- *b\n" * most)
    assert "aliases repeat too many values" in refusal(lambda: read(inner + "- *b\n" * (most + 1)))


def test_an_alias_of_what_it_stands_in_is_refused_with_its_line() -> None:
    assert refusal(lambda: read("a: &a\n  b:\n  - *a\n")) == (
        f"{FILE}:3: not valid YAML: *a contains itself"
    )


def test_text_is_refused_beyond_its_bound() -> None:
    assert read("a" * 10, most_bytes=10).text() == "a" * 10
    assert refusal(lambda: read("a" * 11, most_bytes=10)) == (
        f"{FILE}: larger than 0 MiB: is it the right file?"
    )
    assert read("#" * MOST_BYTES).is_null
    assert "larger than 1 MiB" in refusal(lambda: read("#" * (MOST_BYTES + 1)))


@pytest.mark.parametrize("character", ["\\0", "\\ud800", "\\udfff"])
def test_an_escape_of_what_no_text_has_is_refused_with_its_line(character: str) -> None:
    sentence = refusal(lambda: read(f'a: 1\nb: "x{character}"\n'))
    assert sentence.startswith(f"{FILE}:2: not valid YAML: ")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: 1\nb: c: d\n", f"{FILE}:2: not valid YAML: mapping values are not allowed"),
        ("a: \x07\n", f"{FILE}: not valid YAML: "),
    ],
)
def test_what_is_no_yaml_is_refused_in_one_line(text: str, sentence: str) -> None:
    refused = refusal(lambda: read(text))
    assert refused.startswith(sentence)
    assert "\n" not in refused


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: 2001-99-99", f"{FILE}: not valid YAML: month must be in 1..12"),
        ("b: 1\na: !!python/name:os.system x", f"{FILE}:2: not valid YAML: could not determine"),
    ],
)
def test_a_value_that_cannot_be_built_is_refused_when_it_is_asked_for(
    text: str, sentence: str
) -> None:
    assert refusal(read(text).content).startswith(sentence)


# the core schema


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0000:07:00.0", "0000:07:00.0"),
        ("no", "no"),
        ("on", "on"),
        ("2001-01-01", "2001-01-01"),
        ("017", "017"),
        ("1_000", "1_000"),
        ("1.", "1."),
        ("=", "="),
        ("<<", "<<"),
        ("NULL", "NULL"),
        ("True", "True"),
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("0", 0),
        ("-12", -12),
        ("+3", 3),
        ("0x1F", 31),
        ("1.5", 1.5),
        ("-2.5e+3", -2500.0),
    ],
)
def test_in_the_core_schema_words_are_words_and_numbers_numbers(text: str, value: object) -> None:
    found = read(f"a: {text}", loader=CoreLoader).content()["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("y", True),
        ("N", False),
        ("on", True),
        ("yy", "yy"),
        ("0o17", 0),
        ("1e3", 1000.0),
        ("1.", 1.0),
        ("-.5", -0.5),
        ("0x1F", 31),
        ("1g", "1g"),
    ],
)
def test_as_programs_in_go_read_it_more_words_are_numbers_and_truth(
    text: str, value: object
) -> None:
    """A number in base 8 with an ``o`` is no text, though PyYAML cannot make a number of it."""
    value_of = read(f"a: {text}", loader=Yaml11Loader).mapping()["a"]
    assert value_of.is_text is isinstance(value, str)
    if text != "0o17":
        found = value_of.content()
        assert (found, type(found)) == (value, type(value))
    if isinstance(value, bool):
        assert value_of.flag() is value


# what other mappings bring in

MERGED = """\
base: &base {a: 1, b: 2}
other: &other {<<: *base, b: 3, c: 4}
one: {<<: *other, c: 5}
two: {<<: [*base, *other]}
wrong: {<<: 3}
"""


def test_a_mapping_takes_over_what_it_names_and_its_own_keys_win() -> None:
    found = read(MERGED).mapping()
    one = found["one"].merged().mapping()
    two = found["two"].merged().mapping()

    assert {key: entry.text() for key, entry in one.items()} == {"a": "1", "b": "3", "c": "5"}
    assert {key: entry.text() for key, entry in two.items()} == {"a": "1", "b": "2", "c": "4"}
    assert one["b"].line == 2
    assert found["one"].merged().mapping().keys() == one.keys()


def test_other_values_stay_as_they_are_and_only_mappings_can_be_taken_over() -> None:
    assert entry("plain").merged().text() == "word"
    assert refusal(lambda: read(MERGED).mapping()["wrong"].merged()) == (
        "some.yaml:5: not valid YAML: expected a mapping or list of mappings for merging,"
        " but found scalar"
    )


# names


def test_names_must_be_text_without_their_quotes_too() -> None:
    assert read('{"1": a, b: c, on : d}', loader=CoreLoader).mapping(names=True).keys() == {
        "1",
        "b",
        "on",
    }
    for name in ("1", "on", "~"):
        assert refusal(lambda name=name: read(f"{name}: a").mapping(names=True)) == (  # type: ignore[misc]
            f"some.yaml:1: {name}: a name that YAML takes for no text: put it into quotes"
        )


# tags, and characters that no text has


@pytest.mark.parametrize("text", ["!!bool x", "!!bool ''"])
def test_a_tag_makes_no_flag_of_a_word(text: str) -> None:
    assert (
        refusal(entry("flag", f"flag: {text}").flag) == "some.yaml:1: flag: expected true or false"
    )


@pytest.mark.parametrize("loader", [yaml.SafeLoader, CoreLoader, Yaml11Loader])
def test_half_a_character_is_bad_input(loader: Loader) -> None:
    """JSON's escapes can put one into an annotation."""
    assert refusal(lambda: read("a: \ud800", loader=loader)).startswith(FILE)


# msgspec's messages


@pytest.mark.parametrize(
    ("message", "problem", "place"),
    [
        ("Expected `int`, got `str` - at `$.a.b[2].c`", "Expected `int`, got `str`", "a b 2 c"),
        ("Expected `object`", "Expected `object`", ""),
        ("Expected `str` - at `key in $.a`", "Expected `str`", "a"),
        ("Expected `int` - at `$.a[...]`", "Expected `int`", "a ..."),
    ],
)
def test_problem_and_place_are_taken_out_of_a_message(
    message: str, problem: str, place: str
) -> None:
    expected = tuple(int(step) if step.isdecimal() else step for step in place.split())
    assert misfit(message) == (problem, expected)
