# SPDX-License-Identifier: Apache-2.0
"""Programs are device users of what they are on."""

from __future__ import annotations

from dataclasses import replace

from api.actuator.actuator_messages import GpuUser
from discovery.mig_state import MigGpu
from discovery.sample import Process, ProcessKind
from mig.users.device_users import DeviceUser, MigPart, UserKind
from mig.users.process_users import openers_of_nobody, process_users, programs_of_nobody
from tests.mig.mig_gpus import ON, instance, mig_gpu, uuid

NAMES = {7: "python3"}


PARTS = mig_gpu(0, "a100-sxm4-40gb", instance(2, "3g.20gb", 0, 1, 1, 1), mode=ON)
"""One GPU instance in three compute instances."""


def process(pid: int, on: int | None, compute: int | None = None) -> Process:
    return Process(
        pid=pid, kind=ProcessKind.COMPUTE, gpu_instance_id=on, compute_instance_id=compute
    )


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


def test_programs_are_on_their_compute_instance_where_the_driver_names_it() -> None:
    """Else on all of the GPU instance: also one that has just gone is not guessed."""
    running = (process(1, 2, 0), process(2, 2, 1), process(3, 2), process(4, 2, 5))
    hidden = (process(0, 2, 1), process(0, 2, 2))

    found = process_users([replace(PARTS, processes=running + hidden)], lambda _pid: "")

    words = "hidden (of another PID namespace, on GPU 0 instance 2 compute instance"
    assert found == {
        MigPart(uuid(0), 2, 0): users("1"),
        MigPart(uuid(0), 2, 1): users("2", f"{words} 1)"),
        MigPart(uuid(0), 2, 2): users(f"{words} 2)"),
        MigPart(uuid(0), 2): users("3", "4"),
    }


def test_a_compute_instance_that_is_all_of_its_gpu_instance_is_named_as_that() -> None:
    """Its id says nothing more, and an older actuator refuses it."""
    whole = mig_gpu(0, "a100-sxm4-40gb", instance(2, "3g.20gb", 0, 3), mode=ON)
    part = mig_gpu(0, "a100-sxm4-40gb", instance(2, "3g.20gb", 0, 2), mode=ON)

    def parts(gpu: MigGpu) -> set[MigPart]:
        return set(process_users([replace(gpu, processes=(process(1, 2, 0),))], str))

    assert parts(whole) == {MigPart(uuid(0), 2)}
    assert parts(part) == {MigPart(uuid(0), 2, 0)}


def test_a_pod_has_the_programs_on_its_compute_instance_alone() -> None:
    """Those of which the driver does not name the compute instance may be its own."""
    running = (process(1, 2, 0), process(2, 2, 1), process(3, 2))
    pod = frozenset({DeviceUser(UserKind.POD, "team/job")})

    def left(*parts: MigPart) -> set[str]:
        gpu = replace(PARTS, processes=running)
        found = programs_of_nobody([gpu], dict.fromkeys(parts, pod), lambda _pid: "")
        return {one.name for whose in found.values() for one in whose}

    assert left() == {"1", "2", "3"}
    assert left(MigPart(uuid(0), 2, 0)) == {"2"}
    assert left(MigPart(uuid(0), 2)) == set()
    assert left(MigPart(uuid(0), None)) == set()
    assert left(MigPart(uuid(0), 3)) == {"1", "2", "3"}


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
