# SPDX-License-Identifier: Apache-2.0
"""A module's own control plane, in which a test that fails leaves nothing for the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.controlplane.plane import Plane
from tests.reused import Reused


@contextmanager
def reused_planes(
    folders: pytest.TempPathFactory, prepare: Callable[[Plane], None], **options: Any
) -> Iterator[Reused[Plane]]:
    """Planes to lend to tests, started with the ``options`` of ``Plane.start`` and then prepared.

    A test that fails may leave releases, policies or pods, so the next one gets another plane.
    """

    @contextmanager
    def started() -> Iterator[Plane]:
        with Plane.start(folders.mktemp("plane"), **options) as plane:
            prepare(plane)
            yield plane

    with closing(Reused(started)) as reused:
        yield reused
