# SPDX-License-Identifier: Apache-2.0
"""The agent as a process on a simulated machine, looked at from outside as Prometheus does."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil

from simulator.simulation import Simulation
from tests.controlplane.lifetime import end_with_parent
from tests.controlplane.programs import LAST_LINES
from tests.slower import SLOWER

SOON = 60.0 * SLOWER
"""For something that is bound to come, even where the machine is busy."""

_FOLLOWED_SECONDS = 2.0
"""A reader that outlives its agent may hold the pipe open."""

GPUSCAPE = Path(sys.executable).with_name("gpuscape")


Judge = Callable[[str, float], list[str]]
"""What is untrue in a scrape's text that was asked for at this moment."""


class AgentEndedError(AssertionError):
    """An agent ended before it listened; the text says how, with its last lines."""


class AgentProcess:
    """``gpuscape agent`` and what it serves."""

    def __init__(self, process: subprocess.Popen[str], simulation: Simulation) -> None:
        self.process = process
        self.simulation = simulation
        self._addresses: dict[str, str] = {}
        self.logged: list[dict[str, object]] = []
        self.said = ""
        """What it wrote to standard error beside its log."""
        self._last_lines = deque[str](maxlen=LAST_LINES)
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._follower.start()
        until(lambda: self._listens() or process.poll() is not None)
        if not self._listens():
            raise AgentEndedError(self.ending())

    def ending(self) -> str:
        """How it ended, with its last lines; empty while it runs."""
        code = self.process.poll()
        if code is None:
            return ""
        self._follower.join(_FOLLOWED_SECONDS)  # what it wrote last may still be in the pipe
        return f"ended with {code}; its last lines:\n{self.last_lines}"

    @property
    def last_lines(self) -> str:
        """Of its log and of what it wrote beside it."""
        return "".join(self._last_lines) or "none"

    def metrics(self) -> str:
        """One scrape."""
        return self.get("metrics", "/metrics")[1]

    def address(self, server: str) -> str:
        """Host and port of ``metrics`` or ``probes``."""
        return self._addresses[server]

    def get(self, server: str, path: str, *, compressed: bool = False) -> tuple[int, str]:
        """Status and text of one request on a connection of its own."""
        with contextlib.closing(
            http.client.HTTPConnection(self._addresses[server], timeout=SOON)
        ) as connection:
            headers = {"Accept-Encoding": "gzip"} if compressed else {}
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            body = response.read()
            return response.status, (gzip.decompress(body) if compressed else body).decode()

    def gpus(self, state: str) -> int:
        """GPUs in a state, as the agent serves them; none while it does not listen, as it does
        not between two sets of settings."""
        prefix = f'gpuscape_gpus{{state="{state}"}} '
        try:
            lines = [line for line in self.metrics().splitlines() if line.startswith(prefix)]
        except ConnectionError:
            return 0
        return int(float(lines[0].removeprefix(prefix))) if lines else 0

    def reader(self) -> psutil.Process:
        """The device reader that works now. Raises ValueError between two of them."""
        return max(self.readers(), key=lambda it: it.create_time())

    def readers(self) -> list[psutil.Process]:
        """All that there are, given up or not."""
        return psutil.Process(self.process.pid).children()

    def signal(self, number: signal.Signals) -> None:
        """Send the agent a signal."""
        self.process.send_signal(number)

    def _listens(self) -> bool:
        return {"metrics", "probes"} <= self._addresses.keys()

    def _follow(self) -> None:
        assert self.process.stderr is not None
        with contextlib.suppress(ValueError):  # who started the process has closed its pipe
            for line in self.process.stderr:
                self._last_lines.append(line)
                self._take(line)

    def _take(self, line: str) -> None:
        try:
            record = json.loads(line)
        except ValueError:
            self.said += line
            return
        self.logged.append(record)
        if record["message"] == "listening":
            self._addresses[record["serves"]] = record["address"]


def agent_arguments(
    simulation: Simulation, *options: str, listen: str | None = "127.0.0.1:0"
) -> list[str]:
    """What follows the command's name for an agent on this machine."""
    arguments = ["agent", "--simulate", str(simulation.state_file), "--node-name", "node-a"]
    arguments += [] if listen is None else ["--listen", listen]
    arguments += ["--probe-listen", "127.0.0.1:0"]
    return [*arguments, "--log-format", "json", *options]


@contextlib.contextmanager
def running(
    simulation: Simulation,
    *options: str,
    limits: Mapping[int, int] | None = None,
    defect: Path | None = None,
    listen: str | None = "127.0.0.1:0",
    program: Path = GPUSCAPE,
    in_own_group: bool = False,
) -> Iterator[AgentProcess]:
    """An agent on this machine, ended at the end.

    ``limits`` are those of the process, by their numbers in :mod:`resource`.

    ``defect``: a folder whose sitecustomize.py runs in the agent's process before the agent does.
    ``listen``: None where the options say it, in a file of settings.
    ``program`` is gpuscape as installed for another Python.
    ``in_own_group``: as a terminal's shell starts it, which sends Ctrl-C to its whole group.
    """

    tie = end_with_parent(signal.SIGTERM)

    def prepare() -> None:
        tie()
        for number, limit in (limits or {}).items():
            resource.setrlimit(number, (limit, resource.getrlimit(number)[1]))

    arguments = agent_arguments(simulation, "--standalone", *options, listen=listen)
    with subprocess.Popen(
        [program, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
        process_group=0 if in_own_group else None,
        env=os.environ | ({} if defect is None else {"PYTHONPATH": str(defect)}),
    ) as process:
        try:
            yield AgentProcess(process, simulation)
        finally:
            try:
                simulation.clear()
            finally:
                _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """End an agent, whatever was done to its reader."""
    if process.poll() is not None:
        return
    for child in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            child.send_signal(signal.SIGCONT)
    process.terminate()
    process.wait(SOON)


class Scraper:
    """Scrapes again and again while a test disturbs the machine; every answer must be whole.

    Every other answer is compressed, as Prometheus has it. ``judge`` gets each text and when it
    was asked for, in monotonic seconds, and gives what is untrue in it, in words.
    """

    def __init__(
        self, agent: AgentProcess, pause_seconds: float = 0.05, *, judge: Judge = lambda *_: []
    ) -> None:
        self._agent = agent
        self._pause_seconds = pause_seconds
        self._judge = judge
        self._stop = threading.Event()
        self.answers = 0
        self.failures: list[str] = []
        self.untrue: list[str] = []
        self.slowest_seconds = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Scraper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._pause_seconds):
            began, compressed = time.monotonic(), self.answers % 2 == 1
            try:
                status, text = self._agent.get("metrics", "/metrics", compressed=compressed)
                alive, _ = self._agent.get("probes", "/livez")
            except OSError as error:
                self.failures.append(repr(error))
                continue
            self.untrue += self._judge(text, began)
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
            if (status, alive) != (200, 200) or "gpuscape_build_info" not in text:
                self.failures.append(f"metrics {status}, livez {alive}")
            self.answers += 1


def until(true: Callable[[], bool], seconds: float = SOON) -> float:
    """Wait for something that is bound to come; how long it took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, f"it did not come within {seconds:g} s"
        time.sleep(0.05)
    return time.monotonic() - began


def runs(process: psutil.Process) -> bool:
    """Whether it has not ended; one that nobody waited for has."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
