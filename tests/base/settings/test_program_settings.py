# SPDX-License-Identifier: Apache-2.0
"""A program declares its settings once; all spellings, defaults and errors follow from that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from base.errors import BadInput
from base.settings import setting_kinds as kinds
from base.settings.layers import WrittenValue
from base.settings.log_settings import log_format, log_level
from base.settings.option import declared_options, fixed, setting
from base.settings.program_settings import ProgramSettings
from tests.base.settings.tiny_program import TINY_SETTINGS, TinySettings
from web.address import Address

BY_NAME = {option.name: option for option in TINY_SETTINGS.options}


def test_options_stand_in_the_order_of_the_fields_under_the_subject_before_them() -> None:
    assert [(option.subject, option.name) for option in TINY_SETTINGS.options] == [
        ("Cluster", "standalone"),
        ("Cluster", "node-name"),
        ("Readings", "discover-interval"),
        ("Readings", "deadline"),
        ("Readings", "jitter"),
        ("Readings", "listen"),
        ("Labels", "mig-strategy"),
        ("Labels", "feature-file"),
        ("Labels", "resource-names"),
        ("Log", "log-level"),
        ("Log", "log-format"),
    ]


def test_an_option_has_its_own_variable_and_then_those_of_other_origin() -> None:
    assert BY_NAME["node-name"].variables == ("GPUSCAPE_NODE_NAME", "NODE_NAME")
    assert BY_NAME["discover-interval"].variables == ("GPUSCAPE_DISCOVER_INTERVAL",)


@pytest.mark.parametrize(
    ("name", "has_default", "shown"),
    [
        ("standalone", True, "false"),
        ("discover-interval", True, "60s"),
        ("listen", True, ":9402"),
        ("node-name", False, "the host's name"),
        ("mig-strategy", False, ""),
        ("resource-names", False, ""),
    ],
)
def test_help_shows_the_default_else_what_applies_without_one(
    name: str, has_default: bool, shown: str
) -> None:
    assert (BY_NAME[name].has_default, BY_NAME[name].default_text) == (has_default, shown)


def test_only_settings_that_are_true_or_false_are_flags_without_a_value() -> None:
    assert [option.name for option in TINY_SETTINGS.options if option.is_flag] == ["standalone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """A part of a program's settings: its parts know these fields by other names than people."""

    end_seconds: float = setting(90.0, kinds.duration_kind("1s"), "End.", name="change-deadline")
    row_seconds: float = fixed(120.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole(Times):
    """All of them."""

    listen: str = setting("here", kinds.text_kind("WORD"), "Place.")


def test_settings_of_a_part_come_first_by_the_names_that_people_write() -> None:
    program = ProgramSettings(Whole)

    assert [option.name for option in program.options] == ["change-deadline", "listen"]
    settings = program.load({"change-deadline": "7s"}, {"GPUSCAPE_LISTEN": "there"})
    assert settings == Whole(end_seconds=7.0, listen="there")


def test_a_fixed_field_is_no_option_and_can_be_replaced() -> None:
    assert Whole().row_seconds == 120.0
    assert replace(Whole(), row_seconds=1.0).row_seconds == 1.0
    with pytest.raises(BadInput):
        ProgramSettings(Whole).load({}, {"GPUSCAPE_ROW": "5s"})


def test_what_a_field_declares_is_what_its_option_has() -> None:
    kind = kinds.duration_kind("1s")

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Declared:
        plain: bool = setting(True, kinds.FLAG, "Plain.")
        full_seconds: float | None = setting(
            None, kind, "Full.", subject="Times", unset="for ever", variables=("A", "B")
        )
        bare: str | None = setting(None, kinds.text_kind("WORD"), "Bare.")
        level: str = log_level()
        format: str = log_format()

    assert Declared() == Declared(
        plain=True, full_seconds=None, bare=None, level="info", format="text"
    )
    plain, full, bare, level, format_ = declared_options(Declared)
    assert (plain.field, plain.name, plain.default, plain.subject) == ("plain", "plain", True, "")
    assert (plain.spec.help, plain.variables) == ("Plain.", ("GPUSCAPE_PLAIN",))
    assert plain.default_text == "true"
    assert (full.field, full.name, full.default, full.subject) == (
        "full_seconds",
        "full",
        None,
        "Times",
    )
    assert (full.spec.kind, full.spec.help, full.default_text) == (kind, "Full.", "for ever")
    assert full.variables == ("GPUSCAPE_FULL", "A", "B")
    assert (bare.subject, bare.default_text, bare.variables) == ("Times", "", ("GPUSCAPE_BARE",))
    assert (level.subject, format_.subject) == ("Log", "Log")
    assert level.spec.kind.expects == "debug, info, warning or error"
    assert format_.spec.kind.expects == "text or json"
    assert level.spec.help.endswith(" is logged.")
    assert format_.spec.help.startswith("Log lines ")
    program = ProgramSettings(Declared)
    assert program.options == (plain, full, bare, level, format_)
    assert program.load({"full": "2s"}, {}) == Declared(full_seconds=2.0)


def test_a_field_that_is_no_setting_is_a_mistake_in_the_program() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Forgotten:
        known: bool = setting(False, kinds.FLAG, "Help.")
        plain: int = 1

    with pytest.raises(TypeError, match=r"Forgotten\.plain is not declared by setting\(\)"):
        declared_options(Forgotten)


def test_the_class_alone_has_the_defaults_that_no_layer_sets() -> None:
    assert TINY_SETTINGS.load({}, {}) == TINY_SETTINGS.settle([]) == TinySettings()
    assert TinySettings().listen == Address(host="", port=9402)


def test_every_layer_gives_values_of_the_fields_types() -> None:
    found = TINY_SETTINGS.load(
        {"config": "tiny.yaml", "jitter": "0.2", "listen": "[::1]:0"},
        {"GPUSCAPE_RESOURCE_NAMES": "a, b", "GPUSCAPE_STANDALONE": "True"},
        lambda _: "feature-file: /run/features\ndiscover-interval: 1m30s\n",
    )

    assert found == TinySettings(
        jitter_ratio=0.2,
        listen=Address(host="::1", port=0),
        resource_names=("a", "b"),
        standalone=True,
        feature_file=Path("/run/features"),
        discover_interval_seconds=90.0,
    )


def test_the_first_layer_wins_and_empty_text_is_no_value() -> None:
    layers = [
        {"deadline": WrittenValue(text=" ", source="first")},
        {"deadline": WrittenValue(text=" 2s ", source="second")},
        {"deadline": WrittenValue(text="3s", source="third")},
    ]
    assert TINY_SETTINGS.settle(layers).deadline_seconds == 2.0


def test_a_hidden_mistake_is_refused_with_its_source_and_text() -> None:
    layers = [
        {"deadline": WrittenValue(text="2s", source="first")},
        {"deadline": WrittenValue(text="soon ", source="second")},
    ]
    with pytest.raises(BadInput, match=r"^second is 'soon ': expected a duration from 100ms to"):
        TINY_SETTINGS.settle(layers)


def test_settings_that_contradict_each_other_are_refused_wherever_they_stand() -> None:
    with pytest.raises(BadInput, match="standalone and node-name exclude each other"):
        TINY_SETTINGS.load({"standalone": "true"}, {"NODE_NAME": "a"})


def test_variables_of_other_programs_are_known_and_set_nothing() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Other:
        budget_seconds: float = setting(1.0, kinds.duration_kind("1ms"), "Help.")
        log_level: str = setting("info", kinds.text_kind("LEVEL"), "Help.")

    others = declared_options(Other)
    environ = {"GPUSCAPE_BUDGET": "nonsense", "GPUSCAPE_LOG_LEVEL": "debug"}

    assert TINY_SETTINGS.load({}, environ, other_options=others) == TinySettings(log_level="debug")
    with pytest.raises(BadInput, match="GPUSCAPE_BUDGET is not a setting"):
        TINY_SETTINGS.load({}, environ)
