# SPDX-License-Identifier: Apache-2.0
"""What each field of a rule says of a node, and what is said while some of it is not known."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from discovery.model import Gap, GpuState, Reason
from labelers.compose import decide_labels
from labelers.decision import (
    Absent,
    Decision,
    Keep,
    Value,
    gap_text,
    why_none,
    written_value,
)
from labelers.explanation import label_explanations
from labelers.groups.common_resource_labels import memory_mib
from labelers.groups.rule_fields import FIELDS, combined, field_decisions
from labelers.groups.rule_labels import rule_labels
from labelers.label_rules import LabelRule, RuleEntry
from labelers.label_settings import LabelSettings
from labelers.unsettled import kept, why_unsettled
from tests import build
from tests.observed import observed

SAID = {
    "product": "NVIDIA-A100-SXM4-80GB",
    "count": "8",
    "memory-mib": "81920",
    "memory-gib": "80",
    "memory-type": "hbm",
    "family": "ampere",
    "compute": "8.0",
    "mig-capable": "true",
    "nvlink-class": "switch",
    "nvlink-island": "8",
    "driver-version": "550.54.15",
    "driver-major": "550",
    "cuda-version": "12.4",
}
"""Of a DGX A100 with 80 GB; with the driver of the simulated machine."""


def test_each_field_says_its_fact_in_full() -> None:
    found = field_decisions(observed("dgx-a100-80gb").snapshot)
    assert set(found) == set(FIELDS) == {*SAID, "machine"}
    assert {name: written_value(found[name]) for name in SAID} == SAID
    assert all(isinstance(decision, Value) for decision in found.values())


@pytest.mark.parametrize(
    ("mib", "gib"), [(1, 1), (1023, 1), (1024, 1), (1025, 2), (81559, 80), (81920, 80), (81921, 81)]
)
def test_memory_is_whole_mib_rounded_down_and_whole_gib_rounded_up(mib: int, gib: int) -> None:
    for rest in (0, 1, (1 << 20) - 1):
        snapshot = build.node([build.gpu(0, memory_bytes=(mib << 20) + rest)])
        found = field_decisions(snapshot)
        assert written_value(found["memory-mib"]) == str(mib)
        assert written_value(found["memory-gib"]) == str(gib)
        assert memory_mib((mib << 20) + rest) == Value(text=str(mib))


SURE = Value(text="8")
DOUBTFUL = Keep(reason="not read", otherwise="9")
UNKNOWN = Keep(reason="hung")
GONE = Absent(reason="no such thing")


@pytest.mark.parametrize(
    "parts", [*product((SURE, DOUBTFUL, UNKNOWN, GONE), repeat=2), (SURE,), (UNKNOWN,)]
)
def test_several_facts_together_are_as_sure_as_the_least_sure_of_them(
    parts: tuple[Decision, ...],
) -> None:
    """Gone where one is gone, kept by the first doubt, and all of them where they are known."""
    found = combined(parts, ".".join)
    gone = [it for it in parts if isinstance(it, Absent)]
    doubts = [it for it in parts if isinstance(it, Keep)]
    if gone:
        assert found == gone[0]
        return
    texts = [written_value(it) for it in parts]
    whole = None if None in texts else ".".join(map(str, texts))
    if doubts:
        assert found == Keep(reason=doubts[0].reason, otherwise=whole)
    else:
        assert found == Value(text=str(whole))


def labelled(*entries: RuleEntry, hung: bool = True) -> Decision:
    """What one rule makes of a node of which the driver does not say its versions."""
    snapshot = build.node([build.gpu(0, model="NVIDIA A100")])
    if hung:
        gaps = tuple(
            Gap(what=what, reason=Reason.HUNG, source=f"call of {what}")
            for what in ("version", "cuda_version")
        )
        driver = replace(snapshot.driver, version=None, cuda_version=None, gaps=gaps)
        snapshot = replace(snapshot, driver=driver)
    rule = LabelRule(key="e.com/x", entries=entries, place="rules:1")
    return rule_labels(snapshot, LabelSettings(rules=(rule,)))["e.com/x"]


def entry(value: str, **match: str) -> RuleEntry:
    return RuleEntry(
        value=value, match=tuple((key.replace("_", "-"), it) for key, it in match.items())
    )


VERSION, CUDA = "call of version", "call of cuda_version"


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([entry("a", product="*A100*")], Value(text="a")),
        ([entry("a", product="*H100*")], Absent),
        # the first doubt is the reason, whatever else is doubtful
        ([entry("a", driver_version="*", cuda_version="*")], VERSION),
        ([entry("a", cuda_version="*", driver_version="*")], CUDA),
        ([entry("a", driver_version="*"), entry("b", cuda_version="*")], VERSION),
        # a field that is known not to match settles it
        ([entry("a", driver_version="*", product="*H100*")], Absent),
        ([entry("a", product="*H100*", driver_version="*")], Absent),
        ([entry("a", driver_version="*", product="*H100*"), entry("b")], Value(text="b")),
        # what comes behind a doubt is what is best known
        ([entry("a", driver_version="5*"), entry("b")], (VERSION, "b")),
        ([entry("a", product="*A100*"), entry("b", driver_version="*")], Value(text="a")),
        ([entry("{count}-{driver-version}")], (VERSION, None)),
        ([entry("{count}-{family}")], Value(text="1-ampere")),
        ([entry("{count}-{family}-{count}")], Value(text="1-ampere-1")),
    ],
)
def test_a_rule_with_a_doubtful_field_keeps_the_label_and_names_the_first_doubt(
    entries: list[RuleEntry], found: Decision | type[Absent] | str | tuple[str, str | None]
) -> None:
    made = labelled(*entries)
    if found is Absent:
        assert isinstance(made, Absent)
    elif isinstance(found, str | tuple):
        reason, otherwise = (found, None) if isinstance(found, str) else found
        assert isinstance(made, Keep)
        assert (made.reason.startswith(reason), made.otherwise) == (True, otherwise)
    else:
        assert made == found


def test_a_label_by_a_rule_is_explained_by_the_place_of_the_rule() -> None:
    rule = LabelRule(key="e.com/x", entries=(entry("a"),), place="rules.yaml:7")
    found = decide_labels(build.node([build.gpu(0)]), LabelSettings(rules=(rule,)))
    (one,) = [it for it in label_explanations(found) if it.key == "e.com/x"]
    assert (one.text, one.source, one.labeler) == ("a", "rules.yaml:7", "rules")
    assert one.summary


def test_without_a_match_the_reason_has_every_field_that_was_looked_at() -> None:
    found = labelled(entry("a", product="*H100*", count="2"), entry("b", count="3"), hung=False)
    assert found == Absent(reason="none of its values matches product 'NVIDIA-A100', count '1'")


@pytest.mark.parametrize(
    ("gap", "text"),
    [
        (Gap(what="x", reason=Reason.HUNG, source="a call", detail="it said so"), "it said so"),
        (Gap(what="x", reason=Reason.HUNG, source="a call"), str(Reason.HUNG)),
    ],
)
def test_a_gap_is_named_by_its_own_words_or_else_by_its_kind(gap: Gap, text: str) -> None:
    others = (replace(gap, what="y", detail="another"), gap, replace(gap, detail="a later one"))
    assert gap_text(others, "x") == f"a call: {text}"
    assert gap_text(others, "z") == "z was not read"


@pytest.mark.parametrize(
    ("reasons", "is_gone"),
    [
        ([Reason.UNSUPPORTED], True),
        ([Reason.UNSUPPORTED, Reason.UNSUPPORTED], True),
        ([Reason.UNSUPPORTED, Reason.HUNG], False),
        ([Reason.FORBIDDEN, Reason.UNSUPPORTED], False),
        ([None, Reason.UNSUPPORTED], False),
    ],
)
def test_a_fact_is_gone_only_where_every_gpu_says_that_it_has_none(
    reasons: list[Reason | None], is_gone: bool
) -> None:
    gpus = [
        build.gpu(at, memory_bytes=None)
        if reason is None
        else build.lacking(build.gpu(at), "memory_bytes", reason, f"call {at}")
        for at, reason in enumerate(reasons)
    ]
    found = why_none(gpus, "memory_bytes")
    assert isinstance(found, Absent if is_gone else Keep)
    blamed = next((at for at, it in enumerate(reasons) if it is not Reason.UNSUPPORTED), 0)
    said = f"call {blamed}: " if reasons[blamed] else "memory_bytes was not read"
    assert found.reason.startswith(said)


def test_one_gpu_whose_first_answer_is_awaited_is_enough_to_keep_every_label() -> None:
    awaited = build.silent(1, GpuState.INITIALISING)
    assert why_unsettled(build.node([build.gpu(0), awaited]))
    assert why_unsettled(build.node([awaited]))
    assert not why_unsettled(build.node([build.gpu(0), build.silent(1)]))
    assert not why_unsettled(build.node([]))
    found = kept({"nvidia.com/gpu.count": SURE, "gpuscape.io/gpu.health": SURE, "x": GONE}, "why")
    assert {key: written_value(it) for key, it in found.items()} == {
        "nvidia.com/gpu.count": "8",
        "gpuscape.io/gpu.health": None,
        "x": None,
    }
    assert all(isinstance(it, Keep) for it in found.values())
