# SPDX-License-Identifier: Apache-2.0
"""The registry of keys: one entry, one writer, one form for each."""

from __future__ import annotations

import re

import pytest

from api import keys
from api.key_kinds import Key, KeyLocation, Writer
from api.keys import KEYS, LABELS
from labelers.label_values import key_fault

EXAMPLES = {
    "nvidia.com/mig-<profile>": ["1g.5gb", "1g.5gb.me", "1c.3g.20gb", "1g.10gb-me", "1g.24gb.gfx"],
    "gpuscape.io/count.<model>": ["Tesla-T4", "NVIDIA-H100-80GB-HBM3", "9"],
    "gpuscape.io/memory.<model>": ["Tesla-T4"],
}


def test_no_key_is_listed_twice() -> None:
    names = [key.name for key in KEYS]

    assert len(names) == len(set(names))


@pytest.mark.parametrize("key", [key for key in KEYS if key.pattern is None], ids=lambda k: k.name)
def test_each_exact_key_is_legal(key: Key) -> None:
    assert key_fault(key.name) is None


@pytest.mark.parametrize("key", [key for key in KEYS if key.pattern], ids=lambda key: key.name)
def test_each_family_matches_its_keys_and_no_other_entry(key: Key) -> None:
    stem = key.name[: key.name.index(">") + 1]
    named = [key.name.replace(stem, stem[: stem.index("<")] + text) for text in EXAMPLES[stem]]

    for name in named:
        assert [other.name for other in KEYS if other.matches(name)] == [key.name]
        assert keys.label(name) == key


def test_no_exact_key_falls_into_a_family() -> None:
    exact = [key.name for key in KEYS if key.pattern is None]

    assert [name for name in exact if len([key for key in KEYS if key.matches(name)]) != 1] == []


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu.present",
        "nvidia.com/gpu.deploy.driver",
        "nvidia.com/mig.config",
        "nvidia.com/mig-1g.5gb.unheard",
        "xnvidia.com/mig-1g.5gb.count",
        "nvidia.com/mig-1g.5gb.count.x",
        "nvidia.com/mig-manager.count",
        "gpuscape.io/count.",
        "kubernetes.io/hostname",
    ],
)
def test_keys_of_others_are_no_labels_of_ours(name: str) -> None:
    assert keys.label(name) is None


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_patterns_are_ones_that_admission_policies_can_use(key: Key) -> None:
    """RE2 has no look-around and no back-references."""
    for pattern in filter(None, (key.value, key.pattern)):
        re.compile(pattern)
        assert not re.search(r"\(\?|\\[1-9]", pattern)


def test_labelers_write_node_labels_of_the_agent_and_tell_their_source() -> None:
    assert {(key.where, key.writer) for key in LABELS} == {(KeyLocation.NODE_LABEL, Writer.AGENT)}
    assert [key.name for key in LABELS if not (key.source and key.summary and key.value)] == []


@pytest.mark.parametrize(
    ("name", "where", "writer"),
    [
        ("gpuscape.io/topology", KeyLocation.NODE_ANNOTATION, Writer.AGENT),
        ("gpuscape.io/state", KeyLocation.LEASE_ANNOTATION, Writer.AGENT),
        ("gpuscape.io/mig-layout", KeyLocation.NODE_ANNOTATION, Writer.ADMIN),
        ("nvidia.com/mig.config", KeyLocation.NODE_LABEL, Writer.ADMIN),
        ("gpuscape.io/mig-request", KeyLocation.NODE_ANNOTATION, Writer.AGENT),
        ("gpuscape.io/mig-permit", KeyLocation.NODE_ANNOTATION, Writer.COORDINATOR),
        ("gpuscape.io/mig-status", KeyLocation.NODE_ANNOTATION, Writer.AGENT),
        ("nvidia.com/mig.config.state", KeyLocation.NODE_LABEL, Writer.AGENT),
        ("gpuscape.io/release", KeyLocation.NODE_ANNOTATION, Writer.ADMIN),
        ("gpuscape.io/drain", KeyLocation.NODE_ANNOTATION, Writer.ADMIN),
        ("gpuscape.io/link", KeyLocation.POD_ANNOTATION, Writer.USER),
        ("gpuscape.io/nic", KeyLocation.POD_ANNOTATION, Writer.USER),
        ("gpuscape.io/do-not-disrupt", KeyLocation.POD_ANNOTATION, Writer.USER),
    ],
)
def test_each_key_has_the_one_writer_that_the_design_gives_it(
    name: str, where: KeyLocation, writer: Writer
) -> None:
    (key,) = [key for key in KEYS if key.name == name]

    assert (key.where, key.writer) == (where, writer)


def test_an_exact_key_is_found_by_its_name() -> None:
    assert [key for key in LABELS if key.pattern is None and keys.label(key.name) != key] == []
