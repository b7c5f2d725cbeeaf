# SPDX-License-Identifier: Apache-2.0
"""What ``gpuscape doctor`` can find, as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

from diagnosis.finding import RANK
from diagnosis.finding_catalog import CATALOG


def finding_rows(subject: str) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Header and rows of one subject's findings, the worst first."""
    kinds = sorted(CATALOG[subject], key=lambda kind: (RANK[kind.severity], kind.name))
    header = ("finding", "severity", "cause", "what to do")
    return header, [
        (f"`{kind.name}`", kind.severity, kind.cause, f"{kind.fix} [More]({_link(kind.page)})")
        for kind in kinds
    ]


def _link(page: str) -> str:
    """Address of a page, relative to the page with the table."""
    return page.removeprefix("doctor.md")
