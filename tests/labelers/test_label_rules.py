# SPDX-License-Identifier: Apache-2.0
"""Labels by an admin's rules: read from his file, decided from a snapshot, removed where ours."""

from __future__ import annotations

import itertools
import re
from fnmatch import fnmatchcase, translate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import names
from api.key_kinds import MOST_RULES, RESERVED, rule_key_fault
from base.errors import BadInput
from labelers.compose import decide_labels
from labelers.decision import Absent, Decision, Keep, Value
from labelers.feature_file import write_feature_file
from labelers.groups.rule_fields import FIELDS
from labelers.groups.rule_labels import _decided
from labelers.label_rules import LabelRule, RuleEntry, pattern_matches
from labelers.label_rules_file import MOST_ENTRIES, parse_label_rules
from labelers.label_settings import LabelSettings
from labelers.label_values import MAX_LENGTH, value_fault
from labelers.node_patch import former_labels, plan_node_patch
from tests import build
from tests.observed import observed

TYPE, MEMORY = "example.com/gpu-type", "example.com/gpu-memory"
RULES = """\
labels:
- key: example.com/gpu-type
  values:
  - {match: {product: "*A100*80GB*"}, value: a100-80}
  - {match: {product: "*H100*"}, value: h100}
- key: example.com/gpu-memory
  value: "{memory-gib}Gi"
"""


def node(labels: dict[str, str], ours: tuple[str, ...]) -> dict[str, Any]:
    """A Node with these labels, some of which the agent wrote."""
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {f"f:{key}": {} for key in ours}}}
    entry = {"manager": names.AGENT, "operation": "Update", "fieldsV1": fields}
    return {"metadata": {"name": "n", "labels": labels, "managedFields": [entry]}}


def decided(rule: LabelRule, **said: Decision) -> Decision:
    return _decided(rule, {name: Absent(reason="-") for name in FIELDS} | said)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("labels:\n- {key: nvidia.com/x, value: a}\n", "rules:2: labels.*is reserved"),
        ("labels:\n- {key: sub.k8s.io/x, value: a}\n", "is reserved"),
        ("labels:\n- {key: x, value: a}\n", "it has no prefix"),
        ("labels:\n- {key: e.com/x, value: '{prodct}'}\n", "did you mean product"),
        ("labels:\n- {key: e.com/x, value: 'a b'}\n", "no legal label value"),
        ("labels:\n- {key: e.com/x, value: '{product}-'}\n", "no legal label value"),
        ("labels:\n- {key: e.com/x, value: {product}}\n", "quotes"),
        ("labels:\n- {key: e.com/x}\n", "either value or values"),
        ("labels:\n- {key: e.com/x, valu: a}\n", "valu"),
        ("labels:\n- {key: e.com/x, value: a}\n- {key: e.com/x, value: b}\n", "rules:2"),
        ("labels:\n- {key: e.com/x, values: [{value: a}, {value: b}]}\n", "put it last"),
        ("labels:\n- {key: e.com/x, values: [{match: {product: 'a b'}, value: a}]}\n", "nothing"),
        ("", "it has no rules"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place_and_the_reason(written: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        parse_label_rules(written, "rules")


def test_the_last_entry_may_have_no_match_and_is_taken_where_no_other_fits() -> None:
    values = "[{match: {product: Tesla-T4}, value: small}, {value: large}]"
    (rule,) = parse_label_rules(f"labels:\n- {{key: {TYPE}, values: {values}}}\n", "rules")

    assert decided(rule, product=Value(text="Tesla-T4")) == Value(text="small")
    assert decided(rule, product=Value(text="NVIDIA-L4")) == Value(text="large")


def test_a_file_has_up_to_32_rules_and_a_rule_from_1_to_256_values() -> None:
    def rules(count: int) -> str:
        return "labels:\n" + "".join(f"- {{key: e.com/x{n}, value: a}}\n" for n in range(count))

    def values(count: int) -> str:
        listed = ", ".join(f"{{match: {{count: '{n}'}}, value: a}}" for n in range(count))
        return f"labels:\n- {{key: e.com/x, values: [{listed}]}}\n"

    assert (MOST_RULES, MOST_ENTRIES) == (32, 256)
    assert len(parse_label_rules(rules(32), "rules")) == 32
    assert len(parse_label_rules(values(256), "rules")[0].entries) == 256
    for written, reason in [
        (rules(33), "33 rules, above 32"),
        (values(257), "257 values: give from 1 to 256"),
        (values(0), "0 values: give from 1 to 256"),
    ]:
        with pytest.raises(BadInput, match=reason):
            parse_label_rules(written, "rules")


@pytest.mark.parametrize(
    "text", ["", "{product}", "x-{product}", "a" * MAX_LENGTH, "a" * 62 + "{count}"]
)
def test_a_value_that_is_legal_with_one_character_for_each_field_is_taken(text: str) -> None:
    (rule,) = parse_label_rules(f"labels:\n- {{key: {TYPE}, value: '{text}'}}\n", "rules")
    assert rule.entries == (RuleEntry(value=text),)


@pytest.mark.parametrize("text", ["a" * (MAX_LENGTH + 1), "a" * MAX_LENGTH + "{count}"])
def test_a_value_that_is_too_long_whatever_its_fields_say_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="64 characters, above 63"):
        parse_label_rules(f"labels:\n- {{key: {TYPE}, value: '{text}'}}\n", "rules")


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("*80GB*", ["80GB", "A100-80GB", "80GB-HBM3", "A100-80GB-HBM3"], ["80-GB", "80gb"]),
        ("A100*", ["A100", "A100-SXM4"], ["NVIDIA-A100", "A10"]),
        ("*A100", ["A100", "NVIDIA-A100"], ["A100-SXM4"]),
        ("A*-*B", ["A-B", "A100-80GB"], ["AB", "A-B-C"]),
        ("*", ["A", "A.b_c-d"], []),
        ("1.0", ["1.0"], ["110", "1.00"]),
    ],
)
def test_a_star_stands_for_any_text_also_for_none_and_all_else_for_itself(
    pattern: str, fits: list[str], does_not: list[str]
) -> None:
    entry = RuleEntry(value="yes", match=(("product", pattern),))
    rule = LabelRule(key=TYPE, entries=(entry,), place="f:1")

    for text in fits:
        assert decided(rule, product=Value(text=text)) == Value(text="yes")
    for text in does_not:
        assert isinstance(decided(rule, product=Value(text=text)), Absent)


@pytest.mark.parametrize(
    ("mebibytes", "text"),
    [(81559, "80Gi"), (81920, "80Gi"), (81921, "81Gi"), (15360, "15Gi"), (46068, "45Gi")],
)
def test_memory_is_rounded_up_to_whole_gibibytes(mebibytes: int, text: str) -> None:
    """As nvidia-smi reports an H100 80GB, an A100 80GB with all of it, a T4 and an L40S."""
    gpu = build.gpu(memory_bytes=mebibytes << 20)

    found = decide_labels(build.node([gpu]), LabelSettings(rules=parse_label_rules(RULES, "rules")))

    assert found.values[MEMORY] == text


@pytest.mark.parametrize("prefix", RESERVED)
def test_reserved_prefixes_and_their_subdomains_are_refused_and_look_alikes_are_not(
    prefix: str,
) -> None:
    assert rule_key_fault(f"{prefix}/x") is not None
    assert rule_key_fault(f"sub.{prefix}/x") is not None
    assert rule_key_fault(f"x{prefix}/x") is None


def test_an_earlier_entry_that_might_match_keeps_the_label() -> None:
    rule = parse_label_rules(RULES, "rules")[0]

    assert decided(rule, product=Value(text="NVIDIA-H100-80GB-HBM3")) == Value(text="h100")
    assert isinstance(decided(rule, product=Value(text="Tesla-T4")), Absent)
    assert decided(rule, product=Keep(reason="lost")) == Keep(reason="lost")
    best = Keep(reason="lost", otherwise="NVIDIA-H100-80GB-HBM3")
    assert decided(rule, product=best) == Keep(reason="lost", otherwise="h100")


def test_a_label_by_a_rule_is_removed_only_where_the_agent_wrote_it() -> None:
    there = {TYPE: "old", MEMORY: "1Gi", "example.com/team": "a"}
    gone = {TYPE: Absent(reason="-"), MEMORY: Absent(reason="-")}

    assert plan_node_patch(node(there, ours=(TYPE,)), gone, {}).labels == {TYPE: None}
    assert plan_node_patch(node(there, ours=()), {TYPE: Value(text="new")}, {}).labels == {
        TYPE: "new"
    }


def test_of_rules_that_are_gone_the_labels_go_that_the_agent_wrote() -> None:
    there = node({TYPE: "old", MEMORY: "1Gi", "nvidia.com/x": "y"}, (TYPE, "nvidia.com/x"))
    wanted = {"nvidia.com/gpu.count": Value(text="8")}

    former = former_labels(there["metadata"], wanted)

    assert list(former) == [TYPE, MEMORY]
    assert plan_node_patch(there, {**wanted, **former}, {}).labels == {
        "nvidia.com/gpu.count": "8",
        TYPE: None,
    }
    assert former_labels(there["metadata"], {}) == {}


def test_in_a_feature_file_the_labels_of_former_rules_go_and_those_of_others_stay(
    tmp_path: Path,
) -> None:
    file = tmp_path / "features"
    file.write_text("example.com/team=a\n")
    write_feature_file(file, {TYPE: Value(text="h100")})
    assert file.read_text() == f"# by rules: {TYPE}\n{TYPE}=h100\nexample.com/team=a\n"

    write_feature_file(file, {})

    assert file.read_text() == "example.com/team=a\n"


_FIELD = st.sampled_from(sorted(FIELDS))
_WORD = st.text("abAB019-_.*", min_size=1, max_size=70)
_ENTRY = st.builds(
    lambda value, field, match: RuleEntry(value=value.replace("*", f"{{{field}}}"), match=match),
    _WORD,
    _FIELD,
    st.lists(st.tuples(_FIELD, _WORD), max_size=2).map(tuple),
)
_KEYS = st.sampled_from([TYPE, MEMORY, "a.b/c"])


@given(
    st.dictionaries(_KEYS, st.lists(_ENTRY, min_size=1, max_size=3).map(tuple)),
    st.sampled_from(["dgx-a100", "mixed", "empty", "no-driver"]),
)
def test_whatever_the_rules_only_their_keys_are_added_and_all_values_are_legal(
    entries: dict[str, tuple[RuleEntry, ...]], machine: str
) -> None:
    rules = tuple(LabelRule(key=key, entries=its, place="f:1") for key, its in entries.items())
    snapshot = observed(machine).snapshot

    plain = decide_labels(snapshot, LabelSettings())
    found = decide_labels(snapshot, LabelSettings(rules=rules))

    assert found.failures == ()
    assert found.decisions.keys() - plain.decisions.keys() == entries.keys()
    assert {key: it for key, it in found.decisions.items() if key not in entries} == dict(
        plain.decisions
    )
    assert [text for text in found.values.values() if value_fault(text)] == []


PARTS = st.text("ab*", max_size=8)


@given(pattern=PARTS, text=st.text("ab", max_size=10))
def test_a_pattern_matches_what_fnmatch_says(pattern: str, text: str) -> None:
    assert pattern_matches(pattern, text) == fnmatchcase(text, pattern)


def test_a_pattern_matches_what_fnmatch_says_in_every_short_case() -> None:
    patterns = ["".join(it) for size in range(6) for it in itertools.product("ab*", repeat=size)]
    texts = ["".join(it) for size in range(6) for it in itertools.product("ab", repeat=size)]
    for pattern in patterns:
        like = re.compile(translate(pattern))
        for text in texts:
            assert pattern_matches(pattern, text) == bool(like.match(text)), (pattern, text)


def test_a_pattern_is_taken_as_text_but_for_its_stars() -> None:
    for pattern in ("a.b", "[ab]", "a?b", "a\\b", "(a)"):
        assert pattern_matches(pattern, pattern)
        assert not pattern_matches(pattern, "axb")
    assert pattern_matches("a*b", "a\nb")


@pytest.mark.parametrize("stars", [12, 100, 10_000])
def test_however_many_stars_a_pattern_has_it_comes_to_an_end(stars: int) -> None:
    """A matcher that tries again takes longer than the universe for the last."""
    text = "a" * 20_000
    assert not pattern_matches("*a" * stars + "*b", text)
    assert not pattern_matches("*a" * stars + "*b*", text)
    assert pattern_matches("*a" * stars + "*", text)
