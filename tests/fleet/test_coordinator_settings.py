# SPDX-License-Identifier: Apache-2.0
"""The coordinator's settings: from text to the terms of rollouts."""

from __future__ import annotations

import pytest

from base.errors import BadInput
from fleet.coordinator_settings import COORDINATOR_SETTINGS, CoordinatorSettings
from fleet.drain.drain_plan import DrainSettings
from fleet.rollout_settings import RolloutSettings, parse_windows


def load(**flags: str) -> CoordinatorSettings:
    return COORDINATOR_SETTINGS.load({it.replace("_", "-"): flags[it] for it in flags}, {})


def test_the_defaults_are_those_of_the_terms() -> None:
    assert load().terms == RolloutSettings()


def test_what_is_set_becomes_terms() -> None:
    settings = load(
        slots="3",
        window="mon-fri 22:00-05:00",
        drain="evict",
        canary="1m",
        device_plugins="app=plugin,x/y=z",
        gpu_resources="nvidia.com/",
        ignore_autoscaler_marks="true",
    )
    assert settings.terms == RolloutSettings(
        slots=3,
        windows=parse_windows("mon-fri 22:00-05:00"),
        drain=settings.drain,
        canary_seconds=60,
        evictions=DrainSettings(ignore_autoscaler_marks=True),
    )
    assert settings.terms.drain == "evict"
    assert settings.pod_terms.plugins == (("app", "plugin"), ("x/y", "z"))
    assert settings.pod_terms.resources == ("nvidia.com/",)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("failures_in_row", "0", "failures-in-row is 0"),
        ("failures_in_all", "0", "failures-in-all is 0"),
        ("gpu_resources", ",", "gpu-resources is empty"),
        ("device_plugins", "app", "labels with their values"),
        ("slots", "101", "whole number from 0 to 100"),
        ("drain", "delete", "wait, cordon, evict or node"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        load(**{name: value})
