# SPDX-License-Identifier: Apache-2.0
"""What an admin types at a real cluster and what comes back, which can be kept as a page."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Final

from tests.agent.agent_process import GPUSCAPE
from tests.controlplane.plane import Plane
from tests.controlplane.programs import ROOT

WIDTH: Final = 120
"""Of the page's sentences."""


class AdminShell:
    """Runs kubectl and gpuscape with the admin's rights; remembers all of it in order."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._began: float | None = None
        self._parts: list[str] = []

    def says(self, text: str) -> None:
        """A sentence for the reader of the page."""
        self._parts.append("\n".join(textwrap.wrap(text, WIDTH)))

    def run(self, *words: str) -> str:
        """What a command printed. Raises AssertionError where it failed."""
        program, *arguments = words
        now = time.monotonic()
        self._began = now if self._began is None else self._began
        if program == "kubectl":
            printed = self._plane.kubectl(*arguments)
        else:
            assert program == "gpuscape", program
            printed = self._gpuscape(arguments)
        minutes, seconds = divmod(int(now - self._began), 60)
        shown = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
        command = f"[{minutes:02}:{seconds:02}] $ {shlex.join(words)}"
        self._parts.append(f"```console\n{command}\n{shown}```")
        return printed

    def page(self, title: str, about: str) -> str:
        """All of it. Raises ValueError where it would show something of this machine."""
        lines = "\n".join(textwrap.wrap(about, WIDTH))
        text = "\n\n".join([f"# {title}", lines, *self._parts]) + "\n"
        private = (str(ROOT), str(Path.home()), tempfile.gettempdir(), socket.gethostname())
        for word in (*private, str(self._plane.folder)):
            if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text):
                raise ValueError(f"the recording has {word!r} in it")
        return text

    def _gpuscape(self, arguments: list[str]) -> str:
        done = subprocess.run(
            [GPUSCAPE, *arguments],
            env={**os.environ, "KUBECONFIG": str(self._plane.kubeconfig())},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
