# SPDX-License-Identifier: Apache-2.0
"""All formats that programs share are read alike, and refuse alike what is damaged."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from api import mig_permit_annotation, state_annotation, topology_annotation
from api.mig_permit_annotation import MigPermitAnnotation, PermitPhase
from api.state_annotation import StateAnnotation
from api.versioned import VersionedFormat
from base.errors import BadInput
from labelers.annotations import topology_of
from tests import build


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format as its readers use it."""

    name: str
    """As errors have it."""
    decode: Callable[[str], object]
    good: str
    most_length: int

    @property
    def version(self) -> int:
        """That of this release."""
        return int(json.loads(self.good)["v"])

    def changed(self, **keys: Any) -> str:
        """The good text with these keys set; a key set to ``...`` is left out."""
        content = json.loads(self.good) | keys
        return json.dumps({key: value for key, value in content.items() if value is not ...})


STATE = StateAnnotation(v=1, gen="9f31c07ab2", seq=0, ok="f", used="1", pods={"2c59dedc": "1"})
FORMATS = (
    Format(
        name="annotation gpuscape.io/topology",
        decode=topology_annotation.decode,
        good=topology_annotation.encode(topology_of(build.node([build.gpu(0), build.gpu(1)]))),
        most_length=8192,
    ),
    Format(
        name="annotation gpuscape.io/state",
        decode=state_annotation.decode,
        good=state_annotation.encode(STATE),
        most_length=16384,
    ),
)
every_format = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name.split("/")[-1])


@every_format
def test_what_is_written_is_read(form: Format) -> None:
    assert form.decode(form.good) is not None


@pytest.mark.parametrize(
    ("schema", "title"),
    [
        (topology_annotation.json_schema(), "Node annotation gpuscape.io/topology"),
        (state_annotation.json_schema(), "Lease annotation gpuscape.io/state"),
    ],
    ids=["topology", "state"],
)
def test_a_published_schema_names_its_dialect_and_what_it_is_of(
    schema: dict[str, Any], title: str
) -> None:
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == title


@every_format
def test_keys_of_later_minor_versions_are_ignored(form: Format) -> None:
    assert form.decode(form.changed(isl=[1, 1], later={"deep": [None]})) == form.decode(form.good)


@every_format
@pytest.mark.parametrize("content", [{}, {"n": "?"}, {"gen": 3, "ok": {}, "rows": "torus"}])
@pytest.mark.parametrize("version", [0, 4, -1, 99999999999])
def test_another_major_version_is_no_data(
    form: Format, content: dict[str, Any], version: int
) -> None:
    assert form.decode(json.dumps({"v": version} | content)) is None


@every_format
@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"v": ...}, "`v`"),
        ({"v": "1"}, r"\$\.v"),
        ({"v": True}, r"\$\.v"),
        ({"gen": 1}, r"\$\.gen"),
    ],
)
def test_a_damaged_one_is_refused_by_the_name_of_its_key_and_with_what_to_do(
    form: Format, keys: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadInput, match=named) as refused:
        form.decode(form.changed(**keys))

    assert str(refused.value).startswith(f"{form.name} is damaged: ")
    assert "; delete " in str(refused.value)


@every_format
@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "{",
        '"v"',
        "NaN",
        "\x00",
        '{"v":1e999}',
        "\ud800",
        r'{"v":VERSION,"gen":"\ud800"}',
        '{"v":' + "9" * 5000 + "}",
        '{"later":' + "[" * 8000,
        '{"v":VERSION,"later":' + "[" * 8000,
        '{"v":VERSION,"pods":' + "[" * 8000,
    ],
)
def test_what_is_none_at_all_is_refused_by_name(form: Format, text: str) -> None:
    with pytest.raises(BadInput, match=form.name):
        form.decode(text.replace("VERSION", str(form.version)))


@every_format
def test_one_that_is_too_long_is_refused_before_it_is_parsed(form: Format) -> None:
    """JSON allows for spaces, so a long text may be a good one."""
    longest = form.good.ljust(form.most_length)

    assert form.decode(longest) == form.decode(form.good)
    with pytest.raises(BadInput, match=f"{form.name} is damaged: its length is"):
        form.decode(longest + " ")


@every_format
@given(text=st.text() | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps))
def test_any_text_is_read_or_refused(form: Format, text: str) -> None:
    """Nothing else comes out of it, lone surrogates included."""
    with contextlib.suppress(BadInput):
        form.decode(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@every_format
@given(data=st.data())
def test_any_value_of_any_key_is_read_or_refused(form: Format, data: st.DataObject) -> None:
    keys = st.sampled_from(sorted(json.loads(form.good)))
    with contextlib.suppress(BadInput):
        form.decode(form.changed(**data.draw(st.dictionaries(keys, VALUES))))


def test_what_may_be_missing_damaged_or_of_another_version_reads_as_none() -> None:
    form = mig_permit_annotation.FORMAT
    permit = MigPermitAnnotation(v=2, request="0" * 16, phase=PermitPhase.PROCEED)
    assert form.readable(mig_permit_annotation.encode(permit)) == permit
    assert [form.readable(text) for text in (None, "{", '{"v":99}')] == [None] * 3


class _Shelf(msgspec.Struct, frozen=True, kw_only=True):
    v: int = 1
    title: str = ""
    names: tuple[str, ...] = ()
    owners: dict[str, tuple[str, ...]] = {}
    kinds: dict[Annotated[str, Meta(pattern="^[a-z]+$")], str] = {}


SHELF = VersionedFormat(
    name="the shelf", remedy="fill it anew", content=_Shelf, version=1, most_length=999, safe=True
)
ESCAPE = "\x1b[31mred"


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"title": ESCAPE}, "`title`"),
        ({"names": ["plain", ESCAPE]}, "`names`"),
        ({"owners": {ESCAPE: ["plain"]}}, "`owners`"),
        ({"owners": {"rack": ["plain", ESCAPE]}}, "`owners.rack`"),
    ],
)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_a_text_that_would_steer_a_terminal_is_damage_wherever_it_stands(
    keys: dict[str, Any], named: str, as_bytes: bool
) -> None:
    text = json.dumps({"v": 1, "title": "plain"} | keys)
    with pytest.raises(BadInput, match=f"{named} has characters"):
        SHELF.decode(text.encode() if as_bytes else text)


def test_the_schema_of_safe_texts_refuses_what_the_reader_refuses() -> None:
    schema = SHELF.json_schema()
    good: dict[str, object] = {"v": 1, "owners": {"rack": ["plain"]}, "kinds": {"abc": "plain"}}
    jsonschema.validate(good, schema)
    refused: tuple[dict[str, object], ...] = (
        {"title": ESCAPE},
        {"names": [ESCAPE]},
        {"owners": {ESCAPE: []}},
        {"owners": {"rack": [ESCAPE]}},
        {"kinds": {"ABC": "plain"}},  # a pattern of its own stays
    )
    for bad in refused:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(good | bad, schema)
