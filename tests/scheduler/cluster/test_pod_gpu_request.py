# SPDX-License-Identifier: Apache-2.0
"""What a pod asks of GPUs, read from its manifest."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.gpu_request import ContainerRequest, Link
from base.errors import BadInput
from kube.objects.pod import Pod
from scheduler.cluster.pod_gpu_request import GPU, Rules, ask
from scheduler.pod_request import PodRequest

RULES = Rules(nics=frozenset({"rdma/hca"}))


def container(gpus: object = None, **more: Any) -> dict[str, Any]:
    """A container with these limits; ``more`` are other fields."""
    return {"resources": {"limits": {GPU: gpus}}} | more if gpus is not None else more


def asked(
    *containers: dict[str, Any],
    first: tuple[dict[str, Any], ...] = (),
    rules: Rules = RULES,
    spec: dict[str, Any] | None = None,
    **meta: Any,
) -> PodRequest | None:
    """What a pod of these containers asks, as it would come from the API server."""
    body = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", **meta},
        "spec": {"containers": list(containers), "initContainers": list(first), **(spec or {})},
    }
    return ask(Pod.from_json(msgspec.json.encode(body)), rules)


def found(*containers: dict[str, Any], **more: Any) -> PodRequest:
    """The same of a pod that asks for something."""
    wanted = asked(*containers, **more)
    assert wanted is not None
    return wanted


def test_a_pod_is_known_by_its_name_and_uid() -> None:
    wanted = found(container("2"))

    assert (wanted.namespace, wanted.name, wanted.uid) == ("ns", "p", "u")


def test_containers_ask_in_their_order_and_those_without_gpus_not_at_all() -> None:
    wanted = found(container("2"), container(), container("4"))

    assert wanted.wish.steps == (ContainerRequest(gpus=2), ContainerRequest(gpus=4))


def test_init_containers_come_first_and_end_unless_they_are_sidecars() -> None:
    wanted = found(
        container("4"),
        first=(container("1"), container("2", restartPolicy="Always")),
    )

    assert wanted.wish.steps == (
        ContainerRequest(gpus=1, ends=True),
        ContainerRequest(gpus=2),
        ContainerRequest(gpus=4),
    )


@pytest.mark.parametrize(
    "resources",
    [{"requests": {GPU: "2"}}, {"limits": {GPU: 2}}, {"requests": {GPU: "2"}, "limits": None}],
)
def test_requests_count_as_limits_do(resources: dict[str, Any]) -> None:
    assert found({"resources": resources}).wish.steps == (ContainerRequest(gpus=2),)


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "amd.com/gpu", "cpu"]
)
def test_what_is_no_whole_gpu_is_left_alone(resource: str) -> None:
    assert asked({"resources": {"limits": {resource: "1"}}}) is None


def test_a_pod_with_claims_alone_is_left_alone() -> None:
    assert asked({"resources": {"claims": [{"name": "gpus"}]}}) is None


def test_beside_shares_whole_gpus_count() -> None:
    both = {"resources": {"limits": {GPU: "1", "nvidia.com/mig-1g.5gb": "3"}}}

    assert found(both).wish.steps == (ContainerRequest(gpus=1),)


@pytest.mark.parametrize("count", ["0", "", "-1", "0k", "two", "²", "9" * 10])
def test_what_is_no_number_of_devices_is_none(count: object) -> None:
    assert asked(container(count)) is None


def test_gpus_may_have_another_name() -> None:
    other = {"resources": {"limits": {"nvidia.com/gpu-h100": "2"}}}

    assert found(other, rules=Rules(gpu="nvidia.com/gpu-h100")).wish.steps == (
        ContainerRequest(gpus=2),
    )


@pytest.mark.parametrize("containers", [None, [], [{"resources": None}]])
def test_a_pod_without_containers_asks_for_nothing(containers: object) -> None:
    body = {"metadata": {"name": "p"}, "spec": {"containers": containers, "initContainers": None}}

    assert ask(Pod.from_object(body), RULES) is None


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("nvlink", Link.NVLINK),
        ("numa", Link.NUMA),
        ("any", Link.ANY),
        ("NVLINK", Link.ANY),
        ("", Link.ANY),
    ],
)
def test_the_link_wish_is_the_annotation_and_any_where_that_makes_no_sense(
    text: str, link: Link
) -> None:
    assert found(container("2"), annotations={"gpuscape.io/link": text}).wish.link is link


@pytest.mark.parametrize(
    ("annotations", "limits", "nic"),
    [
        ({"gpuscape.io/nic": "true"}, {}, True),
        ({"gpuscape.io/nic": "false"}, {}, False),
        ({}, {"rdma/hca": "1"}, True),
        ({}, {"rdma/hca": "0"}, False),
        ({}, {"rdma/other": "1"}, False),
    ],
)
def test_a_nic_is_wished_for_by_annotation_or_by_a_configured_resource(
    annotations: dict[str, str], limits: dict[str, str], nic: bool
) -> None:
    beside = {"resources": {"limits": limits}}

    assert found(container("2"), beside, annotations=annotations).wish.nic is nic


def owners(*controllers: bool) -> list[dict[str, Any]]:
    """Owner references, the last controller's UID being ``c``."""
    return [{"uid": "c" if it else "other", "controller": it} for it in controllers]


GROUP = "scheduling.x-k8s.io/pod-group"
SET = "jobset.sigs.k8s.io/jobset-name"
JOB = "batch.kubernetes.io/job-name"


@pytest.mark.parametrize(
    ("meta", "job"),
    [
        ({}, None),
        ({"ownerReferences": owners(False)}, None),
        ({"ownerReferences": owners(False, True)}, "c"),
        ({"ownerReferences": owners(True), "labels": {JOB: "j"}}, "c"),
        ({"ownerReferences": owners(True), "labels": {JOB: "j", SET: "s"}}, f"ns/{SET}/s"),
        ({"ownerReferences": owners(True), "labels": {GROUP: "g"}}, f"ns/{GROUP}/g"),
        ({"labels": {GROUP: "g", SET: "s"}}, f"ns/{SET}/s"),
        ({"labels": {GROUP: ""}}, None),
        ({"labels": {JOB: "j"}}, "ns/job-name/j"),
        ({"labels": {"job-name": "j"}}, "ns/job-name/j"),
    ],
)
def test_pods_of_one_job_have_that_in_common(meta: dict[str, Any], job: str | None) -> None:
    assert found(container("1"), **meta).job == job


def test_equal_wishes_are_one_object() -> None:
    assert found(container("2")).wish is found(container("2"), name="q").wish


def test_of_wishes_of_very_many_containers_none_is_remembered() -> None:
    """A pod may have thousands, and there may be many such pods."""
    many = [container("1")] * 17
    assert found(*many).wish == found(*many).wish
    assert found(*many).wish is not found(*many).wish
    assert found(*many[1:]).wish is found(*many[1:]).wish


@pytest.mark.parametrize(
    ("phase", "ended"), [("Succeeded", True), ("Failed", True), ("Running", False), (None, False)]
)
def test_a_pod_that_will_not_run_again_has_ended(phase: str | None, ended: bool) -> None:
    assert Pod.from_object({"status": {"phase": phase}}).is_finished is ended


def test_a_pod_was_bound_when_its_condition_says_so() -> None:
    def condition(status: str) -> dict[str, str]:
        at = "2026-11-21T10:00:00Z"
        return {"type": "PodScheduled", "status": status, "lastTransitionTime": at}

    def pod(*conditions: dict[str, str]) -> Pod:
        return Pod.from_object({"status": {"conditions": list(conditions)}})

    assert pod({"type": "Ready", "status": "True"}, condition("True")).bound_at
    assert pod(condition("False")).bound_at == ""
    assert pod().bound_at == ""


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([GPU, "rdma/hca", "cpu"]), st.text() | st.integers()))
def test_whatever_stands_for_a_quantity_nothing_breaks(limits: dict[str, Any]) -> None:
    wanted = asked({"resources": {"limits": limits}})

    assert wanted is None or wanted.wish.gpus > 0


@given(_ANYTHING)
def test_a_pod_of_any_shape_is_read_or_refused_as_such(body: Any) -> None:
    try:
        ask(Pod.from_object(body), RULES)
    except BadInput:
        return


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"kubernetes.io/arch": "amd64"}},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
    ],
)
def test_a_selector_changes_nothing_in_what_a_pod_asks_for(spec: dict[str, Any]) -> None:
    """Which nodes it leaves is up to the scheduler, whose candidates are all that counts."""
    assert found(container("2"), spec=spec) == found(container("2"))
