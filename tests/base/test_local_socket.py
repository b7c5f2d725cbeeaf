# SPDX-License-Identifier: Apache-2.0
"""One line of request and one of answer over a Unix socket, judged by a plain server."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from base.local_socket import NoAnswer, PeerProcess, exchange, peer_of

Serve = Callable[[Callable[[socket.socket], None]], Path]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a server that does this with its one connection; its path."""
    threads = list[threading.Thread]()

    def start(behaviour: Callable[[socket.socket], None]) -> Path:
        path = tmp_path / "socket"
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(path))
        listening.listen()

        def run() -> None:
            with listening:
                connection, _ = listening.accept()
            with connection:
                behaviour(connection)

        thread = threading.Thread(target=run)
        thread.start()
        threads.append(thread)
        return path

    yield start
    for thread in threads:
        thread.join()


def ask(path: Path, *, most_bytes: int = 100, seconds: float = 30.0) -> bytes:
    return exchange(path, b"what", timeout_seconds=seconds, most_bytes=most_bytes)


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while chunk := connection.recv(100):
        data += chunk
    return data


def test_the_server_gets_one_line_and_its_end(serve: Serve) -> None:
    received = list[bytes]()

    def answer(connection: socket.socket) -> None:
        received.append(read_all(connection))
        connection.sendall(b"this\nand what comes after")

    assert ask(serve(answer)) == b"this"
    assert received == [b"what\n"]


def test_an_answer_comes_in_parts(serve: Serve) -> None:
    def answer(connection: socket.socket) -> None:
        for part in (b"th", b"is", b"\n"):
            connection.sendall(part)
        read_all(connection)

    assert ask(serve(answer), most_bytes=5) == b"this"


def test_a_server_that_answers_before_it_has_read_is_heard(serve: Serve) -> None:
    path = serve(lambda connection: connection.sendall(b"crowded\n"))
    line = b"x" * (4 << 20)  # more than a socket buffers
    assert exchange(path, line, timeout_seconds=30.0, most_bytes=100) == b"crowded"


@pytest.mark.parametrize(
    ("answer", "why"),
    [(b"", "ended without an answer"), (b"half", "ended without"), (b"12345\n", "longer than 5")],
)
def test_what_is_no_answer(serve: Serve, answer: bytes, why: str) -> None:
    def send(connection: socket.socket) -> None:
        read_all(connection)
        connection.sendall(answer)

    with pytest.raises(NoAnswer, match=why):
        ask(serve(send), most_bytes=5)


def test_a_silent_server_is_left_after_the_time(serve: Serve) -> None:
    over = threading.Event()

    def say_nothing(_: socket.socket) -> None:
        over.wait()

    path = serve(say_nothing)
    try:
        with pytest.raises(NoAnswer, match="no answer in time"):
            ask(path, seconds=0.05)
    finally:
        over.set()


def test_a_server_whose_queue_stays_full_is_left_after_the_time(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as first:
            first.connect(str(path))
            with pytest.raises(NoAnswer, match="no answer in time"):
                ask(path, seconds=0.05)


def test_nobody_serves_the_path(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match=f"{tmp_path}/none: No such file"):
        ask(tmp_path / "none")


def test_a_server_of_another_user_gets_no_request(serve: Serve) -> None:
    received = queue.Queue[bytes]()
    path = serve(lambda connection: received.put(read_all(connection)))
    with pytest.raises(NoAnswer, match=f"user {os.geteuid()} serves it, and is not trusted"):
        exchange(path, b"what", timeout_seconds=30.0, most_bytes=5, servers={os.geteuid() + 1})
    assert received.get(timeout=30.0) == b""


def test_the_other_end_is_named_as_the_kernel_names_it() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        expected = PeerProcess(pid=os.getpid(), uid=os.getuid(), gid=os.getgid())
        assert peer_of(ours) == expected
