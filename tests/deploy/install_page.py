# SPDX-License-Identifier: Apache-2.0
"""What docs/install.md says, as tests need it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests import pages

PAGE = pages.page("docs/install.md")

_SECTION = re.compile(r"<!-- pod-security -->\n(.*?)<!-- end -->", re.DOTALL)


def kustomizations() -> list[str]:
    """The kustomizations of a user's own that the page proposes."""
    return [
        text for text in pages.blocks(PAGE, "yaml") if text.startswith("# kustomization.yaml\n")
    ]


def objects() -> list[str]:
    """The Kubernetes objects that the page proposes, beside those."""
    return [
        text for text in pages.blocks(PAGE, "yaml") if not text.startswith("# kustomization.yaml\n")
    ]


def commands(name: str) -> str:
    """The shell commands below ``<!-- run: name -->``."""
    return pages.marked(PAGE, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One reason why Pod Security refuses the agent's pod."""

    level: str
    reason: str
    comes_with: str
    """Folder in deploy/ from which on it holds."""


def refusals() -> tuple[Refusal, ...]:
    """The page's table of them."""
    found = _SECTION.search(PAGE)
    assert found is not None
    rows = [line.strip("| \n").split(" | ") for line in found[1].strip().splitlines()[2:]]
    return tuple(
        Refusal(
            level=level,
            reason=reason.strip("`"),
            comes_with=part.strip("`").removeprefix("deploy/"),
        )
        for level, reason, part, _ in rows
    )
