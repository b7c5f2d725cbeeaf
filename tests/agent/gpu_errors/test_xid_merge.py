# SPDX-License-Identifier: Apache-2.0
"""An error that both NVML and the kernel log tell counts once."""

from __future__ import annotations

import pytest

from agent.gpu_errors.xid_merge import MOST_HELD, WINDOW_SECONDS, XidMerge
from discovery.reader.protocol import EventsLost, XidSeen

W = WINDOW_SECONDS

A = XidSeen(bus_id="0000:1b:00.0", code=79)
A_IN_INSTANCE = XidSeen(bus_id="0000:1b:00.0", code=79, gpu_instance_id=3)
OTHER_CODE = XidSeen(bus_id="0000:1b:00.0", code=45)
OTHER_GPU = XidSeen(bus_id="0000:1c:00.0", code=79)

OTHER_FUNCTION = XidSeen(bus_id="0000:1b:00.4", code=79)

Heard = tuple[float, list[XidSeen], list[XidSeen]]
"""When; what NVML told; what the log said."""

RUNS: list[tuple[list[Heard], list[XidSeen]]] = [
    # NVML alone: each one counts
    ([(0, [A], []), (1, [A, A], [])], [A, A, A]),
    # the log first, NVML within the window
    ([(0, [], [A]), (2, [A], []), (20, [], [])], [A]),
    # NVML first
    ([(0, [A], []), (2, [], [A]), (20, [], [])], [A]),
    # both in one look
    ([(0, [A], [A]), (20, [], [])], [A]),
    # several lines for one error
    ([(0, [A], [A, A, A]), (1, [], [A]), (20, [], [])], [A]),
    # the log alone: once, after the window
    ([(0, [], [A, A]), (W - 1, [], []), (W, [], []), (20, [], [])], [A]),
    # the log blames an instance, NVML the GPU: the same error
    ([(0, [], [A_IN_INSTANCE]), (1, [A], []), (20, [], [])], [A]),
    # other codes and other GPUs have nothing to do with it
    ([(0, [A], [OTHER_CODE, OTHER_GPU]), (W, [], []), (20, [], [])], [A, OTHER_CODE, OTHER_GPU]),
    # an error that comes again later counts again
    ([(0, [A], [A]), (60, [], [A]), (60 + W, [], []), (90, [], [])], [A, A]),
    # the log knows no PCI function
    ([(0, [], [A]), (1, [OTHER_FUNCTION], []), (20, [], [])], [OTHER_FUNCTION]),
    # a storm that NVML tells nothing of: once in each window
    ([(now, [], [A]) for now in range(int(2 * W) + 2)], [A, A]),
    # NVML told two, the log has two lines
    ([(0, [], [A]), (1, [A], []), (2, [], [A]), (3, [A], []), (20, [], [])], [A, A]),
]


@pytest.mark.parametrize(("run", "counted"), RUNS)
def test_each_error_counts_once(run: list[Heard], counted: list[XidSeen]) -> None:
    merge = XidMerge()
    assert [it for now, told, logged in run for it in merge.merged(told, logged, now)] == counted


@pytest.mark.parametrize(("at", "due"), [(W - 0.1, []), (W, [A]), (W + 9, [A])])
def test_the_log_alone_is_believed_after_the_window(at: float, due: list[XidSeen]) -> None:
    merge = XidMerge()
    assert merge.merged([], [A], 0.0) == []
    assert merge.merged([], [], at) == due


def test_what_is_no_xid_passes_through() -> None:
    lost = EventsLost(text="the event set is full")
    assert XidMerge().merged([lost], [], 0.0) == [lost]


def test_a_flood_of_different_errors_is_bounded() -> None:
    merge = XidMerge()
    flood = [XidSeen(bus_id="0000:1b:00.0", code=code) for code in range(1, MOST_HELD + 50)]
    merge.merged([], flood, 0.0)
    assert len(merge.merged([], [], W)) == MOST_HELD
