# SPDX-License-Identifier: Apache-2.0
"""Ids in the setting ``devices`` that the node does not have: refused at the start, never later."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from agent.selected_devices import SelectedDevices, selection_refusal
from discovery.gpu_counts import GpuCounts
from discovery.model import Driver, GpuState, NodeSnapshot
from exporters.dcgm.selection import parse_selection
from simulator.description import machine_catalog
from simulator.simulation import Hang, Return, Simulation
from tests import build, machines, observed
from tests.agent.agent_process import GPUSCAPE, SOON, AgentProcess, running, until

FOUR = build.node([build.gpu(at) for at in range(4)], counts=GpuCounts(sysfs=4, nvml=4))
WITHOUT = frozenset({"empty", "no-driver"})
"""Machines of which no GPU answers."""
QUICK = ("--discover-interval", "1s", "--sample-interval", "500ms")


@pytest.mark.parametrize("machine", machine_catalog.machine_names())
def test_on_every_machine_those_ids_are_refused_that_its_description_does_not_have(
    machine: str,
) -> None:
    """A GPU with MIG off gives no number of instances: all eight that DCGM numbers may come."""
    description = machine_catalog.load_machine(machine)
    models = description.known_models(machine_catalog.load_models())
    snapshot = observed.observed(machine).snapshot
    by_profiles = [
        (gpu.mig, max((profile.max for profile in models[gpu.model].mig), default=0))
        for gpu in description.gpus
    ]
    most = [count if is_on or not count else 8 for is_on, count in by_profiles]
    instances = {place * 8 + at for place, count in enumerate(most) for at in range(count)}
    ids = range(8 * len(most) + 8)

    refused = {
        level: {at for at in ids if selection_refusal(parse_selection(f"{level}:{at}"), snapshot)}
        for level in ("g", "i")
    }

    if machine in WITHOUT:
        assert refused == {"g": set(), "i": set()}
        return
    assert refused == {"g": set(ids) - set(range(len(most))), "i": set(ids) - instances}


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        (
            "g:9",
            "the setting devices is g:9, and this node cannot have GPU g:9: choose among g:0-3, or"
            " write g for all",
        ),
        (
            "i:1,7,40+g:3-5",
            "the setting devices is g:3-5+i:1,7,40, and this node cannot have GPU g:4-5: choose"
            " among g:0-3, or write g for all; this node cannot have GPU instance i:7,40: choose"
            " among i:0-6,8-14,16-22,24-30, or write i for all",
        ),
    ],
)
def test_the_message_names_the_missing_ids_what_there_is_and_the_fix(
    devices: str, why: str
) -> None:
    gpus = [build.changed(gpu, max_mig_devices=7) for gpu in FOUR.gpus]

    assert selection_refusal(parse_selection(devices), replace(FOUR, gpus=tuple(gpus))) == why


def test_instances_on_gpus_without_mig_are_refused() -> None:
    gpus = tuple(build.lacking(gpu, "mig") for gpu in FOUR.gpus)

    assert selection_refusal(parse_selection("i:0"), replace(FOUR, gpus=gpus)) == (
        "the setting devices is i:0, and no GPU of this node can have a GPU instance (i:0): leave i"
        " out"
    )


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(replace(FOUR, counts=GpuCounts(sysfs=4, nvml=None)), id="NVML count failed"),
        pytest.param(replace(FOUR, counts=GpuCounts(sysfs=5, nvml=4)), id="sysfs shows one more"),
        pytest.param(replace(FOUR, counts=GpuCounts(sysfs=None, nvml=4)), id="sysfs shows nothing"),
        pytest.param(
            replace(FOUR, counts=GpuCounts(sysfs=4, nvml=4, unaddressed=1)), id="one is unaddressed"
        ),
        pytest.param(replace(FOUR, driver=Driver()), id="no driver answers"),
        pytest.param(build.node(), id="there is no GPU"),
        *(
            pytest.param(
                replace(FOUR, gpus=(*FOUR.gpus[:3], build.silent(3, state, index=3))), id=state
            )
            for state in GpuState
            if state is not GpuState.PRESENT
        ),
    ],
)
def test_nothing_is_refused_where_the_list_of_gpus_may_be_incomplete(
    snapshot: NodeSnapshot, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, and the first complete list still decides."""
    devices = SelectedDevices(parse_selection("g:9"), at_start=True)

    assert [devices.accepts(snapshot), devices.accepts(snapshot)] == [True, True]
    assert len(caplog.records) == (1 if snapshot.gpus else 0)
    assert not devices.accepts(FOUR)
    assert not devices.accepts(snapshot)


def test_after_a_complete_list_with_all_of_them_nothing_is_refused_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What vanishes is logged when it goes and when it is back."""
    caplog.set_level("INFO")
    devices = SelectedDevices(parse_selection("g:3"), at_start=True)
    fewer = replace(FOUR, gpus=FOUR.gpus[:3], counts=GpuCounts(sysfs=3, nvml=3))

    assert all(devices.accepts(snapshot) for snapshot in (FOUR, fewer, fewer, FOUR))
    assert [record.message for record in caplog.records] == [
        "selected devices missing",
        "selected devices found",
    ]


def test_an_agent_with_settings_read_again_never_ends() -> None:
    assert SelectedDevices(parse_selection("g:9"), at_start=False).accepts(FOUR)


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    """Four GPUs."""
    return Simulation.create("t4", tmp_path / "machine")


def _logged(agent: AgentProcess, message: str) -> list[str]:
    return [str(it.get("why", "")) for it in agent.logged if it["message"] == message]


@pytest.mark.parametrize("devices", ["g:9", "g:2-4", "g:0+i:0"])
def test_an_agent_that_selects_what_is_not_there_ends_as_with_other_bad_settings(
    simulation: Simulation, tmp_path: Path, devices: str
) -> None:
    """It writes no labels and serves no GPU, and its reader ends too."""
    file = tmp_path / "features"
    options = ("--devices", devices, "--feature-file", str(file), *QUICK)
    with running(simulation, *options) as agent:
        children = agent.readers()
        assert agent.process.wait(SOON) == 2
        until(lambda: f"the setting devices is {devices}, and " in agent.said)
        assert not file.exists()
        psutil.wait_procs(children, SOON)
        assert not any(child.is_running() for child in children)


def test_the_command_in_place_of_dcgm_exporter_ends_too(simulation: Simulation) -> None:
    environment = {
        "GPUSCAPE_SIMULATE": str(simulation.state_file),
        "GPUSCAPE_PROBE_LISTEN": "127.0.0.1:0",
        "PATH": "/usr/bin:/bin",
    }
    words = ("dcgm-exporter", "-a", "127.0.0.1:0", "-d", "g:9")
    done = subprocess.run(
        [GPUSCAPE, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "this node cannot have GPU g:9: choose among g:0-3" in done.stderr


@pytest.mark.parametrize(
    "fault", [Hang(uninterruptible=True), Return(code=15)], ids=["hangs", "is lost"]
)
def test_a_gpu_that_hangs_or_is_lost_at_the_start_is_there(
    simulation: Simulation, fault: Hang | Return
) -> None:
    simulation.fault(fault, "nvmlDeviceGet*", bus_id=tuple(simulation.state.gpus)[3])
    with running(simulation, "--devices", "g:2-3", *QUICK) as agent:
        until(lambda: 'DCGM_FI_DEV_GPU_TEMP{gpu="2"' in agent.metrics())
        assert _logged(agent, "selected devices missing") == []
        assert agent.process.poll() is None


def test_where_nvml_does_not_count_the_gpus_an_agent_goes_on(simulation: Simulation) -> None:
    """Until it counts them."""
    uncounted = simulation.fault(Return(code=999), "nvmlDeviceGetCount*")
    with running(simulation, "--devices", "g:9", *QUICK) as agent:
        until(lambda: len(_logged(agent, "discovery cycle finished")) > 2)
        assert agent.process.poll() is None
        simulation.clear(uncounted)
        assert agent.process.wait(SOON) == 2


def test_a_selected_gpu_that_leaves_the_bus_ends_no_agent_and_no_start_after_it(
    simulation: Simulation, tmp_path: Path
) -> None:
    options = ("--devices", "g:3", "--state-file", str(tmp_path / "state.json"), *QUICK)
    with running(simulation, *options) as agent:
        until(lambda: 'DCGM_FI_DEV_GPU_TEMP{gpu="3"' in agent.metrics())
        machines.unplug(simulation, tuple(simulation.state.gpus)[3])
        until(lambda: agent.gpus("lost") == 1)
        before = len(_logged(agent, "discovery cycle finished"))
        until(lambda: len(_logged(agent, "discovery cycle finished")) > before + 1)
        assert agent.process.poll() is None
    with running(simulation, *options) as agent:
        until(lambda: agent.gpus("lost") == 1)
        until(lambda: len(_logged(agent, "discovery cycle finished")) > 1)
        assert agent.process.poll() is None


def test_settings_read_again_that_select_what_is_not_there_are_rejected(
    simulation: Simulation, tmp_path: Path
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("devices: g:1\n")
    with running(simulation, "--config", str(file), *QUICK) as agent:
        until(lambda: 'DCGM_FI_DEV_GPU_TEMP{gpu="1"' in agent.metrics())
        file.write_text("devices: g:9\n")
        agent.signal(signal.SIGHUP)
        until(lambda: bool(_logged(agent, "settings rejected, previous ones kept")))
        (why,) = _logged(agent, "settings rejected, previous ones kept")
        assert why.startswith("the setting devices is g:9, and this node cannot have GPU g:9")
        assert 'DCGM_FI_DEV_GPU_TEMP{gpu="1"' in agent.metrics()


def test_an_agent_that_has_read_its_settings_again_goes_on_whatever_is_found_then(
    simulation: Simulation, tmp_path: Path
) -> None:
    """Even where no complete list has decided before."""
    uncounted = simulation.fault(Return(code=999), "nvmlDeviceGetCount*")
    file = tmp_path / "agent.yaml"
    file.write_text("devices: g:9\n")
    with running(simulation, "--config", str(file), *QUICK) as agent:
        until(lambda: bool(_logged(agent, "discovery cycle finished")))
        agent.signal(signal.SIGHUP)
        until(lambda: bool(_logged(agent, "settings reloaded")))
        simulation.clear(uncounted)
        until(lambda: agent.gpus("present") == 4)
        assert _logged(agent, "selected devices missing")
        with pytest.raises(subprocess.TimeoutExpired):
            agent.process.wait(6)  # the settings are judged every 5 s
