# SPDX-License-Identifier: Apache-2.0
"""Scrapes while a thousand slow clients hold on to the agent: ``python -m tests.bench.serving``.

The agent serves a node of 8 GPUs with 7 MIG devices each. Slow clients live in a process of their
own and come back a second after the agent has closed them, so that it never gets rid of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from simulator.simulation import Simulation
from tests.bench import clock
from tests.bench.memory import MACHINE
from tests.bench.page import Section, table
from tests.bench.programs import agent_command, pss_mib
from tests.controlplane.components import free_port
from tests.controlplane.lifetime import end_with_parent

SLOW = 1000
SCRAPES_EACH_SECOND = 200
AT_ONCE = 32
"""More scrapes wait for their turn in the client, or a client that was kept from running would
storm the agent afterwards; that they wait is in their time."""
SECONDS = 30.0
BACK_AFTER_SECONDS = 1.0
DRIP_SECONDS = 1.0
SETTLE_SECONDS = 5.0
SOON_SECONDS = 60.0
BUDGET_SECONDS = 1.0
BUDGET_MIB = 16

_SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
_LARGE = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
_SMALL_BUFFER_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the scrapes came to, and what the agent took."""

    text_bytes: int
    seconds: tuple[float, ...]
    """Of each scrape, from when it was due; without a full answer it took for ever."""
    quiet_seconds: tuple[float, ...]
    """The same before the slow clients came."""
    slow_connections: int
    """That the slow clients made in all."""
    before_mib: float
    under_load_mib: float
    after_mib: float


def measure(
    slow: int = SLOW,
    scrapes_each_second: float = SCRAPES_EACH_SECOND,
    seconds: float = SECONDS,
    settle_seconds: float = SETTLE_SECONDS,
) -> Measured:
    """Scrapes at this rate, for so long without and for so long with so many slow clients."""
    with tempfile.TemporaryDirectory() as folder, _agent(Path(folder)) as (pid, port):
        text_bytes = _await_text(port)
        quiet = asyncio.run(_scrapes(port, scrapes_each_second, seconds))
        time.sleep(settle_seconds)
        before_mib = pss_mib(pid)
        with _slow_clients(port, slow) as made:
            times = asyncio.run(_scrapes(port, scrapes_each_second, seconds))
            under_load_mib = pss_mib(pid)
            slow_connections = made()
        time.sleep(settle_seconds)
        return Measured(
            text_bytes=text_bytes,
            seconds=tuple(times),
            quiet_seconds=tuple(quiet),
            slow_connections=slow_connections,
            before_mib=before_mib,
            under_load_mib=under_load_mib,
            after_mib=pss_mib(pid),
        )


def section() -> Section:
    """Measure, and say it."""
    seen = measure()
    p99, quiet_p99 = (clock.percentile(each, 99) for each in (seen.seconds, seen.quiet_seconds))
    grown = seen.after_mib - seen.before_mib
    return Section(
        title="Slow and greedy clients",
        text=(
            f"{SCRAPES_EACH_SECOND} scrapes a second over {SECONDS:g} s, each on a new connection"
            f" and with gzip, of {seen.text_bytes / 2**20:.2f} MiB of text, first alone, then"
            f" beside {SLOW} clients that say nothing, send a byte of a head a second, or ask for"
            f" the text and do not read it. Those came {seen.slow_connections} times, since each"
            f" comes back {BACK_AFTER_SECONDS:g} s after it was closed. Times count from when a"
            " scrape was due; clients and agent share the machine."
        ),
        rows=(
            ("scrape, alone", f"{median(seen.quiet_seconds) * 1000:.1f} ms"),
            ("its 99th percentile", f"{quiet_p99 * 1000:.1f} ms"),
            ("scrape, beside slow clients", f"{median(seen.seconds) * 1000:.1f} ms"),
            (
                f"its 99th percentile (budget {BUDGET_SECONDS * 1000:g} ms)",
                f"{p99 * 1000:.1f} ms",
            ),
            ("scrapes without a full answer", f"{sum(map(math.isinf, seen.seconds))}"),
            ("memory of the agent before", f"{seen.before_mib:.1f} MiB"),
            ("at the end of the load", f"{seen.under_load_mib:.1f} MiB"),
            (f"grown afterwards (budget {BUDGET_MIB} MiB)", f"{grown:.1f} MiB"),
        ),
    )


# Scrapes


async def _scrapes(port: int, each_second: float, seconds: float) -> list[float]:
    """How long each took; those without a full answer took for ever.

    They are due at even distances, whether or not those before have ended.
    """
    begin = time.perf_counter()
    few = asyncio.Semaphore(AT_ONCE)
    running = []
    for at in range(round(each_second * seconds)):
        due = begin + at / each_second
        await asyncio.sleep(due - time.perf_counter())
        running.append(asyncio.create_task(_scrape(port, due, few)))
    return await asyncio.gather(*running)


async def _scrape(port: int, due: float, few: asyncio.Semaphore) -> float:
    """Seconds from when it was due until its last byte was here."""
    try:
        async with few, asyncio.timeout(SOON_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(writer):
                writer.write(_SCRAPE)
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                if not head.startswith(b"http/1.1 200 "):
                    return math.inf
                length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return math.inf
    return time.perf_counter() - due


# Slow clients


@contextlib.contextmanager
def _slow_clients(port: int, count: int) -> Iterator[Callable[[], int]]:
    """They are there; called, it tells how many connections they have made, and they go."""
    command = [sys.executable, "-m", "tests.bench.serving", str(port), str(count)]
    with _child(command) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout
        assert stdout.readline() == "there\n"

        def made() -> int:
            stdin.close()
            return int(stdout.readline())

        yield made


async def _be_slow(port: int, count: int) -> None:
    """Connect so many clients, say that they are there, and hold on until standard input ends."""
    made, there = 0, asyncio.Event()

    def connected() -> None:
        nonlocal made
        made += 1
        if made >= count:
            there.set()

    ways = (_silent, _dripping, _not_reading)
    clients = [
        asyncio.create_task(_again_and_again(ways[at % len(ways)], port, connected))
        for at in range(count)
    ]
    await there.wait()
    sys.stdout.write("there\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for client in clients:
        client.cancel()
    sys.stdout.write(f"{made}\n")


async def _again_and_again(
    way: Callable[[asyncio.AbstractEventLoop, socket.socket], Awaitable[None]],
    port: int,
    connected: Callable[[], None],
) -> None:
    loop = asyncio.get_running_loop()
    while True:
        with socket.socket() as client, contextlib.suppress(OSError):
            client.setblocking(False)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER_BYTES)
            await loop.sock_connect(client, ("127.0.0.1", port))
            connected()
            await way(loop, client)
        await asyncio.sleep(BACK_AFTER_SECONDS)


async def _silent(loop: asyncio.AbstractEventLoop, client: socket.socket) -> None:
    await loop.sock_recv(client, 1)


async def _dripping(loop: asyncio.AbstractEventLoop, client: socket.socket) -> None:
    for byte in itertools.cycle(_SCRAPE[:-4]):
        await loop.sock_sendall(client, bytes([byte]))
        await asyncio.sleep(DRIP_SECONDS)


async def _not_reading(loop: asyncio.AbstractEventLoop, client: socket.socket) -> None:
    """It learns that it was closed from what it sends: it reads nothing."""
    await loop.sock_sendall(client, _LARGE)
    while True:
        await asyncio.sleep(DRIP_SECONDS)
        await loop.sock_sendall(client, _LARGE)


# The agent


@contextlib.contextmanager
def _agent(folder: Path) -> Iterator[tuple[int, int]]:
    """Its process and port; its machine is ready made, so the simulator is not in its memory."""
    state_file = Simulation.create(MACHINE, folder).state_file
    port = free_port()
    with _child(agent_command(state_file, port, "--standalone")) as process:
        yield process.pid, port


@contextlib.contextmanager
def _child(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with this block, and with us."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=end_with_parent(),  # from the main thread, which stays
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def _await_text(port: int) -> int:
    """Bytes of the text, once the GPUs are in it."""
    end = time.monotonic() + SOON_SECONDS
    while time.monotonic() < end:
        with (
            contextlib.suppress(OSError),  # it does not listen yet
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response,  # ours
        ):
            text = response.read()
            if b"\nDCGM_FI_DEV_FB_USED{" in text:
                return len(text)
        time.sleep(0.2)
    raise TimeoutError("the agent serves no GPU series")


def main() -> None:
    """Measure and print; with a port and a count, be so many slow clients."""
    if sys.argv[1:]:
        asyncio.run(_be_slow(*map(int, sys.argv[1:])))
    else:
        sys.stdout.write(table(section()))


if __name__ == "__main__":
    main()
