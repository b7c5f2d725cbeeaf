# SPDX-License-Identifier: Apache-2.0
"""GPUs that pods share: what each pod's processes have, next to what the device has.

Expected values are by hand from dcgm-exporter 4.8 with ``--kubernetes-virtual-gpus``: the
families GPU_UTIL and FB_USED have a series without a pod, and one for each device user by process.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from discovery.gpu_part import GpuPart
from discovery.sample import MemoryUse
from exporters.dcgm.catalog import CATALOG, COUNTED
from exporters.dcgm.render import Renderer, SeriesIdentity
from exporters.dcgm.windows import Counts, Event, EventCounts, Span
from exporters.device_user_names import ContainerUser, PodUse, PodUses
from tests import build, exposition

NODE = SeriesIdentity(hostname="node-a", shares=True)
NAMES = ("DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED")
FAMILIES = tuple(family for family in CATALOG if family.name in NAMES)
GPU = build.gpu()
WHOLE = GpuPart(GPU.bus_id)
MEMORY = MemoryUse(free_bytes=3000 * build.MIB, used_bytes=1000 * build.MIB)
SAMPLE = build.sample(GPU, gpu_busy_ratio=0.9, sm_clock_hertz=210_000_000, memory=MEMORY)
BUSY = PodUse(memory_bytes=700 * build.MIB, busy_ratio=0.6)
KNOWN: PodUses = {GPU.bus_id: {(None, "uid-a"): BUSY}}


def user(pod: str, **facts: Any) -> ContainerUser:
    return ContainerUser(**({"namespace": "ns", "pod": pod, "container": "main"} | facts))


SHARED = (user("a", share="0", uid="uid-a"), user("b", share="1", uid="uid-b"))


def served(
    *users: ContainerUser,
    pods: PodUses | None = None,
    identity: SeriesIdentity = NODE,
    entity: GpuPart = WHOLE,
    **more: Any,
) -> dict[str, list[tuple[str | None, str | None, str | None, str]]]:
    """Family to pod, pod_uid, vgpu and value of each of its series."""
    body = Renderer(more.pop("families", FAMILIES)).render(
        build.node([more.pop("gpu", GPU)]),
        [more.pop("sample", SAMPLE)],
        (),
        identity,
        {entity: users},
        pods=KNOWN if pods is None else pods,
        **more,
    )
    return {
        name: [
            (
                dict(labels).get("pod"),
                dict(labels).get("pod_uid"),
                dict(labels).get("vgpu"),
                value,
            )
            for (_, labels), value in family.series.items()
        ]
        for name, family in exposition.parse(body).items()
    }


def test_each_pod_has_its_own_utilisation_and_memory_and_the_device_keeps_its() -> None:
    assert served(*SHARED) == {
        "DCGM_FI_DEV_SM_CLOCK": [("a", None, "0", "210"), ("b", None, "1", "210")],
        "DCGM_FI_DEV_GPU_UTIL": [
            (None, None, None, "90"),
            ("a", "uid-a", "0", "60"),
            ("b", "uid-b", "1", "0"),
        ],
        "DCGM_FI_DEV_FB_USED": [
            (None, None, None, "1000"),
            ("a", "uid-a", "0", "700"),
            ("b", "uid-b", "1", "0"),
        ],
    }


@pytest.mark.parametrize(
    ("users", "pods"),
    [
        (SHARED, {}),  # the driver did not tell of processes, or the agent has other pids
        ((user("a", share="0"), user("b", share="1")), KNOWN),  # pods may not be read
        (SHARED[:1], {GPU.bus_id: {(None, "uid-a"): PodUse()}}),
    ],
    ids=["processes unknown", "pods unknown", "values unknown"],
)
def test_a_pod_of_which_nothing_is_known_has_no_series_and_never_0(
    users: tuple[ContainerUser, ...], pods: PodUses
) -> None:
    found = served(*users, pods=pods)

    assert [pod for pod, *_ in found["DCGM_FI_DEV_GPU_UTIL"]] == [None]
    assert [pod for pod, *_ in found["DCGM_FI_DEV_FB_USED"]] == [None]
    assert None not in [pod for pod, *_ in found["DCGM_FI_DEV_SM_CLOCK"]]


def test_a_gpu_that_nobody_holds_has_one_series_as_ever() -> None:
    assert {name: len(series) for name, series in served().items()} == dict.fromkeys(NAMES, 1)


def test_without_the_flag_one_pod_has_the_values_of_the_device() -> None:
    found = served(*SHARED, identity=replace(NODE, shares=False))

    assert found["DCGM_FI_DEV_GPU_UTIL"] == [("b", None, None, "90")]


def test_gpu_instances_that_are_shared_tell_memory_by_pod_and_no_utilisation() -> None:
    gpu = build.gpu(mig=build.SPLIT, mig_devices=(build.mig_device("1g.5gb", gi=3),))
    pods: PodUses = {
        gpu.bus_id: {(3, "uid-a"): PodUse(memory_bytes=5 * build.MIB), (4, "uid-b"): BUSY}
    }

    found = served(
        *SHARED,
        pods=pods,
        entity=GpuPart(gpu.bus_id, 3),
        gpu=gpu,
        sample=build.sample(gpu, mig_memory=((3, MEMORY),)),
    )

    assert "DCGM_FI_DEV_GPU_UTIL" not in found
    assert [(pod, value) for pod, _, _, value in found["DCGM_FI_DEV_FB_USED"]] == [
        (None, "1000"),
        ("a", "5"),
        ("b", "0"),
    ]


def test_counts_of_errors_have_no_series_without_a_pod() -> None:
    counts: Counts = {
        (Event.XID, Span.WINDOW): EventCounts(
            milliseconds=300_000, entities={GpuPart(GPU.bus_id): {"79": 1}}
        )
    }

    found = served(*SHARED, families=COUNTED, counts=counts)

    assert [pod for pod, *_ in found["DCGM_EXP_XID_ERRORS_COUNT"]] == ["a", "b"]


def test_what_a_pod_has_is_new_with_every_rendering() -> None:
    renderer, node = Renderer(FAMILIES), build.node([GPU])
    for percent in (60, 70):
        use = replace(BUSY, busy_ratio=percent / 100)
        body = renderer.render(
            node,
            [SAMPLE],
            (),
            NODE,
            {GpuPart(GPU.bus_id): SHARED},
            pods={GPU.bus_id: {(None, "uid-a"): use}},
        )
        series = exposition.parse(body)["DCGM_FI_DEV_GPU_UTIL"].series
        assert str(percent) in series.values()


def test_the_old_namespace_names_the_pod_in_its_way() -> None:
    body = Renderer(FAMILIES).render(
        build.node([GPU]),
        [SAMPLE],
        (),
        replace(NODE, old_namespace=True),
        {GpuPart(GPU.bus_id): SHARED},
        pods=KNOWN,
    )
    (_, first, *_) = exposition.parse(body)["DCGM_FI_DEV_GPU_UTIL"].series
    assert dict(first[1])["pod_name"] == "a"


@pytest.mark.parametrize(
    "before",
    [(), tuple(replace(each, uid=f"{each.uid}-before") for each in SHARED)],
    ids=["held by nobody", "pods of the same names"],
)
def test_a_renderer_that_has_rendered_shows_the_same(before: tuple[ContainerUser, ...]) -> None:
    node, entity = build.node([GPU]), GpuPart(GPU.bus_id)
    renderer = Renderer(FAMILIES)
    renderer.render(node, [SAMPLE], (), NODE, {entity: before}, pods=KNOWN)

    later = renderer.render(node, [SAMPLE], (), NODE, {entity: SHARED}, pods=KNOWN)

    fresh = Renderer(FAMILIES).render(node, [SAMPLE], (), NODE, {entity: SHARED}, pods=KNOWN)
    assert later == fresh
