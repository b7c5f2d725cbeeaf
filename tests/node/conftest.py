# SPDX-License-Identifier: Apache-2.0
"""A cluster with two real nodes for each module, and agents on both."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.controlplane.versions import VERSIONS
from tests.node.real_cluster import RealCluster
from tests.reused import Reused


@pytest.fixture(scope="module", params=VERSIONS)
def clusters(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reused[RealCluster]]:
    """Starts the one that :func:`cluster` lends."""

    @contextlib.contextmanager
    def started() -> Iterator[RealCluster]:
        with RealCluster.start(tmp_path_factory.mktemp("real"), minor=request.param) as found:
            found.install()
            yield found

    with contextlib.closing(Reused(started)) as reused:
        yield reused


@pytest.fixture
def cluster(request: pytest.FixtureRequest, clusters: Reused[RealCluster]) -> Iterator[RealCluster]:
    """Two nodes with a simulated DGX A100 each, on which the shipped DaemonSet is installed."""
    with clusters.lent(request.session) as found:
        yield found
