# SPDX-License-Identifier: Apache-2.0
"""mig-parted's configuration file, good and bad: what it means, and where a mistake is."""

from __future__ import annotations

import re

import pytest

from base.errors import BadInput
from base.files import MOST_BYTES
from mig.configs.mig_config_file import parse_mig_configs
from mig.configs.mig_configs import DeviceFilter, MigConfigSpec, device_filter
from mig.gpu_layout import MIG_OFF, GpuLayout, layout_from_counts

FILE = "config.yaml"
HEAD = "version: v1\nmig-configs:\n  one:\n"
ENTRY = '  - devices: all\n    mig-enabled: true\n    mig-devices: {"1g.5gb": 7}\n'


def only_spec(text: str) -> MigConfigSpec:
    """The one entry of the one configuration."""
    config = parse_mig_configs(text, FILE).selected()
    assert len(config.specs) == 1
    return config.specs[0]


def entry(text: str) -> MigConfigSpec:
    return only_spec(f"{HEAD}  - {text}\n")


def refusal(text: str) -> str:
    with pytest.raises(BadInput) as refused:
        parse_mig_configs(text, FILE)
    return str(refused.value)


# what is read


def test_every_part_of_an_entry_is_read() -> None:
    spec = entry(
        '{device-filter: ["0x20B010DE", "0x233010DE:0x16C110DE"], devices: [3, 0],'
        ' mig-enabled: true, mig-devices: {"1g.5gb": 2, "1c.3g.20gb": 3}}'
    )

    assert spec == MigConfigSpec(
        layout=layout_from_counts({"1g.5gb": 2, "1c.3g.20gb": 3}),
        filters=(
            DeviceFilter(device=0x20B010DE),
            DeviceFilter(device=0x233010DE, subsystem=0x16C110DE),
        ),
        devices=frozenset({0, 3}),
    )


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("{devices: all, mig-enabled: false}", MIG_OFF),
        ("{devices: all, mig-enabled: false, mig-devices: {}}", MIG_OFF),
        ("{devices: all, mig-enabled: false, mig-devices: }", MIG_OFF),
        ("{devices: all, mig-enabled: true, mig-devices: {}}", GpuLayout(mig=True)),
        ("{devices: all, mig-enabled: no}", MIG_OFF),
        ("{devices: all, mig-enabled: n}", MIG_OFF),
        ("{devices: all, mig-enabled: On, mig-devices: {}}", GpuLayout(mig=True)),
        (
            "{devices: all, mig-enabled: true, mig-devices: {7c.7g.40gb: 1, 1g.5gb: 0}}",
            layout_from_counts({"7g.40gb": 1}),
        ),
    ],
)
def test_a_layout_is_read_in_canonical_form(text: str, layout: GpuLayout) -> None:
    assert entry(text).layout == layout


@pytest.mark.parametrize("text", ['""', "[]", ""])
def test_an_empty_filter_is_none_as_upstream_has_it(text: str) -> None:
    assert entry(f"{{device-filter: {text}, devices: all, mig-enabled: false}}").filters == ()


@pytest.mark.parametrize("text", ["0x20B010DE", "0X20b010de", "548409566", "0o4054010336"])
def test_a_filter_is_a_number_in_any_base(text: str) -> None:
    spec = entry(f'{{device-filter: "{text}", devices: all, mig-enabled: false}}')

    assert spec.filters == (DeviceFilter(device=0x20B010DE),)


def test_json_is_read_too() -> None:
    text = '{"version": "v1", "mig-configs": {"one": [{"devices": [1], "mig-enabled": false}]}}'

    assert only_spec(text) == MigConfigSpec(layout=MIG_OFF, devices=frozenset({1}))


def test_an_entry_may_take_over_another_ones_keys() -> None:
    """By ``<<``, which upstream's YAML has; what stands there itself wins."""
    text = f"{HEAD}  - &a {{devices: all, mig-enabled: true, mig-devices: {{1g.5gb: 7}}}}\n"
    text += "  - {<<: *a, devices: [0]}\n"

    first, second = parse_mig_configs(text, FILE).selected().specs

    assert (first.devices, second.devices) == (None, frozenset({0}))
    assert second.layout == first.layout


def test_each_part_knows_its_line() -> None:
    spec = only_spec(
        f"{HEAD}"
        '  - device-filter: "0x20B010DE"\n'
        "    devices: [0]\n"
        "    mig-enabled: true\n"
        "    mig-devices:\n"
        '      "1g.5gb": 7\n'
    )

    assert spec.places.filters == "config.yaml:4: mig-configs.one[0].device-filter"
    assert spec.places.devices == "config.yaml:5: mig-configs.one[0].devices"
    assert spec.places.layout == "config.yaml:7: mig-configs.one[0].mig-devices"
    assert spec.places.profiles == {
        "1g.5gb": "config.yaml:8: mig-configs.one[0].mig-devices.1g.5gb"
    }


# choosing


def test_the_only_configuration_need_not_be_named() -> None:
    configs = parse_mig_configs(HEAD + ENTRY, FILE)

    assert configs.selected() == configs.selected("one") == configs.configs[0]


def test_a_wrong_name_is_refused_also_where_there_is_only_one() -> None:
    """Who names it means it: the only one may be another one."""
    configs = parse_mig_configs(HEAD + ENTRY, FILE)

    for name in ("two", ""):
        with pytest.raises(BadInput, match=f"no configuration '{name}'"):
            configs.selected(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (None, "config.yaml: choose one of its configurations: 'one', 'two'"),
        ("onne", "config.yaml: no configuration 'onne': did you mean one?"),
        ("", "config.yaml: no configuration ''; it has 'one', 'two'"),
        ("x" * 99, f"config.yaml: no configuration '{'x' * 60}\\u2026'; it has 'one', 'two'"),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_those_that_are(
    name: str | None, reason: str
) -> None:
    configs = parse_mig_configs(f"{HEAD}{ENTRY}  two:\n{ENTRY}", FILE)

    with pytest.raises(BadInput) as refused:
        configs.selected(name)

    assert str(refused.value) == reason


def test_a_message_lists_a_few_of_many_names() -> None:
    text = "version: v1\nmig-configs:\n" + "".join(f"  c{n}:\n{ENTRY}" for n in range(99))

    with pytest.raises(BadInput, match=r"'c11' and 87 more$"):
        parse_mig_configs(text, FILE).selected()


# what is refused


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "config.yaml:1: expected version: v1 and mig-configs"),
        ("[]", "config.yaml:1: expected version: v1 and mig-configs"),
        ("mig-configs: {}", "config.yaml:1: version is missing: write v1"),
        ("version: 1", "config.yaml:1: version: only the format v1 is known"),
        ("version: v2", "config.yaml:1: version: only the format v1 is known"),
        ("version:", "config.yaml:1: version: only the format v1 is known"),
        ("version: v1", "config.yaml:1: mig-configs is missing: name at least one configuration"),
        (
            "version: v1\nmig-configs: {}",
            "config.yaml:2: mig-configs: name at least one configuration",
        ),
        (
            "version: v1\nmig-configs:",
            "config.yaml:2: mig-configs: expected names of configurations, each with a list",
        ),
        (
            "version: v1\nmigconfigs: {}",
            "config.yaml:2: 'migconfigs' is not a key of this file: did you mean mig-configs?",
        ),
        (
            'version: v1\nmig-configs:\n  "": []',
            "config.yaml:3: mig-configs.: '' is no name: write one",
        ),
        (
            "version: v1\nmig-configs:\n  one: []",
            "config.yaml:3: mig-configs.one: a configuration needs at least one entry",
        ),
        (
            "version: v1\nmig-configs:\n  one: {devices: all}",
            "config.yaml:3: mig-configs.one: expected a list of entries with devices and"
            " mig-enabled",
        ),
        (
            "version: v1\nmig-configs:\n  one: [all]",
            "config.yaml:3: mig-configs.one[0]: expected an entry with devices and mig-enabled",
        ),
        (
            f"{HEAD}{ENTRY}  one:\n{ENTRY}",
            "config.yaml:7: mig-configs.one: it stands twice: keep one",
        ),
        (
            f"{HEAD}  - {{<<: 3, devices: all}}",
            "config.yaml:4: not valid YAML: expected a mapping or list of mappings for merging,"
            " but found scalar",
        ),
    ],
)
def test_a_file_that_is_not_of_the_format_is_refused(text: str, reason: str) -> None:
    assert refusal(text) == reason


@pytest.mark.parametrize(
    "name", ["yes", "y", "N", "1", "010", "1e3", "1.", ".5", "0o7", "1_0", "1:30", "null", "~"]
)
def test_a_name_that_is_no_text_without_quotes_is_refused(name: str) -> None:
    """Upstream would have another name: true for y, 1000 for 1e3."""
    head = "version: v1\nmig-configs:\n"

    assert refusal(f"{head}  {name}:\n{ENTRY}") == (
        f"config.yaml:3: mig-configs.{name}: a name that YAML takes for no text: put it into quotes"
    )
    assert parse_mig_configs(f"{head}  '{name}':\n{ENTRY}", FILE).selected().name == name


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("{mig-enabled: false}", "", "devices is missing: write all, or a list of indices"),
        ("{devices: all}", "", "mig-enabled is missing: write true or false"),
        ("{devices: all, mig-enabled: }", "mig-enabled", "expected true or false"),
        ("{devices: all, mig-enabled: 1}", "mig-enabled", "expected true or false"),
        ("{devices: all, mig-enabled: !!bool x}", "mig-enabled", "expected true or false"),
        ('{devices: all, mig-enabled: "true"}', "mig-enabled", "expected true or false"),
        (
            "{devices: 0, mig-enabled: false}",
            "devices",
            "write all, or a list of indices such as [0, 1]",
        ),
        (
            "{devices: some, mig-enabled: false}",
            "devices",
            "write all, or a list of indices such as [0, 1]",
        ),
        (
            "{devices: , mig-enabled: false}",
            "devices",
            "write all, or a list of indices such as [0, 1]",
        ),
        (
            "{devices: [], mig-enabled: false}",
            "devices",
            "an empty list matches no GPU: write all, or indices",
        ),
        (
            "{devices: [0, -1], mig-enabled: false}",
            "devices[1]",
            "expected a whole number from 0 to 1023",
        ),
        (
            "{devices: [0, '1'], mig-enabled: false}",
            "devices[1]",
            "expected a whole number from 0 to 1023",
        ),
        (
            "{devices: [010], mig-enabled: false}",
            "devices[0]",
            "expected a whole number from 0 to 1023",
        ),
        ("{devices: [1024], mig-enabled: false}", "devices[0]", "1024 is more than 1023"),
        (
            "{devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}}",
            "mig-devices",
            "MIG devices with mig-enabled: false; remove them, or write true",
        ),
        (
            "{devices: all, mig-enabled: false, mig-devices: [1g.5gb]}",
            "mig-devices",
            "expected {}, or nothing",
        ),
        (
            "{devices: all, mig-enabled: true}",
            "",
            "mig-devices is missing: write {} for none",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: }",
            "mig-devices",
            "expected lines of profile: count, or {} for none",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 0}}",
            "mig-devices",
            "all counts are 0: write {} for no MIG devices, or a count",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: -1}}",
            "mig-devices.1g.5gb",
            "expected a whole number from 0 to 64",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1.5}}",
            "mig-devices.1g.5gb",
            "expected a whole number from 0 to 64",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: '7'}}",
            "mig-devices.1g.5gb",
            "expected a whole number from 0 to 64",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 999999999}}",
            "mig-devices.1g.5gb",
            "999999999 is more than 64",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 60, 2g.10gb: 60}}",
            "mig-devices",
            "120 MIG devices: no GPU has that many",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {7g.40gb: 1, 7c.7g.40gb: 1}}",
            "mig-devices.7c.7g.40gb",
            "7g.40gb stands twice, in two spellings: keep one",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {1g.5g: 1}}",
            "mig-devices.1g.5g",
            "'1g.5g' is no MIG profile; they look like 1g.10gb or 1c.3g.20gb+me",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {1g.5gb@4: 1}}",
            "mig-devices.1g.5gb@4",
            "'1g.5gb@4' is no MIG profile; they look like 1g.10gb or 1c.3g.20gb+me",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {2g.10gb+me,me: 1}}",
            "mig-devices.2g.10gb+me",
            "expected a whole number from 0 to 64",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {}, device-filter: [0x20B010DE]}",
            "device-filter[0]",
            "a device filter is text: put it into quotes",
        ),
        (
            "{devices: all, mig-enabled: true, mig-devices: {}, device-filter: {}}",
            "device-filter",
            "a device filter is text: put it into quotes",
        ),
    ],
)
def test_a_mistake_in_an_entry_is_refused_with_its_place(text: str, key: str, reason: str) -> None:
    place = "config.yaml:4: mig-configs.one[0]" + (f".{key}" if key else "")

    assert refusal(f"{HEAD}  - {text}\n") == f"{place}: {reason}"


@pytest.mark.parametrize(
    "text",
    [
        "0x20B0",
        "0x20B010DF",
        "0x20B0 10DE",
        "20B010DE",
        "0x",
        "A100",
        "0x120B010DE",
        "0x20B010DE:",
        "0x20B010DE:0x1:0x2",
        "0x233010DE:0x116C110DE",
        "0x1000020B010DE",
        str((1 << 32) + 0x20B010DE),
        f"0b1{0x20B010DE:032b}",
        "-0x20B010DE",
        "\u0660",
    ],
)
def test_a_filter_that_can_match_nothing_is_refused(text: str) -> None:
    """Upstream swallows the error, and the entry silently matches nothing."""
    reason = refusal(f'{HEAD}  - {{device-filter: ["{text}"], devices: all, mig-enabled: false}}\n')

    assert reason.startswith("config.yaml:4: mig-configs.one[0].device-filter[0]: ")
    assert re.search(r"is no device filter|matches no GPU of NVIDIA", reason)


@pytest.mark.parametrize("text", ["0xFFFF10DE", f"0o{0xFFFF10DE:o}", str(0xFFFF10DE)])
def test_the_largest_filter_of_32_bits_is_none_too_large(text: str) -> None:
    """With one bit more it is, in every base."""
    assert device_filter(text).device == 0xFFFF10DE
    for more in (f"0x1{0xFFFF10DE:08X}", f"0o{0x1FFFF10DE:o}", str(0x1FFFF10DE)):
        with pytest.raises(BadInput, match=r"is no device filter|matches no GPU"):
            device_filter(more)


def test_a_misspelt_key_is_refused_with_the_right_one() -> None:
    assert refusal(f"{HEAD}  - {{devices: all, mig-enable: true}}\n") == (
        "config.yaml:4: 'mig-configs.one[0].mig-enable' is not a key of this file:"
        " did you mean mig-enabled?"
    )


def test_two_megabytes_are_refused_unread() -> None:
    assert refusal(HEAD + ENTRY * (2 * MOST_BYTES // len(ENTRY))) == (
        "config.yaml: larger than 1 MiB: is it the right file?"
    )
