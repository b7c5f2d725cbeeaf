# SPDX-License-Identifier: Apache-2.0
"""Where the programs that build come from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.controlplane import toolchain
from tests.controlplane.toolchain import GO, NODE, NoToolError, Tool, find_tool, npm_command

ON_PATH = [
    (GO, "go1.26.6"),
    (GO, "go1.27"),
    (GO, "go1.27.3"),
    (GO, "go2.0.1"),
    (NODE, "v20.0.0"),
    (NODE, "v24.19.0"),
]
TOO_OLD = [(GO, "go1.19.8"), (GO, "go1.26.5"), (GO, "devel"), (NODE, "v18.20.4"), (NODE, "")]


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> Path:
    """A PATH with these programs, each of which prints that, and nothing else."""
    folder.mkdir()
    for name, prints in programs.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\necho {prints}\n")
        program.chmod(0o700)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.mark.parametrize(("tool", "prints"), ON_PATH)
def test_one_on_path_that_is_new_enough_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: Tool, prints: str
) -> None:
    programs = {tool.name: prints} | ({tool.companion: "1"} if tool.companion else {})
    path = put_on_path(tmp_path / "path", monkeypatch, **programs)

    assert find_tool(tool, tmp_path / "cache", pytest.fail) == path / tool.name


@pytest.mark.parametrize(("tool", "prints"), [*TOO_OLD, (NODE, "v24.19.0")])
def test_one_is_installed_where_it_is_too_old_or_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: Tool, prints: str
) -> None:
    put_on_path(tmp_path / "path", monkeypatch, **{tool.name: prints})
    install = f"import os, sys; os.makedirs(os.path.join(sys.argv[-1], '{tool.within}'))"
    monkeypatch.setattr(toolchain, "INSTALL", (sys.executable, "-c", install))
    notes = list[str]()

    program = find_tool(tool, tmp_path / "cache", notes.append)

    assert program == tmp_path / "cache" / tool.name / tool.within
    assert program.exists()
    assert notes == [f"no {tool.title} on PATH: installing the one that a Python wheel ships"]


@pytest.mark.parametrize("tool", [GO, NODE])
def test_without_any_it_is_said_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: Tool
) -> None:
    monkeypatch.setenv("PATH", "")
    broken = "import sys; sys.exit('no address for the index')"
    monkeypatch.setattr(toolchain, "INSTALL", (sys.executable, "-c", broken))

    with pytest.raises(NoToolError, match=r"\(no address for the index\): install it"):
        find_tool(tool, tmp_path / "cache", lambda _: None)

    assert not list((tmp_path / "cache").iterdir())


def test_npm_is_the_one_that_comes_with_node(tmp_path: Path) -> None:
    node = tmp_path / "bin" / "node"
    assert npm_command(node) == ["npm"]

    shipped = tmp_path / "lib/node_modules/npm/bin/npm-cli.js"
    shipped.parent.mkdir(parents=True)
    shipped.touch()

    assert npm_command(node) == [node, shipped]
