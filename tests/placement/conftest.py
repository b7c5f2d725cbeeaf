# SPDX-License-Identifier: Apache-2.0
"""The judge: the device plugin's own policy, a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubelet_nodes.allocator import Allocator


@pytest.fixture(scope="session")
def allocator() -> Iterator[Allocator]:
    """go-gpuallocator; tests that use it are marked ``cluster``, since it has to be built."""
    with Allocator() as running:
        yield running
