# SPDX-License-Identifier: Apache-2.0
"""Findings and the checks that make them: what is wrong, why, and how to mend it. Pure.

A check is a function of facts that yields findings. A fact that could not be read ends the checks
that need it: they count as not looked at, never as healthy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NoReturn, TypeVar

Facts = TypeVar("Facts")
Value = TypeVar("Value")


class FindingSeverity(StrEnum):
    """How bad a finding is."""

    NOTE = "note"
    """Worth knowing; nothing has to be done."""
    WARNING = "warning"
    """Something is missing, or will go wrong."""
    ERROR = "error"
    """Something does not work."""


RANK: Final = {FindingSeverity.ERROR: 0, FindingSeverity.WARNING: 1, FindingSeverity.NOTE: 2}
"""Of severities, worst first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingKind:
    """One thing that can be wrong: a row of the documented table."""

    name: str
    severity: FindingSeverity
    cause: str
    """Why it comes about, as a sentence that holds in every case."""
    fix: str
    """What to do."""
    page: str
    """File in the documentation, below docs/."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """One thing that is wrong here."""

    name: str
    severity: FindingSeverity
    about: str
    """What it is about: a GPU, a pod, a file."""
    cause: str
    """What was found, as a sentence."""
    fix: str
    page: str


@dataclass(frozen=True, slots=True)
class Unread:
    """A fact that is not there, and why."""

    why: str
    applies: bool = True
    """Whether it should be looked at here; False: nothing is lacking without it."""


class FactMissing(Exception):
    """A check needs a fact that is not there."""

    def __init__(self, unread: Unread) -> None:
        super().__init__(unread.why)
        self.unread = unread


class Outcome(StrEnum):
    """What became of a check."""

    OK = "ok"
    FOUND = "found"
    NOT_LOOKED_AT = "not looked at"
    NOT_NEEDED = "not needed"
    """What it is about does not exist here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check that was made, or was not."""

    check: str
    outcome: Outcome
    why: str = ""
    """Why it was not looked at, or is not needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """All findings, the worst first, and what became of each check."""

    findings: tuple[DoctorFinding, ...]
    checks: tuple[CheckResult, ...]

    @property
    def is_bad(self) -> bool:
        """Something has to be done."""
        return any(each.severity is not FindingSeverity.NOTE for each in self.findings)

    @property
    def not_looked_at(self) -> tuple[CheckResult, ...]:
        """Checks that should have been made."""
        return tuple(each for each in self.checks if each.outcome is Outcome.NOT_LOOKED_AT)


Check = Callable[[Facts], Iterator[DoctorFinding]]


def known(fact: Value | Unread) -> Value:
    """The fact. Raises FactMissing where it is not there, which ends the check."""
    if isinstance(fact, Unread):
        raise FactMissing(fact)
    return fact


def not_looked_at(why: str) -> NoReturn:
    """End a check for want of something that should be there."""
    raise FactMissing(Unread(why))


def not_needed(why: str) -> NoReturn:
    """End a check whose subject does not exist here."""
    raise FactMissing(Unread(why, applies=False))


def found(kind: FindingKind, about: str, cause: str, fix: str = "") -> DoctorFinding:
    """A finding of this kind; ``fix``: where there is a better one than the kind's own."""
    return DoctorFinding(
        name=kind.name,
        severity=kind.severity,
        about=about,
        cause=cause,
        fix=fix or kind.fix,
        page=f"docs/{kind.page}",
    )


def examine(checks: Sequence[Check[Facts]], facts: Facts) -> Examination:
    """Make all checks. One that fails is a bug, and costs itself alone."""
    findings: list[DoctorFinding] = []
    results: list[CheckResult] = []
    for check in checks:
        result, its = _made(check, facts)
        results.append(result)
        findings += its
    findings.sort(key=lambda each: RANK[each.severity])
    return Examination(findings=tuple(findings), checks=tuple(results))


def _made(check: Check[Facts], facts: Facts) -> tuple[CheckResult, list[DoctorFinding]]:
    name = check_name(check)
    its: list[DoctorFinding] = []
    try:
        its.extend(check(facts))
    except FactMissing as error:
        outcome = Outcome.NOT_LOOKED_AT if error.unread.applies else Outcome.NOT_NEEDED
        return CheckResult(check=name, outcome=outcome, why=error.unread.why), its
    except Exception as error:  # an object of a strange form must not hide the other checks
        why = f"this check failed, which is a bug: {type(error).__name__}: {error}"
        return CheckResult(check=name, outcome=Outcome.NOT_LOOKED_AT, why=why), its
    return CheckResult(check=name, outcome=Outcome.FOUND if its else Outcome.OK), its


def check_name(check: Check[Facts]) -> str:
    """As people see it."""
    return str(getattr(check, "__name__", check)).replace("_", "-")
