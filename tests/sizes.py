# SPDX-License-Identifier: Apache-2.0
"""Which tests run in ``make test``, and which in ``make test-all`` alone. Pure but for markers.

``make test`` is for every change: the quick tests of every folder, and one Kubernetes. The rest
has what takes long (real nodes, charts, dashboards, other people's programs), the older Kubernetes
and the slowest tests of folders whose others are quick. CI runs both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

import pytest

from tests.controlplane.families import (
    ALLOCATOR,
    CONTROLLER_MANAGER_MINOR,
    ETCD,
    KUBERNETES,
    MINORS,
    Family,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One size of the suite, for what is printed before it runs."""

    title: str
    minutes: int
    """Duration on two free cores, the control plane being built already."""
    megabytes: int
    """Size of the sources that a first build of its control plane downloads."""


QUICK: Final = Size(title="make test", minutes=10, megabytes=170)
REST: Final = Size(title="make test-rest", minutes=35, megabytes=650)

QUICK_FAMILIES: Final[tuple[Family, ...]] = (
    ETCD,
    KUBERNETES[CONTROLLER_MANAGER_MINOR],
    ALLOCATOR,
)
"""Programs that the control plane of ``make test`` consists of."""

LEFT_OUT: Final = frozenset(MINORS) - {CONTROLLER_MANAGER_MINOR}
"""Kubernetes versions that ``make test`` does not start."""

SLOW: Final[tuple[str, ...]] = ()
"""Beginnings of the names of tests that are in the rest: folders, modules, tests."""

MARK: Final = "rest"


def mark_rest(items: Iterable[pytest.Item]) -> None:
    """Mark each test that ``make test`` leaves out."""
    for item in items:
        if is_rest(item.nodeid, parameters_of(item)):
            item.add_marker(MARK)


def is_rest(name: str, parameters: frozenset[object]) -> bool:
    """Whether ``make test`` leaves out the test of this name with these parameters."""
    return name.startswith(SLOW) or not parameters.isdisjoint(LEFT_OUT)


def parameters_of(item: pytest.Item) -> frozenset[object]:
    """Texts among the parameters of a test and of its fixtures."""
    callspec = getattr(item, "callspec", None)
    values = callspec.params.values() if callspec else ()
    return frozenset(value for value in values if isinstance(value, str))


def is_whole(module: PurePath) -> bool:
    """Whether all tests of this module, by its path from the project, are in the rest."""
    return module.as_posix().startswith(SLOW)


def is_without(module: PurePath) -> bool:
    """Whether no test of this module without the control plane is in the rest."""
    path = module.as_posix()
    return not any(name.startswith(path) or path.startswith(name) for name in SLOW)
