# SPDX-License-Identifier: Apache-2.0
"""Options and fixtures of all tests."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import hypothesis
import pytest

from tests.goldens import Goldens

pytest_plugins = ["tests.controlplane.fixtures"]

# compiled once: hundreds of processes start here, and each would compile all modules again
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

LONG_FOLDERS = ("node", "cluster", "kubelet", "monitoring")
"""Below this one: their modules take up to minutes each, so they come first and end together."""

SCALE = int(os.environ.get("SCALE", "1"))
"""How many times as many random cases as in a plain run: ``make long`` sets it."""

# no deadline: the machine may be busy, and how long a case takes is not what it tests
hypothesis.settings.register_profile("scaled", max_examples=100 * SCALE, deadline=None)
hypothesis.settings.load_profile("scaled")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update-golden``: write golden files anew, their keys excepted."""
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long modules, so that no worker is alone with one at the end.

    One of each folder in turn: the modules of one folder wait for the same things.
    """
    here = Path(__file__).parent
    modules = list(dict.fromkeys(item.path for item in items))
    folders = [[it for it in modules if it.parent == here / name] for name in LONG_FOLDERS]
    first = [it for row in itertools.zip_longest(*folders) for it in row if it is not None]
    place = {module: number for number, module in enumerate(first)}
    items.sort(key=lambda item: place.get(item.path, len(first)))


@pytest.fixture
def goldens(request: pytest.FixtureRequest) -> Goldens:
    """The golden files in tests/golden."""
    update = bool(request.config.getoption("--update-golden"))
    return Goldens(root=Path(__file__).parent / "golden", update=update)
