# SPDX-License-Identifier: Apache-2.0
"""When samples of GPM are taken, on a clock that a slow call of the driver moves."""

from __future__ import annotations

from itertools import pairwise

import pynvml
import pytest

from discovery.nvml.calls import Calls
from discovery.nvml.gpm import SHORTEST_SECONDS, GpmTrack


def test_samples_are_never_nearer_than_the_driver_allows_also_after_a_slow_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two that are nearer it refuses, and what it refuses is not asked until the next discovery."""
    clock, taken_at = 100.0, list[float]()

    def take(sample: object) -> object:
        nonlocal clock
        clock += 0.0 if taken_at else 1.3
        taken_at.append(clock)
        return sample

    def now() -> float:
        return clock

    monkeypatch.setattr(pynvml, "nvmlGpmSampleAlloc", object)
    monkeypatch.setattr(pynvml, "nvmlGpmSampleGet", take)
    track = GpmTrack("profiling")
    for _ in range(20):
        track.metrics(Calls(), None, now, (), "nvmlGpmSampleGet")
        clock += 0.02
    apart = [later - before for before, later in pairwise(taken_at)]
    assert len(apart) >= 2
    assert min(apart) >= SHORTEST_SECONDS
