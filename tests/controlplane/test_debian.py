# SPDX-License-Identifier: Apache-2.0
"""Where C libraries come from, with programs in the place of apt, dpkg and pkg-config."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.controlplane import builds
from tests.controlplane.builds import BuildError
from tests.controlplane.debian import (
    Library,
    NoLibraryError,
    NoPackageError,
    Package,
    compiler_settings,
    unpack,
)
from tests.controlplane.families import Family
from tests.controlplane.test_toolchain import put_on_path

CONTENT = b"a package\n"
LIBRARY = Library(
    name="libexample",
    archive="libexample.a",
    package="libexample-dev",
    version="2.5-1",
    hashes={"amd64": hashlib.sha256(CONTENT).hexdigest()},
)
FILE = "libexample-dev_2.5-1_amd64.deb"

DOWNLOADS = f"""
case "$*" in
    *update) : ;;
    *"download libexample-dev=2.5-1") echo a package > {FILE} ;;
esac"""
NEEDS_LISTS = f"""
case "$*" in
    -o*update) : > known ;;
    *) [ -e known ] || {{ echo E: Unable to locate package >&2; exit 100; }} ;;
esac
{DOWNLOADS}"""
UNPACKS = """
/bin/mkdir -p "$3/usr/lib/anywhere" "$3/usr/include"
: > "$3/usr/lib/anywhere/libexample.a" """


def put(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, apt: str = DOWNLOADS, installed: int = 1
) -> None:
    """A PATH with apt-get that does that, dpkg-deb, and a pkg-config with that exit code."""
    path = put_on_path(folder, monkeypatch)
    scripts = {"apt-get": apt, "dpkg-deb": UNPACKS, "pkg-config": f"exit {installed}"}
    for name, does in scripts.items():
        program = path / name
        program.write_text(f'#!/bin/sh\necho "$0 $@" >> {path / "calls"}\n{does}\n')
        program.chmod(0o700)


def test_the_machines_own_library_is_taken_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "path", monkeypatch, installed=0)

    assert compiler_settings(LIBRARY, tmp_path / "cache", pytest.fail) == {}


@pytest.mark.parametrize("apt", [DOWNLOADS, NEEDS_LISTS])
def test_elsewhere_the_pinned_package_is_unpacked_once_and_linked_statically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apt: str
) -> None:
    put(tmp_path / "path", monkeypatch, apt=apt)
    notes = list[str]()

    settings = compiler_settings(LIBRARY, tmp_path / "cache", notes.append)
    again = compiler_settings(LIBRARY, tmp_path / "cache", notes.append)

    unpacked = tmp_path / "cache" / "libexample-dev-2.5-1"
    assert settings == again
    assert settings["CGO_LDFLAGS"] == str(unpacked / "usr/lib/anywhere/libexample.a")
    assert f"-I{unpacked}/usr/include" in settings["CGO_CFLAGS"]
    assert notes == ["no headers of libexample on this machine: unpacking Debian's package"]
    assert [file.name for file in (tmp_path / "cache").iterdir()] == [unpacked.name]


def test_without_the_archives_lists_they_are_read_into_a_folder_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "path", monkeypatch, apt=NEEDS_LISTS)

    compiler_settings(LIBRARY, tmp_path / "cache", list[str]().append)

    (update,) = [line for line in calls(tmp_path) if line.endswith("update")]
    assert f"Dir::State::Lists={tmp_path / 'cache'}" in update


def test_another_package_than_the_pinned_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "path", monkeypatch)
    pinned = replace(LIBRARY, hashes={"amd64": "0" * 64})

    with pytest.raises(NoLibraryError, match="is not the pinned one"):
        compiler_settings(pinned, tmp_path / "cache", list[str]().append)

    assert not list((tmp_path / "cache").iterdir())


def test_without_apt_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(tmp_path / "path", monkeypatch)

    with pytest.raises(NoLibraryError, match=r"install libexample-dev and pkg-config"):
        compiler_settings(LIBRARY, tmp_path / "cache", list[str]().append)


def test_a_build_gets_the_library_or_says_why_it_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(builds.GIVEN, raising=False)
    (tmp_path / "source").mkdir()
    family = Family(
        name="linked", folder=tmp_path / "source", programs={".": ("linked",)}, library=LIBRARY
    )
    put(tmp_path / "path", monkeypatch, apt="exit 100")
    # in nice's place: what it would start writes where the library is
    nice = tmp_path / "path" / "nice"
    nice.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho $CGO_LDFLAGS > "$2"\n')
    nice.chmod(0o700)

    with pytest.raises(BuildError, match="linked could not be built: no headers of libexample"):
        builds.build(family, Path("go"), list[str]().append)
    (tmp_path / "path" / "apt-get").write_text(f"#!/bin/sh\n{DOWNLOADS}\n")
    folder = builds.build(family, Path("go"), list[str]().append)

    assert (folder / "linked").read_text().endswith("libexample.a\n")
    assert builds.key(family) != builds.key(replace(family, library=None))


PACKAGE = Package(package=LIBRARY.package, version=LIBRARY.version, hashes=LIBRARY.hashes)


def test_packages_of_programs_are_unpacked_beside_what_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "path", monkeypatch)

    unpack([PACKAGE, PACKAGE], tmp_path / "root")

    assert (tmp_path / "root/usr/lib/anywhere/libexample.a").exists()
    assert {it.name for it in tmp_path.iterdir()} == {"path", "root"}


def test_a_package_that_cannot_be_had_is_named_and_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "path", monkeypatch)
    other = replace(PACKAGE, hashes={"amd64": "0" * 64})

    with pytest.raises(NoPackageError, match=r"package libexample-dev 2\.5-1 could not be had"):
        unpack([other], tmp_path / "root")

    assert not (tmp_path / "root").exists()


def calls(tmp_path: Path) -> list[str]:
    """The command lines of all programs."""
    return (tmp_path / "path" / "calls").read_text().splitlines()
