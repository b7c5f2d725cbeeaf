# SPDX-License-Identifier: Apache-2.0
"""What each release of dcgm-exporter has, as recorded from the release's own files."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

RECORDED = Path(__file__).with_name("releases")
SOURCES = os.environ.get("GPUSCAPE_DCGM_EXPORTER_GIT", "")
"""A clone of NVIDIA/dcgm-exporter, for tests that compare the record with the files themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFiles:
    """Facts of one release: rows of its counters file, and its flags."""

    counters: frozenset[tuple[str, str, bool]]
    """Name, type, whether it is served by default."""
    flags: frozenset[tuple[str, str, str, str]]
    """Name, one-letter form or an empty text, variable, kind."""


def recorded(release: str) -> PeerFiles:
    """The facts that were recorded."""
    counters, flags = set(), set()
    for line in (RECORDED / f"{release}.txt").read_text().splitlines():
        words = line.split()
        if line.startswith("--"):
            name, short, variable, kind = words
            flags.add((name.removeprefix("--"), short.replace("-", ""), variable, kind))
        elif not line.startswith("# "):
            name, kind = words
            counters.add((name.removeprefix("#"), kind, not name.startswith("#")))
    return PeerFiles(counters=frozenset(counters), flags=frozenset(flags))


def published(tag: str) -> PeerFiles:
    """The facts of a tag, read from the files of :data:`SOURCES`."""
    return PeerFiles(
        counters=frozenset(_counters(_file(tag, "etc/default-counters.csv"))),
        flags=frozenset(_flags(_file(tag, "pkg/cmd/app.go"))),
    )


def tags() -> frozenset[str]:
    """Tags of the clone; none without one."""
    if not SOURCES:
        return frozenset()
    return frozenset(_git("tag").split())


def _counters(text: str) -> set[tuple[str, str, bool]]:
    row = re.compile(r"(#? ?)(DCGM_\w+) *, *(gauge|counter|label) *,")
    found = (row.match(line) for line in text.splitlines())
    return {(match[2], match[3], not match[1]) for match in found if match}


def _flags(text: str) -> set[tuple[str, str, str, str]]:
    names = dict(re.findall(r'(CLI\w+) += "([^"]+)"', text))
    flags = set()
    for kind, body in re.findall(r"&cli\.(\w+)Flag\{(.*?)\n\t+\}", text, re.DOTALL):
        name = re.search(r"Name: +(\w+)", body)
        variable = re.search(r'EnvVars: +\[\]string\{"(\w+)"\}', body)
        assert name is not None
        assert variable is not None
        short = re.search(r'Aliases: +\[\]string\{"(\w+)"\}', body)
        flags.add((names[name[1]], short[1] if short else "", variable[1], kind))
    return flags


def _file(tag: str, path: str) -> str:
    return _git("show", f"{tag}:{path}")


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "--git-dir", SOURCES, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout
