# SPDX-License-Identifier: Apache-2.0
"""Findings and the checks that make them: the fault, its cause and its fix. Pure.

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
    """Severity of a finding."""

    NOTE = "note"
    """Worth knowing; nothing has to be done."""
    WARNING = "warning"
    """Something is missing, or will go wrong."""
    ERROR = "error"
    """Something does not work."""


RANK: Final = {FindingSeverity.ERROR: 0, FindingSeverity.WARNING: 1, FindingSeverity.NOTE: 2}
"""Order of severities, the worst first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingKind:
    """A fault that can occur: a row of the documented table."""

    name: str
    severity: FindingSeverity
    cause: str
    """The cause, as a sentence that holds in every case."""
    fix: str
    """The action that mends the fault."""
    page: str
    """File in the documentation, below docs/."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """A fault on this node, or of this pod."""

    name: str
    severity: FindingSeverity
    about: str
    """The subject: a GPU, a pod, a file."""
    cause: str
    """The cause that was found, as a sentence."""
    fix: str
    page: str


@dataclass(frozen=True, slots=True)
class Unread:
    """A fact that could not be read, with the reason."""

    why: str
    applies: bool = True
    """Whether the fact should exist here; False: checks do not need it."""


class FactMissing(Exception):
    """A check needs a fact that could not be read."""

    def __init__(self, unread: Unread) -> None:
        super().__init__(unread.why)
        self.unread = unread


class CheckOutcome(StrEnum):
    """CheckOutcome of a check."""

    OK = "ok"
    FOUND = "found"
    NOT_LOOKED_AT = "not looked at"
    NOT_NEEDED = "not needed"
    """The subject of the check does not exist here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """A check and its outcome."""

    check: str
    outcome: CheckOutcome
    why: str = ""
    """The reason why the check was not made, or is not needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """All findings, the worst first, and the outcome of each check."""

    findings: tuple[DoctorFinding, ...]
    checks: tuple[CheckResult, ...]

    @property
    def is_bad(self) -> bool:
        """Whether there is a finding that asks for action."""
        return any(finding.severity is not FindingSeverity.NOTE for finding in self.findings)

    @property
    def missed_checks(self) -> tuple[CheckResult, ...]:
        """Checks that could not be made, although they are needed."""
        return tuple(check for check in self.checks if check.outcome is CheckOutcome.NOT_LOOKED_AT)


Check = Callable[[Facts], Iterator[DoctorFinding]]


def require_fact(fact: Value | Unread) -> Value:
    """The fact. Raises FactMissing where it could not be read, which ends the check."""
    if isinstance(fact, Unread):
        raise FactMissing(fact)
    return fact


def end_check_unread(why: str) -> NoReturn:
    """End a check for want of something that should be there."""
    raise FactMissing(Unread(why))


def end_check_not_needed(why: str) -> NoReturn:
    """End a check whose subject does not exist here."""
    raise FactMissing(Unread(why, applies=False))


def finding(kind: FindingKind, about: str, cause: str, fix: str = "") -> DoctorFinding:
    """A finding of this kind; ``fix`` replaces the kind's own where it is not empty."""
    return DoctorFinding(
        name=kind.name,
        severity=kind.severity,
        about=about,
        cause=cause,
        fix=fix or kind.fix,
        page=f"docs/{kind.page}",
    )


def examine(checks: Sequence[Check[Facts]], facts: Facts) -> Examination:
    """Make all checks. A check that fails is a bug: it counts as not looked at, others go on."""
    findings: list[DoctorFinding] = []
    results: list[CheckResult] = []
    for check in checks:
        result, new_findings = _made(check, facts)
        results.append(result)
        findings += new_findings
    findings.sort(key=lambda finding: RANK[finding.severity])
    return Examination(findings=tuple(findings), checks=tuple(results))


def _made(check: Check[Facts], facts: Facts) -> tuple[CheckResult, list[DoctorFinding]]:
    name = check_name(check)
    findings: list[DoctorFinding] = []
    try:
        findings.extend(check(facts))
    except FactMissing as error:
        outcome = CheckOutcome.NOT_LOOKED_AT if error.unread.applies else CheckOutcome.NOT_NEEDED
        return CheckResult(check=name, outcome=outcome, why=error.unread.why), findings
    except Exception as error:  # an object of a strange form must not hide the other checks
        why = f"this check failed, which is a bug: {type(error).__name__}: {error}"
        return CheckResult(check=name, outcome=CheckOutcome.NOT_LOOKED_AT, why=why), findings
    return CheckResult(
        check=name, outcome=CheckOutcome.FOUND if findings else CheckOutcome.OK
    ), findings


def check_name(check: Check[Facts]) -> str:
    """Name of a check in output: that of its function without ``check_``, with dashes."""
    return str(getattr(check, "__name__", check)).removeprefix("check_").replace("_", "-")
