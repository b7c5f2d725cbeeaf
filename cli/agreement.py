# SPDX-License-Identifier: Apache-2.0
"""The question before a command changes something, and ``--yes``, which answers it."""

from __future__ import annotations

import sys

import click

from base.errors import BadInput
from cli import terminal
from cli.failures import REFUSED


def is_interactive() -> bool:
    """Whether a person at a terminal can answer a question."""
    return sys.stdin.isatty()


def require_agreement(*texts: str, purpose: str, yes: bool, output: str) -> None:
    """Print these texts and ask the last one; end the command where the answer is no.

    Nothing is asked with ``yes``. ``purpose``: continues "add --yes" for those who cannot be asked.
    Raises BadInput for them: without a terminal, or where the output is a document.
    """
    if yes:
        return
    if output != "table" or not is_interactive():
        raise BadInput(f"no terminal for the question: add --yes{purpose}")
    if not terminal.confirm("", *texts):
        terminal.note("Nothing was changed.")
        raise click.exceptions.Exit(REFUSED)
