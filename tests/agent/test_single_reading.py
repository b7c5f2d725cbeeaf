# SPDX-License-Identifier: Apache-2.0
"""One reading for a command: what the device reader is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import single_reading as observe
from agent.settings.agent_settings import AgentSettings
from discovery.reader.protocol import Start
from simulator.simulation import Simulation


@pytest.mark.parametrize("once", [observe.read_devices, observe.read_mig_readings])
def test_a_command_waits_for_no_xids(tmp_path: Path, once: object) -> None:
    """It would end half a second later each time, and show none."""
    simulation = Simulation.create("a30-pair", tmp_path)
    simulation.log_calls()
    start = Start(host_root=str(simulation.host_root), simulation=str(simulation.state_file))
    assert callable(once)
    assert once(start, AgentSettings())
    called = {call for call, _ in simulation.calls()}
    assert "nvmlInitWithFlags" in called
    assert not called & {"nvmlEventSetCreate", "nvmlDeviceRegisterEvents"}
