# SPDX-License-Identifier: Apache-2.0
"""The generated files of deploy/monitoring; ``make docs`` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tools.monitoring import grafana_json, rules
from tools.monitoring.fleet import FLEET
from tools.monitoring.mig import MIG
from tools.monitoring.mig_changes import MIG_CHANGES
from tools.monitoring.node import NODE
from tools.monitoring.pods import PODS
from tools.monitoring.scheduler import SCHEDULER

FOLDER = "deploy/monitoring"
RULES = f"{FOLDER}/prometheus/rules.yml"
"""Written by hand: what the operator gets is made from it."""

DASHBOARDS = (FLEET, NODE, MIG, MIG_CHANGES, PODS, SCHEDULER)


def files(root: Path) -> Mapping[str, str]:
    """Path to text of every generated file; ``root`` is the repository's."""
    text = (root / RULES).read_text("utf-8")
    return {
        **{
            f"{FOLDER}/dashboards/{dashboard.uid}.json": grafana_json.text(dashboard)
            for dashboard in DASHBOARDS
        },
        f"{FOLDER}/rules/prometheus-rule.yaml": rules.manifest(text),
    }
