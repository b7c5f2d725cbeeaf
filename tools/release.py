# SPDX-License-Identifier: Apache-2.0
"""``python -m tools.release TAG``: do all places name the version of this tag?

It reads pyproject.toml, chart, manifests, changelog and the image's tag in README and pages, and
names each place that differs.
With ``--notes`` it prints the version's part of the changelog instead.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import yaml

from base.settings import version_skew
from tools import changelog

ROOT: Final = Path(__file__).resolve().parents[1]
TAG: Final = re.compile(r"v(?P<version>\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?)")
VARIABLE: Final = re.compile(
    rf"\{{name: {version_skew.VARIABLE}, value: (?P<version>[^{{}}\s]+)\}}"
)
IMAGE: Final = re.compile(r"^\s*(?:- )?image: gpuscape:(?P<tag>\S+)", re.MULTILINE)
WRITTEN_TAG: Final = re.compile(
    r"(?:gpuscape:|\$image:|newTag: |image\.tag=)(?P<tag>\d+\.\d+\.\d+)"
)
"""The image's tag in commands and examples; variants such as 0.1.0-dcgm-exporter go by it too."""


def faults(root: Path, tag: str) -> Iterator[str]:
    """A sentence for each place that has another version than the tag, with what to do."""
    if not (match := TAG.fullmatch(tag)):
        yield f"tag {tag}: it should be v and a semantic version, as in v0.2.0"
        return
    version = match["version"]
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    if project != version:
        yield _other("pyproject.toml: version", project, version)
    chart = yaml.safe_load((root / "deploy/chart/Chart.yaml").read_text("utf-8"))
    for key in ("version", "appVersion"):
        if str(chart[key]) != version:
            yield _other(f"deploy/chart/Chart.yaml: {key}", str(chart[key]), version)
    for file in sorted((root / "deploy").rglob("*.yaml")):
        for image in IMAGE.finditer(file.read_text("utf-8")):
            if image["tag"] != version:
                yield _other(f"{file.relative_to(root)}: image", image["tag"], version)
        for given in VARIABLE.finditer(file.read_text("utf-8")):
            if given["version"] != version:
                yield _other(
                    f"{file.relative_to(root)}: {version_skew.VARIABLE}", given["version"], version
                )
    pages = [root / "README.md", root / "deploy/image/Dockerfile", *(root / "docs").rglob("*.md")]
    for page in sorted(pages):
        for tag in sorted(
            {match["tag"] for match in WRITTEN_TAG.finditer(page.read_text("utf-8"))}
        ):
            if tag != version:
                yield _other(f"{page.relative_to(root)}: tag of the image", tag, version)
    text = (root / "CHANGELOG.md").read_text("utf-8")
    if not changelog.notes(text, version):
        yield (
            f"CHANGELOG.md: nothing stands under a heading `## {version} - YEAR-MONTH-DAY`;"
            " move the lines of Unreleased there"
        )
    yield from (f"CHANGELOG.md: {fault}" for fault in changelog.form_faults(text))


def _other(place: str, actual: str, version: str) -> str:
    return (
        f"{place} is {actual}, and the tag says {version}: write {version} there, or tag v{actual}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The number of the exit: 0 when all agree, 1 when something does not."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("tag", help="as in v0.2.0")
    parser.add_argument("--notes", action="store_true")
    options = parser.parse_args(arguments)
    problems = list(faults(ROOT, options.tag))
    for fault in problems:
        print(fault, file=sys.stderr)
    if options.notes and not problems:
        text = (ROOT / "CHANGELOG.md").read_text("utf-8")
        print(changelog.notes(text, options.tag.removeprefix("v")))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
