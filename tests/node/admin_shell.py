# SPDX-License-Identifier: Apache-2.0
"""What people type at a real cluster and what comes back, which can be kept as a page."""

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


class Recording:
    """Sentences and commands with what they printed, in order."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the control plane's, which no page may name."""
        self._folder = folder
        self._parts: list[str] = []

    def says(self, text: str) -> None:
        """A sentence for the reader of the page."""
        self._parts.append(paragraph(text))

    def keep(self, prompt: str, command: str, printed: str) -> None:
        """A command that was typed behind this prompt."""
        shown = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
        self._parts.append(f"```console\n{prompt}$ {command}\n{shown}```")

    def page(self, title: str, about: str) -> str:
        """All of it. Raises ValueError where it would show something of this machine."""
        text = "\n\n".join([f"# {title}", paragraph(about), *self._parts]) + "\n"
        private = (str(ROOT), str(Path.home()), tempfile.gettempdir(), socket.gethostname())
        for word in (*private, str(self._folder)):
            if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text):
                raise ValueError(f"the recording has {word!r} in it")
        return text


def paragraph(text: str) -> str:
    """As it stands on the page."""
    return "\n".join(textwrap.wrap(text, WIDTH, break_on_hyphens=False))


class AdminShell(Recording):
    """Runs kubectl and gpuscape with the admin's rights; keeps when each was typed."""

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane.folder)
        self._plane = plane
        self._began: float | None = None

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
        self.keep(f"[{minutes:02}:{seconds:02}] ", shlex.join(words), printed)
        return printed

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
