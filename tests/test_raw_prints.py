# SPDX-License-Identifier: Apache-2.0
"""A print that goes around the two places that make text safe fails ``make check``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Final

import pytest

from tests.pages import ROOT

RAW: Final = (
    "print(text)",
    "import click\nclick.echo(text)",
    "from click import echo\necho(text)",
    "from click import secho as show\nshow(text)",
    "import click\nclick.confirm(text)",
    "import click\nclick.prompt(text)",
    "import sys\nsys.stdout.write(text)",
    "import sys\nsys.stderr.write(text)",
    "from sys import stderr\nstderr.write(text)",
    "import sys\nprint(text, file=sys.stderr)",
    "import rich\nrich.print(text)",
    "from rich.console import Console\nConsole().print(text)",
    "import traceback\ntraceback.print_exc()",
    "import logging\nlogging.basicConfig()",
    "import logging\nlogging.StreamHandler()",
)

RUFF: Final = ("check", "--no-cache", "--output-format=json")


def refused(code: str, module: str) -> set[str]:
    """The rules of ruff that a module with this code breaks, of those on printing."""
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *RUFF, "--stdin-filename", module, "-"],
        input=code,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    return {found["code"] for found in json.loads(done.stdout)} & {"T201", "TID251"}


@pytest.mark.parametrize("code", RAW)
def test_a_new_raw_print_is_refused(code: str) -> None:
    assert refused(code, "cli/mig/new_command.py")


def test_a_print_by_the_one_console_is_taken() -> None:
    assert not refused("from cli import terminal\nterminal.note('x')\n", "cli/mig/new_command.py")


def test_only_the_places_that_make_text_safe_are_exempt() -> None:
    """And the agent's labels on standard output, whose lines it makes safe itself."""
    excused = re.compile(r"noqa: [A-Z0-9, ]*(TID251|T201)")
    modules = [
        str(path.relative_to(ROOT))
        for package in ROOT.glob("*/__init__.py")
        if package.parent.name not in ("tests", "tools")
        for path in package.parent.rglob("*.py")
        if excused.search(path.read_text("utf-8"))
    ]
    exempt = re.findall(
        r'"([^"]+)" = \[[^]]*"TID251"', (ROOT / "pyproject.toml").read_text("utf-8")
    )

    assert modules == ["agent/agent_program.py"]
    assert sorted(exempt) == [
        *("base/log.py", "cli/failures.py", "cli/live_screen.py", "cli/terminal.py"),
        *("tests/**", "tools/**"),
    ]
