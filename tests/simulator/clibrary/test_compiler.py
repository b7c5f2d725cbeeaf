# SPDX-License-Identifier: Apache-2.0
"""The library is built once, by whatever C compiler is there, or it is said what is missing."""

from __future__ import annotations

import importlib.util
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from base.errors import BadInput
from simulator.clibrary import compiler
from simulator.clibrary.compiler import LIBRARY_NAME, place_library

CC = shutil.which("cc") or shutil.which("gcc") or ""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, and no compiler named."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    return tmp_path / "cache/gpuscape/nvml"


def script(path: Path, text: str) -> Path:
    """A program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)
    return path


def test_it_is_built_once_and_then_copied(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    counting = script(tmp_path / "count", f'echo call >> {calls}; exec {CC} "$@"')
    monkeypatch.setenv("CC", str(counting))

    one = place_library(tmp_path / "one")
    other = place_library(tmp_path / "other")

    assert one == tmp_path / "one" / LIBRARY_NAME
    assert one.read_bytes() == other.read_bytes()
    assert calls.read_text("utf-8") == "call\n"
    assert [file.suffix for file in cache.iterdir()] == [".so"]
    assert stat.S_IMODE(one.stat().st_mode) == 0o755


def test_the_source_is_without_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", f"{CC} -Werror -Wpedantic -Wshadow -Wconversion")

    place_library(tmp_path / "one")


def test_without_a_compiler_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    with pytest.raises(BadInput, match=r"no C compiler .* install gcc or clang, .* ziglang"):
        place_library(tmp_path / "library")


def test_the_compiler_of_a_python_package_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``python -m ziglang cc`` is called as a compiler is."""
    monkeypatch.setenv("PATH", str(tmp_path))
    package = tmp_path / "packages/ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(
        "import subprocess, sys\n"
        "assert sys.argv[1] == 'cc'\n"
        f"sys.exit(subprocess.call([{CC!r}, *sys.argv[2:]], env={{'PATH': '/usr/bin:/bin'}}))\n",
        "utf-8",
    )
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))

    assert compiler.compiler() == (sys.executable, "-m", "ziglang", "cc")
    assert place_library(tmp_path / "library").is_file()


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("echo 'nvml.c:1: no such header' >&2; exit 1", "nvml.c:1: no such header; name another"),
        ("exit 1", "it wrote nothing; name another one in CC"),
    ],
)
def test_a_compiler_that_fails_is_quoted(
    program: str, message: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", str(script(tmp_path / "cc", program)))

    with pytest.raises(BadInput, match=message):
        place_library(tmp_path / "library")

    assert list(cache.iterdir()) == []


def test_a_compiler_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")

    with pytest.raises(BadInput, match="cannot run the C compiler /nowhere/cc: No such file"):
        place_library(tmp_path / "library")


def test_a_cache_that_takes_nothing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    with pytest.raises(BadInput, match="Not a directory; name another cache folder"):
        place_library(tmp_path / "library")


def test_it_needs_nothing_but_libc(tmp_path: Path) -> None:
    """It loads in any program of the machine."""
    library = place_library(tmp_path)
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("no readelf (binutils) on PATH: a compiler may come without, as ziglang does")

    shown = subprocess.run([readelf, "-d", library], capture_output=True, text=True, check=True)

    needed = [line.rpartition("[")[2] for line in shown.stdout.splitlines() if "NEEDED" in line]
    assert {name.split(".")[0] for name in needed} <= {"libc", "libpthread", "libdl"}
    assert f"soname: [{LIBRARY_NAME}]" in shown.stdout
