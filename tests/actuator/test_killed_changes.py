# SPDX-License-Identifier: Apache-2.0
"""Drawn changes whose program is killed end in the desired layouts or in those from before; the run
of 500 is :mod:`tests.actuator.kill_run`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.actuator.killed_changes import kill_actuators, kill_workers

SEED = 20261127


def test_changes_whose_worker_is_killed_end_in_one_of_two_layouts(tmp_path: Path) -> None:
    *_, figures = kill_workers(tmp_path, SEED, 4, lost_every=2)

    assert (figures.kills, figures.lost) == (4, 2)
    assert figures.parts
    begun = figures.applied + figures.previous + figures.held
    assert begun >= 3
    assert begun + figures.unbegun == 4


def test_changes_whose_actuator_is_killed_end_in_one_of_two_layouts() -> None:
    """A socket's path has to be short."""
    with tempfile.TemporaryDirectory(prefix="killed-") as folder:
        *_, figures = kill_actuators(Path(folder), SEED, 2, lost_every=2)

    assert (figures.kills, figures.lost) == (2, 1)
    assert figures.applied + figures.previous + figures.held == 2
