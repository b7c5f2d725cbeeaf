# SPDX-License-Identifier: Apache-2.0
"""What is written reads back the same, and what is read means what plain YAML has there."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import event, given, settings
from hypothesis import strategies as st

from base.errors import BadInput
from mig.configs.default_configs import listed_configs
from mig.configs.mig_config_file import parse_mig_configs
from mig.configs.mig_config_text import mig_config_json, mig_config_text
from mig.configs.mig_configs import DeviceFilter, MigConfig, MigConfigs, MigConfigSpec
from mig.gpu_layout import MIG_OFF, DesiredInstance, GpuLayout, layout_from_counts

FILE = "config.yaml"
PROFILES = ["1g.5gb", "1g.5gb+me", "1g.24gb-me", "2g.48gb+me.all", "3g.20gb", "1c.3g.20gb"]
PROFILES += ["2c.3g.20gb", "7g.40gb"]

layouts = st.one_of(
    st.just(MIG_OFF),
    st.dictionaries(st.sampled_from(PROFILES), st.integers(1, 8)).map(layout_from_counts),
)
filters = st.builds(
    DeviceFilter,
    device=st.integers(0, 0xFFFF).map(lambda device: device << 16 | 0x10DE),
    subsystem=st.none() | st.integers(0, 0xFFFFFFFF),
)
specs = st.builds(
    MigConfigSpec,
    layout=layouts,
    filters=st.lists(filters, max_size=3).map(tuple),
    devices=st.none() | st.frozensets(st.integers(0, 15), min_size=1),
)
names = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0"), min_size=1
).filter(str.strip)
configs = st.lists(
    st.builds(MigConfig, name=names, specs=st.lists(specs, min_size=1, max_size=3).map(tuple)),
    min_size=1,
    max_size=3,
    unique_by=lambda config: config.name,
).map(tuple)


def parsed(text: str) -> MigConfigs:
    return parse_mig_configs(text, FILE)


def read_or_refused(text: str) -> MigConfigs | None:
    """None where it is refused, with the file's name in one line."""
    try:
        return parsed(text)
    except BadInput as error:
        refused = str(error)
    assert refused.startswith(f"{FILE}:")
    assert "\n" not in refused
    return None


# written


@given(configs)
def test_what_is_written_reads_back_the_same(wanted: tuple[MigConfig, ...]) -> None:
    assert parsed(mig_config_text(wanted)).configs == wanted


def test_names_that_yaml_takes_for_something_else_are_written_in_quotes() -> None:
    """A reader in Go takes a plain ``y`` for true, and ``1e3`` for 1000."""
    spec = MigConfigSpec(layout=MIG_OFF)
    text = mig_config_text([MigConfig(name=name, specs=(spec,)) for name in ("y", "1e3", "yes")])

    assert [line for line in text.splitlines() if line.endswith('":')] == [
        '  "y":',
        '  "1e3":',
        '  "yes":',
    ]


@settings(max_examples=20)
@given(configs)
def test_as_json_the_same_is_written(wanted: tuple[MigConfig, ...]) -> None:
    assert json.loads(mig_config_json(wanted)) == yaml.safe_load(mig_config_text(wanted))


def test_the_default_configurations_read_back_the_same() -> None:
    assert parsed(mig_config_text(listed_configs().configs)).configs == listed_configs().configs


def test_a_placement_cannot_be_written() -> None:
    layout = GpuLayout(mig=True, instances=(DesiredInstance("3g.20gb", (3,), 4),))

    with pytest.raises(ValueError, match="no placements"):
        mig_config_text([MigConfig(name="x", specs=(MigConfigSpec(layout=layout),))])


# read

VALID = mig_config_text(
    [
        MigConfig(
            name="one",
            specs=(
                MigConfigSpec(
                    layout=layout_from_counts({"1g.5gb": 2, "1c.3g.20gb": 2}),
                    filters=(DeviceFilter(device=0x20B010DE, subsystem=0x134F10DE),),
                    devices=frozenset({0, 1}),
                ),
                MigConfigSpec(layout=MIG_OFF, filters=(DeviceFilter(device=0x20B710DE),)),
            ),
        ),
        MigConfig(name="two", specs=(MigConfigSpec(layout=GpuLayout(mig=True)),)),
    ]
)
WORDS = ["all", "true", "false", "yes", "off", "null", "~", "0", "-1", "1.5", "0x7", "010", "1_0"]
WORDS += ["1:30", "1e1", "v1", "v2", "devices", "mig-devices", "mig-enabled", "device-filter"]
WORDS += ["version", "7g.40gb", "7c.7g.40gb", "1g.5gb@4", "<<", "&a", "*a", "!!int", "!!str", "{}"]
WORDS += ["[]", "[0]", ": ", ",", "\n", "  ", "- ", "#", "\t", "'", '"', "|", ">", "? ", "%", "---"]


TOKENS = [found.span() for found in re.finditer(r'"[^"]*"|[\w.-]+', VALID)]
LINES = VALID.splitlines(keepends=True)


@st.composite
def words_changed(draw: st.DrawFn) -> str:
    """One word or two are other ones: those of the text, or such as YAML has meanings for."""
    text = VALID
    for start, end in sorted(draw(st.sets(st.sampled_from(TOKENS), min_size=1, max_size=2)))[::-1]:
        other = draw(st.sampled_from(TOKENS).map(lambda at: VALID[slice(*at)]))
        text = text[:start] + draw(st.sampled_from([other, *WORDS])) + text[end:]
    return text


@st.composite
def numbers_changed(draw: st.DrawFn) -> str:
    """Every number is another one, at times in another spelling."""
    odd = draw(st.sampled_from(["1", "3", "10", "0x1", "01", "1.0", "+1", "0b1"]))
    spelt = st.integers(0, 9).map(str) | st.just(odd)
    return re.sub(r"(?<=[\[ ])\d(?=[],\n])", lambda _: draw(spelt), VALID)


@st.composite
def lines_changed(draw: st.DrawFn) -> str:
    """Lines are gone, doubled, or in another order."""
    chosen = draw(st.lists(st.sampled_from(range(len(LINES))), max_size=2))
    kept = [line for at, line in enumerate(LINES) for _ in range(2 * (at in chosen) or 1)]
    gone = draw(st.sets(st.sampled_from(range(len(kept))), max_size=2))
    return "".join(line for at, line in enumerate(kept) if at not in gone)


@st.composite
def parts_changed(draw: st.DrawFn) -> str:
    """A part anywhere is cut out, doubled, or replaced."""
    start = draw(st.integers(0, len(VALID)))
    end = start + draw(st.sampled_from([0, 1, 2, 4, 8, 30, 90]))
    part = st.sampled_from(WORDS) | st.just(VALID[start:end] * 2) | st.text(max_size=3)
    return VALID[:start] + draw(part) + VALID[end:]


mutations = st.one_of(words_changed(), numbers_changed(), lines_changed(), parts_changed())


_JUDGE = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def meaning(text: str) -> dict[str, list[Any]]:
    """What the text has, read without our code; filters as they are written.

    By libyaml where it is there: PyYAML's own scanner refuses tabs between values, which libyaml,
    its port to Go and YAML 1.2 allow.
    """
    content = yaml.load(text, Loader=_JUDGE)  # noqa: S506  # a safe one
    return {
        name: [
            (
                _texts(spec.get("device-filter")),
                None if spec["devices"] == "all" else sorted(set(spec["devices"])),
                spec["mig-enabled"],
                {
                    _short(name): count
                    for name, count in (spec.get("mig-devices") or {}).items()
                    if count
                },
            )
            for spec in specs
        ]
        for name, specs in content["mig-configs"].items()
    }


def _texts(found: str | list[str] | None) -> list[int]:
    listed = [found] if isinstance(found, str) else (found or [])
    return [
        int(device, 0) << 32 | (int(board, 0) if colon else 0)
        for device, colon, board in (text.partition(":") for text in listed if text)
    ]


def _short(name: str) -> str:
    """Without compute slices in front, where they are all."""
    compute, dot, rest = name.partition("c.")
    return rest if dot and rest.startswith(f"{compute}g.") else name


def as_read(found: MigConfigs) -> dict[str, list[Any]]:
    return {
        config.name: [
            (
                [one.device << 32 | (one.subsystem or 0) for one in spec.filters],
                None if spec.devices is None else sorted(spec.devices, key=int),
                spec.layout.mig,
                dict(spec.layout.devices()),
            )
            for spec in config.specs
        ]
        for config in found.configs
    }


@settings(max_examples=5 * settings().max_examples)
@given(mutations)
def test_a_changed_text_means_what_yaml_has_there_or_is_refused_with_a_place(text: str) -> None:
    found = read_or_refused(text)
    event("refused" if found is None else "read")
    if found is not None:
        assert as_read(found) == meaning(text)
        assert parsed(mig_config_text(found.configs)).configs == found.configs


@given(st.text())
def test_any_text_is_read_or_is_bad_input(text: str) -> None:
    read_or_refused(text)
