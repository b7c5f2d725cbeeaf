# SPDX-License-Identifier: Apache-2.0
"""How an examination is shown, and how the command ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from cli import terminal
from cli.doctor.finding import RANK, DoctorFinding, Examination, FindingSeverity, Outcome
from cli.failures import UNREADABLE
from cli.terminal import Styled, TextTable

FOUND: Final = 1
"""Exit code: something has to be done."""
_STYLES: Final = {
    FindingSeverity.ERROR: "bold red",
    FindingSeverity.WARNING: "yellow",
    FindingSeverity.NOTE: "cyan",
}
_OUTCOMES: Final = {
    Outcome.OK: "green",
    Outcome.FOUND: "bold yellow",
    Outcome.NOT_LOOKED_AT: "yellow",
    Outcome.NOT_NEEDED: "dim",
}


def document(subject: str, made: Examination, versions: Mapping[str, str]) -> dict[str, Any]:
    """For -o json and yaml, and the bundle."""
    healthy = None if made.not_looked_at and not made.is_bad else not made.is_bad
    return {
        "subject": subject,
        "healthy": healthy,
        "versions": dict(versions),
        "findings": made.findings,
        "checks": made.checks,
    }


def show(subject: str, made: Examination, versions: Mapping[str, str], output: str) -> None:
    """Print it."""
    if output in ("json", "yaml"):
        terminal.data(document(subject, made, versions), output)
        return
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    terminal.note(f"{subject}: {named}" if named else subject)
    if made.findings:
        terminal.note("")
        terminal.show(finding_table(made))
        terminal.note("", "What to do:")
        for line in _fixes(made.findings):
            terminal.note(line)
    if output == "wide":
        terminal.note("")
        terminal.show(check_table(made))
    terminal.note("")
    for line in _not_looked_at(made):
        terminal.note(line)
    terminal.note(summary(made))


def end(made: Examination) -> None:
    """End the command with the examination's exit code; return where all is well."""
    if made.is_bad:
        raise click.exceptions.Exit(FOUND)
    if made.not_looked_at:
        raise click.exceptions.Exit(UNREADABLE)


def finding_table(made: Examination) -> TextTable:
    """One row a finding, the worst first."""
    return TextTable(
        header=("SEVERITY", "FINDING", "ABOUT", "FOUND"),
        rows=tuple(
            (
                Styled(each.severity, _STYLES[each.severity]),
                Styled(each.name, "bold"),
                each.about,
                each.cause,
            )
            for each in made.findings
        ),
    )


def check_table(made: Examination) -> TextTable:
    """One row a check, in the order they were made."""
    return TextTable(
        header=("CHECK", "OUTCOME", "WHY"),
        rows=tuple(
            (each.check, Styled(each.outcome, _OUTCOMES[each.outcome]), each.why or "-")
            for each in made.checks
        ),
    )


def summary(made: Examination) -> str:
    """One line: how many findings, and how much was looked at."""
    counts = Counter(each.severity for each in made.findings)
    named = [f"{counts[it]} {it}{'s' if counts[it] > 1 else ''}" for it in RANK if counts[it]]
    outcomes = Counter(each.outcome for each in made.checks)
    missed = outcomes[Outcome.NOT_LOOKED_AT]
    words = ", ".join(named) or "Nothing found"
    rest = f", {missed} not looked at: whether they are well is not known" if missed else ""
    return f"{words}; {outcomes[Outcome.OK]} checks ok{rest}."


def _fixes(findings: tuple[DoctorFinding, ...]) -> Iterator[str]:
    """One line for each fix, however often it is needed."""
    for name, fix, page in dict.fromkeys((it.name, it.fix, it.page) for it in findings):
        yield f"  {name}: {fix} ({page})"


def _not_looked_at(made: Examination) -> Iterator[str]:
    """One line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for each in made.not_looked_at:
        by_reason.setdefault(each.why, []).append(each.check)
    for why, checks in by_reason.items():
        yield f"Not looked at: {', '.join(checks)}: {why}"
