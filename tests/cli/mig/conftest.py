# SPDX-License-Identifier: Apache-2.0
"""Commands of ``gpuscape mig`` on simulated machines that are read in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent.settings.agent_settings import AgentSettings
from cli.main import main
from cli.mig import (
    mig_assert,
    mig_configs_listing,
    mig_explain,
    mig_export,
    mig_plan,
    mig_status,
)
from cli.mig.in_use import local_users
from discovery.mig_state import MigReading
from discovery.reader.protocol import Start
from simulator.simulation import Simulation
from tests.observed import mig_of

RunMig = Callable[..., Result]

CUT = "dgx-a100-mig-mixed"
"""Four GPUs whole, four divided in different ways."""

READING = (mig_assert, mig_configs_listing, mig_explain, mig_export)
READING_MORE = (mig_plan, mig_status)
"""These look at the host as well."""
PROGRAMS: Mapping[int, str] = {4242: "python3"}
"""Names by pid: of this machine's processes none is looked at."""


@pytest.fixture
def simulated(tmp_path: Path) -> Simulation:
    """A machine with GPUs divided in different ways."""
    return Simulation.create(CUT, tmp_path)


@pytest.fixture
def bus_ids(simulated: Simulation) -> list[str]:
    """Of its GPUs, by index."""
    return sorted(simulated.state.gpus)


@pytest.fixture
def run_mig(monkeypatch: pytest.MonkeyPatch) -> RunMig:
    """Run ``gpuscape mig`` with arguments; ``on`` is the machine."""

    def run(*arguments: str, on: Simulation, stdin: str | None = None) -> Result:
        def take_mig(settings: AgentSettings) -> tuple[MigReading, ...]:
            del settings
            return mig_of(on)

        @contextmanager
        def machine(settings: AgentSettings) -> Iterator[Start]:
            del settings
            yield Start(host_root=str(on.host_root), simulation=str(on.state_file))

        def mig_once(start: Start, settings: AgentSettings) -> tuple[MigReading, ...]:
            del start
            return take_mig(settings)

        for module in READING:
            monkeypatch.setattr(module, "take_mig_readings", take_mig)
        for module in READING_MORE:
            monkeypatch.setattr(module, "opened_machine", machine)
            monkeypatch.setattr(module, "read_mig_readings", mig_once)
        monkeypatch.setattr(local_users, "process_name", lambda pid: PROGRAMS.get(pid, ""))
        return CliRunner().invoke(main, ("mig", *arguments), input=stdin)

    return run
