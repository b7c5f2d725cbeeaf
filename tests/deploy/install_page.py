"""What docs/install.md says, as tests need it."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from tests.deploy.daemonset import DEPLOY

PAGE = (DEPLOY.parent / "docs" / "install.md").read_text()

_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_SECTION = re.compile(r"<!-- pod-security -->\n(.*?)<!-- end -->", re.DOTALL)


def blocks(language: str) -> list[str]:
    """All blocks in one language, in the order of the page."""
    return [textwrap.dedent(text) for _, of, text in _BLOCK.findall(PAGE) if of == language]


def kustomizations() -> list[str]:
    """The kustomizations of a user's own that the page proposes."""
    return [text for text in blocks("yaml") if text.startswith("# kustomization.yaml\n")]


def objects() -> list[str]:
    """The Kubernetes objects that the page proposes, beside those."""
    return [text for text in blocks("yaml") if not text.startswith("# kustomization.yaml\n")]


def commands(name: str) -> str:
    """The shell commands below ``<!-- run: name -->``."""
    after = PAGE.partition(f"<!-- run: {name} -->")[2]
    found = _BLOCK.search(after)
    assert found is not None, name
    return textwrap.dedent(found[3])


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
