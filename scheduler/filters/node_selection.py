# SPDX-License-Identifier: Apache-2.0
"""Selection of nodes by a pod's ``nodeSelector`` and required node affinity. Pure.

Source: k8s.io/component-helpers, scheduling/corev1/nodeaffinity; k8s.io/apimachinery,
pkg/labels/selector.go; both of 1.37, with the same meaning in 1.32.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from base.words import did_you_mean, quoted
from kube.objects.node import Node
from kube.objects.pod import PodSpec
from kube.objects.pod_constraints import NodeRequirement, NodeTerm

NAME_FIELD: Final = "metadata.name"
"""The one field of a Node that an expression may be about."""
TERMS: Final = (
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_MOST: Final = 1 << 63
_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")

_COMPARISONS: Final[Mapping[str, Callable[[str | None, Sequence[str]], bool]]] = MappingProxyType(
    {
        "In": lambda value, listed: value is not None and value in listed,
        "NotIn": lambda value, listed: value is None or value not in listed,
        "Exists": lambda value, _: value is not None,
        "DoesNotExist": lambda value, _: value is None,
        "Gt": lambda value, listed: _exceeds(value, listed[0]),
        "Lt": lambda value, listed: _exceeds(listed[0], value),
    }
)
"""Operator to whether a label's value, None without the label, is as the listed values demand."""
_LISTS: Final = ("In", "NotIn")
_NUMBERS: Final = ("Gt", "Lt")


def selects_node(spec: PodSpec, node: Node) -> bool:
    """Whether the node has what the pod selects by: all of the selector, and one of the terms.

    A term without expressions matches no node, nor does one with an expression that
    :func:`selection_faults` names: the scheduler passes over such terms.
    """
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    terms = required_terms(spec)
    return terms is None or any(_term_matches(term, node.name, labels) for term in terms)


def required_terms(spec: PodSpec) -> Sequence[NodeTerm] | None:
    """The terms of the required node affinity; None where there is none."""
    required = spec.required_nodes
    return None if required is None else required.node_selector_terms


def named_nodes(spec: PodSpec) -> frozenset[str] | None:
    """The nodes by whose name all terms select; None where a term selects by no name.

    The scheduler looks at no other nodes then, whatever else is wrong with them.
    """
    names: frozenset[str] = frozenset()
    terms = required_terms(spec)
    for term in terms or ():
        listed = [
            frozenset(requirement.values)
            for requirement in term.match_fields
            if (requirement.key, requirement.operator) == (NAME_FIELD, "In")
        ]
        if not listed:
            return None
        names |= frozenset.intersection(*listed)
    return names if terms else None


def selection_faults(spec: PodSpec) -> Iterator[str]:
    """A sentence for each expression that cannot hold as it is written, which names its key."""
    terms = required_terms(spec)
    if terms is not None and not terms:
        yield f"{TERMS} is empty, which matches no node: list a term"
    for index, term in enumerate(terms or ()):
        for key, expressions, fault_of in (
            ("matchExpressions", term.match_expressions, _label_fault),
            ("matchFields", term.match_fields, _field_fault),
        ):
            for place, requirement in enumerate(expressions):
                if fault := fault_of(requirement):
                    yield f"{TERMS}[{index}].{key}[{place}].{fault}"


def _term_matches(term: NodeTerm, name: str, labels: Mapping[str, str]) -> bool:
    by_label, by_field = term.match_expressions, term.match_fields
    if not by_label and not by_field:
        return False
    if any(map(_label_fault, by_label)) or any(map(_field_fault, by_field)):
        return False
    return all(
        _holds(requirement, labels.get(requirement.key)) for requirement in by_label
    ) and all(_holds(requirement, name) for requirement in by_field)


def _holds(requirement: NodeRequirement, value: str | None) -> bool:
    return _COMPARISONS[requirement.operator](value, requirement.values)


def _label_fault(requirement: NodeRequirement) -> str:
    """Why an expression about a label cannot hold, with the key in front; empty where it can."""
    operator, values = requirement.operator, list(requirement.values)
    if operator not in _COMPARISONS:
        known = ", ".join(_COMPARISONS)
        close = did_you_mean(operator, _COMPARISONS)
        return f"operator is {quoted(operator)}, not one of {known}{close}"
    if not requirement.key:
        return "key is missing: name a label"
    if operator in _LISTS and not values:
        return f"values is empty: {operator} needs at least one"
    if operator in _NUMBERS and (len(values) != 1 or _integer(values[0]) is None):
        return f"values is {quoted(str(values))}: {operator} needs one whole number, in quotes"
    if operator not in (*_LISTS, *_NUMBERS) and values:
        return f"values is {quoted(str(values))}: {operator} takes none"
    illegal = next((value for value in values if not _LABEL_VALUE.fullmatch(value)), None)
    return "" if illegal is None else f"values has {quoted(illegal)}, which no label can be"


def _field_fault(requirement: NodeRequirement) -> str:
    """Why an expression about a field cannot hold, with the key in front; empty where it can."""
    operator, values = requirement.operator, list(requirement.values)
    if requirement.key != NAME_FIELD:
        return f"key is {quoted(requirement.key)}: the only field is {NAME_FIELD}"
    if operator not in _LISTS:
        return f"operator is {quoted(operator)}, not one of {', '.join(_LISTS)}"
    if len(values) != 1:
        return f"values is {quoted(str(values))}: a field is compared with one name"
    return ""


def _exceeds(larger: str | None, smaller: str | None) -> bool:
    """Whether both are whole numbers and the first is larger."""
    a, b = _integer(larger), _integer(smaller)
    return a is not None and b is not None and a > b


def _integer(text: str | None) -> int | None:
    """A whole number of 64 bits as Go reads it; None for anything else."""
    number = int(text) if text and _INTEGER.fullmatch(text) else None
    return number if number is not None and -_MOST <= number < _MOST else None
