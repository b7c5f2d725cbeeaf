# SPDX-License-Identifier: Apache-2.0
"""The status of a MIG layout as it is written, read, and refused."""

from __future__ import annotations

import json

import jsonschema
import pytest

from api import limits, mig_request_annotation, mig_status_annotation
from api.mig_status_annotation import (
    MOST_CHARACTERS,
    MOST_DESIRED,
    MOST_PODS,
    MOST_REASON,
    GpuChangeStatus,
    MigPhase,
    MigStatusAnnotation,
    RequestSource,
    decode,
    encode,
    json_schema,
)
from base.errors import BadInput

PLANNED = MigStatusAnnotation(
    v=2,
    phase=MigPhase.PLANNED,
    since="2026-11-23T12:00:00Z",
    source=RequestSource.ANNOTATION,
    desired="all-balanced",
    plan="0123456789abcdef",
    gpus=(GpuChangeStatus(gpu=3, keep=1, destroy=2, create=3),),
    pods=("team/job",),
)


def test_the_keys_and_their_shapes_are_the_published_ones() -> None:
    text = encode(PLANNED)
    assert json.loads(text) == {
        "v": 2,
        "phase": "planned",
        "since": "2026-11-23T12:00:00Z",
        "source": "annotation",
        "desired": "all-balanced",
        "plan": "0123456789abcdef",
        "gpus": [{"gpu": 3, "keep": 1, "destroy": 2, "create": 3}],
        "pods": ["team/job"],
    }
    jsonschema.validate(json.loads(text), json_schema())
    assert decode(text) == PLANNED


def test_a_phase_of_a_newer_agent_is_read_and_another_version_is_no_data() -> None:
    newer = decode('{"v":2,"phase":"rebooting","step":7}')
    assert newer is not None
    assert newer.phase == "rebooting"
    assert decode('{"v":3,"phase":"idle"}') is None


@pytest.mark.parametrize(
    "text", ["", "[]", '{"v":2}', '{"v":2,"phase":"A b"}', '{"v":2,"phase":"idle","gpus":7}']
)
def test_a_damaged_one_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadInput, match=r"annotation gpuscape\.io/mig-status is damaged"):
        decode(text)


def test_the_longest_one_fits_into_what_a_node_may_have() -> None:
    """Sixteen GPUs, the longest names of pods and texts."""
    longest = MigStatusAnnotation(
        v=2,
        phase=MigPhase.UNADOPTED,
        since="2026-11-23T12:00:00Z",
        source=RequestSource.ANNOTATION,
        desired="w" * MOST_DESIRED,
        reason="w" * MOST_REASON,
        plan="f" * 16,
        gpus=tuple(
            GpuChangeStatus(gpu=at, keep=7, destroy=7, create=7, mig=True) for at in range(16)
        ),
        pods=(f"{'n' * 20}/{'p' * 60}",) * MOST_PODS,
        more_pods=999,
        request="f" * 16,
        outcome="cancelled",
        unadopted="u" * 63,
    )
    text = encode(longest)
    assert decode(text) == longest
    assert len(text) <= MOST_CHARACTERS
    most_together = mig_request_annotation.MOST_CHARACTERS + limits.MOST_IDLE_ANNOTATION_BYTES
    assert MOST_CHARACTERS + most_together <= limits.MOST_ANNOTATION_CHARACTERS
    assert mig_status_annotation.FORMAT.most_length == MOST_CHARACTERS
