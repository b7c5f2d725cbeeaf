# SPDX-License-Identifier: Apache-2.0
"""Legal label texts, and names as gpu-feature-discovery sanitises them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelers.label_values import key_fault, sanitise, value_fault

ENDS = "the first and last character must be a letter or a digit"
CHARACTERS = "a character other than letters, digits, '-', '_' and '.'"


@pytest.mark.parametrize(
    ("name", "sanitised"),
    [
        ("NVIDIA-TITAN-X-(Pascal)", "NVIDIA-TITAN-X-Pascal"),
        ("some ( thing )else", "some-thing-else"),
        ("some(thing)else", "somethingelse"),
        ("some [ / thing / ]else", "some-thing-else"),
        ("some-thing.else_new", "some-thing.else_new"),
        ("tab\tnewline\nno separator", "tabnewlineno-separator"),
        ("  NVIDIA   A100  ", "NVIDIA-A100"),
        ("Übermaß 3000", "berma-3000"),
        ("", ""),
    ],
)
def test_names_are_sanitised_as_upstream_does(name: str, sanitised: str) -> None:
    assert sanitise(name) == sanitised


@pytest.mark.parametrize("text", ["", "a", "7", "A.b_c-9", "x" * 63])
def test_what_kubernetes_takes_has_no_fault(text: str) -> None:
    assert value_fault(text) is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x" * 64, "64 characters, above 63"),
        *((text, ENDS) for text in ("To-Be-Filled-By-O.E.M.", "-1", "_")),
        *((text, CHARACTERS) for text in ("a b", "a\n", "größe", "a/b")),
    ],
)
def test_a_fault_is_named(text: str, fault: str) -> None:
    assert value_fault(text) == fault


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ("nvidia.com/gpu.product", None),
        ("nvidia.com/", "it has no name after the prefix"),
        ("product", "it has no prefix"),
        ("/product", "it has no prefix"),
        ("gpuscape.io/" + "x" * 63, None),
        ("gpuscape.io/" + "x" * 64, "64 characters, above 63"),
        ("gpuscape.io/count.A100.", ENDS),
    ],
)
def test_a_key_needs_a_prefix_and_a_legal_name(key: str, fault: str | None) -> None:
    assert key_fault(key) == fault


@given(st.text())
def test_values_are_judged_by_kubernetes_own_rule(text: str) -> None:
    """The expression is the one in Kubernetes' own error message, with its length limit."""
    legal = len(text) <= 63 and re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", text)

    assert (value_fault(text) is None) == bool(legal)


@given(st.text())
def test_a_sanitised_name_has_legal_characters_only_and_stays_as_it_is(text: str) -> None:
    once = sanitise(text)

    assert re.fullmatch(r"[A-Za-z0-9_.-]*", once)
    assert sanitise(once) == once
