# SPDX-License-Identifier: Apache-2.0
"""Build the library with the C compiler that is there, once for each version of its source.

Built libraries lie in ``gpuscape/nvml/`` in the user's cache folder, named by a hash of source and
compiler.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from base.errors import BadInput
from simulator.clibrary.c_source import c_source

LIBRARY_NAME: Final = "libnvidia-ml.so.1"
_COMPILERS: Final = ("cc", "gcc", "clang")
_FLAGS: Final = (
    *("-shared", "-fPIC", "-O2", "-std=gnu11", "-fvisibility=hidden", "-pthread"),
    *("-Wall", "-Wextra", "-Wno-unused-parameter", f"-Wl,-soname,{LIBRARY_NAME}"),
)
_LAST_LINES: Final = 5


def place_library(folder: Path) -> Path:
    """Put the library into a folder, built where it has to be. Gives its path.

    Raises BadInput where there is no compiler or it fails, with the fix.
    """
    built = _built(compiler())
    library = folder / LIBRARY_NAME
    folder.mkdir(parents=True, exist_ok=True)
    library.unlink(missing_ok=True)  # a process that has the old one mapped keeps it
    shutil.copyfile(built, library)
    library.chmod(0o755)
    return library


def compiler() -> tuple[str, ...]:
    """The command of a C compiler: CC, one on PATH, or that of Python's ziglang package."""
    if named := os.environ.get("CC"):
        return tuple(named.split())
    for name in _COMPILERS:
        if command := shutil.which(name):
            return (command,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "cc")
    raise BadInput(
        "no C compiler to build the simulator's libnvidia-ml.so.1 with: install gcc or clang,"
        " name one in CC, or install the Python package ziglang next to gpuscape"
    )


def _built(command: Sequence[str]) -> Path:
    source = c_source()
    recipe = repr((source, command, _FLAGS, platform.machine()))
    name = hashlib.sha256(recipe.encode()).hexdigest()[:32]
    kept = _cache() / f"{name}.so"
    if kept.is_file():
        return kept
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".build-") as scratch:
            return _compiled(source, command, Path(scratch)).replace(kept)
    except OSError as error:
        raise BadInput(
            f"cannot build the simulator's library in {kept.parent}: {error.strerror};"
            " name another cache folder in XDG_CACHE_HOME"
        ) from error


def _compiled(source: str, command: Sequence[str], folder: Path) -> Path:
    (folder / "nvml.c").write_text(source, "utf-8")
    library = folder / "nvml.so"
    try:
        done = subprocess.run(  # noqa: S603  # the user's own compiler
            [*command, *_FLAGS, "-o", library, folder / "nvml.c"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise BadInput(
            f"cannot run the C compiler {command[0]}: {error.strerror}; name another one in CC"
        ) from error
    if done.returncode:
        last = "; ".join(done.stderr.strip().splitlines()[-_LAST_LINES:]) or "it wrote nothing"
        raise BadInput(
            f"the C compiler {' '.join(command)} cannot build the simulator's library: {last};"
            " name another one in CC"
        )
    return library


def _cache() -> Path:
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user) / "gpuscape" / "nvml"
