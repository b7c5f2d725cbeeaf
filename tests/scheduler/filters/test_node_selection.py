# SPDX-License-Identifier: Apache-2.0
"""A selector and required node affinity match the nodes that kube-scheduler's do."""

from __future__ import annotations

from typing import Any

import pytest

from kube.objects.node import Node
from kube.objects.pod import PodSpec
from scheduler.filters.node_selection import TERMS, named_nodes, selection_faults, selects_node


def node(name: str = "a", **labels: str) -> Node:
    return Node.from_object({"metadata": {"name": name, "labels": labels}})


def spec(*terms: Any, **more: Any) -> PodSpec:
    required = {"nodeSelectorTerms": list(terms)}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return PodSpec.from_object({"affinity": affinity, **more})


def about(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def labels(*expressions: Any) -> dict[str, Any]:
    return {"matchExpressions": list(expressions)}


def fields(*expressions: Any) -> dict[str, Any]:
    return {"matchFields": list(expressions)}


def test_without_any_rule_every_node_matches() -> None:
    assert selects_node(PodSpec(), node())
    assert selects_node(PodSpec.from_object({"affinity": {"nodeAffinity": {}}}), node())


@pytest.mark.parametrize(
    ("selector", "its", "is_match"),
    [
        ({"zone": "a"}, {"zone": "a"}, True),
        ({"zone": "a"}, {"zone": "b"}, False),
        ({"zone": "a"}, {}, False),
        ({"zone": ""}, {}, False),
        ({"zone": "a", "disk": "ssd"}, {"zone": "a"}, False),
        ({"zone": "a", "disk": "ssd"}, {"zone": "a", "disk": "ssd", "x": "y"}, True),
    ],
)
def test_a_selector_holds_where_all_its_labels_are(
    selector: dict[str, str], its: dict[str, str], is_match: bool
) -> None:
    assert selects_node(PodSpec(node_selector=selector), node(**its)) is is_match


@pytest.mark.parametrize(
    ("operator", "values", "of_3", "of_word", "without"),
    [
        ("In", ["3", "4"], True, False, False),
        ("In", ["4"], False, False, False),
        ("NotIn", ["3", "4"], False, True, True),
        ("NotIn", ["4"], True, True, True),
        ("Exists", [], True, True, False),
        ("DoesNotExist", [], False, False, True),
        ("Gt", ["2"], True, False, False),
        ("Gt", ["3"], False, False, False),
        ("Gt", ["0"], True, False, False),
        ("Lt", ["4"], True, False, False),
        ("Lt", ["3"], False, False, False),
        ("Lt", ["010"], True, False, False),
    ],
)
def test_every_operator_on_a_number_a_word_and_no_label(
    operator: str, values: list[str], of_3: bool, of_word: bool, without: bool
) -> None:
    asked = spec(labels(about("n", operator, *values)))
    assert selects_node(asked, node(n="3")) is of_3
    assert selects_node(asked, node(n="three")) is of_word
    assert selects_node(asked, node(m="3")) is without


@pytest.mark.parametrize(
    "value", ["abc", "", "1.5", "1_0", " 5", "-5", "+5", "9223372036854775808"]
)
def test_a_bound_that_is_no_integer_of_64_bits_matches_no_node(value: str) -> None:
    """Nor one with a sign, which no label can have: the scheduler checks bounds as labels too."""
    for operator, label in (("Gt", "99"), ("Lt", "0")):
        assert not selects_node(spec(labels(about("n", operator, value))), node(n=label))


@pytest.mark.parametrize("label", ["1_0", "5.0", "9223372036854775808"])
def test_a_label_that_is_no_integer_of_64_bits_is_not_compared(label: str) -> None:
    assert not selects_node(spec(labels(about("n", "Gt", "1"))), node(n=label))


def test_the_largest_integers_are_compared_exactly() -> None:
    most, less = "9223372036854775807", "9223372036854775806"
    assert selects_node(spec(labels(about("n", "Gt", less))), node(n=most))
    assert selects_node(spec(labels(about("n", "Lt", most))), node(n=less))
    assert not selects_node(spec(labels(about("n", "Gt", most))), node(n=most))


def test_all_expressions_of_a_term_have_to_hold() -> None:
    both = spec(labels(about("zone", "In", "a"), about("disk", "Exists")))
    assert selects_node(both, node(zone="a", disk="ssd"))
    assert not selects_node(both, node(zone="a"))
    assert not selects_node(both, node(disk="ssd"))


def test_one_of_the_terms_has_to_hold() -> None:
    either = spec(labels(about("zone", "In", "a")), labels(about("zone", "In", "b")))
    assert selects_node(either, node(zone="a"))
    assert selects_node(either, node(zone="b"))
    assert not selects_node(either, node(zone="c"))


def test_an_empty_term_matches_nothing_and_leaves_the_others() -> None:
    assert not selects_node(spec({}), node())
    assert not selects_node(spec({"matchExpressions": [], "matchFields": []}), node())
    assert selects_node(spec({}, labels(about("zone", "Exists"))), node(zone="a"))


def test_no_term_at_all_matches_nothing() -> None:
    assert not selects_node(spec(), node())
    required: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": {}}
    empty = PodSpec.from_object({"affinity": {"nodeAffinity": required}})
    assert not selects_node(empty, node())


def test_a_term_with_a_fault_matches_nothing_and_leaves_the_others() -> None:
    """Also where the fault is beside an expression that does not hold anyway."""
    faulty = labels(about("n", "Gt", "many"), about("zone", "NotIn", "a"))
    assert not selects_node(spec(faulty), node(n="3"))
    assert selects_node(spec(faulty, labels(about("n", "Exists"))), node(n="3"))


def test_the_selector_and_the_affinity_both_have_to_hold() -> None:
    both = spec(labels(about("zone", "In", "a")), nodeSelector={"disk": "ssd"})
    assert selects_node(both, node(zone="a", disk="ssd"))
    assert not selects_node(both, node(zone="a"))
    assert not selects_node(both, node(disk="ssd"))


def test_fields_are_about_the_nodes_name() -> None:
    pinned = spec(fields(about("metadata.name", "In", "a")))
    others = spec(fields(about("metadata.name", "NotIn", "a")))
    assert (selects_node(pinned, node("a")), selects_node(pinned, node("b"))) == (True, False)
    assert (selects_node(others, node("a")), selects_node(others, node("b"))) == (False, True)


def test_fields_and_labels_of_a_term_both_have_to_hold() -> None:
    both = spec({**fields(about("metadata.name", "In", "a")), **labels(about("zone", "Exists"))})
    assert selects_node(both, node("a", zone="x"))
    assert not selects_node(both, node("a"))
    assert not selects_node(both, node("b", zone="x"))


@pytest.mark.parametrize(
    "expression",
    [
        about("metadata.name", "In", "a", "b"),
        about("metadata.name", "In"),
        about("metadata.name", "Exists"),
        about("metadata.uid", "NotIn", "x"),
    ],
)
def test_a_field_that_cannot_be_compared_matches_nothing(expression: Any) -> None:
    assert not selects_node(spec(fields(expression)), node("a"))


def test_what_is_preferred_keeps_no_node_out() -> None:
    preferred = [{"weight": 1, "preference": labels(about("zone", "In", "b"))}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    assert selects_node(PodSpec.from_object({"affinity": affinity}), node(zone="a"))


@pytest.mark.parametrize(
    ("terms", "names"),
    [
        ([fields(about("metadata.name", "In", "a"))], {"a"}),
        ([fields(about("metadata.name", "In", each)) for each in "ab"], {"a", "b"}),
        ([fields(about("metadata.name", "In", "a"), about("metadata.name", "In", "b"))], set()),
        ([fields(about("metadata.name", "NotIn", "a"))], None),
        ([fields(about("metadata.name", "In", "a")), labels(about("zone", "Exists"))], None),
        ([], None),
    ],
)
def test_terms_that_all_name_nodes_narrow_to_these(
    terms: list[Any], names: set[str] | None
) -> None:
    assert named_nodes(spec(*terms)) == (None if names is None else frozenset(names))
    assert named_nodes(PodSpec()) is None


@pytest.mark.parametrize(
    ("term", "fault"),
    [
        (labels(about("n", "Equals", "3")), "matchExpressions[0].operator is 'Equals', not one of"),
        (labels(about("n", "in", "3")), "did you mean In?"),
        (labels(about("", "Exists")), "matchExpressions[0].key is missing"),
        (labels(about("n", "In")), "matchExpressions[0].values is empty: In needs at least one"),
        (labels(about("n", "NotIn")), "values is empty: NotIn needs at least one"),
        (labels(about("n", "Gt", "many")), "Gt needs one whole number, in quotes"),
        (labels(about("n", "Lt", "1", "2")), "Lt needs one whole number, in quotes"),
        (labels(about("n", "Gt")), "Gt needs one whole number, in quotes"),
        (labels(about("n", "Exists", "x")), "Exists takes none"),
        (labels(about("n", "DoesNotExist", "x")), "DoesNotExist takes none"),
        (labels(about("n", "In", "ok", "a b")), "values has 'a b', which no label can be"),
        (labels(about("n", "NotIn", "x" * 64)), "which no label can be"),
        (fields(about("metadata.uid", "In", "a")), "matchFields[0].key is 'metadata.uid'"),
        (fields(about("metadata.name", "Gt", "1")), "matchFields[0].operator is 'Gt', not one of"),
        (fields(about("metadata.name", "In", "a", "b")), "is compared with one name"),
    ],
)
def test_a_fault_is_named_with_its_key_and_its_term_matches_nothing(term: Any, fault: str) -> None:
    good = labels(about("zone", "Exists"))
    (found,) = selection_faults(spec(good, term))
    assert found.startswith(f"{TERMS}[1].match")
    assert fault in found
    assert not selects_node(spec(term), node("a", n="3"))


def test_a_list_without_terms_is_a_fault() -> None:
    assert list(selection_faults(spec())) == [
        f"{TERMS} is empty, which matches no node: list a term"
    ]


def test_good_rules_have_no_fault() -> None:
    good = spec(
        labels(about("n", "In", "", "a.b-c_d"), about("n", "Gt", "3"), about("m", "DoesNotExist")),
        fields(about("metadata.name", "NotIn", "a")),
        {},
    )
    assert not list(selection_faults(good))
    assert not list(selection_faults(PodSpec()))
