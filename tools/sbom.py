# SPDX-License-Identifier: Apache-2.0
"""``python tools/sbom.py FOLDER``: a bill of materials of an image's file system, CycloneDX 1.6.

It lists what really is there: the interpreter, each installed package by its own metadata, and
each program and shared library outside of them with its hash and, where the system's package
manager knows it, its package. No time and no random number: one file system gives one text.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

ELF: Final = b"\x7fELF"
APPLICATION: Final = "gpuscape"
OWNER: Final = re.compile(r"^(?P<package>[^:\s,]+)(?::\w+)?: ")
"""How ``dpkg-query --search`` begins a line; a diversion has words before the colon."""


def bill(root: Path) -> dict[str, Any]:
    """What is below ``root``, sorted by reference. Raises ValueError where gpuscape is not."""
    packages = {package["name"]: package for package in _packages(root)}
    if APPLICATION not in packages:
        raise ValueError(f"{root} has no installed {APPLICATION}: make it by tools/image_root.py")
    described = packages.pop(APPLICATION) | {"type": "application"}
    files = list(_files(root))
    owners = {prop["value"] for file in files for prop in file.get("properties", ())}
    components = [*packages.values(), _interpreter(), *files, *map(_system_package, owners)]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": described},
        "components": sorted(components, key=lambda component: str(component["bom-ref"])),
    }


def _packages(root: Path) -> Iterator[dict[str, Any]]:
    sites = [str(path) for path in root.rglob("site-packages")]
    for distribution in metadata.distributions(path=sites):
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
        reference = f"pkg:pypi/{name}@{distribution.version}"
        yield {
            "type": "library",
            "bom-ref": reference,
            "name": name,
            "version": distribution.version,
            "purl": reference,
            **_licence(distribution.metadata),
        }


def _licence(about: metadata.PackageMetadata) -> dict[str, Any]:
    """Licence that a package declares as a word or an expression; empty for a whole text."""
    if "License-Expression" in about:
        return {"licenses": [{"expression": about["License-Expression"]}]}
    named = about["License"].strip() if "License" in about else ""
    short = named and "\n" not in named
    return {"licenses": [{"license": {"name": named}}]} if short else {}


def _interpreter() -> dict[str, Any]:
    version = platform.python_version()
    return {
        "type": "platform",
        "bom-ref": f"pkg:generic/python@{version}",
        "name": "python",
        "version": version,
        "purl": f"pkg:generic/python@{version}",
        "cpe": f"cpe:2.3:a:python:python:{version}:*:*:*:*:*:*:*",
    }


def _files(root: Path) -> Iterator[dict[str, Any]]:
    """Programs and shared libraries that belong to no installed package."""
    for file in sorted(root.rglob("*")):
        if file.is_symlink() or not file.is_file() or "site-packages" in file.parts:
            continue
        with file.open("rb") as content:
            if content.read(len(ELF)) != ELF:
                continue
            content.seek(0)
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        place = f"/{file.relative_to(root)}"
        owner = _owner(place)
        yield {
            "type": "file",
            "bom-ref": place,
            "name": place,
            "hashes": [{"alg": "SHA-256", "content": digest}],
            **({"properties": [{"name": "gpuscape:package", "value": owner}]} if owner else {}),
        }


def _system_package(reference: str) -> dict[str, Any]:
    name, _, version = reference.rpartition("/")[2].partition("?")[0].partition("@")
    return {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "purl": reference,
    }


def _owner(place: str) -> str:
    """The Debian package that has this file here, as a package URL; empty where none does."""
    # before /usr was merged the package manager knew some files under /lib
    for known in (place, place.removeprefix("/usr")):
        line = _output(["dpkg-query", "--search", known])
        if match := OWNER.match(line):
            form = "--showformat=${Version} ${Architecture}"
            version, architecture = _output(
                ["dpkg-query", "--show", form, match["package"]]
            ).split()
            return f"pkg:deb/debian/{match['package']}@{quote(version)}?arch={architecture}"
    return ""


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # a base that is not Debian's
        return ""
    return done.stdout if not done.returncode else ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the bill to a file, or to standard output."""
    parser = argparse.ArgumentParser(prog="python tools/sbom.py", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    text = json.dumps(bill(options.folder), indent=1) + "\n"
    if options.output:
        options.output.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
