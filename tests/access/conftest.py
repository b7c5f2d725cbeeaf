# SPDX-License-Identifier: Apache-2.0
"""Stages to try cases on, made once for each test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.access.stage import Roles, Stage
from tests.controlplane.plane import Plane


@pytest.fixture(scope="session", params=list(Roles))
def stage(any_plane: Plane, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Each Kubernetes, with the shipped roles and with the accounts bound to cluster-admin."""
    made = Stage(any_plane, request.param)
    try:
        made.wait_until_enforced()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def bare_stage(plane: Plane) -> Stage:
    """Accounts bound to cluster-admin, and no policies."""
    return Stage(plane, Roles.DRIFT, policies=())
