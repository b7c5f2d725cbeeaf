# SPDX-License-Identifier: Apache-2.0
"""The extender at the machine's limits: few descriptors, no threads, many clients at once."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import resource
import select
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path

import psutil
import pytest

from tests.agent.agent_process import GPUSCAPE, SOON, until
from tests.fakes.thread_limit import limits_of
from tests.scheduler.calls import body
from tests.scheduler.extender_process import ExtenderProcess, running, unreachable_cluster
from tests.scheduler.extenders import HOST, Reply, asked

FEW = 64
MANY_AT_ONCE = 2000
SCORES = body()
STACK_BYTES = 64 << 20
"""Of a thread: more than glibc keeps for the next one, so that each one needs new memory."""


LARGE_AT_ONCE = 40
PIECE_BYTES = 1 << 18
READ = {HTTPStatus.OK, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
"""Statuses of a call whose body was taken; reading a very long one may outlast the budget."""
LATE = HTTPStatus.REQUEST_TIMEOUT
"""On a busy machine."""
LARGE_BYTES = 7_300_000
NODE = {"metadata": {"name": "a"}}
LARGE: Mapping[str, Callable[[], bytes]] = {
    "few long names": lambda: body("x" * 400 + str(at) for at in range(LARGE_BYTES // 408)),
    "many short names": lambda: body(f"{at:x}" for at in range(LARGE_BYTES // 8)),
    "whole Nodes": lambda: body(None, Nodes={"items": [NODE] * (LARGE_BYTES // 27)}),
}


def large_call(port: int, content: bytes) -> tuple[int, str | None]:
    """Status and Retry-After of a call whose client stops sending once it is answered, as Go's."""
    connection = http.client.HTTPConnection(HOST, port, timeout=SOON)
    with contextlib.closing(connection):
        connection.putrequest("POST", "/v1/prioritize")
        connection.putheader("Content-Length", str(len(content)))
        connection.endheaders()
        for at in range(0, len(content), PIECE_BYTES):
            if select.select([connection.sock], [], [], 0)[0]:
                break
            connection.send(content[at : at + PIECE_BYTES])
        response = connection.getresponse()
        return response.status, response.headers["Retry-After"]


def most_memory_bytes(extender: ExtenderProcess) -> int:
    """The most that the process ever had in memory. Source: proc(5), VmHWM."""
    status = Path(f"/proc/{extender.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


@pytest.fixture
def nobody(tmp_path: Path) -> Path:
    """The kubeconfig of a cluster whose API server does not answer."""
    return unreachable_cluster(tmp_path)


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Enough for a socket for each client in this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def limited(extender: ExtenderProcess, number: int, limit: int) -> Iterator[None]:
    """A lower limit for the running process."""
    pid = extender.process.pid
    before = resource.prlimit(pid, number)
    resource.prlimit(pid, number, (limit, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, number, before)


def lines(extender: ExtenderProcess, message: str) -> Sequence[dict[str, object]]:
    """What it logged with this message."""
    return [entry for entry in extender.logged if entry["message"] == message]


def refusals(extender: ExtenderProcess, reason: str) -> float:
    """Clients that it refused for this reason."""
    name = f'gpuscape_scheduler_http_refusals_total{{reason="{reason}"}} '
    text = extender.ask("/metrics").body.decode()
    (line,) = (line for line in text.splitlines() if line.startswith(name))
    return float(line.removeprefix(name))


def test_idle_clients_take_no_descriptor_that_probes_and_schedulers_need(nobody: Path) -> None:
    with (
        running(nobody, limits={resource.RLIMIT_NOFILE: FEW}) as extender,
        contextlib.ExitStack() as opened,
    ):
        for at in range(200):
            client = opened.enter_context(socket.create_connection((HOST, extender.port), SOON))
            if at % 2:
                with contextlib.suppress(ConnectionError):
                    client.sendall(b"GET /livez HTTP/1.1\r\nHost: node\r\n\r\n")

        statuses = [extender.ask(path).status for path in ("/livez", "/metrics")]
        scores = extender.ask("/v1/prioritize", SCORES).status

    assert (statuses, scores) == ([HTTPStatus.OK] * 2, HTTPStatus.OK)
    assert not lines(extender, "connection not accepted")


async def _status(port: int, request: bytes) -> int:
    """Of the answer to a request on its own connection; 0 where it ended without a whole one."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(request)
        answer = await reader.read()
    except ConnectionError:
        return 0
    finally:
        writer.transport.abort()
    head, _, content = answer.partition(b"\r\n\r\n")
    lengths = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")]
    if not lengths or int(lengths[0].split()[1]) != len(content):
        return 0
    return int(head.split()[1])


@pytest.mark.usefixtures("many_descriptors")
def test_each_of_2000_requests_at_once_is_answered(nobody: Path) -> None:
    head = (
        "POST /v1/prioritize HTTP/1.1\r\nHost: node\r\nConnection: close\r\n"
        f"Content-Length: {len(SCORES)}"
    )
    request = f"{head}\r\n\r\n".encode() + SCORES

    async def at_once(port: int) -> Sequence[int]:
        return await asyncio.gather(*(_status(port, request) for _ in range(MANY_AT_ONCE)))

    with running(nobody) as extender:
        statuses = Counter(asyncio.run(at_once(extender.port)))

    assert statuses.keys() <= {HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE}, statuses
    assert statuses[HTTPStatus.OK] > 0


def test_without_a_descriptor_connections_wait_and_one_line_says_so(nobody: Path) -> None:
    with running(nobody) as extender, contextlib.closing(extender.connect()) as early:
        assert asked(early, "/livez").status == HTTPStatus.OK
        with limited(extender, resource.RLIMIT_NOFILE, 3):
            late = socket.create_connection((HOST, extender.port), SOON)
            late.sendall(b"GET /livez HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
            until(lambda: bool(lines(extender, "connection not accepted")))
            served = asked(early, "/metrics")
        with late:
            answer = late.makefile("rb").read()
        counted = refusals(extender, "resources")

    assert (served.status, answer.startswith(b"HTTP/1.1 200 ")) == (HTTPStatus.OK, True)
    assert len(lines(extender, "connection not accepted")) == 1
    assert counted >= 1


def test_without_a_thread_new_clients_are_answered_and_one_line_says_so(nobody: Path) -> None:
    replies: list[Reply] = []
    with running(nobody, limits={resource.RLIMIT_STACK: STACK_BYTES}) as extender:
        until(lambda: len(lines(extender, "watch lost")) == 3)  # all its own threads run
        with contextlib.closing(extender.connect()) as early:
            assert asked(early, "/livez").status == HTTPStatus.OK
            taken = psutil.Process(extender.process.pid).memory_info().vms
            with limited(extender, resource.RLIMIT_AS, taken + STACK_BYTES // 2):
                replies += [extender.ask("/livez") for _ in range(3)]
                served = asked(early, "/livez").status
        after = extender.ask("/livez").status
        counted = refusals(extender, "resources")

    assert {reply.status for reply in replies} == {HTTPStatus.SERVICE_UNAVAILABLE}
    assert all("Retry-After" in reply.headers for reply in replies)
    assert (served, after, counted) == (HTTPStatus.OK, HTTPStatus.OK, 3)
    assert len(lines(extender, "connection not accepted")) == 1


def test_with_too_few_threads_it_ends_at_once_with_one_sentence(nobody: Path) -> None:
    named = ["--kubeconfig", str(nobody), "--listen", f"{HOST}:0", "--log-format", "json"]
    for threads in range(6):
        limits = tuple(limits_of(threads).items())

        def prepare(limits: Sequence[tuple[int, int]] = limits) -> None:
            for number, limit in limits:
                resource.setrlimit(number, (limit, limit))

        ended = subprocess.run(
            [GPUSCAPE, "scheduler", *named],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=prepare,
            timeout=SOON,
            check=False,
        )
        lines = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
        assert (ended.returncode, len(lines)) == (2, 1), ended.stderr
        assert lines[0].startswith("Error: cannot start the thread ")


@pytest.mark.parametrize("shape", ["few long names", "many short names", "whole Nodes"])
def test_40_large_calls_at_once_stay_within_200_mib(nobody: Path, shape: str) -> None:
    """Four are read, as far as they come in time, and the others can come again."""
    content = LARGE[shape]()
    with running(nobody) as extender:
        until(lambda: len(lines(extender, "watch lost")) == 3)
        with ThreadPoolExecutor(LARGE_AT_ONCE) as pool:
            calls = [pool.submit(large_call, extender.port, content) for _ in range(LARGE_AT_ONCE)]
            answers = Counter(each.result() for each in calls)
        until(lambda: large_call(extender.port, content)[0] in READ)
        most = most_memory_bytes(extender)

    refused = (HTTPStatus.SERVICE_UNAVAILABLE, "5")
    assert {status for status, _ in answers - Counter({refused: LARGE_AT_ONCE})} <= READ | {LATE}
    assert answers[refused] > 0
    assert most <= 200 << 20
