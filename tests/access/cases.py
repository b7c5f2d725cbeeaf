# SPDX-License-Identifier: Apache-2.0
"""All cases, and what can be asked of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.access import (
    certificate_cases,
    node_cases,
    object_cases,
    other_cases,
    ownership_cases,
    permit_cases,
    program_cases,
)
from tests.access.ask import Case
from tests.access.bounds import bound_cases

Named = tuple[str, Case]
"""``GROUP: NAME`` and the case."""


def _named(groups: Mapping[str, Iterable[Case]]) -> tuple[Named, ...]:
    return tuple(
        (f"{group}: {case.name}", case) for group, cases in groups.items() for case in cases
    )


_PAGES = (
    node_cases,
    object_cases,
    other_cases,
    program_cases,
    permit_cases,
    certificate_cases,
    ownership_cases,
    bound_cases,
)

REFUSED = tuple(named for page in _PAGES for named in _named(page.REFUSED))
ALLOWED = tuple(named for page in _PAGES for named in _named(page.ALLOWED))


def only_by(rule: str) -> tuple[Named, ...]:
    """The cases that this rule alone refuses, as ``POLICY/RULE``."""
    return tuple((name, case) for name, case in REFUSED if case.only == rule)


def sentinel(policy: str, besides: str = "") -> Case | None:
    """A case that one policy alone refuses, and no role; by another rule than ``besides``."""
    rules = (f"{policy}/grants", besides)
    cases = (case for _, case in REFUSED if case.only.startswith(f"{policy}/"))
    return next((case for case in cases if case.only not in rules), None)
