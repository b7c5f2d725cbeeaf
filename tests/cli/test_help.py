# SPDX-License-Identifier: Apache-2.0
"""Long helps list their options under what they are about."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from click.testing import CliRunner

from actuator.service.actuator_settings import ACTUATOR_SETTINGS
from agent.settings.agent_settings import AGENT_SETTINGS
from cli.dcgm_exporter.dcgm_flags import FLAGS
from cli.main import main
from fleet.coordinator_settings import COORDINATOR_SETTINGS
from scheduler.extender.scheduler_settings import SCHEDULER_SETTINGS

NAMES = {
    "agent": {option.name for option in AGENT_SETTINGS.options} | {"config", "help"},
    "actuator": {option.name for option in ACTUATOR_SETTINGS.options} | {"config", "help"},
    "coordinator": {option.name for option in COORDINATOR_SETTINGS.options} | {"config", "help"},
    "scheduler": {option.name for option in SCHEDULER_SETTINGS.options} | {"config", "help"},
    "dcgm-exporter": {flag.name for flag in FLAGS},
}
MOST = 16
"""Options under one heading: more are hard to take in."""


def listed(command: str) -> Mapping[str, list[str]]:
    """Options by the heading above them."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in CliRunner().invoke(main, [command, "--help"]).output.splitlines():
        if re.fullmatch(r"[A-Z][^:]*:", line):
            heading = line.removesuffix(":")
        elif option := re.match(r"  (?:-\w+, )?--([\w-]+)", line):
            found.setdefault(heading, []).append(option[1])
    return found


@pytest.mark.parametrize("command", NAMES)
def test_every_option_is_listed_once_under_a_subject_that_is_not_long(command: str) -> None:
    subjects = listed(command)
    names = [name for options in subjects.values() for name in options]

    assert sorted(names) == sorted(NAMES[command])
    assert {subject: len(of) for subject, of in subjects.items() if len(of) > MOST} == {}
    assert len(subjects) >= 5


@pytest.mark.parametrize(
    ("command", "subject", "name"),
    [
        ("agent", "Options", "config"),
        ("agent", "Addresses and access", "web-config-file"),
        ("agent", "Metrics", "prefix"),
        ("agent", "Machine", "simulate"),
        ("scheduler", "Scores", "budget"),
        ("scheduler", "Cluster", "namespace"),
        ("dcgm-exporter", "Metrics", "collectors"),
        ("dcgm-exporter", "Readings", "collect-interval"),
    ],
)
def test_an_option_stands_under_its_subject(command: str, subject: str, name: str) -> None:
    assert name in listed(command)[subject]
