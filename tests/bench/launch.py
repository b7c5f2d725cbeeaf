# SPDX-License-Identifier: Apache-2.0
"""Starts one exporter as a process of its own on a simulated machine, its own code unchanged.

What the simulator takes of the processor in that process is counted apart, since on a node the
driver's library stands there. The process renders when it is asked on standard input, and ends
when that closes. Nothing is imported that the exporter would not, so its memory is its own.
"""

from __future__ import annotations

import copy
import importlib
import mmap
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
NODE = "node-a"
DISCOVER_SECONDS = 60
"""How often those exporters that tell it apart look what GPUs there are."""

GETTERS = (
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetPowerUsage",
)
"""Some of what exporters call, enough that all of the simulator is in use."""


class Meter:
    """Processor seconds that simulated NVML calls took, in as many processes as share the file."""

    _SIZE_BYTES = 8

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(bytes(self._SIZE_BYTES))
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), self._SIZE_BYTES)
        self._adding = threading.Lock()

    @property
    def seconds(self) -> float:
        """The sum so far."""
        value: float = struct.unpack_from("d", self._memory)[0]
        return value

    def count(self) -> None:
        """Count every simulated call of this process from now on."""
        from simulator.driver.library import Function

        plain = Function.__call__

        def counted(function: Function, *args: object) -> int | bytes | None:
            began = time.thread_time()
            try:
                return plain(function, *args)
            finally:
                self._add(time.thread_time() - began)

        Function.__call__ = counted  # type: ignore[method-assign,assignment]  # the same, timed

    def _add(self, seconds: float) -> None:
        with self._adding:
            struct.pack_into("d", self._memory, 0, self.seconds + seconds)


def gpuscape(state_file: str, meter_file: str, port: str, sample_seconds: str) -> None:
    """The agent, by its own command; its machine is ready made, and only its reader simulates."""
    from agent.metrics.latest_metrics import LatestMetrics

    running: list[LatestMetrics] = []
    plain = LatestMetrics.__init__

    def known(latest: LatestMetrics, *arguments: Any, **settings: Any) -> None:
        plain(latest, *arguments, **settings)
        running.append(latest)

    def render() -> None:
        latest = running[0]
        assert latest.snapshot is not None
        latest.show_snapshot(copy.copy(latest.snapshot), time.monotonic())  # as if read anew
        latest.metrics()

    LatestMetrics.__init__ = known  # type: ignore[method-assign,assignment]  # as before, but known here
    _meter_readers(meter_file)
    _obey(render)
    options = ["--standalone", "--simulate", state_file, "--node-name", NODE]
    options += ["--listen", f"{HOST}:{port}", "--probe-listen", f"{HOST}:0"]
    options += ["--sample-interval", f"{sample_seconds}s", "--own-families", "core"]
    options += ["--discover-interval", f"{DISCOVER_SECONDS}s", "--log-level", "error"]
    agent(state_file, *options)


def agent(state_file: str, *options: str) -> None:
    """The agent, by its own command and unmetered; its machine is ready made."""
    use_ready_machine(Path(state_file))
    sys.argv = ["gpuscape", "agent", *options]
    importlib.import_module("cli.main").main()


def use_ready_machine(state_file: Path) -> None:
    """Have the agent of this process read this machine without ever loading the simulator."""
    import contextlib
    from collections.abc import Iterator

    from agent import machine_reader
    from agent.settings.agent_settings import AgentSettings
    from discovery.reader.protocol import Start

    @contextlib.contextmanager
    def start_of(settings: AgentSettings) -> Iterator[Start]:  # noqa: ARG001  # as it is called
        yield Start(host_root=str(state_file.with_name("root")), simulation=str(state_file))

    machine_reader.start_of = start_of  # type: ignore[attr-defined]  # imported there


def prometheus_client(state_file: str, meter_file: str, port: str, sample_seconds: str) -> None:
    """The small exporter of :mod:`tests.bench.client_exporter`."""
    from tests.bench import client_exporter

    _meter_readers(meter_file)
    _obey(_generate)
    client_exporter.serve(
        Path(state_file), HOST, int(port), NODE, float(sample_seconds), DISCOVER_SECONDS
    )


def nvitop(state_file: str, meter_file: str, port: str, sample_seconds: str) -> None:
    """nvitop's exporter, by its own command; the simulator is under pynvml before it starts."""
    from simulator.simulation import Simulation

    Meter(Path(meter_file)).count()
    Simulation.open(Path(state_file)).install()
    _obey(_generate)
    sys.argv = ["nvitop-exporter", "--bind-address", HOST, "--port", port]
    sys.argv += ["--hostname", NODE, "--interval", sample_seconds]
    importlib.import_module("nvitop_exporter.cli").main()


def reader(meter_file: str) -> None:
    """A device reader as its parent starts one, metered."""
    from discovery.reader import reader_child
    from simulator.library_choice import choose_library

    Meter(Path(meter_file)).count()
    reader_child.main(choose_library)


def loaded(module: str, state_file: str = "") -> None:
    """A module and nothing else, or with the simulator too, after every GPU has been asked."""
    importlib.import_module(module)
    import pynvml

    if state_file:
        from simulator.simulation import Simulation

        Simulation.open(Path(state_file)).install()
        pynvml.nvmlInit()
        for at in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(at)
            for getter in GETTERS:
                try:
                    getattr(pynvml, getter)(handle)
                except pynvml.NVMLError:  # MIG refuses some of them
                    continue
    _obey(lambda: None)
    threading.Event().wait()


def _generate() -> None:
    """The text as prometheus_client makes it at each scrape."""
    from prometheus_client import REGISTRY, generate_latest

    generate_latest(REGISTRY)


def _meter_readers(meter_file: str) -> None:
    """Have device readers start through here: their parent runs "Python" with fixed arguments."""
    interpreter = Path(meter_file).with_suffix(".sh")
    command = f'cd "{ROOT}" && exec "{sys.executable}" -m {__spec__.name} reader "{meter_file}"'
    interpreter.write_text(f"#!/bin/sh\n{command}\n")
    interpreter.chmod(0o700)
    sys.executable = str(interpreter)


def _obey(render: Callable[[], None]) -> None:
    """Render as often as standard input says, and tell the median; end when it closes."""

    def run() -> None:
        try:
            for line in sys.stdin:
                sys.stdout.write(f"{_median_seconds(render, int(line))!r}\n")
                sys.stdout.flush()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=run, name="obey", daemon=True).start()


def _median_seconds(work: Callable[[], None], rounds: int) -> float:
    """0 after no round, which tells that the process is up."""
    seconds = [0.0]
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return sorted(seconds)[len(seconds) // 2]


PROGRAMS: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (gpuscape, agent, prometheus_client, nvitop, reader, loaded)
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
