# SPDX-License-Identifier: Apache-2.0
"""The device plugin's configuration file, good and bad."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.mig_resources import MigStrategy
from base.errors import BadInput
from base.files import MOST_BYTES
from labelers.groups.sharing import SharedResource, Sharing, SharingStrategy
from labelers.label_settings import PluginConfig
from labelers.plugin_config import parse_plugin_config

TIME_SLICING = """\
version: v1
sharing:
  timeSlicing:
    failRequestsGreaterThanOne: true
    resources:
    - {name: nvidia.com/gpu, replicas: 4, rename: nvidia.com/other, devices: [0, "1:0"]}
    - name: mig-1g.5gb
      replicas: 2
"""
TWO = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}"


def test_time_slicing_is_read_and_a_name_without_prefix_completed() -> None:
    assert parse_plugin_config(TIME_SLICING, "config.yaml").sharing == Sharing(
        strategy=SharingStrategy.TIME_SLICING,
        resources=(
            SharedResource(name="nvidia.com/gpu", replicas=4),
            SharedResource(name="nvidia.com/mig-1g.5gb", replicas=2),
        ),
    )


def test_rename_by_default_renames_each_resource() -> None:
    text = TIME_SLICING.replace("failRequestsGreaterThanOne", "renameByDefault")

    assert [r.renamed for r in parse_plugin_config(text, "config.yaml").sharing.resources] == [
        True,
        True,
    ]


def test_mps_wins_over_time_slicing() -> None:
    text = TIME_SLICING + "  mps: {resources: [{name: gpu, replicas: 3}]}\n"

    assert parse_plugin_config(text, "config.yaml").sharing == Sharing(
        strategy=SharingStrategy.MPS,
        resources=(SharedResource(name="nvidia.com/gpu", replicas=3),),
    )


def test_flags_about_labels_are_read_and_the_plugins_own_passed_over() -> None:
    text = """
flags:
  migStrategy: mixed
  failOnInitError: false
  plugin: {passDeviceSpecs: true}
  gfd: {noTimestamp: true, machineTypeFile: /etc/machine, sleepInterval: 30s}
resources: {gpus: []}
imex: {required: false}
"""
    assert parse_plugin_config(text, "config.yaml") == PluginConfig(
        mig_strategy=MigStrategy.MIXED, no_timestamp=True, machine_type_file="/etc/machine"
    )


@pytest.mark.parametrize(
    "text",
    [
        TWO,
        TWO.replace("timeSlicing", "timeslicing"),
        TWO.replace("2", "2.0"),
        TWO.upper().replace("NAME", "name").replace("REPLICAS", "replicas"),
        f"version: v2\nversion: v1\n{TWO}",
        f"{TWO}\n---\nversion: v2",
        f"version:\n{TWO}",
    ],
)
def test_what_the_plugin_takes_is_taken(text: str) -> None:
    """Keys in another case, a point, a key that stands twice, a second document, no version."""
    text = text.replace("RESOURCES", "resources").replace("GPU", "gpu")
    assert parse_plugin_config(text, "c").sharing == parse_plugin_config(TWO, "c").sharing
    assert parse_plugin_config(text, "c").sharing.resources


@pytest.mark.parametrize(
    "text", ["", "# nothing", "{}", "version: v1", "sharing:", "health: {new: 1}"]
)
def test_a_file_that_says_nothing_about_labels_changes_nothing(text: str) -> None:
    assert parse_plugin_config(text, "config.yaml") == PluginConfig()


def test_json_is_read_too() -> None:
    assert (
        parse_plugin_config('{"flags": {"migStrategy": "none"}}', "c.json").mig_strategy
        is MigStrategy.NONE
    )


ONE = "sharing:\n  timeSlicing:\n    resources:\n    - name: gpu\n      "


DEVICES = "write all, a number of devices, or a list of indices and UUIDs"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("version: v2", "c:1: version: write v1"),
        (
            "flags:\n  migStrategy: singel",
            "c:2: flags.migStrategy: 'singel' is not one of none, single, mixed",
        ),
        (ONE + "replicas: 1", "c:5: sharing.timeSlicing.resources.replicas: write 2 or more"),
        (
            ONE + "replicas: many",
            "c:5: sharing.timeSlicing.resources.replicas: expected a whole number",
        ),
        (
            ONE + "replica: 2",
            "c:5: sharing.timeSlicing.resources.replica: unknown key; write replicas",
        ),
        (
            ONE + "devices: all",
            "c:4: sharing.timeSlicing.resources: it needs replicas: write it too",
        ),
        (
            ONE + "replicas: 2\n      devices: some",
            f"c:6: sharing.timeSlicing.resources.devices: {DEVICES}",
        ),
        (
            ONE + "replicas: 2\n      devices:\n      - 0\n      - GPU0",
            f"c:8: sharing.timeSlicing.resources.devices: no device: {DEVICES}",
        ),
        (
            ONE + "replicas: 2\n      rename: not a name!",
            "c:6: sharing.timeSlicing.resources.rename: 'not a name!' is no name of a resource:"
            " write nvidia.com/ and a name of a-z, 0-9, - and dots",
        ),
        (
            ONE.replace("gpu", "x" * 53) + "replicas: 2",
            f"c:4: sharing.timeSlicing.resources.name: 'nvidia.com/{'x' * 49}\\u2026' is"
            " longer than 63 characters",
        ),
        (
            "sharing: {mps: {resources: []}}",
            "c:1: sharing.mps.resources: name at least one resource and its replicas",
        ),
        ("sharing:\n  timeSlicing:", "c:2: sharing.timeSlicing: it needs resources: write it too"),
        (
            "\nsharing:\n  timeSlicin: {}",
            "c:3: sharing.timeSlicin: unknown key; write timeSlicing",
        ),
        (
            "flags:\n  renameByDefault: true",
            "c:2: flags.renameByDefault: unknown key here; it belongs into sharing.timeSlicing or"
            " sharing.mps",
        ),
        ("migStrategy: none", "c:1: migStrategy: unknown key here; it belongs into flags"),
        ("timeslicing: {}", "c:1: timeslicing: unknown key here; it belongs into sharing"),
        ("resources: []", "c:1: resources: expected lines of key: value"),
        (
            "flags: {gfd: {sleepInterval: sixty}}",
            "c:1: flags.gfd.sleepInterval: expected a duration: write it as 60s or 1m30s",
        ),
        ("flags: {gfd: {oneshot: 'no'}}", "c:1: flags.gfd.oneshot: expected true or false"),
        (
            "flags: {plugin: {deviceIDStrategy: name}}",
            "c:1: flags.plugin.deviceIDStrategy: 'name' is not one of uuid, index",
        ),
        (
            "flags: {plugin: {deviceListStrategy: [envvar, cdi]}}",
            "c:1: flags.plugin.deviceListStrategy: 'cdi' is not one of envvar, volume-mounts,"
            " cdi-annotations, cdi-cri",
        ),
        ("imex: {channelIDs: [1]}", "c:1: imex.channelIDs: write [] or [0]"),
        (
            f"flags: {{migStrategy: mixed}}\n{TWO.replace('timeSlicing', 'mps')}",
            "c:2: sharing.mps: MPS does not go with migStrategy: mixed; drop one",
        ),
        (
            f"apiVersion: v1\ndata:\n  any: |-\n    {TWO}",
            "c:1: this is a ConfigMap, which holds a configuration: name what stands below its"
            " data",
        ),
        ("- version: v1", "c:1: expected lines of key: value"),
        ("~: 2", "c:1: a key that is no text: put it in quotes"),
    ],
)
def test_bad_input_names_file_line_key_and_the_fix(text: str, sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_plugin_config(text, "c")

    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("a: [", "c:2: not valid YAML: "),
        ("[" * 5000, "c: not valid YAML: "),
        ("\0", "c: not valid YAML: "),
        ("#" * (MOST_BYTES + 1), "c: larger than"),
    ],
)
def test_text_that_is_no_yaml_is_one_sentence(text: str, start: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_plugin_config(text, "c")

    assert str(caught.value).startswith(start)
    assert "\n" not in str(caught.value)


@given(st.text())
def test_any_text_is_read_or_refused_as_bad_input(text: str) -> None:
    """No other exception gets out."""
    with contextlib.suppress(BadInput):
        parse_plugin_config(text, "c")
