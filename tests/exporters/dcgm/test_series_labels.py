# SPDX-License-Identifier: Apache-2.0
"""Labels: dcgm-exporter's names in its order byte for byte, who holds a device, hostile values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from discovery.gpu_part import GpuPart
from discovery.model import GpuSnapshot, Xid
from exporters.dcgm.catalog import CATALOG
from exporters.dcgm.render import Renderer, SeriesIdentity
from exporters.device_user_names import NO_USERS, Claim, ContainerUser, ContainerUsers, JobIds
from exporters.prometheus_text import MOST_LABEL_CHARACTERS
from tests import build, exposition

NODE = SeriesIdentity(hostname="node-a")
CLOCK = tuple(family for family in CATALOG if family.name == "DCGM_FI_DEV_SM_CLOCK")
XIDS = tuple(family for family in CATALOG if family.name == "DCGM_FI_DEV_XID_ERRORS")
GPU: GpuPart = GpuPart(build.gpu().bus_id)
FIRST = (
    'gpu="0",UUID="GPU-00000000-0000-0000-0000-000000000000",pci_bus_id="00000000:10:00.0",'
    'device="nvidia0",modelName="MOCKMODEL"'
)
VERSION = 'DCGM_FI_DRIVER_VERSION="400.300"'
CLAIM = Claim(
    namespace="ns",
    name="claim-1",
    driver="gpu.nvidia.com",
    pool="node-a",
    device="gpu-0",
    mig_profile="1g.5gb",
    mig_uuid="MIG-1",
)


def user(pod: str = "train-0", **facts: Any) -> ContainerUser:
    return ContainerUser(**({"namespace": "team-a", "pod": pod, "container": "main"} | facts))


def render(
    *users: ContainerUser,
    identity: SeriesIdentity = NODE,
    gpus: tuple[GpuSnapshot, ...] = (build.gpu(),),
    others: ContainerUsers | None = None,
    jobs: JobIds | None = None,
    families: tuple[Any, ...] = CLOCK,
) -> bytes:
    """The exposition of one family, with these device users on the first GPU."""
    return Renderer(families).render(
        build.node(gpus),
        [build.sample(gpu) for gpu in gpus],
        (),
        identity,
        {GPU: users, **(others or {})},
        jobs=jobs or {},
    )


def label_texts(body: bytes) -> list[str]:
    """What stands between the braces, series for series."""
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    return [line[line.index("{") + 1 : line.rindex("}")] for line in lines]


def labels(body: bytes) -> list[dict[str, str]]:
    (family,) = exposition.parse(body).values()
    return [dict(found) for _, found in family.series]


def test_an_idle_gpu_has_no_label_of_a_pod() -> None:
    assert label_texts(render()) == [f'{FIRST},hostname="node-a",{VERSION}']


def test_pod_labels_come_sorted_after_the_node_s_and_attributes_sorted_after_them() -> None:
    labelled = user(uid="uid-1", labels=(("app", "x"), ("Team", "y")))

    body = render(labelled, identity=replace(NODE, pod_uid=True))

    assert label_texts(body) == [
        f'{FIRST},hostname="node-a",{VERSION},Team="y",app="x",'
        'container="main",namespace="team-a",pod="train-0",pod_uid="uid-1"'
    ]


def test_all_attributes_stand_in_upstream_s_order() -> None:
    claimed = user(uid="uid-1", share="2", claim=CLAIM)
    gpu = build.gpu(xids=(Xid(code=79, count=1),))

    body = render(
        claimed,
        identity=replace(NODE, pod_uid=True, shares=True),
        gpus=(gpu,),
        jobs={GPU: ("17",)},
        families=XIDS,
    )

    assert label_texts(body) == [
        f'{FIRST},hostname="node-a",{VERSION},container="main",dra_claim_name="claim-1",'
        'dra_claim_namespace="ns",dra_device_name="gpu-0",dra_driver_name="gpu.nvidia.com",'
        'dra_mig_device_uuid="MIG-1",dra_mig_profile="1g.5gb",dra_pool_name="node-a",'
        'err_code="79",err_msg="GPU has gone from the PCIe bus",hpc_job="17",'
        'namespace="team-a",pod="train-0",pod_uid="uid-1",vgpu="2"'
    ]


def test_an_instance_is_between_model_and_host_and_has_its_own_holder() -> None:
    devices = (build.mig_device("1g.5gb", gi=3), build.mig_device("2c.4g.20gb", gi=7))
    gpu = build.gpu(mig=build.SPLIT, mig_devices=devices)

    body = render(gpus=(gpu,), others={GpuPart(gpu.bus_id, 7): (user(),)})

    assert label_texts(body) == [
        f'{FIRST},GPU_I_PROFILE="1g.5gb",GPU_I_ID="3",hostname="node-a",{VERSION}',
        f'{FIRST},GPU_I_PROFILE="4g.20gb",GPU_I_ID="7",hostname="node-a",{VERSION},'
        'container="main",namespace="team-a",pod="train-0"',
    ]


def test_the_old_names_are_those_from_before_version_2() -> None:
    body = render(user(uid="uid-1"), identity=replace(NODE, old_namespace=True, pod_uid=True))

    assert label_texts(body) == [
        f'{FIRST.replace("UUID=", "uuid=")},hostname="node-a",{VERSION},'
        'container_name="main",pod_name="train-0",pod_namespace="team-a",pod_uid="uid-1"'
    ]


def test_blanks_in_the_model_become_single_dashes_on_request() -> None:
    gpus = (build.gpu(model=" NVIDIA  H100 80GB\tHBM3 "),)

    plain, dashed = (
        labels(render(gpus=gpus, identity=replace(NODE, blanks_replaced=replaced)))
        for replaced in (False, True)
    )

    assert plain[0]["modelName"] == " NVIDIA  H100 80GB\tHBM3 "
    assert dashed[0]["modelName"] == "NVIDIA-H100-80GB-HBM3"


def test_of_a_shared_gpu_the_last_holder_by_name_is_shown() -> None:
    found = labels(render(user("a", share="0"), user("b", share="1")))

    assert [(each["pod"], each.get("vgpu")) for each in found] == [("b", None)]


def test_of_a_shared_gpu_every_holder_is_shown_on_request_with_the_same_value() -> None:
    body = render(
        user("a", share="0"),
        user("b", share="1"),
        user("c"),
        identity=replace(NODE, shares=True),
    )

    assert [(each["pod"], each.get("vgpu")) for each in labels(body)] == [
        ("a", "0"),
        ("b", "1"),
        ("c", None),
    ]
    (family,) = exposition.parse(body).values()
    assert set(family.series.values()) == {"210"}


def test_holders_that_no_label_tells_apart_are_one_series() -> None:
    body = render(user(), user(), identity=replace(NODE, shares=True))

    assert len(labels(body)) == 1


def test_holders_whose_names_utf8_cannot_tell_apart_are_one_series() -> None:
    body = render(user("\udcfe"), user("\udcff"), identity=replace(NODE, shares=True))

    assert [each["pod"] for each in labels(body)] == ["?"]


@pytest.mark.parametrize("profile", ["c.1g", "xc.1g", "1g.5gb", "1c.1c.2g.10gb"])
def test_a_profile_that_does_not_begin_with_compute_slices_stays_whole(profile: str) -> None:
    gpu = build.gpu(mig=build.SPLIT, mig_devices=(build.mig_device(profile, gi=3),))

    (found,) = labels(render(gpus=(gpu,)))

    assert found["GPU_I_PROFILE"] == profile.removeprefix("1c.")


def test_every_pod_of_a_claim_is_shown_as_upstream_does() -> None:
    found = labels(render(user("a", claim=CLAIM), user("b", claim=CLAIM)))

    assert [each["pod"] for each in found] == ["a", "b"]


def test_a_claim_of_a_whole_gpu_has_no_labels_of_mig() -> None:
    whole = replace(CLAIM, mig_profile=None, mig_uuid=None)

    (found,) = labels(render(user(claim=whole)))

    assert [name for name in found if name.startswith("dra_")] == [
        "dra_claim_name",
        "dra_claim_namespace",
        "dra_device_name",
        "dra_driver_name",
        "dra_pool_name",
    ]


def test_the_pod_s_uid_is_left_out_where_nobody_asks_or_nobody_knows() -> None:
    asked = replace(NODE, pod_uid=True)

    bodies = [render(user(uid="uid-1")), render(user(), identity=asked)]

    assert ["pod_uid" in labels(body)[0] for body in bodies] == [False, False]


def test_every_job_of_a_device_is_a_series_with_or_without_a_pod() -> None:
    jobs = {GPU: ("17", "18")}

    alone, held = labels(render(jobs=jobs)), labels(render(user(), jobs=jobs))

    assert [each["hpc_job"] for each in alone] == ["17", "18"]
    assert [(each["hpc_job"], each["pod"]) for each in held] == [
        ("17", "train-0"),
        ("18", "train-0"),
    ]


TAKEN = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "hostname", "DCGM_FI_DRIVER_VERSION")


@pytest.mark.parametrize("name", [*TAKEN, "pod", "namespace", "container", "err_code", "hpc_job"])
def test_a_pod_s_label_takes_no_name_that_a_series_has_anyway(name: str) -> None:
    hostile = user(labels=((name, "hostile"), ("zone", "here")))

    (found,) = labels(render(hostile, families=XIDS, jobs={GPU: ("17",)}))

    assert found["zone"] == "here"
    assert found[name] != "hostile"


def test_a_pod_that_comes_and_goes_changes_its_gpu_s_labels_alone() -> None:
    gpus = (build.gpu(0), build.gpu(1))
    renderer, samples = Renderer(CLOCK), [build.sample(gpu) for gpu in gpus]
    other: ContainerUsers = {GpuPart(gpus[1].bus_id): (user("other"),)}
    came, changed = {GPU: (user(),), **other}, {GPU: (user("next"),), **other}

    pods = []
    for users in (other, came, changed, NO_USERS):
        found = labels(renderer.render(build.node(gpus), samples, (), NODE, users))
        pods.append([each.get("pod") for each in found])

    assert pods == [[None, "other"], ["train-0", "other"], ["next", "other"], [None, None]]


@pytest.mark.parametrize(
    "change",
    [
        {"jobs": {GPU: ("17",)}},
        {"identity": replace(NODE, shares=True)},
        {"identity": replace(NODE, old_namespace=True)},
    ],
    ids=["job", "shares", "old names"],
)
def test_what_is_asked_for_later_is_shown_by_a_renderer_that_has_rendered(
    change: dict[str, Any],
) -> None:
    gpu, by = build.gpu(), (user("a", share="0"), user("b", share="1"))
    renderer, node = Renderer(CLOCK), build.node([gpu])
    asked: dict[str, Any] = {"identity": NODE, "jobs": {}} | change
    renderer.render(node, [build.sample(gpu)], (), NODE, {GPU: by})

    later = renderer.render(node, [build.sample(gpu)], (), users={GPU: by}, **asked)

    assert later == render(*by, **asked)


TEXT = st.text(max_size=2 * MOST_LABEL_CHARACTERS)
HOSTILE = st.one_of(
    TEXT,
    st.text('"\\\n{}=, #\r\0\x85\u2028', max_size=20),
    st.just("x" * 10_000),
    st.text(st.characters(categories=["Cs"]), max_size=3),
)


@given(values=st.lists(HOSTILE, min_size=11, max_size=11))
def test_hostile_values_come_back_cut_and_never_break_the_exposition(values: list[str]) -> None:
    model, host, pod, namespace, container, uid, share, job, label, claim, pool = values
    held = ContainerUser(
        namespace=namespace,
        pod=pod,
        container=container,
        uid=uid,
        share=share,
        claim=replace(CLAIM, name=claim, pool=pool),
        labels=(("label", label),),
    )

    body = render(
        held,
        identity=SeriesIdentity(hostname=host, pod_uid=True, shares=True),
        gpus=(build.gpu(model=model),),
        jobs={GPU: (job,)},
    )

    (found,) = labels(body)
    names = ["modelName", "hostname", "pod", "namespace", "container", "pod_uid", "vgpu"]
    names += ["hpc_job", "label", "dra_claim_name", "dra_pool_name"]
    assert [found[name] for name in names] == [
        value[:MOST_LABEL_CHARACTERS].encode("utf-8", "replace").decode() for value in values
    ]
    (family,) = text_string_to_metric_families(body.decode())
    assert family.samples[0].labels == found
