# SPDX-License-Identifier: Apache-2.0
"""What processes have of a GPU: merged, joined to pods, and few enough."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from agent.pods.known_pods import KnownPod
from agent.processes.gpu_processes import MOST, MOST_FOR_PODS, GpuProcesses, pod_uses, process_uses
from agent.processes.pids import ProcessOwner
from discovery.model import Gap, Reason
from discovery.sample import GpuSample, Process, ProcessKind
from exporters.device_user_names import PodUse
from exporters.gpuscape.process_use import OTHER, OfPod, ProcessUse
from tests import build
from tests.log_lines import whys

GPU = build.gpu(0)
MIB = build.MIB
UID = "3f2a9c1d-0b7c-4d55-9d2e-6a1f0c9b8e77"
C, G, M = ProcessKind.COMPUTE, ProcessKind.GRAPHICS, ProcessKind.MPS


def row(
    pid: int,
    mib: int | None = None,
    kind: ProcessKind = C,
    *,
    at: tuple[int, int] | None = None,
    busy: float | None = None,
) -> Process:
    """One row of the driver's; ``at``: GPU instance and compute instance."""
    gi, ci = at or (None, None)
    return Process(
        pid=pid,
        kind=kind,
        memory_bytes=None if mib is None else mib * MIB,
        gpu_instance_id=gi,
        compute_instance_id=ci,
        busy_ratio=busy,
    )


def sample(*rows: Process) -> GpuSample:
    return build.sample(GPU, processes=rows)


def nobody(_pid: int) -> ProcessOwner:
    return ProcessOwner()


def figures(*rows: Process, most: int = MOST) -> list[tuple[str, int | None, object, object]]:
    """Pid, GPU instance, MiB and busy share of all that is told of these rows."""
    return [
        (
            use.pid,
            use.gpu_instance_id,
            None if use.memory_bytes is None else use.memory_bytes // MIB,
            use.busy_ratio,
        )
        for use in process_uses(sample(*rows), nobody, max_rows=most)
    ]


def test_a_process_comes_with_its_name_its_pod_and_what_it_has() -> None:
    job = KnownPod(namespace="team", name="job", uid=UID, ended=False)

    found = process_uses(
        sample(row(7, 300, busy=0.5)),
        lambda pid: ProcessOwner(name=f"python-{pid}", pod_uid=UID),
        {UID: job}.get,
    )

    assert found == (
        ProcessUse(
            bus_id=GPU.bus_id,
            pid="7",
            name="python-7",
            kinds=(C,),
            pod=OfPod(uid=UID, namespace="team", name="job"),
            memory_bytes=300 * MIB,
            busy_ratio=0.5,
        ),
    )


def test_where_pods_may_not_be_read_the_uid_alone_is_told() -> None:
    (one,) = process_uses(sample(row(7)), lambda _: ProcessOwner(pod_uid=UID))

    assert one.pod == OfPod(uid=UID)


def test_a_process_outside_of_pods_is_told_without_one() -> None:
    (one,) = process_uses(sample(row(7, 1)), nobody)

    assert (one.pid, one.pod, one.memory_bytes) == ("7", None, MIB)


def test_a_process_of_two_kinds_has_its_memory_once() -> None:
    """The driver lists it with each, with all it has."""
    rows = (row(7, 300, G), row(7, 300, C, busy=0.25))

    (one,) = process_uses(sample(*rows), nobody)

    assert (one.kinds, one.memory_bytes, one.busy_ratio) == ((C, G), 300 * MIB, 0.25)


def test_what_it_has_in_several_compute_instances_adds_up_within_a_gpu_instance() -> None:
    rows = (row(7, 10, at=(1, 0)), row(7, 20, at=(1, 1)), row(7, 40, at=(2, 0)))

    assert figures(*rows) == [("7", 2, 40, None), ("7", 1, 30, None)]


def test_what_is_not_told_is_none_and_not_zero() -> None:
    assert figures(row(7), row(8, 0, busy=0.0)) == [("8", None, 0, 0.0), ("7", None, None, None)]


def test_a_pid_that_the_driver_does_not_name_is_left_out() -> None:
    """It shows 0 for what is outside of the reader's namespace."""
    assert figures(row(0, 100), row(-1, 100), row(7, 1)) == [("7", None, 1, None)]


def test_only_those_with_the_most_memory_are_told_one_by_one() -> None:
    """Of all others there is the sum; a process whose memory is not told comes last."""
    rows = [row(1), row(2, 20, busy=0.2), row(3, 30), row(4, 10, busy=0.1), row(5, 30)]

    assert figures(*rows, most=2) == [
        ("3", None, 30, None),
        ("5", None, 30, None),
        (OTHER, None, 30, pytest.approx(0.3)),
    ]


def test_the_others_are_summed_for_each_gpu_instance() -> None:
    rows = [row(1, 9, at=(1, 0)), row(2, 5, at=(1, 0)), row(3, 4, at=(2, 0)), row(4, at=(3, 0))]

    assert figures(*rows, most=1) == [
        ("1", 1, 9, None),
        (OTHER, 1, 5, None),
        (OTHER, 2, 4, None),
        (OTHER, 3, None, None),
    ]


def test_ten_thousand_processes_stay_few_and_nothing_is_lost() -> None:
    asked: list[int] = []

    def ask(pid: int) -> ProcessOwner:
        asked.append(pid)
        return ProcessOwner()

    found = process_uses(sample(*(row(pid, 1) for pid in range(1, 10_001))), ask)

    assert len(found) == MOST + 1
    assert sum(use.memory_bytes or 0 for use in found) == 10_000 * MIB
    assert asked == list(range(1, MOST + 1))


def own_proc(root: Path) -> None:
    """A /proc as on a machine itself, in which this process runs in a pod."""
    folder = root / "proc" / str(os.getpid())
    (folder / "ns").mkdir(parents=True)
    (folder / "ns/pid").symlink_to("pid:[4026531836]")
    (folder / "cgroup").write_text(f"0::/kubepods/pod{UID}/x\n")
    (root / "proc/self").symlink_to(folder.name)


def test_processes_are_looked_up_below_the_host_s_root(tmp_path: Path) -> None:
    own_proc(tmp_path)
    other = build.sample(build.gpu(1), processes=(row(os.getpid(), 2),))

    found = GpuProcesses(tmp_path).uses([sample(row(os.getpid(), 1)), other])

    assert [(use.bus_id, use.pod, use.memory_bytes) for use in found] == [
        (GPU.bus_id, OfPod(uid=UID), MIB),
        (build.gpu(1).bus_id, OfPod(uid=UID), 2 * MIB),
    ]
    assert found[0].name is not None


def test_a_static_pod_has_the_uid_that_the_api_server_has(tmp_path: Path) -> None:
    """Its cgroup has another one, and what names pods to users has the API server's."""
    own_proc(tmp_path)
    static = "36b6d6be73b1065af369b3985edafa09"
    (tmp_path / "proc/self/cgroup").write_text(f"0::/kubepods/pod{static}/x\n")
    pod = KnownPod(namespace="kube-system", name="proxy", uid=UID, static_uid=static, ended=False)
    processes = GpuProcesses(tmp_path, by_uid={static: pod}.get)
    readings = [build.sample(GPU, processes=(row(os.getpid(), 1),), gpu_busy_ratio=0.5)]

    (use,) = processes.uses(readings)

    assert use.pod == OfPod(uid=UID, namespace="kube-system", name="proxy")
    assert processes.of_pods(readings).keys() == {GPU.bus_id}
    assert processes.of_pods(readings)[GPU.bus_id].keys() == {(None, UID)}


def test_of_the_agent_s_own_pod_a_hidden_process_is_known_by_the_setting(tmp_path: Path) -> None:
    own_proc(tmp_path)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "proc/self/ns/cgroup").symlink_to("cgroup:[4026532567]")
    readings = [build.sample(GPU, processes=(row(os.getpid(), 1),), gpu_busy_ratio=0.5)]

    for pod_uid, keys in ((UID, {(None, UID)}), (None, set())):
        processes = GpuProcesses(tmp_path, pod_uid=pod_uid)
        (use,) = processes.uses(readings)
        assert use.pod == (None if pod_uid is None else OfPod(uid=UID))
        assert processes.of_pods(readings)[GPU.bus_id].keys() == keys


def test_without_the_host_s_pids_nothing_is_told_and_why_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    processes = GpuProcesses(tmp_path)

    assert processes.uses([sample(row(7, 1))]) == ()
    assert processes.uses([sample(row(7, 1))]) == ()

    assert whys(caplog, "GPU processes unavailable") == [
        f"{tmp_path / 'proc'} is no process file system: No such file or directory"
    ]


# What pods have


def of_pods(*rows: Process, **facts: Any) -> dict[tuple[int | None, str], PodUse] | None:
    """By pods ``a`` of pids below 100 and ``b`` of those above; pid 99 runs in none."""
    pods = {99: None}
    made = build.sample(GPU, processes=rows, **({"gpu_busy_ratio": 0.5} | facts))
    return pod_uses(made, lambda pid: pods.get(pid, "a" if pid < 100 else "b"))


def test_a_pod_has_what_its_processes_have_together() -> None:
    rows = (row(1, 5, busy=0.2), row(1, 5, G, busy=0.2), row(2, 7, busy=0.3), row(99, 9, busy=0.1))
    assert of_pods(*rows, row(101, 1, busy=0.0)) == {
        (None, "a"): PodUse(memory_bytes=12 * MIB, busy_ratio=0.5),
        (None, "b"): PodUse(memory_bytes=1 * MIB, busy_ratio=0.0),
    }


def test_shares_that_were_measured_at_different_moments_never_pass_the_whole() -> None:
    assert of_pods(row(1, 5, busy=0.7), row(2, 5, busy=0.6)) == {
        (None, "a"): PodUse(memory_bytes=10 * MIB, busy_ratio=1.0)
    }


def test_what_one_process_does_not_tell_is_not_known_of_its_pod() -> None:
    assert of_pods(row(1, 5, busy=0.2), row(2), row(101, 1)) == {
        (None, "a"): PodUse(),
        (None, "b"): PodUse(memory_bytes=MIB),
    }


def test_pods_on_gpu_instances_are_told_by_instance() -> None:
    assert of_pods(row(1, 5, at=(3, 0)), row(2, 6, at=(4, 0))) == {
        (3, "a"): PodUse(memory_bytes=5 * MIB),
        (4, "a"): PodUse(memory_bytes=6 * MIB),
    }


@pytest.mark.parametrize(
    ("what", "call", "reason", "known"),
    [
        ("processes", "nvmlDeviceGetComputeRunningProcesses_v3", Reason.UNSUPPORTED, False),
        ("processes", "nvmlDeviceGetMPSComputeRunningProcesses_v3", Reason.UNSUPPORTED, True),
        ("processes", "nvmlDeviceGetMPSComputeRunningProcesses_v3", Reason.GARBAGE, False),
        ("processes", "nvmlDeviceGetGraphicsRunningProcesses_v3", Reason.UNSUPPORTED, True),
        ("processes", "nvmlDeviceGetProcessUtilization", Reason.UNSUPPORTED, True),
        ("state", "nvml", Reason.LOST, False),
        ("power_watts", "nvmlDeviceGetPowerUsage", Reason.FAILED, True),
    ],
)
def test_where_processes_may_be_missing_nothing_is_known_of_pods(
    what: str, call: str, reason: Reason, known: bool
) -> None:
    gap = Gap(what=what, reason=reason, source=call)
    assert (of_pods(row(1, 5), gaps=(gap,)) is not None) is known


def test_of_a_gpu_with_too_many_processes_nothing_is_known() -> None:
    rows = [row(pid, 1) for pid in range(1000, 1000 + MOST_FOR_PODS)]
    assert of_pods(*rows) is not None
    assert of_pods(*rows, row(1, 1)) is None
