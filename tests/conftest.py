# SPDX-License-Identifier: Apache-2.0
"""Options and fixtures of all tests."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests import sizes
from tests.goldens import Goldens
from tests.slower import SLOWER

pytest_plugins = ["tests.controlplane.fixtures"]

# compiled once: hundreds of processes start here, and each would compile all modules again
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

HERE = Path(__file__).parent

LONG_FOLDERS = ("node", "cluster", "kubelet_nodes", "monitoring")
"""Below this one: their modules take up to minutes each, so they come first and end together."""

TOGETHER = ("tests/monitoring/",)
"""All modules of such a folder go to one worker: they share programs that are at work all the
time, and each worker would have its own."""

CLUSTER_MARK = "pytest.mark.cluster"
"""What stands in the text of a module that has tests for the control plane."""

SCALE = int(os.environ.get("SCALE", "1"))
"""How many times as many random cases as in a plain run: ``make long`` sets it."""

# no deadline: the machine may be busy, and how long a case takes is not what it tests
hypothesis.settings.register_profile("scaled", max_examples=100 * SCALE, deadline=None)
hypothesis.settings.load_profile("scaled")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update-golden``: write golden files anew, their keys excepted; ``--write-pages``: write
    the pages in docs/ that long tests on real nodes make."""
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")
    parser.addoption("--write-pages", action="store_true", help="write pages of long tests anew")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module that the marks leave out as a whole: each worker would."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    marks = str(config.getoption("markexpr"))
    if marks.startswith("cluster and ") and not names_cluster(collection_path):
        return True
    path = collection_path.relative_to(HERE.parent)
    if "not rest" in marks and sizes.is_whole(path):
        return True
    return True if marks.startswith("rest and ") and sizes.is_without(path) else None


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long modules, so that no worker is alone with one at the end.

    One of each folder in turn: the modules of one folder wait for the same things. Raises
    UsageError for a module that the part with the control plane would pass over.
    """
    for module in {it.path for it in items if it.get_closest_marker("cluster")}:
        if not names_cluster(module):
            raise pytest.UsageError(f"{module}: mark its tests with {CLUSTER_MARK}, in full")
    sizes.mark_rest(items)
    for item in items:
        if SLOWER > 1 and (timeout := item.get_closest_marker("timeout")):
            item.add_marker(pytest.mark.timeout(timeout.args[0] * SLOWER), append=False)
    modules = list(dict.fromkeys(item.path for item in items))
    folders = [[it for it in modules if it.parent == HERE / name] for name in LONG_FOLDERS]
    first = [it for row in itertools.zip_longest(*folders) for it in row if it is not None]
    place = {module: number for number, module in enumerate(first)}
    items.sort(key=lambda item: place.get(item.path, len(first)))


class _TogetherScheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """As ``--dist loadscope``, but for the folders of :data:`TOGETHER`."""

    def _split_scope(self, nodeid: str) -> str:
        folders = (folder for folder in TOGETHER if nodeid.startswith(folder))
        return next(folders, str(super()._split_scope(nodeid)))


@pytest.hookimpl(optionalhook=True)  # mutation testing runs without pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Ours where whole modules are handed out; None: pytest-xdist's own."""
    if config.getoption("dist") == "loadscope":
        return _TogetherScheduling(config, log)
    return None


def names_cluster(module: Path) -> bool:
    """Whether some of its tests may need the control plane, by its text."""
    return CLUSTER_MARK in module.read_text(encoding="utf-8")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder for sockets, whose paths have at most 107 bytes: ``tmp_path`` may be longer."""
    with tempfile.TemporaryDirectory(prefix="gs-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def goldens(request: pytest.FixtureRequest) -> Goldens:
    """The golden files in tests/golden."""
    update = bool(request.config.getoption("--update-golden"))
    return Goldens(root=Path(__file__).parent / "golden", update=update)
