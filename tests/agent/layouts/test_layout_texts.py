# SPDX-License-Identifier: Apache-2.0
"""What status, request and actuator are given of a layout: each fact, and each exactly as long as
it may be."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from agent.layouts.desired_change import DesiredChange, desired_change, is_in_the_way
from agent.layouts.layout_request import LayoutRequest
from agent.layouts.planned_request import in_use, layouts_digest, plan_request, status
from api.actuator.actuator_messages import KnownChange, RequestedInstance, RequestedLayout
from api.mig_outcome import Outcome
from api.mig_resources import MOST_OFFERS, MigStrategy
from api.mig_status_annotation import MigPhase, RequestSource
from discovery.mig_state import MigGpu
from discovery.model import Mode
from mig.gpu_layout import GpuLayout
from mig.users.device_users import DeviceUser, DeviceUsers, MigPart, UserKind
from tests.agent.layouts.played_actuator import wanted
from tests.mig.naive_gpu import mig_gpu

A100 = "a100-sxm4-40gb"
SPLIT = mig_gpu(A100, ("1g.5gb", 0), ("3g.20gb", 4))
EMPTY = mig_gpu(A100, uuid="GPU-1", index=1)
OFF = mig_gpu("h100-sxm5-80gb", mode=Mode(current=False, pending=False), resetless=True)


def asks(text: str, source: RequestSource = RequestSource.ANNOTATION) -> LayoutRequest:
    return LayoutRequest(source=source, text=text)


def changed(
    text: str,
    *gpus: MigGpu,
    users: DeviceUsers | None = None,
    strategy: MigStrategy | None = MigStrategy.MIXED,
) -> DesiredChange:
    """The change that a request of the annotation asks for."""
    request, held = asks(text), users or {}
    found = desired_change(
        request, plan_request(request, gpus, None, held, strategy), held, strategy
    )
    assert found is not None
    return found


def pod(name: str) -> DeviceUser:
    return DeviceUser(UserKind.POD, name)


@pytest.mark.parametrize("length", [255, 256, 257, 400, 401])
def test_texts_are_whole_as_long_as_the_status_has_room_and_end_in_a_mark_where_not(
    length: int,
) -> None:
    found = status(asks("a" * length), MigPhase.REFUSED, "b" * length)
    assert found.desired == ("a" * length if length <= 256 else "a" * 255 + "…")
    assert found.reason == ("b" * length if length <= 400 else "b" * 399 + "…")


@pytest.mark.parametrize(
    ("pods", "named", "more"), [(0, 0, 0), (1, 1, 0), (8, 8, 0), (9, 8, 1), (20, 8, 12)]
)
def test_the_first_eight_pods_are_named_and_the_others_counted(
    pods: int, named: int, more: int
) -> None:
    names = [f"team/job-{at:02}" for at in range(pods)]
    found = status(asks("x"), MigPhase.PLANNED, "", pods=names)
    assert (list(found.pods), found.more_pods) == (names[:named], more)


@pytest.mark.parametrize("count", [0, 1, MOST_OFFERS, MOST_OFFERS + 1])
def test_a_status_has_all_offers_or_none(count: int) -> None:
    offers = {f"nvidia.com/mig-{at}g.1gb": 1 for at in range(count)}
    found = status(asks("x"), MigPhase.PLANNED, "", allocatable=offers)
    assert found.allocatable == (offers if count <= MOST_OFFERS else {})


def test_the_same_words_from_annotation_and_label_are_two_wishes() -> None:
    of = {source: status(asks("x", source), MigPhase.PLANNED, "") for source in RequestSource}
    assert {it.source for it in of.values()} == set(RequestSource)
    assert len({it.desired_digest for it in of.values()}) == len(RequestSource)
    assert all(it.desired_digest for it in of.values())
    longer = [status(asks("x" * 300 + end), MigPhase.PLANNED, "") for end in "ab"]
    assert longer[0].desired == longer[1].desired
    assert longer[0].desired_digest != longer[1].desired_digest


@pytest.mark.parametrize(
    ("programs", "text"),
    [
        (["7 python3"], "process 7 python3 uses"),
        (["7", "8"], "process 7 and 1 more uses"),
        (["7", "8", "9"], "process 7 and 2 more uses"),
    ],
)
def test_the_first_program_in_the_way_is_named_and_the_others_counted(
    programs: list[str], text: str
) -> None:
    why = "what would be destroyed, and belongs to no pod: it has to end"
    assert in_use(programs) == f"{text} {why}"


def test_the_reason_of_a_plan_is_whatever_there_is_to_say() -> None:
    part = MigPart(SPLIT.uuid, SPLIT.instances[0].id)
    busy = {part: frozenset({DeviceUser(UserKind.PROCESS, "7")})}
    texts = {
        (bool(users), next_step): plan_request(
            asks('{"0": {}}'), (SPLIT,), None, users, None, next_step=next_step
        ).status.reason
        for users in ({}, busy)
        for next_step in ("", "next")
    }
    assert texts == {
        (False, ""): "",
        (False, "next"): "next",
        (True, ""): in_use(["7"]),
        (True, "next"): f"{in_use(['7'])}; next",
    }


def test_a_digest_has_sixteen_digits_and_knows_every_part_of_a_layout() -> None:
    """The order in which GPUs are named is no part of it."""
    one, other = GpuLayout(mig=True), GpuLayout(mig=False)
    digests = [
        layouts_digest(layouts)
        for layouts in (
            {},
            {"GPU-0": one},
            {"GPU-1": one},
            {"GPU-0": other},
            {"GPU-0": one, "GPU-1": one},
        )
    ]
    assert len(set(digests)) == len(digests)
    assert all(len(it) == 16 and int(it, 16) >= 0 for it in digests)
    assert layouts_digest({"GPU-1": other, "GPU-0": one}) == layouts_digest(
        {"GPU-0": one, "GPU-1": other}
    )
    assert digests[0] == hashlib.sha256(b"{}").hexdigest()[:16]


def test_a_plan_names_the_mode_only_where_it_is_set() -> None:
    on = plan_request(asks('{"0": {"3g.40gb": 2}}'), (OFF,), None, {}, None).status
    assert [(it.gpu, it.mig, it.create) for it in on.gpus] == [(0, True, 2)]
    same = plan_request(asks('{"0": {}}'), (SPLIT,), None, {}, None).status
    assert [(it.gpu, it.mig, it.destroy) for it in same.gpus] == [(0, None, 2)]
    both = plan_request(asks('{"all": {"7g.40gb": 1}}'), (SPLIT, EMPTY), None, {}, None).status
    assert [it.gpu for it in both.gpus] == [0, 1]


def test_the_actuator_is_given_the_layouts_word_for_word() -> None:
    found = changed('{"0": {"1g.5gb": 2, "2g.10gb": 1}, "1": "on"}', SPLIT, EMPTY)
    assert set(found.layouts) == {SPLIT.uuid, EMPTY.uuid}
    assert found.layouts[EMPTY.uuid] == RequestedLayout(mig=True)
    instances = found.layouts[SPLIT.uuid].instances
    assert sorted(it.profile for it in instances) == ["1g.5gb", "1g.5gb", "2g.10gb"]
    assert {it.profile: it.compute for it in instances} == {"1g.5gb": (1,), "2g.10gb": (2,)}
    assert found.gpus == (0,)

    request = found.apply_request("0" * 16)

    assert request.desired == found.layouts
    assert request.strategy is MigStrategy.MIXED
    assert request.origin.startswith('annotation {"0": ')
    assert request.change == "0" * 16


@pytest.mark.parametrize(("start", "asked"), [(-1, None), (0, 0), (4, 4)])
def test_a_place_that_is_asked_for_reaches_the_actuator_the_first_one_too(
    start: int, asked: int | None
) -> None:
    request = asks('{"1": {"1g.5gb": 1}}')
    judged = plan_request(request, (EMPTY,), None, {}, None)
    assert judged.layouts is not None
    (layout,) = judged.layouts.layouts.values()
    placed = replace(layout, instances=tuple(replace(it, start=start) for it in layout.instances))

    layouts = replace(judged.layouts, layouts={EMPTY.uuid: placed})
    found = desired_change(request, replace(judged, layouts=layouts), {}, None)

    assert found is not None
    (instance,) = found.layouts[EMPTY.uuid].instances
    assert instance == RequestedInstance(profile="1g.5gb", compute=(1,), start=asked)


def test_a_request_of_any_length_fits_what_the_actuator_takes() -> None:
    lines = '{"0": {"7g.40gb": 1}' + " " * 300 + "}"
    found = changed(lines, SPLIT)
    assert len(found.request_text) <= 256
    assert "\n" not in found.request_text


def test_the_modes_and_the_offers_of_a_change_are_those_of_its_plan() -> None:
    instances = changed('{"0": {"7g.40gb": 1}}', SPLIT)
    assert (instances.modes, instances.allocatable) == (False, {"nvidia.com/mig-7g.40gb": 1})
    assert changed('{"0": {"3g.40gb": 2}}', OFF).modes
    assert changed('{"0": {"7g.40gb": 1}}', SPLIT, strategy=None).allocatable == {}


def test_pods_on_what_goes_are_in_the_way_and_all_others_are_told_apart() -> None:
    small, large = sorted(SPLIT.instances, key=lambda it: it.profile)
    users = {
        MigPart(SPLIT.uuid, small.id): frozenset(
            {pod("team/goes"), DeviceUser(UserKind.PROCESS, "7")}
        ),
        MigPart(SPLIT.uuid, large.id): frozenset({pod("team/stays"), pod("team/goes")}),
        MigPart(EMPTY.uuid, None): frozenset({pod("team/elsewhere")}),
    }
    found = changed('{"0": {"2g.10gb": 1, "3g.20gb": 1}}', SPLIT, EMPTY, users=users)
    assert found.pods == {"team/goes"}
    assert found.other_pods == {"team/stays", "team/elsewhere"}
    assert found.programs == ("7",)
    assert [(it.gpu, it.instance, it.name) for it in found.on_gpus] == [
        *(
            (SPLIT.uuid, id_, name)
            for id_, name in sorted(
                [(small.id, "team/goes"), (large.id, "team/goes"), (large.id, "team/stays")]
            )
        ),
        (EMPTY.uuid, None, "team/elsewhere"),
    ]


@pytest.mark.parametrize("count", [2047, 2048, 2049])
def test_as_many_pods_on_gpus_are_named_to_the_actuator_as_it_takes(count: int) -> None:
    part = MigPart(SPLIT.uuid, SPLIT.instances[0].id)
    users = {part: frozenset(pod(f"team/job-{at}") for at in range(count))}
    assert len(changed('{"0": {}}', SPLIT, users=users).on_gpus) == min(count, 2048)


@pytest.mark.parametrize(
    ("name", "is_named"),
    [("t" * 319 + "/", True), ("t" * 320 + "/", False), ("team/a_b", False), ("team/a.b-1", True)],
)
def test_a_pod_is_named_to_the_actuator_where_its_name_is_one_that_it_takes(
    name: str, *, is_named: bool
) -> None:
    part = MigPart(SPLIT.uuid, None)
    found = changed('{"0": {}}', SPLIT, users={part: frozenset({pod(name)})})
    assert bool(found.on_gpus) is is_named


@pytest.mark.parametrize(
    ("end", "gpus", "change", "is_way"),
    [
        (None, ("GPU-9",), True, True),
        (Outcome.STUCK, (), True, True),
        (None, ("GPU-9",), False, True),
        (Outcome.STUCK, ("GPU-9",), False, False),
        (Outcome.STUCK, ("GPU-9",), True, False),
        (Outcome.STUCK, ("GPU-0",), True, True),
        (Outcome.STUCK, ("GPU-9", "GPU-0"), True, True),
    ],
)
def test_a_change_of_the_journal_is_in_the_way_unless_it_is_held_on_other_gpus(
    end: Outcome | None, gpus: tuple[str, ...], *, change: bool, is_way: bool
) -> None:
    known = KnownChange(change="1" * 16, origin="", started="", gpus=gpus, outcome=end)
    assert is_in_the_way(known, wanted("a") if change else None) is is_way


def test_the_coordinator_is_given_every_fact_of_the_change() -> None:
    change = replace(
        wanted("1" * 16),
        gpus=(0, 3),
        modes=True,
        pods=frozenset({"team/b", "team/a"}),
        programs=("7",),
        allocatable={"nvidia.com/gpu": 1},
    )
    found = change.annotation("2" * 16, drift=True, since="2026-11-20T10:00:00Z")
    assert (found.request, found.plan, found.gpus) == ("2" * 16, "1" * 16, (0, 3))
    assert (found.modes, found.drift, found.since) == (True, True, "2026-11-20T10:00:00Z")
    assert (len(found.pods), found.other_pods, found.programs) == (2, (), ("7",))
    assert (found.allocatable, found.unlisted) == ({"nvidia.com/gpu": 1}, 0)
    plain = wanted("1" * 16).annotation("2" * 16)
    assert (plain.modes, plain.drift, plain.since) == (False, False, "")
