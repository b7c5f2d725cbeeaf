# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's programs and ours agree on machines that nobody thought of."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from api.mig_resources import MigStrategy
from tests.conftest import SCALE
from tests.foreign.discovered import discovered, layouts, links, printed_by
from tests.foreign.foreign_programs import foreign
from tests.foreign.gpu_feature_discovery import Labels, feature_discovery, our_labels
from tests.foreign.mig_layouts import by_index, exported_document, in_full
from tests.foreign.random_machines import random_machine, random_sharing

pytestmark = [pytest.mark.cluster, pytest.mark.long]


@pytest.mark.parametrize("seed", range(10 * SCALE))
def test_labels_links_and_layouts_are_equal(seed: int, programs: Path, tmp_path: Path) -> None:
    random = Random(seed)  # noqa: S311  # has to repeat
    strategy = random.choice(list(MigStrategy))
    config = random_sharing(random)
    with foreign(random_machine(random, tmp_path)) as there:
        theirs: Labels = feature_discovery(there, programs, strategy, config)
        ours = our_labels(there, strategy, config)
        their_links = json.loads(there.run(programs / "gpu-links").stdout)["links"]
        their_file = exported_document(there, programs)
        printed = discovered(there)
        file = printed_by(there, "mig", "export", "--allow-loss")

    assert theirs == ours
    assert their_links == links(printed)
    assert by_index(their_file, there.simulation) == layouts(printed)
    assert in_full(file) == in_full(their_file)
