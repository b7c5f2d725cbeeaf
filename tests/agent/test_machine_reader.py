# SPDX-License-Identifier: Apache-2.0
"""Which settings a device reader that runs goes on serving."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.gpu_records import GpuRecords
from agent.machine_reader import MachineReader
from agent.process_control import ProcessControl
from agent.settings.agent_settings import AgentSettings
from discovery.reader.protocol import XidSeen
from tests.agent.agent_process import until

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


def test_the_kernel_log_is_read_on_until_the_settings_no_longer_ask_for_it(
    reads: MachineReader, tmp_path: Path
) -> None:
    assert reads.kernel_log(SETTINGS) is None
    file = tmp_path / "dev/kmsg"
    file.parent.mkdir()
    file.touch()
    asked = replace(SETTINGS, kernel_log=True, host_root=tmp_path)
    first = reads.kernel_log(asked)
    assert first is not None
    assert reads.kernel_log(asked) is first
    assert first.events(0.0) == ()
    file.write_text("3,1,2,-;NVRM: Xid (PCI:0000:10:00): 79, text\n")
    assert first.events(1.0) == (XidSeen(bus_id="0000:10:00.0", code=79),)
    assert reads.kernel_log(SETTINGS) is None
    assert reads.kernel_log(asked) not in (None, first)


def test_the_machine_of_the_settings_is_read_and_known_until_it_is_closed(
    reads: MachineReader,
) -> None:
    found = reads.reader.discover()
    assert {gpu.model for gpu in found.gpus} == {"Tesla T4"}
    assert reads.records.known_gpus.record.places.keys() == {gpu.bus_id for gpu in found.gpus}
    pid = reads.reader.health().pid
    assert pid is not None
    reads.close()
    until(lambda: not psutil.pid_exists(pid))
