# SPDX-License-Identifier: Apache-2.0
"""promtool: Prometheus' own judge of expositions, rules and configurations.

Each function tells what promtool complains of, a line each, and nothing where it is content.
Raises NotPreparedError where Prometheus is not built.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.controlplane.builds import binaries
from tests.controlplane.families import PROMETHEUS

MOST_SECONDS = 120


def check_metrics(exposition: str | bytes, *, prefix: str = "") -> list[str]:
    """Judge an exposition: its syntax, names, units and types.

    ``prefix`` leaves out what is said of other families: the DCGM names are given, and many
    of them are not what Prometheus advises.
    """
    text = exposition.encode() if isinstance(exposition, str) else exposition
    if not text:
        return ["promtool was given no exposition"]
    said = _run("check", "metrics", text=text)
    return [line for line in said if line.startswith((prefix, "error"))]


def check_rules(*files: Path) -> list[str]:
    """Judge rule files, duplicate rules included."""
    return _run("check", "rules", "--lint=all", "--lint-fatal", *files)


def test_rules(*files: Path) -> list[str]:
    """Play the series of test files against the rules that they name."""
    return _run("test", "rules", *files)


def check_config(file: Path) -> list[str]:
    """Judge a configuration of Prometheus, and the rule files that it names."""
    return _run("check", "config", "--lint=all", "--lint-fatal", file)


def _run(*arguments: str | Path, text: bytes = b"") -> list[str]:
    done = subprocess.run(
        [binaries(PROMETHEUS) / "promtool", *arguments],
        input=text,
        capture_output=True,
        timeout=MOST_SECONDS,
        check=False,
    )
    said = (done.stderr + (done.stdout if done.returncode else b"")).decode(errors="replace")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if done.returncode and not lines:
        return [f"promtool ended with {done.returncode} and said nothing"]
    return lines if done.returncode else []
