# SPDX-License-Identifier: Apache-2.0
"""Holds programs for another process and ends them when that process ends, however it ends.

    python -m tests.controlplane.supervisor PID

It reads orders from standard input, one JSON object a line, and answers each with a line:

    {"start": NAME, "command": [...], "log": FILE, "cwd": FOLDER, "environment": {...},
     "lives": NUMBER}
    {"stop": NAME, "signal": NUMBER, "patience_seconds": SECONDS}
    {"code": NAME}       {"remove": FOLDER}       {"end": true}

The end of its input means only that nobody gives orders any more: a test process may start a
control plane that lives until the whole run, process PID, is over. Programs end in the reverse
order of their start, so an API server goes before its store; then the folders named by
``remove`` go. Should the supervisor itself be killed, the kernel kills the programs.

A program with more than one life is started again when it crashes, as a kubelet does it: with
the exit code of Go's fatal errors. One that refuses to start ends with another and stays down.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from tests.controlplane.lifetime import end_with_parent

Order = dict[str, Any]

CRASHED = 2
"""Exit code of a Go program that the runtime ends: a panic, or two threads in one map."""
LOOK_SECONDS = 0.2
REMOVE_SECONDS = 60.0
"""For all folders together."""


class Supervisor:
    """The programs that it holds, in the order of their start."""

    def __init__(self) -> None:
        self._held: dict[str, subprocess.Popen[bytes]] = {}
        self._orders: dict[str, Order] = {}
        self._folders: list[str] = []

    def obey(self, order: Order) -> Order:
        """Carry out one order; the answer."""
        match order:
            case {"start": name}:
                self._orders[name] = order
                return {"pid": self._start(name, order)}
            case {"stop": name}:
                return {"code": self._stop(name, order["signal"], order["patience_seconds"])}
            case {"code": name}:
                return {"code": self._held[name].poll()}
            case {"remove": folder}:
                self._folders.append(folder)
                return {}
        return {"error": f"no such order: {order}"}

    def revive(self) -> None:
        """Start again what crashed and has a life left."""
        for name, held in list(self._held.items()):
            order = self._orders[name]
            if held.poll() == CRASHED and order["lives"] > 1:
                order["lives"] -= 1
                self._start(name, order)

    def reap(self) -> None:
        """Wait for children that are not held: who lost its parent is a child of process 1."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            held = [it for it in self._held.values() if it.pid == ended.si_pid]
            for process in held:
                process.poll()  # which keeps its exit code
            if not held:
                os.waitpid(ended.si_pid, 0)

    def end(self) -> None:
        """Kill what is held, last started first, and remove what shall not stay."""
        for name in reversed(list(self._held)):
            self._stop(name, signal.SIGKILL, None)
        deadline = time.monotonic() + REMOVE_SECONDS
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
            while os.path.exists(folder) and time.monotonic() < deadline:  # noqa: PTH110
                time.sleep(LOOK_SECONDS)  # a machine that ends by itself still writes there
                shutil.rmtree(folder, ignore_errors=True)

    def _start(self, name: str, order: Order) -> int:
        with open(order["log"], "ab") as log:  # noqa: PTH123 (keep this process small)
            self._held[name] = subprocess.Popen(
                order["command"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=order["cwd"],
                env={**os.environ, **order["environment"]},
                preexec_fn=end_with_parent(),
            )
        return self._held[name].pid

    def _stop(self, name: str, how: int, patience_seconds: float | None) -> int:
        held = self._held.pop(name)
        held.send_signal(how)
        try:
            return held.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            held.kill()
            return held.wait()


def orders(process: int | None) -> Iterator[Order | None]:
    """Orders as they come, None now and then, until ``process`` has ended or one says so."""
    watched = -1
    if process is not None:
        try:
            watched = os.pidfd_open(process)
        except ProcessLookupError:
            return
    ends = [watched] if process is not None else []
    waiting = [*ends, sys.stdin.fileno()]
    unread = b""
    while True:
        ready, _, _ = select.select(waiting, [], [], LOOK_SECONDS)
        if not ready:
            yield None
            continue
        if watched in ready:
            return
        read = os.read(sys.stdin.fileno(), 1 << 16)
        if not read:
            waiting = ends
        *lines, unread = (unread + read).split(b"\n")
        for line in lines:
            order: Order = json.loads(line)
            if "end" in order:
                return
            yield order


def run(process: int | None) -> None:
    """Hold programs until ``process`` has ended, or until an order ends it."""
    supervisor = Supervisor()
    try:
        for order in orders(process):
            if order is None:
                supervisor.revive()
                supervisor.reap()
                continue
            try:
                answer = supervisor.obey(order)
            except (OSError, KeyError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    finally:
        supervisor.end()


if __name__ == "__main__":
    run(int(sys.argv[1]))
