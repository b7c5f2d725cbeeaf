# SPDX-License-Identifier: Apache-2.0
"""Builds, with a program in Go's place that writes what it was called with."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.controlplane import builds, prepare
from tests.controlplane.builds import GIVEN, BuildError, NotPreparedError
from tests.controlplane.families import Family

GO = """#!/bin/sh
echo "$@" >> {calls}
while [ $# -gt 1 ]; do
    [ "$1" = "-o" ] && echo "built" > "$2"
    [ "$1" = "-m" ] && echo {module}
    shift
done
{then}
"""


@pytest.fixture(autouse=True)
def _nothing_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(GIVEN, raising=False)


@pytest.fixture
def family(tmp_path: Path) -> Family:
    """Two programs in one binary, and a file of a module."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "go.mod").write_text("module example")
    (tmp_path / "module" / "deep").mkdir(parents=True)
    (tmp_path / "module" / "deep" / "stage.yaml").write_text("a stage")
    return Family(
        name="tiny",
        folder=source,
        programs={".": ("first", "second")},
        variables={"example.version": "v1"},
        files={"example.com/module": ("deep/stage.yaml",)},
    )


def go(tmp_path: Path, then: str = "") -> Path:
    """A program that does what is needed of ``go build`` and ``go list``, and then that."""
    program = tmp_path / "go"
    program.write_text(
        GO.format(calls=tmp_path / "calls", module=tmp_path / "module", then=then), "utf-8"
    )
    program.chmod(0o700)
    return program


def calls(tmp_path: Path) -> list[str]:
    """The command lines that it was called with."""
    return (tmp_path / "calls").read_text().splitlines()


def heard(notes: list[str]) -> builds.Say:
    """Somebody to say things to."""
    return notes.append


def test_tags_reach_go_and_make_a_build_of_their_own(family: Family, tmp_path: Path) -> None:
    tagged = replace(family, tags=("small", "fast"))

    built = builds.build(tagged, go(tmp_path), heard([]))

    assert "-tags small,fast " in calls(tmp_path)[0]
    assert built.name == builds.key(tagged) != builds.key(family)


def test_a_build_has_its_programs_by_name_and_its_files(tmp_path: Path, family: Family) -> None:
    folder = builds.build(family, go(tmp_path), heard([]))

    assert folder == builds.binaries(family)
    content = {file.name: file.read_text() for file in folder.iterdir()}
    assert content == {"first": "built\n", "second": "built\n", "stage.yaml": "a stage"}
    assert "-ldflags -s -w -X example.version=v1" in calls(tmp_path)[0]


def test_what_is_built_is_taken_from_the_cache_the_second_time(
    tmp_path: Path, family: Family
) -> None:
    first = builds.build(family, go(tmp_path), heard([]))
    before = calls(tmp_path)

    second = builds.build(family, go(tmp_path), heard([]))

    assert first == second
    assert calls(tmp_path) == before


def test_a_changed_pin_is_built_anew_beside_the_old(tmp_path: Path, family: Family) -> None:
    old = builds.build(family, go(tmp_path), heard([]))
    (family.folder / "go.mod").write_text("module example // changed")

    assert builds.find(family) is None
    new = builds.build(family, go(tmp_path), heard([]))

    assert old != new
    assert old.is_dir()


def test_two_that_build_at_once_build_once(tmp_path: Path, family: Family) -> None:
    program, notes = go(tmp_path, then="sleep 0.3"), list[str]()
    both = [
        threading.Thread(target=builds.build, args=(family, program, notes.append))
        for _ in range(2)
    ]

    for thread in both:
        thread.start()
    for thread in both:
        thread.join()

    assert sum("build" in call for call in calls(tmp_path)) == 1
    assert notes == ["somebody else is building it; waiting"]


def test_a_failed_build_is_explained_and_leaves_nothing_to_be_used(
    tmp_path: Path, family: Family
) -> None:
    broken = go(tmp_path, then="echo example.com/compiled; echo main.go:1: no module proxy; exit 1")

    with pytest.raises(BuildError) as raised:
        builds.build(family, broken, heard([]))

    assert "tiny could not be built" in str(raised.value)
    assert "    main.go:1: no module proxy" in str(raised.value)
    assert "example.com/compiled" not in str(raised.value)
    with pytest.raises(NotPreparedError, match="tiny is not built: make controlplane"):
        builds.binaries(family)


def test_what_a_killed_build_left_is_not_in_the_next(tmp_path: Path, family: Family) -> None:
    left = builds.cache() / ".tiny"
    left.mkdir(parents=True)
    (left / "half").write_text("")

    folder = builds.build(family, go(tmp_path), heard([]))

    assert not (folder / "half").exists()
    assert not left.exists()


def test_a_given_folder_is_used_in_place_of_the_cache(
    tmp_path: Path, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds.build(family, go(tmp_path), heard([]))
    brought = tmp_path / "brought"
    (brought / "tiny").mkdir(parents=True)
    monkeypatch.setenv(GIVEN, str(brought))

    assert builds.find(family) == brought / "tiny"


def test_preparing_says_what_a_given_folder_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(GIVEN, str(tmp_path))

    assert prepare.main(["--only", "etcd,kwok"]) == 1

    said = capsys.readouterr().out
    assert said.startswith(f"{GIVEN} names {tmp_path}, which has no folder for: etcd, kwok")


def test_preparing_builds_the_rest_when_one_fails(
    tmp_path: Path,
    family: Family,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = Family(name="bad", folder=family.folder, programs={"no/package": ("bad",)})
    program = go(tmp_path, then='[ "$1" = "no/package" ] && exit 1 || exit 0')
    monkeypatch.setattr(prepare, "find_tool", lambda *_: program)

    assert prepare.build_all([bad, family]) == 1

    said = capsys.readouterr().out
    assert "bad could not be built" in said
    assert "tiny (2 of 2): ready after" in said
    assert said.endswith(f"{prepare.ADVICE}\n")


def test_without_a_c_compiler_nothing_is_built_and_it_is_named(
    tmp_path: Path,
    family: Family,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Minutes of building came first, and Kubernetes was built after it had failed."""
    needs_c = replace(family, name="in-c", cgo=True)
    program = go(tmp_path, then='[ "$1" = CC ] && echo no-such-compiler -m64')
    monkeypatch.setattr(prepare, "find_tool", lambda *_: program)

    assert prepare.build_all([family, needs_c]) == 1

    assert calls(tmp_path) == ["env CC"]
    assert capsys.readouterr().out.splitlines()[1:] == [
        "in-c cannot be built: there is no C compiler no-such-compiler: install gcc"
    ]


@pytest.mark.parametrize("below", ["file", "locked"])
def test_a_cache_that_cannot_be_used_is_one_sentence_with_a_way_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    below: str,
) -> None:
    """As where another user's folder is named; root may write everywhere, so access is played."""
    (tmp_path / "file").touch()
    (tmp_path / "locked/gpuscape/controlplane").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / below))
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert prepare.main(["--only", "etcd"]) == 1

    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{builds.cache()} cannot be used (")
    assert line.endswith("name another folder of yours in XDG_CACHE_HOME")


def test_what_go_writes_for_a_moment_is_where_the_next_build_removes_it(
    tmp_path: Path, family: Family
) -> None:
    """It is 70 MB, and a Ctrl-C leaves it there."""
    builds.build(family, go(tmp_path, then=f'echo "$GOTMPDIR" >> {tmp_path}/at'), heard([]))

    assert set((tmp_path / "at").read_text().split()) >= {str(builds.cache() / ".tiny")}


def test_a_family_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        prepare.chosen(["--only", "etcd,kubernetes-1.12"])

    assert "no family kubernetes-1.12; there are etcd" in capsys.readouterr().err
