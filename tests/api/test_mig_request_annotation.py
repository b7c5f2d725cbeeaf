# SPDX-License-Identifier: Apache-2.0
"""A request for a MIG change and its grant as they are written, read, and refused."""

from __future__ import annotations

import json

import jsonschema
import msgspec
import pytest

from api import mig_grant_annotation, mig_request_annotation
from api.mig_grant_annotation import GrantPhase, MigGrantAnnotation
from api.mig_request_annotation import MOST_CHARACTERS, MOST_PODS, MigRequestAnnotation
from api.state_annotation import pod_key
from base.errors import BadInput

REQUEST = MigRequestAnnotation(
    v=1,
    request="00112233445566ff",
    plan="0123456789abcdef",
    gpus=(4, 5),
    pods=(pod_key("team", "job"),),
    others=(pod_key("team", "other"),),
    offers={"nvidia.com/mig-1g.10gb": 7},
)
GRANT = MigGrantAnnotation(v=1, request=REQUEST.request, phase=GrantPhase.HOLD, cordoned=True)


def test_the_keys_of_a_request_are_the_published_ones() -> None:
    text = mig_request_annotation.encode(REQUEST)
    assert json.loads(text) == {
        "v": 1,
        "request": "00112233445566ff",
        "plan": "0123456789abcdef",
        "gpus": [4, 5],
        "pods": ["cf2ba7bc"],
        "others": ["ff6e3109"],
        "offers": {"nvidia.com/mig-1g.10gb": 7},
    }
    jsonschema.validate(json.loads(text), mig_request_annotation.json_schema())
    assert mig_request_annotation.decode(text) == REQUEST


def test_the_keys_of_a_grant_are_the_published_ones() -> None:
    text = mig_grant_annotation.encode(GRANT)
    wanted = {"v": 1, "request": "00112233445566ff", "phase": "hold", "cordoned": True}
    assert json.loads(text) == wanted
    jsonschema.validate(json.loads(text), mig_grant_annotation.json_schema())
    assert mig_grant_annotation.decode(text) == GRANT


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"v":1}',
        '{"v":1,"request":"x","plan":"0123456789abcdef","gpus":[1]}',
        '{"v":1,"request":"00112233445566ff","plan":"0123456789abcdef","gpus":[]}',
        '{"v":1,"request":"00112233445566ff","plan":"0123456789abcdef","gpus":[1],"pods":["a/b"]}',
    ],
)
def test_a_damaged_request_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadInput, match=r"annotation gpuscape\.io/mig-request is damaged"):
        mig_request_annotation.decode(text)


@pytest.mark.parametrize(
    "text",
    [
        "go",
        '{"v":1,"phase":"go"}',
        '{"v":1,"request":"00112233445566ff","phase":"GO"}',
        '{"v":1,"request":"00112233445566FF","phase":"go"}',
    ],
)
def test_a_damaged_grant_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadInput, match=r"annotation gpuscape\.io/mig-grant is damaged"):
        mig_grant_annotation.decode(text)


def test_another_version_is_no_data() -> None:
    assert mig_grant_annotation.decode('{"v":2,"phase":"run"}') is None
    assert mig_request_annotation.decode('{"v":2}') is None


def test_the_longest_request_is_within_its_bound() -> None:
    pods = tuple(pod_key("n", str(at)) for at in range(MOST_PODS))
    longest = MigRequestAnnotation(
        v=1,
        request="f" * 16,
        plan="f" * 16,
        gpus=tuple(range(16)),
        modes=True,
        pods=pods[: MOST_PODS // 2],
        others=pods[MOST_PODS // 2 :],
        unlisted=999,
        offers={f"nvidia.com/mig-1c.{size}g.100gb.me": 112 for size in range(8)},
    )
    text = mig_request_annotation.encode(longest)
    assert mig_request_annotation.decode(text) == longest
    assert len(text) <= MOST_CHARACTERS
    one_more = msgspec.structs.replace(longest, others=pods[MOST_PODS // 2 - 1 :])
    with pytest.raises(BadInput, match="pods and others are more than 64 together"):
        mig_request_annotation.decode(mig_request_annotation.encode(one_more))


def test_no_two_requests_have_one_id() -> None:
    ids = {mig_request_annotation.new_request_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(MigGrantAnnotation(v=1, request=one, phase=GrantPhase.GO) for one in ids)
