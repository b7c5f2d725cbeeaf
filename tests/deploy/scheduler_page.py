"""What docs/scheduler.md says, as tests need it."""

from __future__ import annotations

import re
import textwrap

from tests.deploy.daemonset import DEPLOY

PAGE = (DEPLOY.parent / "docs" / "scheduler.md").read_text(encoding="utf-8")

_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


def marked(name: str) -> str:
    """The block below ``<!-- run: name -->``."""
    after = PAGE.partition(f"<!-- run: {name} -->")[2]
    found = _BLOCK.search(after)
    assert found is not None, name
    return textwrap.dedent(found[3])
