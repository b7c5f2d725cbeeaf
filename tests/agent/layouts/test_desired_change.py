# SPDX-License-Identifier: Apache-2.0
"""A change as coordinator and actuator are asked for it: what is named, cut and counted."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from agent.layouts.desired_change import desired_change
from agent.layouts.layout_request import LayoutRequest
from agent.layouts.planned_request import plan_request
from api import mig_request_annotation
from api.mig_request_annotation import MOST_PODS, MOST_PROGRAM, MOST_PROGRAMS
from api.mig_resources import MOST_OFFERS
from api.mig_status_annotation import RequestSource
from api.state_annotation import pod_key
from kubelet.devices_checkpoint import KubeletDevices
from mig.users.device_users import DeviceUser, MigPart, UserKind
from mig.users.pod_users import pod_users
from tests.agent.layouts.played_actuator import wanted
from tests.mig.naive_gpu import mig_gpu

REQUEST = f"{1:016x}"


def pods(word: str, count: int) -> frozenset[str]:
    return frozenset(f"team/{word}-{at:03}" for at in range(count))


@pytest.mark.parametrize(
    ("in_the_way", "others", "named", "unlisted"),
    [
        (0, 0, (0, 0), 0),
        (40, 24, (40, 24), 0),
        (40, 40, (40, 24), 16),
        (64, 1, (64, 0), 1),
        (70, 30, (64, 0), 36),
        (0, 65, (0, 64), 1),
    ],
)
def test_pods_in_the_way_are_named_before_others_and_the_rest_is_counted(
    in_the_way: int, others: int, named: tuple[int, int], unlisted: int
) -> None:
    """The coordinator reads no annotation with more of both together than it may have."""
    change = replace(
        wanted("a" * 16), pods=pods("job", in_the_way), other_pods=pods("other", others)
    )

    found = change.annotation(REQUEST)

    assert (len(found.pods), len(found.other_pods)) == named
    assert found.unlisted == unlisted
    assert MOST_PODS == 64
    assert mig_request_annotation.decode(mig_request_annotation.encode(found)) == found
    assert found.pods[:1] == ((pod_key("team", "job-000"),) if in_the_way else ())


def test_programs_are_cut_in_number_and_length() -> None:
    programs = tuple(f"{at:02} {'x' * 500}" for at in range(MOST_PROGRAMS + 1))

    found = replace(wanted("a" * 16), programs=programs).annotation(REQUEST)

    assert len(found.programs) == MOST_PROGRAMS
    assert {len(program) for program in found.programs} == {MOST_PROGRAM}


@pytest.mark.parametrize(("count", "kept"), [(MOST_OFFERS, MOST_OFFERS), (MOST_OFFERS + 1, 0)])
def test_offers_are_named_all_or_none(count: int, kept: int) -> None:
    """A part of them would be waited for as if it were all."""
    offers = {f"nvidia.com/mig-{at}g.1gb": 1 for at in range(count)}
    assert (
        len(replace(wanted("a" * 16), allocatable=offers).annotation(REQUEST).allocatable) == kept
    )


def test_the_actuator_is_told_of_the_compute_instance_only_where_it_is_a_part() -> None:
    """An actuator of the version before refuses the key; what the pods have is in order."""
    gpu = mig_gpu("a100-sxm4-40gb", ("4g.20gb", 0, (2, 1, 1)), ("3g.20gb", 4))
    request = LayoutRequest(source=RequestSource.ANNOTATION, text='{"0": {"7g.40gb": 1}}')
    parts, whole = sorted(gpu.instances, key=lambda one: one.start)
    devices = (*parts.compute, *whole.compute)
    held = {str(part.uuid): frozenset({f"ns/{at}"}) for at, part in enumerate(devices)}
    kubelet = KubeletDevices(held=held, gpus=frozenset(held), claimed={}, offered=frozenset())
    users = pod_users([gpu], kubelet)

    found = desired_change(request, plan_request(request, (gpu,), None, users, None), users, None)

    assert found is not None
    assert [(one.instance, one.compute, one.name) for one in found.on_gpus] == sorted(
        [
            (parts.id, 0, "ns/0"),
            (parts.id, 1, "ns/1"),
            (parts.id, 2, "ns/2"),
            (whole.id, None, "ns/3"),
        ],
        key=lambda sent: sent[0],
    )
    for pod in found.on_gpus:
        keys = msgspec.json.decode(msgspec.json.encode(pod)).keys()
        assert keys == {"gpu", "instance", "kind", "name"} | (
            set() if pod.compute is None else {"compute"}
        )


def test_the_actuator_is_told_of_pods_whose_names_it_takes_and_of_no_program() -> None:
    """It reads the others in the kubelet's checkpoint itself: one odd name must not cost all."""
    gpu = mig_gpu("a100-sxm4-40gb", ("1g.5gb", 0), ("3g.20gb", 4))
    request = LayoutRequest(source=RequestSource.ANNOTATION, text='{"0": {"7g.40gb": 1}}')
    names = ("team/job-0", "team/Job_1", f"team/{'x' * 320}", "team/job-2.example")
    part = MigPart(gpu.uuid, gpu.instances[0].id)
    pods = frozenset(DeviceUser(UserKind.POD, name) for name in names)
    users = {part: pods | {DeviceUser(UserKind.PROCESS, "7 python3")}}

    found = desired_change(request, plan_request(request, (gpu,), None, users, None), users, None)

    assert found is not None
    assert {one.name for one in found.on_gpus} == {"team/job-0", "team/job-2.example"}
    assert found.pods == frozenset(names)
    assert found.programs == ("7 python3",)
