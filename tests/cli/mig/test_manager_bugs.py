# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's MIG manager gets wrong around a change: clients that stay paused, states that are
put back as somebody thinks they were, and configurations that are gone with their maker.

Each case runs on ours and on a naive implementation of the same shape, which must fail it. What
goes wrong in the change itself is in tests/foreign/test_mig_parted_bugs.py.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pynvml
import pytest
import yaml

from discovery.mig_state import MigGpu
from discovery.model import Mode
from mig.configs.default_configs import generated_configs
from mig.configs.mig_config_text import mig_config_text
from simulator.simulation import Return
from tests.actuator.simulated_node import FIVE, H100, SimulatedNode, node
from tests.cli.mig.mig_process import CREATE
from tests.cli.mig.test_mig_apply import WANTED, run

Flow = Callable[[bool], None]
"""Pause clients, change MIG, resume clients; True: stopping what holds the GPUs fails."""


def ours(folder: Path) -> Flow:
    """``mig apply`` with hooks that pause clients and resume them: a file stands for the pause."""
    on = node(folder / "ours", *FIVE)
    file = folder / "hooks.yaml"
    paused = folder / "paused"

    def change(fails: bool) -> None:
        commands = {
            "apply-start": f"touch {paused}",
            "pre-apply-config": "exit 1" if fails else "true",
            "apply-exit": f"rm {paused}",
        }
        hooks = {name: [{"command": "sh", "args": ["-c", text]}] for name, text in commands.items()}
        file.write_text(yaml.safe_dump({"version": "v1", "hooks": hooks}))
        wanted = '{"0": {"7g.40gb": 1}}' if fails else WANTED
        assert (run(on, "apply", wanted, "--yes", "-k", str(file)).exit_code != 0) == fails

    return change


def waits_without_an_end(folder: Path) -> Flow:
    """Clients are resumed after the change, and by nobody where it did not begin (B2)."""
    paused = folder / "paused"

    def change(fails: bool) -> None:
        paused.touch()
        if not fails:
            paused.unlink()

    return change


class _ResumesOnce:
    """Clients are resumed on the way out, unless a success has done it: of any change (B6)."""

    resumed: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self.paused = folder / "paused"

    def __call__(self, fails: bool) -> None:
        self.paused.touch()
        if not fails:
            self.paused.unlink()
            type(self).resumed = True
        elif not type(self).resumed:
            self.paused.unlink()


@pytest.mark.parametrize(
    ("flow", "changes", "is_right"),
    [
        (ours, (True, False, True), True),
        (waits_without_an_end, (True,), False),
        (_ResumesOnce, (False, True), False),
    ],
)
def test_clients_are_resumed_after_every_change(
    tmp_path: Path, flow: Callable[[Path], Flow], changes: tuple[bool, ...], is_right: bool
) -> None:
    """Where they could not be stopped (B2), and after another one that went well (B6)."""
    change = flow(tmp_path)
    left = []
    for fails in changes:
        change(fails)
        left.append((tmp_path / "paused").exists())

    assert (not any(left)) == is_right


def back_by_the_journal(on: SimulatedNode) -> None:
    """The change of each GPU undoes itself."""
    for bus_id in on.simulation.state.gpus:
        refused = Return(code=pynvml.NVML_ERROR_NO_PERMISSION)
        on.simulation.fault(refused, CREATE, bus_id=bus_id, times=1)
    assert run(on, "apply", '{"all": {"3g.40gb": 2}}', "--yes").exit_code == 6


def back_to_what_is_usual(on: SimulatedNode) -> None:
    """What was changed is set to the value that it mostly has (B9)."""
    with on.simulation:
        pynvml.nvmlInit()
        for at in range(2):
            pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByIndex(at), 1)
        pynvml.nvmlShutdown()


@pytest.mark.parametrize(
    ("back", "is_right"), [(back_by_the_journal, True), (back_to_what_is_usual, False)]
)
def test_what_was_off_is_off_again_and_what_was_empty_is_empty(
    tmp_path: Path, back: Callable[[SimulatedNode], None], is_right: bool
) -> None:
    """Of two GPUs each comes back to its own state."""
    on = node(tmp_path, model=H100, count=2)
    with on.simulation:
        pynvml.nvmlInit()
        pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByIndex(1), 0)
        pynvml.nvmlShutdown()

    back(on)

    modes = [gpu.mode for gpu in on.gpus()]
    kept = modes == [Mode(current=each, pending=each) for each in (True, False)]
    assert kept == is_right
    assert [gpu.instances for gpu in on.gpus()] == [(), ()]


def makes_them_anew(on: SimulatedNode, name: str) -> bool:
    """The command has the default configurations of this machine's GPUs each time."""
    assert run(on, "configs").exit_code == 0
    return run(on, "plan", name).exit_code == 0


def has_them_from_who_made_them(on: SimulatedNode, name: str) -> bool:
    """They are written once, and are removed with the process that wrote them (B10)."""
    file = written_by_a_process(on.gpus())
    return file.exists() and name in file.read_text()


def written_by_a_process(gpus: tuple[MigGpu, ...]) -> Path:
    """Its folder goes with it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "configs.yaml"
        file.write_text(mig_config_text(generated_configs(gpus).configs))
        assert "all-balanced" in file.read_text()
    return file


@pytest.mark.parametrize(
    ("found", "is_right"), [(makes_them_anew, True), (has_them_from_who_made_them, False)]
)
def test_a_default_configuration_outlives_who_made_it(
    tmp_path: Path, found: Callable[[SimulatedNode, str], bool], is_right: bool
) -> None:
    """A name that was valid yesterday is valid after a restart of everything."""
    on = node(tmp_path)
    before = json.loads(run(on, "configs", "-o", "json").stdout)

    assert found(on, "all-balanced") == is_right
    assert json.loads(run(on, "configs", "-o", "json").stdout) == before
