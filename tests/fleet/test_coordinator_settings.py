# SPDX-License-Identifier: Apache-2.0
"""The coordinator's settings: from text to the terms of rollouts."""

from __future__ import annotations

from dataclasses import fields

import pytest

from base.errors import BadInput
from fleet.coordinator_settings import COORDINATOR_SETTINGS, CoordinatorSettings
from fleet.drain.drain_plan import DrainSettings
from fleet.mig_node import DrainMode
from fleet.rollout_settings import RolloutSettings, parse_windows


def load(**flags: str) -> CoordinatorSettings:
    return COORDINATOR_SETTINGS.load({it.replace("_", "-"): flags[it] for it in flags}, {})


def rollouts(settings: RolloutSettings) -> dict[str, object]:
    """The part that is about rollouts."""
    names = (field.name for field in fields(RolloutSettings))
    return {name: getattr(settings, name) for name in names}


def test_the_defaults_are_those_of_rollouts() -> None:
    assert rollouts(load()) == rollouts(RolloutSettings())


def test_what_is_set_becomes_settings_of_rollouts() -> None:
    settings = load(
        slots="3",
        window="mon-fri 22:00-05:00",
        drain="evict",
        canary="1m",
        device_plugins="app=plugin,x/y=z",
        gpu_resources="nvidia.com/",
        ignore_autoscaler_marks="true",
    )
    assert rollouts(settings) == rollouts(
        RolloutSettings(
            slots=3,
            windows=parse_windows("mon-fri 22:00-05:00"),
            drain=DrainMode.EVICT,
            canary_seconds=60,
            ignore_autoscaler_marks=True,
        )
    )
    assert settings.evictions == DrainSettings(ignore_autoscaler_marks=True)
    assert settings.pod_terms.plugins == (("app", "plugin"), ("x/y", "z"))
    assert settings.pod_terms.resources == ("nvidia.com/",)


def test_a_setting_reaches_the_rollouts_whatever_people_call_it() -> None:
    settings = load(
        unavailable_limit="7",
        cordoned_nodes="6",
        settle="5s",
        hold_deadline="40s",
        cordoned_deadline="3m",
        change_deadline="2m",
        register_deadline="10s",
        retry="9s",
        long_wait="8m",
    )
    assert rollouts(settings) == rollouts(
        RolloutSettings(
            most_away=7,
            most_cordoned=6,
            settle_seconds=5,
            hold_seconds=40,
            cordoned_seconds=180,
            end_seconds=120,
            register_seconds=10,
            retry_seconds=9,
            long_wait_seconds=480,
        )
    )


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
