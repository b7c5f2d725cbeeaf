# SPDX-License-Identifier: Apache-2.0
"""A request for a MIG change and its permit as they are written, read, and refused."""

from __future__ import annotations

import json

import jsonschema
import msgspec
import pytest

from api import mig_permit_annotation, mig_request_annotation
from api.mig_permit_annotation import MigPermitAnnotation, PermitPhase
from api.mig_request_annotation import MOST_CHARACTERS, MOST_PODS, MigRequestAnnotation
from api.state_annotation import pod_key
from base.errors import BadInput

REQUEST = MigRequestAnnotation(
    v=2,
    request="00112233445566ff",
    plan="0123456789abcdef",
    gpus=(4, 5),
    pods=(pod_key("team", "job"),),
    other_pods=(pod_key("team", "other"),),
    allocatable={"nvidia.com/mig-1g.10gb": 7},
)
PERMIT = MigPermitAnnotation(
    v=2, request=REQUEST.request, phase=PermitPhase.CORDONED, owns_cordon=True
)


def test_the_keys_of_a_request_are_the_published_ones() -> None:
    text = mig_request_annotation.encode(REQUEST)
    assert json.loads(text) == {
        "v": 2,
        "request": "00112233445566ff",
        "plan": "0123456789abcdef",
        "gpus": [4, 5],
        "pods": ["cf2ba7bc"],
        "other_pods": ["ff6e3109"],
        "allocatable": {"nvidia.com/mig-1g.10gb": 7},
    }
    jsonschema.validate(json.loads(text), mig_request_annotation.json_schema())
    assert mig_request_annotation.decode(text) == REQUEST


def test_the_keys_of_a_permit_are_the_published_ones() -> None:
    text = mig_permit_annotation.encode(PERMIT)
    expected = {"v": 2, "request": "00112233445566ff", "phase": "cordoned", "owns_cordon": True}
    assert json.loads(text) == expected
    jsonschema.validate(json.loads(text), mig_permit_annotation.json_schema())
    assert mig_permit_annotation.decode(text) == PERMIT


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"v":2}',
        '{"v":2,"request":"x","plan":"0123456789abcdef","gpus":[1]}',
        '{"v":2,"request":"00112233445566ff","plan":"0123456789abcdef","gpus":[]}',
        '{"v":2,"request":"00112233445566ff","plan":"0123456789abcdef","gpus":[1],"pods":["a/b"]}',
    ],
)
def test_a_damaged_request_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadInput, match=r"annotation gpuscape\.io/mig-request is damaged"):
        mig_request_annotation.decode(text)


@pytest.mark.parametrize(
    "text",
    [
        "proceed",
        '{"v":2,"phase":"proceed"}',
        '{"v":2,"request":"00112233445566ff","phase":"go"}',
        '{"v":2,"request":"00112233445566FF","phase":"proceed"}',
    ],
)
def test_a_damaged_permit_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadInput, match=r"annotation gpuscape\.io/mig-permit is damaged"):
        mig_permit_annotation.decode(text)


def test_another_version_is_no_data() -> None:
    assert mig_permit_annotation.decode('{"v":1,"phase":"go"}') is None
    assert mig_request_annotation.decode('{"v":1}') is None


def test_the_longest_request_is_within_its_bound() -> None:
    pods = tuple(pod_key("n", str(at)) for at in range(MOST_PODS))
    longest = MigRequestAnnotation(
        v=2,
        request="f" * 16,
        plan="f" * 16,
        gpus=tuple(range(16)),
        modes=True,
        pods=pods[: MOST_PODS // 2],
        other_pods=pods[MOST_PODS // 2 :],
        unlisted=999,
        allocatable={f"nvidia.com/mig-1c.{size}g.100gb.me": 112 for size in range(8)},
    )
    text = mig_request_annotation.encode(longest)
    assert mig_request_annotation.decode(text) == longest
    assert len(text) <= MOST_CHARACTERS
    one_more = msgspec.structs.replace(longest, other_pods=pods[MOST_PODS // 2 - 1 :])
    with pytest.raises(BadInput, match="pods and other_pods are more than 64 together"):
        mig_request_annotation.decode(mig_request_annotation.encode(one_more))


def test_no_two_requests_have_one_id() -> None:
    ids = {mig_request_annotation.new_request_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(MigPermitAnnotation(v=2, request=one, phase=PermitPhase.PROCEED) for one in ids)
