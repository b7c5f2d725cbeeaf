# SPDX-License-Identifier: Apache-2.0
"""Lists of gpuscape's packages in other files, written from the one in ``gpuscape/isolation.py``.

In ``pyproject.toml`` a line that ends in ``# packages`` is such a list; ``without a, b`` and
``with c, d`` behind that word say what it lacks and what it has in addition.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gpuscape.isolation import PACKAGES

EVERY_PACKAGE: Final = ("gpuscape", *PACKAGES)
OTHER_FOLDERS: Final = ("tests", "tools")
"""Folders with Python that is not installed."""

PROJECT: Final = Path("pyproject.toml")
IGNORED: Final = Path(".dockerignore")
IMAGE: Final = Path("deploy/image/Dockerfile")

_A_LIST: Final = 4
"""Packages on a line of :data:`PROJECT` that make it a list of them."""
_LIST = re.compile(
    r"^(?P<key>\w+ = )\[.*\](?P<words>  # packages(?:,? without (?P<less>[\w, ]+?))?"
    r"(?:,? with (?P<more>[\w., /]+?))?)$",
    re.MULTILINE,
)
_COPIES = re.compile(r"^(?:COPY (\w+) \1\n)+", re.MULTILINE)


def files(root: Path) -> dict[Path, str]:
    """Each file with such a list, and what it should hold."""
    return {
        root / path: write((root / path).read_text("utf-8"))
        for path, write in ((PROJECT, _project), (IGNORED, _ignored), (IMAGE, _image))
    }


def problems(root: Path) -> Iterator[str]:
    """A sentence for each folder, package or list that would be left out."""
    known = {*EVERY_PACKAGE, *OTHER_FOLDERS}
    folders = {path.parent.name for path in root.glob("[!.]*/*.py")}
    for folder in sorted(folders - known):
        yield f"{folder}/ has Python and is no package: add it to PACKAGES in gpuscape/isolation.py"
    text = (root / PROJECT).read_text("utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        named = set(re.findall(r'"(\w+)"', line)) & set(EVERY_PACKAGE)
        if len(named) >= _A_LIST and not (_LIST.match(line) or line.startswith("layers = ")):
            yield f"{PROJECT}:{number} lists packages: end the line in `# packages`"
    layers = _layers(tomllib.loads(text))
    for package in sorted(set(EVERY_PACKAGE) - layers):
        yield f"{package} has no layer: add it to the first contract in pyproject.toml"


def _layers(project: Mapping[str, Any]) -> frozenset[str]:
    first = project["tool"]["importlinter"]["contracts"][0]
    return frozenset(name.strip() for layer in first["layers"] for name in layer.split("|"))


def _project(text: str) -> str:
    return _LIST.sub(_written, text)


def _written(match: re.Match[str]) -> str:
    less, more = (re.split(r",\s*", match[name] or "") for name in ("less", "more"))
    unknown = set(filter(None, less)) - set(EVERY_PACKAGE)
    if unknown:
        raise ValueError(f"{PROJECT}: no package: {', '.join(sorted(unknown))}")
    named = [name for name in EVERY_PACKAGE if name not in less] + [it for it in more if it]
    return f"{match['key']}{json.dumps(named)}{match['words']}"


def _ignored(text: str) -> str:
    """The exceptions are sorted, and stand together."""
    lines = text.splitlines()
    shown = {line for line in lines if line.startswith("!")}
    first = next(at for at, line in enumerate(lines) if line in shown)
    others = {line for line in shown if re.fullmatch(r"![a-z]+", line) is None}
    wanted = sorted(others | {f"!{name}" for name in EVERY_PACKAGE})
    rest = [line for line in lines if line not in shown]
    return "\n".join([*rest[:first], *wanted, *rest[first:]]) + "\n"


def _image(text: str) -> str:
    copies = "".join(f"COPY {name} {name}\n" for name in sorted(EVERY_PACKAGE))
    return _COPIES.sub(copies, text, count=1)
