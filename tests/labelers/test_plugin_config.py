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
from labelers.plugin_config import parse

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


def test_time_slicing_is_read_and_a_name_without_prefix_completed() -> None:
    assert parse(TIME_SLICING, "config.yaml").sharing == Sharing(
        strategy=SharingStrategy.TIME_SLICING,
        resources=(
            SharedResource(name="nvidia.com/gpu", replicas=4),
            SharedResource(name="nvidia.com/mig-1g.5gb", replicas=2),
        ),
    )


def test_rename_by_default_renames_each_resource() -> None:
    text = TIME_SLICING.replace("failRequestsGreaterThanOne", "renameByDefault")

    assert [r.renamed for r in parse(text, "config.yaml").sharing.resources] == [True, True]


def test_mps_wins_over_time_slicing() -> None:
    text = TIME_SLICING + "  mps: {resources: [{name: gpu, replicas: 3}]}\n"

    assert parse(text, "config.yaml").sharing == Sharing(
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
    assert parse(text, "config.yaml") == PluginConfig(
        mig_strategy=MigStrategy.MIXED, no_timestamp=True, machine_type_file="/etc/machine"
    )


@pytest.mark.parametrize(
    "text", ["", "# nothing", "{}", "version: v1", "sharing:", "health: {new: 1}"]
)
def test_a_file_that_says_nothing_about_labels_changes_nothing(text: str) -> None:
    assert parse(text, "config.yaml") == PluginConfig()


def test_json_is_read_too() -> None:
    assert parse('{"flags": {"migStrategy": "none"}}', "c.json").mig_strategy is MigStrategy.NONE


ONE = "sharing:\n  timeSlicing:\n    resources:\n    - name: gpu\n      "


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("version: v2", "c:1: version: invalid enum value 'v2'; write v1"),
        (
            "flags:\n  migStrategy: singel",
            "c:2: flags.migStrategy: invalid enum value 'singel'; write none, single or mixed",
        ),
        (
            ONE + "replicas: 1",
            "c:5: sharing.timeSlicing.resources[0].replicas: expected `int` >= 2; write 2 or more",
        ),
        (
            ONE + "replicas: many",
            "c:5: sharing.timeSlicing.resources[0].replicas: expected `int`, got `str`;"
            " write 2 or more",
        ),
        (
            ONE + "replica: 2",
            "c:5: unknown key sharing.timeSlicing.resources.replica; write replicas",
        ),
        (
            ONE + "devices: all",
            "c:4: sharing.timeSlicing.resources[0]: object missing required field `replicas`;"
            " correct it",
        ),
        (
            "sharing: {mps: {resources: []}}",
            "c:1: sharing.mps.resources: expected `array` of length >= 1;"
            " name at least one resource and its replicas",
        ),
        ("\nsharing:\n  timeSlicin: {}", "c:3: unknown key sharing.timeSlicin; write timeSlicing"),
        ("Sharing: {}", "c:1: unknown key Sharing; write sharing"),
        ("- version: v1", "c:1: the whole file: expected `object`, got `array`; correct it"),
        ("1: 2", "c:1: the whole file: expected `str`; correct it"),
    ],
)
def test_bad_input_names_file_line_key_and_the_fix(text: str, sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text, "c")

    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("a: [", "c:1: not valid YAML: "),
        ("a: 1\n---\nb: 2", "c:2: not valid YAML: "),
        ("[" * 5000, "c: not valid YAML: "),
        ("\0", "c: not valid YAML: "),
        ("a: 2001-99-99", "c: not valid YAML: "),
        ("a: !!python/name:os.system x", "c:1: not valid YAML: "),
        ("#" * (MOST_BYTES + 1), "c: larger than"),
    ],
)
def test_text_that_is_no_yaml_is_one_sentence(text: str, start: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text, "c")

    assert str(caught.value).startswith(start)
    assert "\n" not in str(caught.value)


@given(st.text())
def test_any_text_is_read_or_refused_as_bad_input(text: str) -> None:
    """No other exception gets out."""
    with contextlib.suppress(BadInput):
        parse(text, "c")
