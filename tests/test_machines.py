# SPDX-License-Identifier: Apache-2.0
"""Every simulated machine, from NVML's entry points to snapshot, labels, annotation and metrics."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api import topology_annotation
from api.mig_resources import MigStrategy
from discovery.snapshot_document import snapshot_document
from exporters.dcgm.render import Renderer, SeriesIdentity
from labelers.annotations import topology_of
from labelers.compose import decide_labels
from labelers.label_settings import LabelSettings
from labelers.label_values import key_fault, value_fault
from simulator.description.machine_catalog import machine_names
from tests import expected_keys as keys
from tests.goldens import Goldens
from tests.observed import observed

MACHINES = machine_names()
STARTED_SECONDS = 1_700_000_000

WITHOUT_GPUS = ("empty", "no-driver")
IN_A_CLIQUE = ("gb200",)
WITHOUT_OWN_MEMORY = ("gb10",)
VGPU = ("vgpu-guest",)
CUT_ALIKE = ("dgx-a100-mig-single",)
PROFILES = {
    "dgx-a100-mig-single": ["1g.5gb"],
    "dgx-a100-mig-mixed": [
        "1c.4g.20gb",
        "1g.5gb",
        "1g.5gb.me",
        "2c.4g.20gb",
        "2g.10gb",
        "3g.20gb",
        "7g.40gb",
    ],
    "hgx-h100-mig-mixed": ["1g.10gb", "1g.10gb.me", "1g.20gb", "3g.40gb"],
}


def expected(machine: str, strategy: MigStrategy) -> frozenset[str]:
    """The nvidia.com/ keys of a machine, by hand."""
    if machine in WITHOUT_GPUS:
        return keys.NO_GPU
    found = keys.NO_GPU | keys.NONE
    if machine in WITHOUT_OWN_MEMORY:
        found -= keys.MEMORY
    if machine in IN_A_CLIQUE:
        found |= keys.CLIQUE
    if machine in VGPU:
        found |= keys.VGPU_HOST
    if strategy is not MigStrategy.NONE:
        found |= keys.STRATEGY
    if strategy is MigStrategy.SINGLE and machine in CUT_ALIKE:
        found |= keys.SINGLE
    if strategy is MigStrategy.MIXED:
        found |= keys.mixed(PROFILES.get(machine, []))
    return found


def labels(machine: str, strategy: MigStrategy) -> dict[str, str]:
    settings = LabelSettings(mig_strategy=strategy, timestamp_seconds=STARTED_SECONDS)
    made = decide_labels(observed(machine).snapshot, settings)
    assert (made.failures, made.illegal) == ((), ())
    return made.values


@pytest.mark.parametrize("strategy", MigStrategy)
@pytest.mark.parametrize("machine", MACHINES)
def test_the_compatible_keys_are_those_of_gpu_feature_discovery_and_no_others(
    machine: str, strategy: MigStrategy
) -> None:
    assert keys.nvidia(labels(machine, strategy)) == expected(machine, strategy)


@pytest.mark.parametrize("strategy", MigStrategy)
@pytest.mark.parametrize("machine", MACHINES)
def test_labels_are_legal_and_as_reviewed(
    machine: str, strategy: MigStrategy, goldens: Goldens
) -> None:
    made = labels(machine, strategy)
    assert not [key for key, text in made.items() if key_fault(key) or value_fault(text)]
    goldens.check_labels(f"{machine}/labels-{strategy}.txt", made)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_snapshot_is_as_reviewed(machine: str, goldens: Goldens) -> None:
    built = snapshot_document(observed(machine).snapshot)
    goldens.check_text(f"{machine}/snapshot.json", _lines(_known(built), depth=3) + "\n")


@pytest.mark.parametrize("machine", MACHINES)
def test_the_exposition_is_as_reviewed(machine: str, goldens: Goldens) -> None:
    seen = observed(machine)
    text = Renderer().render(
        seen.snapshot, seen.samples, seen.samples, SeriesIdentity(hostname=machine)
    )
    goldens.check_text(f"{machine}/metrics.txt", text.decode())


@pytest.mark.parametrize("machine", MACHINES)
def test_the_topology_annotation_is_as_reviewed_and_can_be_read_back(
    machine: str, goldens: Goldens
) -> None:
    snapshot = observed(machine).snapshot
    text = topology_annotation.encode(topology_of(snapshot))
    assert topology_annotation.decode(text) == topology_of(snapshot)
    assert len(text.encode()) <= 4096
    goldens.check_text(f"{machine}/topology.json", text + "\n")


def _known(value: Any) -> Any:
    """Without what is None, empty or false: a reviewer looks at what is there."""
    if isinstance(value, dict):
        kept = {name: _known(item) for name, item in value.items()}
        return {name: item for name, item in kept.items() if item not in (None, "", [], {})}
    return [_known(item) for item in value] if isinstance(value, list | tuple) else value


def _lines(value: Any, depth: int, indent: str = "") -> str:
    """JSON with a line for each item down to ``depth``, and what lies deeper on one line."""
    if depth == 0 or not isinstance(value, dict | list):
        return json.dumps(value)
    inner = indent + " "
    if isinstance(value, dict):
        items = [f"{json.dumps(k)}: {_lines(v, depth - 1, inner)}" for k, v in value.items()]
    else:
        items = [_lines(item, depth - 1, inner) for item in value]
    brackets = "{}" if isinstance(value, dict) else "[]"
    joined = ",\n".join(inner + item for item in items)
    return f"{brackets[0]}\n{joined}\n{indent}{brackets[1]}" if items else brackets
