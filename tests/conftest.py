# SPDX-License-Identifier: Apache-2.0
"""Options and fixtures of all tests."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

from tests.goldens import Goldens

pytest_plugins = ["tests.controlplane.fixtures"]

SCALE = int(os.environ.get("SCALE", "1"))
"""How many times as many random cases as in a plain run: ``make long`` sets it."""

# no deadline: the machine may be busy, and how long a case takes is not what it tests
hypothesis.settings.register_profile("scaled", max_examples=100 * SCALE, deadline=None)
hypothesis.settings.load_profile("scaled")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update-golden``: write golden files anew, their keys excepted."""
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")


@pytest.fixture
def goldens(request: pytest.FixtureRequest) -> Goldens:
    """The golden files in tests/golden."""
    update = bool(request.config.getoption("--update-golden"))
    return Goldens(root=Path(__file__).parent / "golden", update=update)
