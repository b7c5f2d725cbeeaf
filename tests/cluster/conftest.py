# SPDX-License-Identifier: Apache-2.0
"""A control plane of its own for each module here: shipped policies hold for a whole cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.agents import Site
from tests.controlplane.plane import Plane


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The newest Kubernetes with the agent's manifests applied."""
    with Plane.start(tmp_path_factory.mktemp("plane"), controller_manager=False) as plane:
        yield Site.create(plane, "gpuscape")
