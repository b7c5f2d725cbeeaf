# SPDX-License-Identifier: Apache-2.0
"""Programs that this process starts, looks after and ends: the near side of the supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]
LAST_LINES = 15


class ProgramError(Exception):
    """A program did not start or ended by itself; the text has the last lines of its log."""


class Programs:
    """Programs with a log each in ``folder``. They end with the block, or with the process.

    Not for use by several threads at once. The supervisor is a process of its own, since only
    one that outlives us can end the programs in the right order when we are killed.
    """

    def __init__(
        self, folder: Path, *, until: int | None = None, supervisor: Sequence[str] = ()
    ) -> None:
        """``until``: the process with whose end they end at the latest; ours if none is given.

        ``supervisor``: module and arguments of another one that takes the same orders.
        """
        self.folder = folder
        self.until = until or os.getpid()
        folder.mkdir(parents=True, exist_ok=True)
        ours = ("tests.controlplane.supervisor", str(self.until))
        self._supervisor = subprocess.Popen(
            [sys.executable, "-m", *(supervisor or ours)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a terminal's Ctrl-C is for us, who end it in order
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        lives: int = 1,
    ) -> int:
        """Start one; its process id. A program started again appends to the same log.

        With more than one life it is started again by itself when it crashes.
        """
        order = {
            "start": name,
            "command": [str(part) for part in self.command_of(name, command)],
            "log": str(self.log(name)),
            "cwd": str(cwd or self.folder),
            "environment": dict(environment or {}),
            "lives": lives,
        }
        pid: int = self._order(order)["pid"]
        return pid

    def command_of(self, name: str, command: Sequence[str | Path]) -> Sequence[str | Path]:  # noqa: ARG002
        """What is run for a program's command; a kind of programs may run some another way."""
        return command

    def way_to(self, name: str, port: int) -> int:  # noqa: ARG002
        """The port of loopback here by which a program's port on loopback is reached."""
        return port

    def stop(
        self, name: str, how: signal.Signals = signal.SIGTERM, *, patience_seconds: float = 10
    ) -> int:
        """End one, killing it when patience is over; its exit code, minus the signal if any."""
        order = {"stop": name, "signal": int(how), "patience_seconds": patience_seconds}
        code: int = self._order(order)["code"]
        return code

    def code(self, name: str) -> int | None:
        """The exit code of one that ended by itself, None while it runs."""
        code: int | None = self._order({"code": name})["code"]
        return code

    def remove(self, folder: Path) -> None:
        """Have a folder removed when the last program has ended."""
        self._order({"remove": str(folder)})

    @property
    def supervisor(self) -> int:
        """The process that holds them."""
        return self._supervisor.pid

    def log(self, name: str) -> Path:
        """Where a program's output goes."""
        return self.folder / f"{name}.log"

    def wait(self, name: str, ready: Callable[[], bool], *, seconds: float = 180) -> None:
        """Wait until ``ready`` says so. Raises ProgramError when it ends instead, or is late."""
        deadline = time.monotonic() + seconds
        while not ready():
            code = self.code(name)
            if code is not None or time.monotonic() > deadline:
                what = "is not ready" if code is None else f"ended with {code}"
                raise ProgramError(f"{name} {what}; its last lines:\n{self._last_lines(name)}")
            time.sleep(0.05)

    def end(self) -> None:
        """End all, last started first."""
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            self._tell({"end": True})
        self._supervisor.wait()
        self._close()

    def leave(self) -> None:
        """Give no more orders; the programs stay until the process of ``until`` ends."""
        self._close()
        self._supervisor.returncode = 0  # or Popen warns that it is forgotten while it runs

    def _close(self) -> None:
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            if pipe:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _order(self, order: dict[str, Any]) -> dict[str, Any]:
        with contextlib.suppress(BrokenPipeError):  # why it has ended can still be read
            self._tell(order)
        assert self._supervisor.stdout
        line = self._supervisor.stdout.readline()
        answer: dict[str, Any] = json.loads(line or '{"error": "the supervisor has ended"}')
        if "error" in answer:
            raise ProgramError(answer["error"])
        return answer

    def _tell(self, order: dict[str, Any]) -> None:
        assert self._supervisor.stdin
        self._supervisor.stdin.write(json.dumps(order).encode() + b"\n")
        self._supervisor.stdin.flush()

    def _last_lines(self, name: str) -> str:
        lines = self.log(name).read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join(f"    {line[:300]}" for line in lines)
