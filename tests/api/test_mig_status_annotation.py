# SPDX-License-Identifier: Apache-2.0
"""The status of a MIG layout as it is written, read, and refused."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec
import pytest

from api import limits, mig_request_annotation, mig_status_annotation
from api.mig_status_annotation import (
    MOST_CHARACTERS,
    MOST_DESIRED,
    MOST_GPU_REASON,
    MOST_PODS,
    MOST_REASON,
    GpuChangeStatus,
    GpuOutcomeStatus,
    MigPhase,
    MigStatusAnnotation,
    RequestSource,
    decode,
    encode,
    failed_text,
    json_schema,
    with_fitting_outcomes,
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


def longest_status() -> MigStatusAnnotation:
    """Sixteen GPUs, the longest names of pods and texts."""
    return MigStatusAnnotation(
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


def test_the_longest_one_fits_into_what_a_node_may_have() -> None:
    longest = longest_status()
    text = encode(longest)
    assert decode(text) == longest
    assert len(text) <= MOST_CHARACTERS
    most_together = mig_request_annotation.MOST_CHARACTERS + limits.MOST_IDLE_ANNOTATION_BYTES
    assert MOST_CHARACTERS + most_together <= limits.MOST_ANNOTATION_CHARACTERS
    assert mig_status_annotation.FORMAT.most_length == MOST_CHARACTERS


FAILED = msgspec.structs.replace(
    PLANNED,
    outcomes=(
        GpuOutcomeStatus(gpu=0, outcome="applied"),
        GpuOutcomeStatus(gpu=1, outcome="rolled-back", reason="no room"),
        GpuOutcomeStatus(gpu=2, outcome="rolled-back", reason="no room"),
        GpuOutcomeStatus(gpu=7, outcome="stuck", reason="it is lost"),
    ),
)


_EARLIER = {"v": int, "phase": str, "gpus": tuple[GpuChangeStatus, ...], "pods": tuple[str, ...]}
"""A part of the keys that readers of 0.1.0 know."""


def test_outcomes_of_gpus_have_the_published_shape_and_an_earlier_reader_passes_over_them() -> None:
    text = encode(FAILED)
    document = json.loads(text)
    assert document["v"] == 2
    assert document["outcomes"] == [
        {"gpu": 0, "outcome": "applied"},
        {"gpu": 1, "outcome": "rolled-back", "reason": "no room"},
        {"gpu": 2, "outcome": "rolled-back", "reason": "no room"},
        {"gpu": 7, "outcome": "stuck", "reason": "it is lost"},
    ]
    jsonschema.validate(document, json_schema())
    assert decode(text) == FAILED
    earlier = msgspec.defstruct("Earlier", list(_EARLIER.items()))
    read: Any = msgspec.json.decode(text, type=earlier)
    assert (read.phase, len(read.gpus), read.pods) == ("planned", 1, ("team/job",))


def test_gpus_that_failed_are_named_by_index_the_stuck_ones_first() -> None:
    assert failed_text(FAILED) == "GPU 7 stuck, GPU 1-2 rolled-back"
    assert failed_text(PLANNED) == ""


@pytest.mark.parametrize("reason", ["r" * MOST_GPU_REASON, '"' * MOST_GPU_REASON, ""])
@pytest.mark.parametrize("is_long", [False, True])
def test_sixteen_outcomes_with_long_reasons_fit_and_the_worst_ones_stay(
    reason: str, *, is_long: bool
) -> None:
    outcomes = tuple(
        GpuOutcomeStatus(gpu=gpu, outcome="stuck" if gpu == 9 else how, reason=reason)
        for gpu, how in enumerate(("applied", "rolled-back") * 8)
    )
    base = msgspec.structs.replace(longest_status(), since="", unadopted="") if is_long else PLANNED
    fitting = with_fitting_outcomes(msgspec.structs.replace(base, outcomes=outcomes))
    last = msgspec.structs.replace(
        fitting,
        since="2026-11-23T12:00:00Z",
        current_since="2026-11-23T12:00:00Z",
        unadopted="u" * 63,
    )
    assert len(encode(last)) <= MOST_CHARACTERS
    kept = [gpu.gpu for gpu in fitting.outcomes]
    assert kept == sorted(kept)
    named = len(fitting.pods)
    assert named + fitting.more_pods == len(base.pods) + base.more_pods
    unfitted = {"outcomes": (), "pods": base.pods, "more_pods": base.more_pods}
    assert msgspec.structs.replace(fitting, **unfitted) == base
    assert 9 in kept
    failed = {gpu for gpu in range(16) if outcomes[gpu].outcome != "applied"}
    assert failed <= set(kept)
    assert is_long or (len(kept), named) == (16, 1)


@pytest.mark.parametrize("pod_length", range(10, 320, 10))
def test_outcomes_are_cut_no_more_than_needed(pod_length: int) -> None:
    """Reasons first, then names of pods, then GPUs that did not fail."""
    base = msgspec.structs.replace(FAILED, pods=("p" * pod_length,) * MOST_PODS)
    fitting = with_fitting_outcomes(base)
    room = MOST_CHARACTERS - 160
    assert len(encode(fitting)) <= room
    assert (fitting == base) == (len(encode(base)) <= room)
    assert [gpu.gpu for gpu in fitting.outcomes] == [0, 1, 2, 7]
    has_fewer_pods = len(fitting.pods) < MOST_PODS
    assert not has_fewer_pods or not any(gpu.reason for gpu in fitting.outcomes)


def test_where_not_all_gpus_have_room_those_that_did_not_fail_are_left_out_first() -> None:
    hows = ["applied", "rolled-back"] * 28
    hows[30] = "stuck"
    outcomes = tuple(GpuOutcomeStatus(gpu=gpu, outcome=how) for gpu, how in enumerate(hows))
    base = msgspec.structs.replace(longest_status(), since="", unadopted="", outcomes=outcomes)
    kept = with_fitting_outcomes(base).outcomes
    assert 0 < len(kept) < 28
    assert {gpu.outcome for gpu in kept} == {"stuck", "rolled-back"}
    back = [gpu.gpu for gpu in kept if gpu.outcome == "rolled-back"]
    assert back == [gpu for gpu, how in enumerate(hows) if how == "rolled-back"][: len(back)]
