# SPDX-License-Identifier: Apache-2.0
"""Exporters as processes, looked at from outside: scrapes, processor time, memory.

A process' own memory and time are what is left without the simulator, which stands in place
of the driver's library. Its time is measured around every simulated call, in the process
itself; its memory in two processes that load the same module, one of which simulates.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.bench.launch import HOST, Meter
from tests.controlplane.components import free_port

SOON = 60.0
READER, NVITOP = "discovery.reader.reader_child", "nvitop_exporter.cli"
"""Modules in whose process the simulator runs."""


class Program:
    """One exporter that runs."""

    def __init__(self, name: str, process: subprocess.Popen[str], port: int, meter: Meter) -> None:
        self.name = name
        self._process = process
        self._meter = meter
        self._connection = http.client.HTTPConnection(HOST, port, timeout=SOON)

    @property
    def pid(self) -> int:
        """Of the exporter itself."""
        return self._process.pid

    @property
    def readers(self) -> list[int]:
        """Device readers, where it has any."""
        return [child.pid for child in psutil.Process(self.pid).children()]

    @property
    def simulated_seconds(self) -> float:
        """Processor time of the simulator so far."""
        return self._meter.seconds

    def cpu_seconds(self) -> float:
        """Processor time so far of the exporter and its reader, without the simulator."""
        return sum(map(cpu_seconds, (self.pid, *self.readers))) - self.simulated_seconds

    def scrape(self) -> bytes:
        """The answer to a request as Prometheus makes it, as it comes; a new connection if needed.

        The text of format 0.0.4 is asked for, since all of them give that.
        """
        headers = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "gzip"}
        self._connection.request("GET", "/metrics", headers=headers)
        response = self._connection.getresponse()
        assert response.status == 200, f"{self.name}: {response.status}"
        return response.read()

    def text(self) -> bytes:
        """What it serves."""
        return gzip.decompress(self.scrape())

    def await_family(self, family: str) -> None:
        """Wait until it has a series of this family."""
        end = time.monotonic() + SOON
        while time.monotonic() < end:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if f"\n{family}{{".encode() in self.text():
                    return
            assert self._process.poll() is None, f"{self.name} ended: {self._process.returncode}"
            self._connection.close()
            time.sleep(0.2)
        raise TimeoutError(f"{self.name} serves no {family}")

    def render_seconds(self, rounds: int) -> float:
        """Median time to make its whole text, in the process itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{rounds}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"{self.name} ended: {self._process.wait(SOON)}"
        return float(answer)

    def close(self) -> None:
        """End it."""
        self._connection.close()
        _end(self._process)


@contextlib.contextmanager
def running(name: str, state_file: Path, sample_seconds: float = 10.0) -> Iterator[Program]:
    """One of ``launch.PROGRAMS`` on this machine, reading its GPUs so often."""
    with tempfile.TemporaryDirectory() as folder:
        meter_file, port = Path(folder) / "meter", free_port()
        meter = Meter(meter_file)
        process = _launch(name, *map(str, (state_file, meter_file, port, sample_seconds)))
        program = Program(name, process, port, meter)
        try:
            yield program
        finally:
            program.close()


def agent_command(state_file: Path, port: int, *options: str) -> list[str]:
    """How to start the agent as a node does, on a machine made beforehand, with these options.

    The simulator is in its reader alone. It serves on this port, and samples every 10 s.
    """
    command = [sys.executable, "-m", "tests.bench.launch", "agent", str(state_file), *options]
    command += ["--listen", f"{HOST}:{port}", "--probe-listen", f"{HOST}:0"]
    return [*command, "--sample-interval", "10s", "--start-spread", "0", "--log-level", "error"]


def simulator_mib(module: str, state_file: Path) -> float:
    """What the simulator adds to the memory of a process that has loaded this module."""
    processes = [_launch("loaded", module), _launch("loaded", module, str(state_file))]
    try:
        for process in processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("0\n")
            process.stdin.flush()
            assert process.stdout.readline(), f"{module} cannot be loaded"
        without, simulating = (pss_mib(process.pid) for process in processes)
        return simulating - without
    finally:
        for process in processes:
            _end(process)


def pss_mib(pid: int) -> float:
    """Proportional set size of a process: what it shares counts in parts."""
    return _memory_mib(pid, "Pss:")


def resident_kib(pid: int) -> Counter[str]:
    """What a process has in memory: KiB of each file that it maps, by path, and "" for no file.

    Source: Rss and Anonymous of each mapping in /proc/<pid>/smaps, in kB.
    """
    found = Counter[str]()
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, *values = line.split()
        if not name.endswith(":"):  # a mapping begins: addresses, then its file, if it has one
            file = values[4] if len(values) > 4 else ""
        elif name == "Rss:":
            found[file] += int(values[0])
        elif name == "Anonymous:":
            found[file] -= int(values[0])
            found[""] += int(values[0])
    return found


def private_mib(pid: int) -> float:
    """Of that what stands for no file: unlike the rest it does not change with other programs."""
    return _memory_mib(pid, "Pss_Anon:")


def _memory_mib(pid: int, row: str) -> float:
    """Source: /proc/<pid>/smaps_rollup, in kB. Raises OSError when the process is gone."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(row):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} does not tell {row}")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process, to the nanosecond where /proc counts in hundredths.

    Source: clock_getcpuclockid(3), whose ids are made like this on Linux.
    """
    return time.clock_gettime((~pid << 3) | 2)


def _launch(*arguments: str) -> subprocess.Popen[str]:
    """Ends when we do: its standard input closes then."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.bench.launch", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # nvitop tells of every call that a simulated driver lacks
        text=True,
    )


def _end(process: subprocess.Popen[str]) -> None:
    with process:  # closes its pipes
        process.terminate()
        try:
            process.wait(SOON)
        finally:
            process.kill()
