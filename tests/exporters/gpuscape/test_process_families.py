# SPDX-License-Identifier: Apache-2.0
"""Processes on GPUs as series."""

from __future__ import annotations

from discovery.sample import ProcessKind
from exporters.gpuscape.process_use import OTHER, OfPod, ProcessUse
from tests import build
from tests.exporters.gpuscape_series import told

GPU = build.gpu()
MEMORY = "gpuscape_process_memory_bytes"
BUSY = "gpuscape_process_busy_ratio"


def test_a_process_in_a_pod_is_told_with_all_that_is_known_of_it() -> None:
    use = ProcessUse(
        bus_id=GPU.bus_id,
        gpu_instance_id=3,
        pid="4711",
        name="python",
        kinds=(ProcessKind.COMPUTE, ProcessKind.MPS),
        pod=OfPod(uid="9f3c", namespace="team", name="train-0"),
        memory_bytes=1 << 30,
        busy_ratio=0.5,
    )

    (labels, memory), *none = told(MEMORY, build.node([GPU]), processes=[use]).items()
    (busy,) = told(BUSY, build.node([GPU]), processes=[use]).values()

    assert dict(labels) == {
        "gpu_instance_id": "3",
        "pid": "4711",
        "process": "python",
        "kind": "compute,mps",
        "namespace": "team",
        "pod": "train-0",
        "pod_uid": "9f3c",
    }
    assert (memory, busy, none) == (1 << 30, 0.5, [])


def test_what_is_not_known_of_a_process_is_left_out() -> None:
    outside = ProcessUse(bus_id=GPU.bus_id, pid="1", memory_bytes=2)
    nameless = ProcessUse(bus_id=GPU.bus_id, pid="2", pod=OfPod(uid="u"), memory_bytes=3)
    other = ProcessUse(bus_id=GPU.bus_id, pid=OTHER, busy_ratio=1.5)

    node, uses = build.node([GPU]), [outside, nameless, other]

    assert told(MEMORY, node, processes=uses) == {
        (("pid", "1"),): 2,
        (("pid", "2"), ("pod_uid", "u")): 3,
    }
    assert told(BUSY, node, processes=uses) == {(("pid", "other"),): 1.5}


def test_processes_on_gpus_that_are_not_there_or_silent_are_left_out() -> None:
    uses = [
        ProcessUse(bus_id=bus_id, pid="1", memory_bytes=2)
        for bus_id in (build.gpu(1).bus_id, build.gpu(9).bus_id)
    ]

    assert told(MEMORY, build.node([GPU, build.silent(1)]), processes=uses) == {}
