# SPDX-License-Identifier: Apache-2.0
"""Why each label is as it is."""

from __future__ import annotations

from api import keys
from discovery.model import Reason
from labelers.compose import decide_labels
from labelers.explanation import LabelOutcome, label_explanations
from labelers.label_rules import LabelRule, RuleEntry
from labelers.label_settings import LabelSettings
from tests import build


def test_each_label_tells_its_value_or_reason_and_where_it_comes_from() -> None:
    gpu = build.lacking(build.gpu(), "fabric", Reason.FAILED, "nvmlDeviceGetGpuFabricInfo")

    rows = {
        row.key: row
        for row in label_explanations(decide_labels(build.node([gpu]), LabelSettings()))
    }

    product, clique = rows["nvidia.com/gpu.product"], rows["nvidia.com/gpu.clique"]
    strategy = rows["nvidia.com/mig.strategy"]
    assert (product.outcome, product.text) == (LabelOutcome.SET, "MOCKMODEL")
    assert (product.source, product.labeler) == ("nvmlDeviceGetName", "resources")
    assert (clique.outcome, clique.text) == (
        LabelOutcome.KEPT,
        "nvmlDeviceGetGpuFabricInfo: failed",
    )
    assert (strategy.outcome, strategy.text) == (LabelOutcome.ABSENT, "the MIG strategy is none")


def test_every_label_that_could_be_there_is_explained() -> None:
    rows = label_explanations(decide_labels(build.node(), LabelSettings()))

    assert {row.key for row in rows} == {key.name for key in keys.LABELS}
    assert [row for row in rows if not row.text or not row.source] == []


def test_a_label_by_a_rule_is_explained_by_the_place_of_its_rule() -> None:
    rules = tuple(
        LabelRule(key=key, entries=(RuleEntry(value=value),), place=f"rules.yaml:{line}")
        for line, key, value in [(2, "example.com/a", "x"), (5, "example.com/b", "{driver-major}")]
    )

    rows = {
        row.key: row
        for row in label_explanations(
            decide_labels(build.node([build.gpu()]), LabelSettings(rules=rules))
        )
    }

    for line, key in [(2, "example.com/a"), (5, "example.com/b")]:
        assert (rows[key].source, rows[key].labeler) == (f"rules.yaml:{line}", "rules")
        assert rows[key].summary == "by a rule of yours"
    assert rows["example.com/a"].text == "x"


def test_what_is_written_where_there_is_none_stands_behind_the_reason() -> None:
    node = build.node([build.gpu(0), build.silent(1)])

    rows = {row.key: row for row in label_explanations(decide_labels(node, LabelSettings()))}

    count, mode = rows["nvidia.com/gpu.count"], rows["nvidia.com/gpu.mode"]
    assert (count.outcome, count.text) == (
        LabelOutcome.KEPT,
        "the model of 0000:11:00.0 is not known: it did not answer; 1 where there is none",
    )
    assert (mode.summary, mode.source) == ("PCI class of all GPUs", "/sys/bus/pci: class")
