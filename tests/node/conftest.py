# SPDX-License-Identifier: Apache-2.0
"""A cluster with two real nodes for each module, and agents on both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.node.real_cluster import RealCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Two nodes with a simulated DGX A100 each, on which the shipped DaemonSet is installed."""
    with RealCluster.start(tmp_path_factory.mktemp("real")) as cluster:
        cluster.install()
        yield cluster
