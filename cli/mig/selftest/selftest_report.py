# SPDX-License-Identifier: Apache-2.0
"""What a self-test of MIG changes found, for people and to attach to a report.

Nothing in it names the machine: no host name, no UUID, no serial number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from actuator.change import ChangeResult
from actuator.change_record import ChangeOutcome
from actuator.selftest import TriedLayout, TriedStep
from cli import terminal
from cli.mig.planned_words import layout_document
from cli.mig.running_change import end_words
from cli.mig.selftest.selftest_offers import OfferComparison
from cli.mig.selftest.selftest_target import NodeState
from cli.terminal import TextTable
from discovery.mig_state import MigGpu, MigProfile
from discovery.model import Driver

VERSION: Final = 1
_STEPS: Final = {
    "SetMode": "set the MIG mode",
    "CreateInstance": "make a GPU instance",
    "CreateCompute": "make a compute instance",
    "DestroyCompute": "destroy a compute instance",
    "DestroyInstance": "destroy a GPU instance",
}


@dataclass(slots=True, kw_only=True)
class SelftestReport:
    """Filled while the test goes on, so that there is one however it ends."""

    gpuscape: str
    """Version."""
    started: str
    """RFC 3339."""
    simulated: bool
    driver: Driver
    gpu: MigGpu
    """Before the test."""
    vbios: str | None
    node: NodeState
    profiles: tuple[MigProfile, ...] = ()
    comparisons: tuple[OfferComparison, ...] = ()
    layouts: list[TriedLayout] = field(default_factory=list)
    result: ChangeResult | None = None
    """None: its end is not known."""
    lost: str = ""
    """Why the end is not known."""

    @property
    def passed(self) -> bool:
        """Every layout was tried and reached, and the one from before is there again."""
        return (
            self.result is not None
            and self.result.outcome is ChangeOutcome.PREVIOUS
            and not self.result.reason
            and not any(one.failure for one in self.layouts)
        )


def report_document(report: SelftestReport) -> dict[str, Any]:
    """As plain values."""
    gpu, result = report.gpu, report.result
    return {
        "version": VERSION,
        "gpuscape": report.gpuscape,
        "started": report.started,
        "simulated": report.simulated,
        "driver": {
            "version": report.driver.version,
            "nvml": report.driver.nvml_version,
        },
        "gpu": {
            "model": gpu.model,
            "vbios": report.vbios,
            "device_id": f"0x{gpu.device_id:08X}",
            "subsystem_id": f"0x{gpu.subsystem_id:08X}",
            "mode": gpu.mode,
            "resetless": gpu.resetless,
            "instances_before": len(gpu.instances),
        },
        "node": "cordoned" if report.node.name is not None else "confirmed by whoever ran it",
        "passed": report.passed,
        "outcome": None if result is None else result.outcome,
        "reason": (report.lost if result is None else result.reason) or None,
        "devices_gone": bool(result is not None and result.problems),
        "profiles": list(report.profiles),
        "comparisons": list(report.comparisons),
        "layouts": [
            {
                "name": one.name,
                "wanted": layout_document(one.wanted),
                "reached": not one.failure,
                "failure": one.failure or None,
                "kept": one.kept,
                "seconds": round(one.seconds, 4),
                "steps": [
                    {
                        "step": step.kind,
                        "profile": step.profile or None,
                        "seconds": round(step.seconds, 4),
                        "failure": step.failure or None,
                    }
                    for step in one.steps
                ],
            }
            for one in report.layouts
        ],
    }


def show_head(report: SelftestReport) -> None:
    """What is about to be tested."""
    gpu = report.gpu
    terminal.note(
        f"GPU {gpu.index} ({gpu.model}), VBIOS {report.vbios or 'not known'},"
        f" driver {report.driver.version or 'not known'}"
        f"{', simulated' if report.simulated else ''}"
    )
    there = len(gpu.instances)
    mode = "on" if gpu.mode is not None and gpu.mode.current else "off"
    terminal.note(f"MIG is {mode}, with {there} GPU instances; this is there again at the end.")


def layout_line(one: TriedLayout) -> str:
    """One layout, as soon as it was tried."""
    steps = f"{len(one.steps)} steps, {one.seconds:.2f} s"
    if one.failure:
        return f"FAILED  {one.name}: {one.failure} ({steps})"
    kept = f", {one.kept} kept" if one.kept else ""
    return f"ok      {one.name} ({steps}{kept})"


def show_end(report: SelftestReport, journal: Path) -> None:
    """Times, differences and the end."""
    steps = [step for one in report.layouts for step in one.steps]
    if steps:
        terminal.note("")
        terminal.show(step_table(steps))
    for line in (*_compared(report), *_end(report, journal)):
        terminal.note(line)


def step_table(steps: Iterable[TriedStep]) -> TextTable:
    """How long calls took, by kind."""
    by_kind: dict[str, list[TriedStep]] = {}
    for one in steps:
        by_kind.setdefault(one.kind, []).append(one)
    return TextTable(
        header=("STEP", "TIMES", "FAILED", "MEDIAN S", "LONGEST S"),
        rows=tuple(
            (
                words,
                str(len(found)),
                str(sum(bool(one.failure) for one in found)),
                f"{median(one.seconds for one in found):.3f}",
                f"{max(one.seconds for one in found):.3f}",
            )
            for kind, words in _STEPS.items()
            if (found := by_kind.get(kind))
        ),
        right=frozenset({1, 2, 3, 4}),
    )


def _compared(report: SelftestReport) -> Iterator[str]:
    if not report.profiles:
        return
    yield ""
    for one in report.comparisons:
        if not one.known:
            yield f"{one.source}: this model is not in it"
        elif not one.differences:
            yield f"{one.source}: the driver offers the same profiles"
        for difference in one.differences:
            yield f"{one.source}: {difference}"


def _end(report: SelftestReport, journal: Path) -> Iterator[str]:
    result = report.result
    if result is None:
        return
    yield ""
    tried, failed = len(report.layouts), sum(bool(one.failure) for one in report.layouts)
    if result.outcome is ChangeOutcome.PREVIOUS:
        if report.passed:
            yield f"Passed: all {tried} layouts were reached, and the one from before is there."
        else:
            early = f"; ended early: {result.reason}" if result.reason else ""
            yield (
                f"Not passed: {failed} of {tried} layouts were not reached{early}."
                " The layout from before is there."
            )
    elif result.outcome is None:
        yield f"Nothing was changed: {result.reason}."
    else:
        yield end_words(result, journal)
    for problem in result.problems:
        yield f"Look at this: {problem}"
