# SPDX-License-Identifier: Apache-2.0
"""The Dockerfile as instructions, and its build stage run without a container engine."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.daemonset import DEPLOY

REPOSITORY = DEPLOY.parent
IMAGE = "/image"
"""Where the build stage puts the image's file system."""
BILL = "/gpuscape.cdx.json"
"""And what it holds, as a bill of materials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One line of the Dockerfile."""

    word: str
    """``FROM``, ``RUN``, …"""
    rest: str

    @property
    def arguments(self) -> list[str]:
        """Its words, in either of the two forms; flags left out."""
        if self.rest.startswith("["):
            return list(json.loads(self.rest))
        return [word for word in shlex.split(self.rest) if not word.startswith("--")]


def instructions() -> tuple[Instruction, ...]:
    """All instructions; none of them goes over several lines."""
    text = (DEPLOY / "image" / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert not any(line.endswith("\\") for line in lines)
    pairs = [line.partition(" ") for line in lines]
    return tuple(Instruction(word=word, rest=rest) for word, _, rest in pairs)


def copied() -> list[Instruction]:
    """What comes from the repository."""
    return [it for it in instructions() if it.word == "COPY" and "--from=" not in it.rest]


def build(folder: Path) -> Path:
    """Do what the build stage does, with a new environment as its Python; the image's root."""
    image, work = folder / "image", folder / "build"
    subprocess.run([sys.executable, "-m", "venv", str(folder / "python")], check=True)
    work.mkdir()
    places = {IMAGE: str(image), BILL: str(folder / BILL.lstrip("/"))}
    environment = {**os.environ, "PATH": f"{folder / 'python' / 'bin'}:{os.environ['PATH']}"}
    for it in instructions():
        if it in copied():
            *sources, target = it.arguments
            for source in sources:
                _copy(REPOSITORY / source, work / target, into=target.endswith("/"))
        if it.word == "RUN":
            command = [places.get(word, word) for word in shlex.split(it.rest)]
            subprocess.run(command, cwd=work, env=environment, check=True)
    return image


def _copy(source: Path, target: Path, *, into: bool) -> None:
    target = target / source.name if into else target
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, target)
