# SPDX-License-Identifier: Apache-2.0
"""Which settings a device reader that runs goes on serving."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.gpu_records import GpuRecords
from agent.machine_reader import MachineReader
from agent.process_control import ProcessControl
from agent.settings.agent_settings import AgentSettings

SETTINGS = AgentSettings(simulate="t4")


@pytest.fixture
def reads() -> Iterator[MachineReader]:
    machine = MachineReader(SETTINGS, GpuRecords(), ProcessControl(lambda _: None))
    yield machine
    machine.close()


@pytest.mark.parametrize(
    ("other", "serves"),
    [
        ({}, True),
        ({"kernel_log": not SETTINGS.kernel_log, "log_level": "debug"}, True),
        ({"simulate": "a30-pair"}, False),
        ({"simulate": None}, False),
        ({"host_root": Path("/elsewhere")}, False),
        ({"deadline_seconds": SETTINGS.deadline_seconds + 1}, False),
        ({"init_deadline_seconds": SETTINGS.init_deadline_seconds + 1}, False),
    ],
    ids=str,
)
def test_a_reader_stays_for_settings_that_name_the_same_machine_and_deadlines(
    reads: MachineReader, other: dict[str, Any], serves: bool
) -> None:
    assert reads.serves(replace(SETTINGS, **other)) is serves
