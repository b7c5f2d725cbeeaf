# SPDX-License-Identifier: Apache-2.0
"""The rules as files: complete, documented, true to what the agent knows, and tried."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from health.health_verdict import Health
from health.xid_classes import XIDS
from tests.monitoring import page, promtool
from tests.monitoring.shipped import FOLDER, RULES, RUNBOOKS, alerts, rules
from tools.monitoring.__main__ import main as print_manifest

TESTS = Path(__file__).with_name("rules_test.yml")
SECTIONS = ("What it means", "How to see", "What to do", "When to ignore")
ALERTS = alerts()


@pytest.mark.cluster
def test_promtool_finds_nothing_in_the_rules() -> None:
    assert promtool.check_rules(RULES) == []


@pytest.mark.cluster
def test_every_rule_does_what_its_test_says() -> None:
    """Each alert fires where it must, when it must, and nowhere else."""
    assert promtool.test_rules(TESTS) == []


def test_every_rule_has_a_test() -> None:
    tried = TESTS.read_text("utf-8")

    for rule in rules():
        name = rule.get("alert") or rule["record"]
        assert re.search(rf"(?<![\w:]){re.escape(name)}(?![\w:])", tried), name


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_it_is_and_where_its_runbook_is(name: str) -> None:
    alert = ALERTS[name]

    assert alert["labels"] in ({"severity": it} for it in ("critical", "warning", "info"))
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["runbook_url"] == f"docs/runbooks/{name}.md"


@pytest.mark.parametrize("name", ALERTS)
def test_an_alerts_runbook_answers_the_questions_of_whoever_is_called(name: str) -> None:
    runbook = (RUNBOOKS / f"{name}.md").read_text("utf-8")

    assert runbook.startswith(f"# {name}\n")
    assert re.findall(r"^## (.*)$", runbook, re.MULTILINE) == list(SECTIONS)


def test_the_page_lists_every_rule() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}

    assert page.alerts() == {name: it["labels"]["severity"] for name, it in ALERTS.items()}
    assert page.series() == recorded


def test_there_is_no_runbook_without_an_alert() -> None:
    assert {file.stem for file in RUNBOOKS.glob("*.md")} == ALERTS.keys()


def test_xids_are_critical_or_left_out_as_health_counts_them() -> None:
    def codes(name: str, matcher: str) -> set[int]:
        found = re.search(rf'xid{matcher}"([\d|]+)"', ALERTS[name]["expr"])
        assert found is not None
        return {int(code) for code in found[1].split("|")}

    counted = {
        health: {code for each in XIDS if each.health is health for code in each.codes}
        for health in Health
    }
    assert codes("GpuXidCritical", "=~") == counted[Health.UNHEALTHY]
    assert codes("GpuXid", "!~") == counted[Health.UNHEALTHY] | counted[Health.HEALTHY]


def test_the_operator_gets_the_same_rules() -> None:
    (manifest,) = yaml.safe_load_all((FOLDER / "rules" / "prometheus-rule.yaml").read_text())

    assert manifest["spec"] == yaml.safe_load(RULES.read_text())


def test_links_to_runbooks_can_lead_to_a_copy_of_ones_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_manifest(["--runbooks", "https://wiki.example/gpus", "--namespace", "monitoring"])

    manifest = yaml.safe_load(capsys.readouterr().out)
    linked = [
        rule["annotations"]["runbook_url"]
        for group in manifest["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    assert linked == [f"https://wiki.example/gpus/{name}.md" for name in ALERTS]
    assert manifest["metadata"]["namespace"] == "monitoring"


def test_an_address_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        print_manifest(["--runbooks", 'wiki"'])

    assert "begins with https://" in capsys.readouterr().err
