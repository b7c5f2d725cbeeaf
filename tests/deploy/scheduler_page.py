# SPDX-License-Identifier: Apache-2.0
"""What docs/scheduler.md says, as tests need it."""

from __future__ import annotations

from tests import pages

PAGE = pages.page("docs/scheduler.md")


def marked(name: str) -> str:
    """The block below ``<!-- run: name -->``."""
    return pages.marked(PAGE, name)
