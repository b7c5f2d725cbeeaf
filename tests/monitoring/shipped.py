# SPDX-License-Identifier: Apache-2.0
"""What deploy/monitoring ships, as tests need it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tests.deploy.daemonset import DEPLOY

FOLDER = DEPLOY / "monitoring"
RULES = FOLDER / "prometheus" / "rules.yml"
RUNBOOKS = DEPLOY.parent / "docs" / "runbooks"

CHOSEN = {
    "$cluster": ".*",
    "$instance": ".*",
    "$gpu": ".*",
    "$replica": ".*",
    "$namespace": ".*",
    "$pod": ".*",
    "$__rate_interval": "30s",
    "$__range": "1m",
}
"""What Grafana puts in place of variables with everything chosen, and for a short time shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One query of a panel."""

    dashboard: str
    panel: str
    number: int
    """Of the panel's queries."""
    expression: str
    """As it is in the file, with variables."""

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel} {self.number}"


def dashboards() -> Mapping[str, Mapping[str, Any]]:
    """The JSON of each dashboard by its uid."""
    files = sorted((FOLDER / "dashboards").glob("*.json"))
    return {file.stem: json.loads(file.read_text("utf-8")) for file in files}


def panels(of: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All panels of a dashboard, those of closed rows too."""
    for panel in of["panels"]:
        yield from panels(panel) if panel["type"] == "row" else [panel]


def asked() -> list[Asked]:
    """Every query of every panel."""
    return [
        Asked(dashboard=uid, panel=panel["title"], number=number, expression=target["expr"])
        for uid, dashboard in dashboards().items()
        for panel in panels(dashboard)
        for number, target in enumerate(panel["targets"])
    ]


def variables() -> dict[str, str]:
    """The queries of the dashboards' variables, such as ``label_values(metric, label)``."""
    return {
        f"{uid}: {variable['name']}": variable["query"]["query"]
        for uid, dashboard in dashboards().items()
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "query"
    }


def filled(expression: str, chosen: Mapping[str, str] = CHOSEN) -> str:
    """The query that Grafana sends. Fails where a variable is none that we know."""
    for name in sorted(chosen, key=len, reverse=True):
        expression = expression.replace(name, chosen[name])
    assert not re.search(r"\$[^\d]", expression), expression  # $1 is label_replace's own
    return expression


def label_values(query: str) -> tuple[str, str]:
    """Series and label of a variable's query."""
    found = re.fullmatch(r"label_values\((.*), (\w+)\)", query)
    assert found is not None, query
    return found[1], found[2]


def rules() -> list[Mapping[str, Any]]:
    """Every rule of the rules file."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, Mapping[str, Any]]:
    """The alerts by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}
