# SPDX-License-Identifier: Apache-2.0
"""Report of a self-test of MIG changes, for people and to attach to an issue.

Nothing in it names the machine: no host name, no UUID, no serial number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from actuator.change import ChangeResult
from actuator.selftest import TriedLayout
from api.mig_outcome import Outcome
from cli import terminal
from cli.mig.plan_text import layout_document
from cli.mig.running_change import change_end_text
from discovery.mig_state import MigGpu, MigProfile
from discovery.model import Driver

VERSION: Final = 1


@dataclass(slots=True, kw_only=True)
class SelftestReport:
    """Report of a self-test, filled during the test, so that it exists however the test ends."""

    gpuscape: str
    """Version of gpuscape."""
    started: str
    """Start of the test, RFC 3339."""
    simulated: bool
    driver: Driver
    gpu: MigGpu
    """State of the GPU before the test."""
    vbios: str | None
    cordoned: str | None
    """Name of the Node, which is cordoned; None where it was not read."""
    profiles: tuple[MigProfile, ...] = ()
    layouts: list[TriedLayout] = field(default_factory=list)
    result: ChangeResult | None = None
    """Result of the change that the test makes; None where its end is not known."""
    lost: str = ""
    """Why the end is not known."""

    @property
    def passed(self) -> bool:
        """Whether every layout was tried and reached, and the previous one is restored."""
        return (
            self.result is not None
            and self.result.outcome is Outcome.ROLLED_BACK
            and not self.result.reason
            and not any(layout.failure for layout in self.layouts)
        )


def report_document(report: SelftestReport) -> dict[str, Any]:
    """The report as plain values, for -o json and for the file."""
    gpu, result = report.gpu, report.result
    return {
        "version": VERSION,
        "gpuscape": report.gpuscape,
        "started": report.started,
        "simulated": report.simulated,
        "driver": {"version": report.driver.version, "nvml": report.driver.nvml_version},
        "gpu": {
            "model": gpu.model,
            "vbios": report.vbios,
            "device_id": f"0x{gpu.device_id:08X}",
            "subsystem_id": f"0x{gpu.subsystem_id:08X}",
            "mode": gpu.mode,
            "resetless": gpu.resetless,
            "instances_before": len(gpu.instances),
        },
        "node": "confirmed by whoever ran it" if report.cordoned is None else "cordoned",
        "passed": report.passed,
        "outcome": None if result is None else result.outcome,
        "reason": (report.lost if result is None else result.reason) or None,
        "devices_gone": bool(result is not None and result.problems),
        "profiles": list(report.profiles),
        "layouts": [
            {
                "name": layout.name,
                "desired": layout_document(layout.desired),
                "reached": not layout.failure,
                "failure": layout.failure or None,
                "kept": layout.kept,
                "seconds": round(layout.seconds, 4),
                "steps": [
                    {
                        "step": step.kind,
                        "profile": step.profile or None,
                        "seconds": round(step.seconds, 4),
                        "failure": step.failure or None,
                    }
                    for step in layout.steps
                ],
            }
            for layout in report.layouts
        ],
    }


def show_tested_gpu(report: SelftestReport) -> None:
    """Print the GPU that is about to be tested, and its present state."""
    gpu = report.gpu
    terminal.note(
        f"GPU {gpu.index} ({gpu.model}), VBIOS {report.vbios or 'not known'},"
        f" driver {report.driver.version or 'not known'}"
        f"{', simulated' if report.simulated else ''}"
    )
    count = len(gpu.instances)
    mode = "on" if gpu.mode is not None and gpu.mode.current else "off"
    terminal.note(f"MIG is {mode}, with {count} GPU instances; this is there again at the end.")


def layout_line(layout: TriedLayout) -> str:
    """Line about a layout that was tried, with its steps and its time."""
    steps = f"{len(layout.steps)} steps, {layout.seconds:.2f} s"
    if layout.failure:
        return f"FAILED  {layout.name}: {layout.failure} ({steps})"
    kept = f", {layout.kept} kept" if layout.kept else ""
    return f"ok      {layout.name} ({steps}{kept})"


def end_lines(report: SelftestReport, journal: Path) -> Iterator[str]:
    """Lines on the end of a self-test; none where it is not known."""
    result = report.result
    if result is None:
        return
    yield ""
    tried, failed = len(report.layouts), sum(bool(layout.failure) for layout in report.layouts)
    if result.outcome is Outcome.ROLLED_BACK:
        if report.passed:
            yield f"Passed: all {tried} layouts were reached, and the one from before is there."
        else:
            early = f"; ended early: {result.reason}" if result.reason else ""
            yield (
                f"Not passed: {failed} of {tried} layouts were not reached{early}."
                " The layout from before is there."
            )
    elif not result.has_begun:
        yield f"Nothing was changed: {result.reason}."
    else:
        yield change_end_text(result, journal)
    for problem in result.problems:
        yield f"Look at this: {problem}"
