# SPDX-License-Identifier: Apache-2.0
"""Around a GPU's reset: who keeps it from it, whether it can be alone, and that it comes back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from actuator.fabric_manager import why_no_single_reset
from actuator.gpu_holders import MOST_NAMED, NOBODY, gpu_holders
from actuator.mig_world import StepFailed
from actuator.mode_reset import BACK_SECONDS, is_reset, read_back
from actuator.service.actuator_settings import ActuatorSettings
from actuator.service.gpu_users import gpu_users
from actuator.service.supervised_changes import change_request
from api.actuator.actuator_messages import ApplyRequest, RequestedLayout
from api.mig_mode_change import NO_FALLBACK, MigReboot, MigReset, ModeChange, ResetFallback
from discovery.mig_state import MigGpu
from discovery.model import Mode
from discovery.nvml.mig_gpu import read_mig_gpu
from discovery.nvml.session import close_session, open_session
from mig.steps import DestroyInstance, SetMode
from simulator.simulation import Return
from tests import machines
from tests.actuator.simulated_node import SimulatedNode, node
from tests.discovery.host.test_device_files import POD, PODS_CGROUP, process
from tests.mig.naive_gpu import mig_gpu

BUS_ID = machines.gpu(0).bus_id
OFF = Mode(current=False, pending=False)


# Fabric Manager


def _function(root: Path, bus_id: str, vendor: str, pci_class: str) -> None:
    folder = root / "sys/bus/pci/devices" / bus_id
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{pci_class}\n")


def _program(root: Path, pid: int, name: str) -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "stat").write_text("")
    (folder / "comm").write_text(f"{name}\n")


@pytest.mark.parametrize(
    ("vendor", "pci_class", "program", "is_alone"),
    [
        ("0x10de", "0x068000", "nv-fabricmanage", True),
        ("0x10de", "0x068000", "nv-fabric", False),
        ("0x10de", "0x068000", "nv-hostengine", False),
        ("0x10de", "0x030200", "nv-hostengine", True),
        ("0x1000", "0x068000", "nv-hostengine", True),
    ],
)
def test_a_gpu_on_nvswitches_is_reset_alone_where_fabric_manager_runs(
    tmp_path: Path, vendor: str, pci_class: str, program: str, is_alone: bool
) -> None:
    """A machine without NVSwitches needs none, whatever other bridges it has."""
    _function(tmp_path, "0000:07:00.0", vendor, pci_class)
    _program(tmp_path, 1, "systemd")
    _program(tmp_path, 4711, program)

    why = why_no_single_reset(tmp_path, simulated=False)

    assert (why == "") is is_alone
    assert is_alone or "Fabric Manager" in why


def test_a_machine_that_shows_no_pci_is_not_kept_from_it(tmp_path: Path) -> None:
    assert why_no_single_reset(tmp_path, simulated=False) == ""


# holders


@pytest.fixture
def on(tmp_path: Path) -> SimulatedNode:
    """An A100 with MIG off."""
    return node(tmp_path, mig=False)


@pytest.fixture
def session(on: SimulatedNode) -> Iterator[None]:
    """An open one."""
    with on.simulation:
        open_session()
        yield
        close_session()


def first() -> MigGpu:
    """The GPU, in the open session."""
    gpu = read_mig_gpu(BUS_ID)
    assert isinstance(gpu, MigGpu)
    return gpu


@pytest.mark.usefixtures("session")
def test_programs_in_pods_and_outside_are_named_by_what_people_call_them(tmp_path: Path) -> None:
    """From the host's /proc, with the pod's name where its logs have it."""
    gpu, root = first(), tmp_path / "host"
    process(root / "proc", 1, "systemd")
    process(root / "proc", 21, "nv-hostengine", "/dev/nvidia0")
    process(root / "proc", 22, "dcgm-exporter", "/dev/nvidia0", cgroup=PODS_CGROUP)
    process(root / "proc", 23, "python3", "/dev/nvidia1")
    (root / "var/log/pods" / f"gpu-operator_exporter-x_{POD}").mkdir(parents=True)

    text = gpu_holders(gpu, root, simulated=False)

    assert text == (
        "held by process 21 nv-hostengine (DCGM), process 22 dcgm-exporter (DCGM's exporter, pod"
        " gpu-operator/exporter-x)"
    )


@pytest.mark.usefixtures("session")
def test_of_many_holders_some_are_named_and_the_rest_counted(tmp_path: Path) -> None:
    gpu, root = first(), tmp_path / "host"
    process(root / "proc", 1, "systemd")
    for pid in range(30, 30 + MOST_NAMED + 2):
        process(root / "proc", pid, "python3", "/dev/nvidia0")

    text = gpu_holders(gpu, root, simulated=False)

    assert text.count("process ") == MOST_NAMED
    assert text.endswith(" and 2 more")


@pytest.mark.usefixtures("session")
def test_where_nobody_is_seen_it_is_said_how_to_look(tmp_path: Path) -> None:
    gpu, root = first(), tmp_path / "host"
    process(root / "proc", 1, "systemd")
    assert gpu_holders(gpu, root, simulated=False) == NOBODY


# after the reset


@pytest.mark.parametrize(
    ("resetless", "mode", "step", "expected"),
    [
        (False, OFF, SetMode(gpu="GPU-0", on=True), True),
        (False, OFF, SetMode(gpu="GPU-0", on=False), False),
        (False, Mode(current=False, pending=True), SetMode(gpu="GPU-0", on=False), False),
        (True, OFF, SetMode(gpu="GPU-0", on=True), False),
        (False, None, SetMode(gpu="GPU-0", on=True), False),
        (False, OFF, DestroyInstance(gpu="GPU-0", instance=1, profile="1g", start=0), False),
    ],
)
def test_a_mode_that_the_gpu_does_not_have_resets_one_that_needs_it(
    resetless: bool, mode: Mode | None, step: SetMode | DestroyInstance, expected: bool
) -> None:
    """To set the one that holds only takes another one back."""
    gpu = mig_gpu("a100-sxm4-40gb", mode=mode, resetless=resetless)
    assert is_reset(gpu, step) is expected


def _back(on: SimulatedNode, was: str | None = None) -> tuple[str, float]:
    """What comes of reading the GPU back, and the seconds waited."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def reopen(_bus_id: str) -> None:
        close_session()
        open_session()

    gpu = first()
    gpu = gpu if was is None else replace(gpu, uuid=was)
    on.simulation.fault(Return(code=15), bus_id=BUS_ID, times=4)
    try:
        back = read_back(gpu, reopen, clock=lambda: now[0], sleep=sleep).uuid
    except StepFailed as error:
        back = str(error)
    return back, now[0]


@pytest.mark.usefixtures("session")
def test_a_gpu_that_answers_late_is_waited_for(on: SimulatedNode) -> None:
    uuid = first().uuid
    back, waited = _back(on)
    assert back == uuid
    assert 0 < waited <= BACK_SECONDS


@pytest.mark.usefixtures("session")
def test_a_gpu_that_does_not_come_back_is_named(on: SimulatedNode) -> None:
    gpu = first()
    on.simulation.fault(Return(code=15), bus_id=BUS_ID)
    now = iter(range(100))
    with pytest.raises(StepFailed, match=f"GPU {BUS_ID} did not come back from its reset"):
        read_back(gpu, lambda _: None, clock=lambda: float(next(now)), sleep=lambda _: None)


@pytest.mark.usefixtures("session")
def test_another_gpu_in_its_place_is_no_success(on: SimulatedNode) -> None:
    back, _ = _back(on, was="GPU-before")
    assert "after its reset, not GPU-before" in back


# the request


def test_what_may_follow_without_the_drivers_reset_is_in_the_actuators_settings() -> None:
    settings = ActuatorSettings(mig_reset=MigReset.ALLOW, mig_reboot=MigReboot.SENTINEL)
    assert ActuatorSettings().fallback == NO_FALLBACK
    assert settings.fallback == ResetFallback(reset=MigReset.ALLOW, reboot=MigReboot.SENTINEL)


@pytest.mark.parametrize(("reset", "is_allowed"), [(MigReset.OFF, False), (MigReset.ALLOW, True)])
def test_clients_are_told_how_gpus_are_reset_before_they_request_a_change(
    tmp_path: Path, reset: MigReset, is_allowed: bool
) -> None:
    _function(tmp_path, "0000:07:00.0", "0x10de", "0x068000")
    _program(tmp_path, 1, "systemd")

    found = gpu_users(tmp_path, simulated=False, asker=0, reset=reset)

    assert "Fabric Manager" in found.together
    assert found.may_reset is is_allowed


@pytest.mark.parametrize(
    ("facts", "expected"),
    [({}, ModeChange.OFF), ({"mode_change": "driver"}, ModeChange.DRIVER)],
)
def test_a_request_permits_what_it_says_and_nothing_else(
    facts: dict[str, str], expected: ModeChange
) -> None:
    request = ApplyRequest(
        change="a" * 8,
        origin="a test",
        desired={"GPU-1": RequestedLayout(mig=True)},
        **facts,  # type: ignore[arg-type]  # the permission
    )
    fallback = ResetFallback(reset=MigReset.ALLOW)

    permitted = change_request(request, fallback)

    assert (permitted.mode_change, permitted.fallback) == (expected, fallback)
