# SPDX-License-Identifier: Apache-2.0
"""Programs are device users of what they are on."""

from __future__ import annotations

from dataclasses import replace

from api.actuator.actuator_messages import GpuUser
from discovery.sample import Process, ProcessKind
from mig.device_users import DeviceUser, MigPart, UserKind
from mig.process_users import openers_of_nobody, process_users, programs_of_nobody
from tests.mig.mig_gpus import ON, instance, mig_gpu, uuid

NAMES = {7: "python3"}


def process(pid: int, on: int | None) -> Process:
    return Process(pid=pid, kind=ProcessKind.COMPUTE, gpu_instance_id=on)


def test_programs_are_on_an_instance_or_on_the_whole_gpu() -> None:
    """One that works in two ways is one device user, and hidden ones are as many as instances."""
    cut = mig_gpu(1, "a100-sxm4-40gb", instance(9, "1g.5gb", 0, 1), mode=ON)
    gpus = [
        replace(mig_gpu(0), processes=(process(7, None), process(0, None))),
        replace(cut, processes=(process(7, 9), process(7, 9), process(8, 9), process(0, 9))),
    ]

    found = process_users(gpus, lambda pid: NAMES.get(pid, ""))

    assert found == {
        MigPart(uuid(0), None): users("7 python3", "hidden (of another PID namespace, on GPU 0)"),
        MigPart(uuid(1), 9): users(
            "7 python3", "8", "hidden (of another PID namespace, on GPU 1 instance 9)"
        ),
    }


def test_a_program_that_is_on_no_instance_may_be_on_any_of_them() -> None:
    """Where the driver does not say which, none may be destroyed."""
    cut = mig_gpu(
        0, "a100-sxm4-40gb", instance(9, "1g.5gb", 0, 1), instance(10, "1g.5gb", 1, 1), mode=ON
    )

    found = process_users([replace(cut, processes=(process(7, None),))], str)

    assert set(found) == {MigPart(uuid(0), one) for one in (None, 9, 10)}


def users(*names: str) -> frozenset[DeviceUser]:
    return frozenset(DeviceUser(UserKind.PROCESS, name) for name in names)


def test_programs_on_what_a_pod_has_are_the_pods() -> None:
    cut = mig_gpu(
        0, "a100-sxm4-40gb", instance(9, "1g.5gb", 0, 1), instance(10, "1g.5gb", 1, 1), mode=ON
    )
    running = (process(1, 9), process(2, 10), process(3, None))
    gpus = [replace(cut, processes=running), replace(mig_gpu(1), processes=(process(4, None),))]
    pod = frozenset({DeviceUser(UserKind.POD, "team/job")})

    def left(*parts: MigPart) -> set[str]:
        found = programs_of_nobody(gpus, dict.fromkeys(parts, pod), lambda _pid: "")
        return {one.name for users in found.values() for one in users}

    assert left() == {"1", "2", "3", "4"}
    assert left(MigPart(uuid(0), 9)) == {"2", "4"}  # 3 is on no instance: it may be the pod's
    assert left(MigPart(uuid(0), None)) == {"4"}
    assert left(MigPart(uuid(1), None)) == {"1", "2", "3"}


def test_openers_use_the_whole_gpu_but_for_those_in_pods() -> None:
    """A pod's program counts as the pod; a GPU without a minor number or of others has none."""
    gpus = [replace(mig_gpu(0), minor=3), replace(mig_gpu(1), minor=5), mig_gpu(2)]
    openers = [
        GpuUser(minor=3, pid=41, name="nv-hostengine"),
        GpuUser(minor=3, pid=42, name="train", pod="3f2a9c1d"),
        GpuUser(minor=5, pid=43, name="device-plugin", pod="9c1d3f2a"),
        GpuUser(minor=4, pid=44, name="another"),
    ]

    assert openers_of_nobody(gpus, openers) == {MigPart(uuid(0), None): users("41 nv-hostengine")}
