# SPDX-License-Identifier: Apache-2.0
"""How busy processes are, from the driver's own samples, each of which counts once."""

from __future__ import annotations

import pynvml
import pytest

from discovery.nvml.calls import Calls
from discovery.nvml.processes import Utilization
from tests import machines

FIRST = machines.gpu(0).bus_id


def sample(pid: int, at: int, percent: int) -> pynvml.c_nvmlProcessUtilizationSample_t:
    """One of the driver's, which come in no order."""
    made = pynvml.c_nvmlProcessUtilizationSample_t()
    made.pid, made.timeStamp, made.smUtil = pid, at, percent
    return made


def test_the_driver_is_asked_for_what_is_newer_than_all_that_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And of two samples of one process the newer one counts."""
    asked = []

    def answer(_handle: object, since: int) -> list[object]:
        asked.append(since)
        return [
            sample(71, since + 300, 50),
            sample(71, since + 100, 10),
            sample(72, since + 200, 5),
        ]

    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", answer)
    utilization = Utilization()

    first, second = (utilization.busy(Calls(), FIRST, None) for _ in range(2))
    utilization.busy(Calls(), FIRST, None)

    assert asked == [0, 300, 600]
    assert (first, second) == (({}, False), ({71: 0.5, 72: 0.05}, True))
