# SPDX-License-Identifier: Apache-2.0
"""The agent beside other exporters, on the same simulated machine at the same time."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

from simulator.simulation import Simulation
from tests import exposition
from tests.bench import clock, programs
from tests.bench.page import Section
from tests.bench.programs import NVITOP, READER, Program

OURS, CLIENT, THEIRS = NAMES = "gpuscape", "prometheus_client", "nvitop"
FAMILY = {
    OURS: "DCGM_FI_DEV_FB_USED",
    "gpuscape_none": "DCGM_FI_DEV_FB_USED",
    CLIENT: "DCGM_FI_DEV_FB_USED",
    THEIRS: "gpu_memory_used_MiB",
}
"""A family that each of them serves once it has read the GPUs."""

SAMPLE_SECONDS = 10.0
SETTLE_SECONDS = 5.0
CPU_SECONDS = 60.0
SCRAPE_SECONDS = 15.0
SCRAPES = 201


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one exporter came to."""

    series: int
    text_bytes: int
    render_seconds: float
    scrape_seconds: float
    scrape_p99_seconds: float
    cpu_seconds: float
    """Within the measured time, without the simulator, whose part is the next."""
    simulated_seconds: float
    memory_mib: float
    simulated_mib: float


def measure(
    machine: str,
    *,
    cpu_for_seconds: float = CPU_SECONDS,
    scrapes: int = SCRAPES,
    settle_seconds: float = SETTLE_SECONDS,
) -> dict[str, Measured]:
    """All of them on this machine.

    Raises AssertionError where the first two do not serve the same DCGM series.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        state_file = Simulation.create(machine, Path(folder)).state_file
        running = [
            ending.enter_context(programs.running(name, state_file, SAMPLE_SECONDS))
            for name in NAMES
        ]
        for program in running:
            program.await_family(FAMILY[program.name])
        time.sleep(settle_seconds)
        cpu = cpu_seconds(running, cpu_for_seconds)
        simulated = {
            module: programs.simulator_mib(module, state_file) for module in (READER, NVITOP)
        }
        memory = {program.name: _memory_mib(program, simulated) for program in running}
        texts = {program.name: program.text() for program in running}
        check_same(texts[OURS], texts[CLIENT])
        times = clock.times_seconds({program.name: program.scrape for program in running}, scrapes)
        return {
            program.name: Measured(
                series=count_series(texts[program.name]),
                text_bytes=len(texts[program.name]),
                render_seconds=program.render_seconds(clock.ROUNDS),
                scrape_seconds=median(times[program.name]),
                scrape_p99_seconds=clock.percentile(times[program.name], 99),
                cpu_seconds=cpu[program.name][0],
                simulated_seconds=cpu[program.name][1],
                memory_mib=memory[program.name][0],
                simulated_mib=memory[program.name][1],
            )
            for program in running
        }


def check_same(ours: bytes, theirs: bytes) -> None:
    """Both have the same DCGM series, but for prometheus_client's ``_total`` behind counters."""
    counters = {
        family.name for family in exposition.parse(ours).values() if family.kind == "counter"
    }
    renamed = {
        (f"{name}_total" if name in counters else name, labels)
        for name, labels in exposition.series(ours)
    }
    assert _of_dcgm(renamed) == _of_dcgm(exposition.series(theirs))


def _of_dcgm(series: object) -> set[tuple[str, exposition.Labels]]:
    assert isinstance(series, set | dict)
    return {(name, labels) for name, labels in series if name.startswith("DCGM_")}


def count_series(text: bytes) -> int:
    """Series in an exposition."""
    return sum(1 for line in text.splitlines() if line and not line.startswith(b"#"))


def cpu_seconds(running: Sequence[Program], seconds: float) -> dict[str, tuple[float, float]]:
    """Each one's own time and the simulator's, while it is scraped as Prometheus would."""
    before = {each.name: (each.cpu_seconds(), each.simulated_seconds) for each in running}
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        for program in running:
            program.scrape()
        time.sleep(min(SCRAPE_SECONDS, left))
    return {
        each.name: (
            each.cpu_seconds() - before[each.name][0],
            each.simulated_seconds - before[each.name][1],
        )
        for each in running
    }


def _memory_mib(program: Program, simulated: dict[str, float]) -> tuple[float, float]:
    """Its own, and the simulator's in it."""
    readers = program.readers
    whole = sum(programs.pss_mib(pid) for pid in (program.pid, *readers))
    inside = len(readers) * simulated[READER] if readers else simulated[NVITOP]
    return whole - inside, inside


def full() -> Section:
    """On a DGX A100 that is cut up wholly."""
    nvitop = f"nvitop-exporter {version('nvitop-exporter')}"
    return _section(
        "dgx-a100-mig-single",
        title="Beside other exporters, on a DGX A100: 8 GPUs with 7 MIG devices each",
        text=(
            "Three exporters at once on one simulated machine, each by its own command: the agent, "
            "without a cluster, whose client's memory is in a section below; a small exporter that "
            "gives what the same device reader reads to "
            "`prometheus_client`, which has the same DCGM series as the agent, but none of the "
            f"agent's own; and {nvitop}, unchanged, whose families are others (NVLink rates of "
            "each link and the host's figures among them). All "
            f"read their GPUs every {SAMPLE_SECONDS:g} s. Processor time is counted for "
            f"{CPU_SECONDS:g} s, with a scrape every {SCRAPE_SECONDS:g} s; the hour is "
            "extrapolated from it. The simulator, which runs in the two device readers and in "
            "nvitop, is taken out: its time is measured around every simulated call in the process "
            "itself; its memory is what it adds to a process that has loaded the same module and "
            "asked every GPU. The driver's own library is thereby left out for all. nvitop's "
            "needs the least memory: it reads the driver in its own process, where a call that "
            "hangs stops it; ours has a process for that. Memory is "
            "proportional set size, readers included. Rendering is the whole text once, within the "
            "process: the agent does it when readings come, the others at each scrape. Scrapes are "
            f"{SCRAPES} in turns, compressed, the text format asked for as Prometheus does."
        ),
    )


def whole() -> Section:
    """On a machine without MIG."""
    return _section(
        "hgx-h100",
        title="Beside other exporters, on an HGX H100: 8 GPUs without MIG",
        text="As in the section above.",
    )


def _section(machine: str, *, title: str, text: str) -> Section:
    found = measure(machine)
    hourly = 3600 / CPU_SECONDS
    return Section(
        title=title,
        text=text,
        columns=("", *NAMES),
        rows=(
            _row("series", [f"{it.series:,}" for it in found.values()]),
            _row("text", [f"{it.text_bytes / 1024:,.0f} KiB" for it in found.values()]),
            _row("rendering", [_ms(it.render_seconds) for it in found.values()]),
            _row(
                "rendering, for 1,000 series",
                [_ms(it.render_seconds * 1000 / it.series) for it in found.values()],
            ),
            _row("one scrape", [_ms(it.scrape_seconds) for it in found.values()]),
            _row("one scrape, 99 of 100", [_ms(it.scrape_p99_seconds) for it in found.values()]),
            _row("CPU per hour", [f"{it.cpu_seconds * hourly:.1f} s" for it in found.values()]),
            _row("memory", [f"{it.memory_mib:.1f} MiB" for it in found.values()]),
            _row(
                "the simulator's CPU per hour, taken out",
                [f"{it.simulated_seconds * hourly:.1f} s" for it in found.values()],
            ),
            _row(
                "the simulator's memory, taken out",
                [f"{it.simulated_mib:.1f} MiB" for it in found.values()],
            ),
        ),
    )


def _row(what: str, figures: Sequence[str]) -> tuple[str, ...]:
    return (what, *figures)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"
