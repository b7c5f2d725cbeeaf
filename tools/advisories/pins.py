# SPDX-License-Identifier: Apache-2.0
"""Versions that this repository pins, read from its own files. Pure but for :func:`pins`.

Ecosystems are named as in the OSV schema (ossf.github.io/osv-schema, ``affected[].package``).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from base.errors import BadInput

PYPI: Final = "PyPI"
NPM: Final = "npm"
GO: Final = "Go"
BITNAMI: Final = "Bitnami"
"""OSV has advisories by version of CPython under this name alone, as its package ``python``."""

_REQUIREMENT: Final = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[\w.!+-]+)( *;[^\\]+)?( \\)?")
_FLOOR: Final = re.compile(r"(?P<name>[\w.-]+)>=(?P<version>[\w.]+)(,.*)?")
_IMAGE: Final = re.compile(
    r"^FROM python:(?P<version>\d+\.\d+\.\d+)-\S+ AS pinned-base$", re.MULTILINE
)
_MODULE: Final = re.compile(r"(?P<path>\S+) v(?P<version>\S+)")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Pin:
    """A version of a package that a file pins."""

    ecosystem: str
    name: str
    version: str
    """Version without the ``v`` that Go writes before it."""
    file: str
    """File that pins it, from the repository's root."""
    tests_only: bool = False
    """A program that tests build and run on this machine, in a version that is tested on purpose:
    nobody installs it."""


def pins(root: Path) -> tuple[Pin, ...]:
    """All pins of a checkout, sorted.

    Raises BadInput naming the file and what cannot be read: a pin that is passed over would be
    compared with nothing.
    """
    project = root / "pyproject.toml"
    all_pins = set(floors(project.read_text("utf-8"), str(project.relative_to(root))))
    for path in sorted((root / "requirements").glob("*.txt")):
        all_pins.update(requirements(path.read_text("utf-8"), str(path.relative_to(root))))
    image = root / "deploy" / "image" / "Dockerfile"
    all_pins.add(python_image(image.read_text("utf-8"), str(image.relative_to(root))))
    for path in sorted((root / "tests").rglob("package-lock.json")):
        all_pins.update(npm_lock(path.read_text("utf-8"), str(path.relative_to(root))))
    for path in sorted((root / "tests").rglob("go.mod")):
        all_pins.update(go_modules(path.read_text("utf-8"), str(path.relative_to(root))))
    return tuple(sorted(all_pins))


def floors(text: str, file: str) -> Iterator[Pin]:
    """The lowest version of each dependency that a pyproject.toml lets an installer take.

    Raises BadInput for one without.
    """
    for dependency in tomllib.loads(text)["project"]["dependencies"]:
        match = _FLOOR.fullmatch(dependency)
        if match is None:
            raise BadInput(f"{file}: {dependency} has no lowest version: write NAME>=VERSION")
        yield Pin(ecosystem=PYPI, name=match["name"], version=match["version"], file=file)


def requirements(text: str, file: str) -> Iterator[Pin]:
    """Pins of a lock file as ``uv pip compile`` writes it. Raises BadInput for any other line."""
    for number, line in enumerate(text.splitlines(), 1):
        written = line.strip()
        if not written or written.startswith(("#", "--hash=")):
            continue
        match = _REQUIREMENT.fullmatch(written)
        if match is None:
            raise BadInput(f"{file}:{number}: no exact version: write NAME==VERSION")
        yield Pin(ecosystem=PYPI, name=match["name"], version=match["version"], file=file)


def python_image(text: str, file: str) -> Pin:
    """The interpreter of the image's base. Raises BadInput where its version is not exact."""
    match = _IMAGE.search(text)
    if match is None:
        raise BadInput(
            f"{file}: pinned-base has no exact version of Python: write FROM"
            " python:3.11.18-slim-trixie AS pinned-base"
        )
    return Pin(ecosystem=BITNAMI, name="python", version=match["version"], file=file)


def npm_lock(text: str, file: str) -> Iterator[Pin]:
    """Pins of a package-lock.json; a package under another name counts as what it is."""
    packages: dict[str, dict[str, Any]] = json.loads(text)["packages"]
    for place, package in packages.items():
        if place:
            name = package.get("name") or place.rpartition("node_modules/")[2]
            yield Pin(ecosystem=NPM, name=name, version=package["version"], file=file)


def go_modules(text: str, file: str) -> Iterator[Pin]:
    """Modules that a go.mod requires, replaced ones as what replaces them.

    A module that a folder replaces is part of this repository. Source: the Go Modules Reference,
    go.mod files.
    """
    required: dict[str, str] = {}
    replaced: dict[str, str] = {}
    for verb, line in _directives(text):
        if verb == "require" and (match := _MODULE.fullmatch(line)):
            required[match["path"]] = match["version"]
        elif verb == "replace":
            old, _, new = line.partition(" => ")
            replaced[old.split()[0]] = new
    for path, version in required.items():
        match = _MODULE.fullmatch(replaced.get(path, f"{path} v{version}"))
        if match is not None:
            yield Pin(
                ecosystem=GO,
                name=match["path"],
                version=match["version"].removesuffix("+incompatible"),
                file=file,
                tests_only=True,
            )


def _directives(text: str) -> Iterator[tuple[str, str]]:
    """Verb and rest of each line of a go.mod, those in blocks too, without comments."""
    block = ""
    for line in text.splitlines():
        written = line.partition("//")[0].strip()
        if written == ")":
            block = ""
        elif written.endswith("("):
            block = written.removesuffix("(").strip()
        elif block and written:
            yield block, written
        elif written:
            verb, _, rest = written.partition(" ")
            yield verb, rest.strip()
