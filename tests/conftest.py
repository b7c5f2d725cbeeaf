"""Options and fixtures of all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.goldens import Goldens


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update-golden``: write golden files anew, their keys excepted."""
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")


@pytest.fixture
def goldens(request: pytest.FixtureRequest) -> Goldens:
    """The golden files in tests/golden."""
    update = bool(request.config.getoption("--update-golden"))
    return Goldens(root=Path(__file__).parent / "golden", update=update)
