# SPDX-License-Identifier: Apache-2.0
"""What docs/monitoring.md says, as tests need it."""

from __future__ import annotations

import re
import textwrap

from tests.deploy.dockerfile import REPOSITORY

PAGE = (REPOSITORY / "docs" / "monitoring.md").read_text("utf-8")

_BLOCK = re.compile(r"^( *)```yaml\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_ROW = re.compile(r"^\| (?:\[(\w+)\]\(runbooks/\1\.md\)|`([\w:]+)`) \| (\w+)", re.MULTILINE)


def kustomizations() -> list[str]:
    """The kustomizations of a user's own that the page proposes."""
    return [text for text in _blocks() if text.startswith("# kustomization.yaml\n")]


def configuration() -> str:
    """What it proposes for a Prometheus without the operator."""
    (found,) = (text for text in _blocks() if text.startswith("# prometheus.yml\n"))
    return found


def configuration_of_one_machine() -> str:
    """What it proposes for a Prometheus next to ``make run``, in the folder of the clone's."""
    (found,) = (text for text in _blocks() if text.startswith("# on-one-machine.yml\n"))
    return found


def alerts() -> dict[str, str]:
    """The severity of each alert in its table; each row leads to the alert's runbook."""
    return {name: severity for name, _, severity in _ROW.findall(PAGE) if name}


def series() -> set[str]:
    """The recorded series in its table."""
    return {name for _, name, _ in _ROW.findall(PAGE) if ":" in name}


def _blocks() -> list[str]:
    return [textwrap.dedent(text) for _, text in _BLOCK.findall(PAGE)]
