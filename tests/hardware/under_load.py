# SPDX-License-Identifier: Apache-2.0
"""A busy GPU as gpuscape measures it next to nvidia-smi; prints the tables of docs/real-gpu.md.

    .venv/bin/python -m tests.hardware.under_load --load-python /usr/bin/python3

The agent serves every family and samples each second; ``nvidia-smi dmon`` reads each second too,
GPM metrics included. GPU 0 is kept busy by tests/hardware/loads.py, which needs PyTorch in the
Python that is named. Nothing of the GPU is set. Of each kind of load the first three seconds
are left out, in which averages still hold what was before.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Final

import psutil

from tests.hardware.nvidia_smi import NVIDIA_SMI, query
from tests.hardware.running_agent import agent, scrape

LEFT_OUT_SECONDS: Final = 3.0
MEBI: Final = 1 << 20

COLUMNS: Final = {
    "power, W": ("pwr", "DCGM_FI_DEV_POWER_USAGE", 1),
    "SM clock, MHz": ("pclk", "DCGM_FI_DEV_SM_CLOCK", 1),
    "°C": ("gtemp", "DCGM_FI_DEV_GPU_TEMP", 1),
    "memory, °C": ("mtemp", "DCGM_FI_DEV_MEMORY_TEMP", 1),
    "memory used, MiB": ("fb", "DCGM_FI_DEV_FB_USED", 1),
    "graphics active, %": ("gract", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", 100),
    "SM active, %": ("smutil", "DCGM_FI_PROF_SM_ACTIVE", 100),
    "SM occupancy, %": ("smocc", "DCGM_FI_PROF_SM_OCCUPANCY", 100),
    "tensor active, %": ("mmaact", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 100),
    "DRAM active, %": ("dram", "DCGM_FI_PROF_DRAM_ACTIVE", 100),
    "FP64 active, %": ("fp64", "DCGM_FI_PROF_PIPE_FP64_ACTIVE", 100),
    "FP32 active, %": ("fp32", "DCGM_FI_PROF_PIPE_FP32_ACTIVE", 100),
    "PCIe sent, MiB/s": ("pcitx", "DCGM_FI_PROF_PCIE_TX_BYTES", 1 / MEBI),
    "PCIe received, MiB/s": ("pcirx", "DCGM_FI_PROF_PCIE_RX_BYTES", 1 / MEBI),
}
"""Row of the table to the column of dmon, our family, and the factor that makes it that unit."""

GPM: Final = "1,2,3,5,10,11,12,20,21"

Readings = Mapping[str, float]
Timed = list[tuple[float, Readings]]
"""Seconds since 1970, and what was read then by name."""


def main() -> int:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--load-python", default="python3", help="a Python that has PyTorch")
    parser.add_argument("--seconds", type=float, default=12, help="for each kind of load")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counters = Path(folder) / "counters.csv"
        families = [family for _, family, _ in COLUMNS.values()]
        counters.write_text("".join(f"{it}, gauge, {it}.\n" for it in families), "utf-8")
        with (
            agent("--counters", str(counters)) as running,
            dmon(Path(folder) / "dmon.txt") as judge,
        ):
            scrapes: Timed = []
            command = (chosen.load_python, "-m", "tests.hardware.loads", str(chosen.seconds))
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
                while load.poll() is None:
                    scrapes.append((time.time(), measured()))
                    time.sleep(1)
                printed = "" if load.stdout is None else load.stdout.read()
            used = cost(running)
        spans = spans_of(printed)
        rows = dmon_rows(judge.read_text("utf-8"))
    (gpu,) = query("name", "driver_version")[:1]
    name = f"{gpu['name']}, driver {gpu['driver_version']}: gpuscape / nvidia-smi dmon"
    sys.stdout.write("\n\n".join((name, table(spans, scrapes, rows), used)) + "\n")
    return load.returncode


@contextlib.contextmanager
def dmon(file: Path) -> Iterator[Path]:
    """nvidia-smi's own readings of GPU 0, each second, into the file."""
    command = [NVIDIA_SMI, "dmon", "-i", "0", "-s", "pucm", "-d", "1", "-o", "DT"]
    command += ["--gpm-metrics", GPM]
    with file.open("w") as output, subprocess.Popen(command, stdout=output) as running:
        try:
            yield file
        finally:
            running.terminate()


def measured() -> Readings:
    """Our value of each family, of GPU 0."""
    found = re.findall(r'^(DCGM_\w+)\{gpu="0".*\} (\S+)$', scrape(), re.MULTILINE)
    return {family: float(value) for family, value in found}


def cost(running: psutil.Process) -> str:
    """What agent and device reader take."""
    lines = []
    for name, it in zip(("agent", "device reader"), [running, *running.children()], strict=False):
        memory, times = it.memory_full_info(), it.cpu_times()
        lines.append(
            f"{name}: {memory.rss / MEBI:.0f} MiB resident, {memory.uss / MEBI:.0f} of its own, "
            f"{times.user + times.system:.1f} s of processor time in "
            f"{time.time() - it.create_time():.0f} s"
        )
    return "\n".join(lines)


def spans_of(printed: str) -> dict[str, tuple[float, float]]:
    """Each kind of load to when it was at work, from what loads.py prints."""
    found = re.findall(r"^(.+): (\S+) (\S+)$", printed, re.MULTILINE)
    return {name: (float(begin), float(end)) for name, begin, end in found}


def dmon_rows(text: str) -> Timed:
    """What dmon printed, by its column names."""
    header: list[str] = []
    rows: Timed = []
    for line in text.splitlines():
        if line.startswith("#"):
            header = header or line[1:].split()
            continue
        cells = dict(zip(header, line.split(), strict=True))
        when = datetime.strptime(cells["Date"] + cells["Time"], "%Y%m%d%H:%M:%S").astimezone()
        numbers = {
            name: float(cell) for name, cell in cells.items() if re.fullmatch(r"[\d.]+", cell)
        }
        rows.append((when.timestamp(), numbers))
    return rows


def table(spans: Mapping[str, tuple[float, float]], ours: Timed, theirs: Timed) -> str:
    """Means over each kind of load, ours / nvidia-smi's, as a Markdown table."""
    lines = ["| | " + " | ".join(spans) + " |", "| --- |" + " ---: |" * len(spans)]
    for row, (column, family, factor) in COLUMNS.items():
        cells = [
            f"{mean(ours, family, span, factor)} / {mean(theirs, column, span, 1)}"
            for span in spans.values()
        ]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def mean(
    rows: Sequence[tuple[float, Readings]], name: str, span: tuple[float, float], factor: float
) -> str:
    """Mean of what was read in this span; - where nothing was."""
    begin, end = span
    read = [it[name] for when, it in rows if begin + LEFT_OUT_SECONDS <= when < end and name in it]
    return f"{fmean(read) * factor:,.0f}" if read else "-"


if __name__ == "__main__":
    sys.exit(main())
