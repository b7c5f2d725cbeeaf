# SPDX-License-Identifier: Apache-2.0
"""What operators find in the log about changes of MIG layouts: each line with its fields."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from actuator.change import apply, begin, drive, resume
from actuator.change_record import ChangeRecord, Direction
from actuator.journal import Journal, JournalUnusable
from actuator.mig_world import StepFailed
from actuator.restore import restore_layouts
from api.mig_outcome import Outcome
from discovery.mig_state import MigGpu
from mig.gpu_layout import layout_from_counts
from mig.steps import SetMode
from tests.actuator.played_world import Hardware, PlayedWorld
from tests.log_lines import LogLine, log_lines
from tests.mig.naive_gpu import mig_gpu

A100 = "a100-sxm4-40gb"
WANTED = {"GPU-0": layout_from_counts({"2g.10gb": 1})}
CHANGE = "c-1"
BEGUN: LogLine = (
    "INFO",
    "MIG change begun",
    {"change": CHANGE, "origin": "a test", "gpus": 1},
)


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def hardware() -> Hardware:
    """One idle instance that has to go."""
    return Hardware.of([mig_gpu(A100, ("1g.5gb", 0))])


def changed(folder: Path, world: PlayedWorld) -> None:
    with Journal(folder) as journal:
        apply(world, journal, WANTED, origin="a test", change=CHANGE)


def rebooted(folder: Path) -> Hardware:
    """After a change."""
    there = hardware()
    changed(folder, PlayedWorld(there))
    there.reboot()
    return there


def step(world: PlayedWorld, number: int) -> LogLine:
    return ("INFO", "MIG step", {"step": str(world.taken[number])})


def test_a_change_has_a_line_for_its_begin_each_step_and_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = PlayedWorld(hardware())

    changed(tmp_path / "mig", world)

    assert log_lines(caplog) == [
        BEGUN,
        *(step(world, number) for number in range(4)),
        (
            "INFO",
            "MIG change ended",
            {"change": CHANGE, "gpu": "GPU-0", "outcome": Outcome.APPLIED},
        ),
    ]


def test_one_that_goes_back_says_what_failed_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = PlayedWorld(hardware(), fails={2: StepFailed("NVML_ERROR_UNKNOWN")})

    changed(tmp_path / "mig", world)

    failed = {"step": str(world.taken[2]), "why": "NVML_ERROR_UNKNOWN"}
    assert log_lines(caplog) == [
        BEGUN,
        *(step(world, number) for number in range(3)),
        ("WARNING", "MIG step failed", failed),
        (
            "WARNING",
            "MIG change rolling back",
            {"change": CHANGE, "gpu": "GPU-0", "why": "NVML_ERROR_UNKNOWN"},
        ),
        *(step(world, number) for number in range(3, 5)),
        (
            "INFO",
            "MIG change ended",
            {"change": CHANGE, "gpu": "GPU-0", "outcome": Outcome.ROLLED_BACK},
        ),
    ]


def test_one_that_is_held_says_what_to_run_and_a_start_that_it_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    there = hardware()
    world = PlayedWorld(there, loses={1: "GPU-0"})
    changed(tmp_path / "mig", world)
    held = log_lines(caplog)[-1]
    there.lost.clear()
    caplog.clear()

    with Journal(tmp_path / "mig") as journal:
        resume(again := PlayedWorld(there), journal)

    why = held[2]["why"]
    assert held[:2] == ("WARNING", "MIG change stuck; run gpuscape mig restore")
    assert "; the way back failed too: " in why
    assert log_lines(caplog) == [
        ("WARNING", "MIG change resumed", {"change": CHANGE, "gpu": "GPU-0", "way": "back"}),
        *(step(again, number) for number in range(len(again.taken))),
        (
            "INFO",
            "MIG change ended",
            {"change": CHANGE, "gpu": "GPU-0", "outcome": Outcome.ROLLED_BACK},
        ),
    ]


def test_what_cannot_be_written_is_a_line_and_no_reason_to_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal at the end, and the layout to come back after a reboot."""

    def full(*_: object) -> None:
        raise JournalUnusable("No space left on device")

    monkeypatch.setattr(Journal, "end", full)
    monkeypatch.setattr(Journal, "verify", full)

    changed(tmp_path / "mig", PlayedWorld(hardware()))

    why = {"why": "No space left on device"}
    assert log_lines(caplog)[-3:] == [
        ("WARNING", "MIG layouts not remembered", why),
        (
            "INFO",
            "MIG change ended",
            {"change": CHANGE, "gpu": "GPU-0", "outcome": Outcome.APPLIED},
        ),
        ("WARNING", "MIG journal not written", why),
    ]


def test_what_comes_back_after_a_reboot_has_its_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a change like others, with a name of its own."""
    there = rebooted(tmp_path / "mig")
    caplog.clear()

    with Journal(tmp_path / "mig") as journal:
        restore_layouts(world := PlayedWorld(there), journal)
        change = journal.content().ended[-1].change

    asked = "the layout from before the driver was loaded"
    assert log_lines(caplog) == [
        ("INFO", "MIG change begun", {"change": change, "origin": asked, "gpus": 1}),
        *(step(world, number) for number in range(2)),
        (
            "INFO",
            "MIG change ended",
            {"change": change, "gpu": "GPU-0", "outcome": Outcome.APPLIED},
        ),
        ("INFO", "MIG layout restored", {"gpu": "GPU-0"}),
    ]


def test_what_does_not_come_back_has_its_line_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    there = rebooted(tmp_path / "mig")
    caplog.clear()

    with Journal(tmp_path / "mig") as journal:
        failing = dict.fromkeys(range(3), StepFailed("NVML_ERROR_UNKNOWN"))
        restore_layouts(world := PlayedWorld(there, fails=failing), journal)

    why = "NVML_ERROR_UNKNOWN"
    lines = log_lines(caplog)
    failed = ("WARNING", "MIG step failed", {"step": str(world.taken[0]), "why": why})
    assert lines[1:5] == [step(world, 0), failed, step(world, 1), failed]
    assert ("WARNING", "MIG layout not restored", {"gpu": "GPU-0", "why": why}) in lines
    assert ("WARNING", "MIG devices gone", {"gpu": "GPU-0", "devices": "MIG-GPU-0-5-0"}) in lines


def test_a_direction_that_cannot_be_written_is_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change goes back all the same."""
    written: list[ChangeRecord] = []

    def full_later(_: Journal, *records: ChangeRecord) -> None:
        if written:
            raise JournalUnusable("No space left on device")
        written.extend(records)

    monkeypatch.setattr(Journal, "write", full_later)

    changed(tmp_path / "mig", PlayedWorld(hardware(), fails={0: StepFailed("NVML_ERROR_UNKNOWN")}))

    lines = log_lines(caplog)
    not_written = ("WARNING", "MIG journal not written", {"why": "No space left on device"})
    back = (
        "WARNING",
        "MIG change rolling back",
        {"change": CHANGE, "gpu": "GPU-0", "why": "NVML_ERROR_UNKNOWN"},
    )
    assert lines[lines.index(not_written) + 1] == back


class Silent(PlayedWorld):
    """Its driver does not answer any more, once a step was taken."""

    def observe(self, gpus: Collection[str] = ()) -> Sequence[MigGpu]:
        if self.taken:
            raise StepFailed("NVML_ERROR_DRIVER_NOT_LOADED")
        return super().observe(gpus)


def test_a_gpu_that_cannot_be_emptied_has_its_line_before_the_change_is_held(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The journal has the same reason as the log."""
    why = "NVML_ERROR_DRIVER_NOT_LOADED"

    changed(tmp_path / "mig", Silent(hardware()))

    held = f"{why}; the way back failed too: {why}"
    assert log_lines(caplog)[-3:] == [
        ("WARNING", "MIG change rolling back", {"change": CHANGE, "gpu": "GPU-0", "why": why}),
        ("WARNING", "MIG GPU not emptied", {"gpu": "GPU-0", "why": why}),
        (
            "WARNING",
            "MIG change stuck; run gpuscape mig restore",
            {"change": CHANGE, "gpu": "GPU-0", "why": held},
        ),
    ]
    with Journal(tmp_path / "mig") as journal:
        record = next(iter(journal.content().unended), None)
    assert record is not None
    assert (record.outcome, record.reason) == (Outcome.STUCK, held)


def test_a_way_back_without_an_earlier_failure_says_that_alone(tmp_path: Path) -> None:
    """As of a self-test that tried everything."""
    world = Silent(hardware())
    with Journal(tmp_path / "mig") as journal:
        (record,) = begin(
            world,
            journal,
            world.observe(),
            WANTED,
            origin="a test",
            direction=Direction.BACK,
        )
        world.taken.append(SetMode(gpu="GPU-0", on=True))

        result = drive(world, journal, record)

    assert result.reason == "the way back failed: NVML_ERROR_DRIVER_NOT_LOADED"
