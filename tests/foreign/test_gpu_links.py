# SPDX-License-Identifier: Apache-2.0
"""go-gpuallocator, which NVIDIA's device plugin chooses GPUs by, finds the links that we find."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from discovery.simulator.description.machine_catalog import load_machine, machine_names
from tests.foreign.foreign_programs import foreign
from tests.kubelet.links import link_types
from tests.observed import look_at

pytestmark = pytest.mark.cluster

WITH_DRIVER = [name for name in machine_names() if load_machine(name).driver]


@pytest.mark.parametrize("name", WITH_DRIVER)
def test_links_are_those_of_the_snapshot(name: str, programs: Path) -> None:
    with foreign(name) as there:
        done = there.run(programs / "gpu-links")
        snapshot = look_at(there.simulation, name).snapshot

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["devices"] == [gpu.uuid for gpu in snapshot.gpus]
    assert seen["links"] == [[list(types) for types in row] for row in link_types(snapshot)]
