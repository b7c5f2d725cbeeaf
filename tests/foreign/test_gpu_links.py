# SPDX-License-Identifier: Apache-2.0
"""go-gpuallocator, which NVIDIA's device plugin chooses GPUs by, finds the links that we print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.catalog import WITH_DRIVER, by_kind
from tests.foreign.discovered import discovered, links
from tests.foreign.foreign_programs import foreign

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("name", by_kind(WITH_DRIVER))
def test_links_are_those_that_discover_prints(name: str, programs: Path) -> None:
    with foreign(name) as there:
        done = there.run(programs / "gpu-links")
        printed = discovered(there)

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["devices"] == [gpu["uuid"] for gpu in printed["gpus"]]
    assert seen["links"] == links(printed)
