# SPDX-License-Identifier: Apache-2.0
"""Of what was not read every reading is missing, and none is zero."""

from __future__ import annotations

from discovery.model import Gap, GpuState, Reason
from discovery.unread import UNREAD_NVIDIA_FACTS, unread_gpu, unread_sample
from tests.discovery.sampling import leaves

BUS_ID = "0000:1b:00.0"


def test_of_a_gpu_that_was_not_read_its_place_its_state_and_its_gaps_are_known() -> None:
    gap = Gap(what="state", reason=Reason.HUNG, source="device reader")
    gpu = unread_gpu(BUS_ID, GpuState.HUNG, gap)
    assert leaves(gpu) == {"state": GpuState.HUNG}
    assert (gpu.bus_id, gpu.gaps, gpu.uuid, gpu.nvidia) == (
        BUS_ID,
        (gap,),
        None,
        UNREAD_NVIDIA_FACTS,
    )
    assert leaves(UNREAD_NVIDIA_FACTS) == {}


def test_a_sample_without_readings_has_its_gpu_alone() -> None:
    sample = unread_sample(BUS_ID)
    assert leaves(sample) == {}
    assert (sample.bus_id, sample.at_seconds, sample.gaps) == (BUS_ID, 0.0, ())
    assert (sample.processes, sample.memory) == ((), None)
