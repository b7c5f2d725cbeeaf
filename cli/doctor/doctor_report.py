# SPDX-License-Identifier: Apache-2.0
"""Output of an examination, and the exit code of the command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from cli import terminal
from cli.failures import UNREADABLE
from cli.terminal import Styled, TextTable
from diagnosis.finding import RANK, CheckOutcome, DoctorFinding, Examination, FindingSeverity

FOUND: Final = 1
"""Exit code: something has to be done."""
_STYLES: Final = {
    FindingSeverity.ERROR: "bold red",
    FindingSeverity.WARNING: "yellow",
    FindingSeverity.NOTE: "cyan",
}
_OUTCOMES: Final = {
    CheckOutcome.OK: "green",
    CheckOutcome.FOUND: "bold yellow",
    CheckOutcome.NOT_LOOKED_AT: "yellow",
    CheckOutcome.NOT_NEEDED: "dim",
}


def examination_document(
    subject: str, examination: Examination, versions: Mapping[str, str]
) -> dict[str, Any]:
    """The examination as a document, for -o json and yaml and for the bundle."""
    healthy = (
        None if examination.missed_checks and not examination.is_bad else not examination.is_bad
    )
    return {
        "subject": subject,
        "healthy": healthy,
        "versions": dict(versions),
        "findings": examination.findings,
        "checks": examination.checks,
    }


def show_examination(
    subject: str, examination: Examination, versions: Mapping[str, str], output: str
) -> None:
    """Print an examination in the format ``output``."""
    if output in ("json", "yaml"):
        terminal.print_data(examination_document(subject, examination, versions), output)
        return
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    terminal.note(f"{subject}: {named}" if named else subject)
    if examination.findings:
        terminal.note("")
        terminal.show_table(finding_table(examination))
        terminal.note("", "What to do:")
        for line in _fixes(examination.findings):
            terminal.note(line)
    if output == "wide":
        terminal.note("")
        terminal.show_table(check_table(examination))
    terminal.note("")
    for line in _missed_check_lines(examination):
        terminal.note(line)
    terminal.note(examination_summary(examination))


def exit_by_findings(examination: Examination) -> None:
    """End the command with the examination's exit code; return where all is well."""
    if examination.is_bad:
        raise click.exceptions.Exit(FOUND)
    if examination.missed_checks:
        raise click.exceptions.Exit(UNREADABLE)


def finding_table(examination: Examination) -> TextTable:
    """A row for each finding, the worst first."""
    return TextTable(
        header=("SEVERITY", "FINDING", "ABOUT", "FOUND"),
        rows=tuple(
            (
                Styled(finding.severity, _STYLES[finding.severity]),
                Styled(finding.name, "bold"),
                finding.about,
                finding.cause,
            )
            for finding in examination.findings
        ),
    )


def check_table(examination: Examination) -> TextTable:
    """A row for each check, in the order in which they were made."""
    return TextTable(
        header=("CHECK", "OUTCOME", "WHY"),
        rows=tuple(
            (check.check, Styled(check.outcome, _OUTCOMES[check.outcome]), check.why or "-")
            for check in examination.checks
        ),
    )


def examination_summary(examination: Examination) -> str:
    """A line with the number of findings, and of checks that were made and not made."""
    counts = Counter(finding.severity for finding in examination.findings)
    named = [
        f"{counts[severity]} {severity}{'s' if counts[severity] > 1 else ''}"
        for severity in RANK
        if counts[severity]
    ]
    outcomes = Counter(check.outcome for check in examination.checks)
    missed = outcomes[CheckOutcome.NOT_LOOKED_AT]
    words = ", ".join(named) or "Nothing found"
    rest = f", {missed} not looked at: whether they are well is not known" if missed else ""
    return f"{words}; {outcomes[CheckOutcome.OK]} checks ok{rest}."


def _fixes(findings: tuple[DoctorFinding, ...]) -> Iterator[str]:
    """A line for each fix, however often it is needed."""
    for name, fix, page in dict.fromkeys(
        (finding.name, finding.fix, finding.page) for finding in findings
    ):
        yield f"  {name}: {fix} ({page})"


def _missed_check_lines(examination: Examination) -> Iterator[str]:
    """A line for each reason, with the checks that could not be made for it."""
    by_reason: dict[str, list[str]] = {}
    for check in examination.missed_checks:
        by_reason.setdefault(check.why, []).append(check.check)
    for why, checks in by_reason.items():
        yield f"Not looked at: {', '.join(checks)}: {why}"
