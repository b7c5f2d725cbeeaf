# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's programs and ours agree on machines that nobody thought of."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from labelers.label_settings import MigStrategy
from tests.conftest import SCALE
from tests.foreign.foreign_programs import foreign
from tests.foreign.gpu_feature_discovery import Labels, feature_discovery, our_labels
from tests.foreign.mig_layouts import exported, layout
from tests.foreign.random_machines import random_machine, random_sharing
from tests.kubelet.links import link_types
from tests.observed import look_at

pytestmark = [pytest.mark.cluster, pytest.mark.long]


@pytest.mark.parametrize("seed", range(10 * SCALE))
def test_labels_links_and_layouts_are_equal(seed: int, programs: Path, tmp_path: Path) -> None:
    random = Random(seed)  # noqa: S311  # has to repeat
    strategy = random.choice(list(MigStrategy))
    config = random_sharing(random)
    with foreign(random_machine(random, tmp_path)) as there:
        theirs: Labels = feature_discovery(there, programs, strategy, config)
        ours = our_labels(there, strategy, config)
        links = json.loads(there.run(programs / "gpu-links").stdout)["links"]
        layouts = exported(there, programs)
        snapshot = look_at(there.simulation, "node-a").snapshot

    assert theirs == ours
    assert links == [[list(types) for types in row] for row in link_types(snapshot)]
    assert layouts == {at: layout(gpu) for at, gpu in enumerate(snapshot.gpus)}
