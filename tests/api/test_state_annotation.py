# SPDX-License-Identifier: Apache-2.0
"""The state annotation as it is decided, written, read, and refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.state_annotation import StateAnnotation, decode, encode, json_schema, pod_key
from base.errors import BadInput
from discovery.model import GpuSnapshot, GpuState, NodeSnapshot, RemappedRows, Xid
from labelers.annotations import state_of
from tests import build

GEN = "9f31c07ab2"
EIGHT = build.node([build.gpu(at) for at in range(8)])
JOB = ("team", "job-0")


def buses(*at: int) -> frozenset[str]:
    """Bus ids of these GPUs."""
    return frozenset(build.gpu(each).bus_id for each in at)


def of(
    snapshot: NodeSnapshot = EIGHT,
    *,
    whole: frozenset[str] = buses(*range(8)),
    pods: Mapping[tuple[str, str], frozenset[str]] | None = None,
    before: StateAnnotation | None = None,
) -> StateAnnotation:
    """The state of a node whose GPUs are all offered."""
    return state_of(snapshot, gen=GEN, whole=whole, pods=pods or {}, before=before)


def test_the_keys_and_their_shapes_are_the_published_ones() -> None:
    """As the design has it: two pods, one of them with two GPUs."""
    pods = {JOB: buses(0, 1), ("team", "job-1"): buses(3)}

    text = encode(of(pods=pods))

    assert text == (
        '{"v":1,"gen":"9f31c07ab2","seq":0,"ok":"ff","used":"0b",'
        '"pods":{"c8a44d05":"08","dc451086":"03"}}'
    )


@pytest.mark.parametrize(
    ("gpus", "digits"),
    [(0, "0"), (1, "1"), (4, "f"), (5, "1f"), (8, "ff"), (9, "1ff"), (16, "ffff")],
)
def test_masks_have_a_digit_for_every_four_gpus(gpus: int, digits: str) -> None:
    """One at least, so that a mask is always a number."""
    node = build.node([build.gpu(at) for at in range(gpus)])

    assert of(node, whole=buses(*range(gpus))).ok == digits


def test_the_lowest_bit_is_the_first_gpu_on_the_bus() -> None:
    """Whatever its index."""
    node = build.node([build.gpu(0, index=1), build.gpu(1, index=0)])

    assert of(node, pods={JOB: buses(0)}).used == "1"


@pytest.mark.parametrize(
    ("gpu", "ok"),
    [
        (build.gpu(0), True),
        (build.gpu(0, recovery_action=3), True),  # degraded: it works, and pods get it
        (build.gpu(0, recovery_action=1), False),
        (build.gpu(0, xids=(Xid(code=79, count=1),)), False),
        (
            build.gpu(
                0,
                remapped_rows=RemappedRows(
                    correctable=0, uncorrectable=0, pending=False, failed=True
                ),
            ),
            False,
        ),
        (build.gpu(0, mig=build.SPLIT), False),
        (build.silent(0, GpuState.LOST), False),
        (build.silent(0, GpuState.HUNG), False),
        (build.silent(0, GpuState.UNREADABLE), False),
    ],
)
def test_a_gpu_is_ok_that_works_and_can_be_had_whole(gpu: GpuSnapshot, ok: bool) -> None:
    """It is offered in every case."""
    assert of(build.node([gpu])).ok == ("1" if ok else "0")


def test_a_gpu_that_no_device_plugin_offers_whole_is_not_ok() -> None:
    """Shared, claimed by DRA, or the device plugin is away."""
    assert of(whole=buses(1, 2)).ok == "06"


def test_used_gpus_are_still_ok() -> None:
    """What is free is what is ok and not used."""
    now = of(whole=buses(0, 1, 2), pods={JOB: buses(1, 7)})

    assert (now.ok, now.used, now.free) == ("07", "82", 0b101)


def test_pods_with_one_key_are_one() -> None:
    """Two names may have the same hash: it has the GPUs of both."""
    pods = {("a", "b/c"): buses(0), ("a/b", "c"): buses(2)}

    assert of(pods=pods).pods == {pod_key("a", "b/c"): "05"}


def test_the_order_of_pods_makes_no_change() -> None:
    """Neither of the text nor of seq."""
    pods = {("team", f"job-{at}"): buses(at) for at in range(8)}
    before = of(pods=pods)

    now = of(pods=dict(reversed(pods.items())), before=before)

    assert encode(now) == encode(before)


@pytest.mark.parametrize(
    "change",
    [
        {"pods": {JOB: buses(1)}},
        {"pods": {("team", "job-9"): buses(0)}},
        {"whole": buses(0)},
        {"snapshot": build.node([build.silent(0), *EIGHT.gpus[1:]])},
    ],
)
def test_seq_grows_by_one_with_a_change(change: dict[str, Any]) -> None:
    """And stays without one."""
    plain: dict[str, Any] = {"snapshot": EIGHT, "pods": {JOB: buses(0)}}
    before = of(**plain, before=replace_seq(of(**plain), 1187))

    assert before.seq == 1187
    assert of(**{**plain, **change}, before=before).seq == 1188


def replace_seq(of: StateAnnotation, seq: int) -> StateAnnotation:
    """The same with another seq."""
    return StateAnnotation(v=1, gen=of.gen, seq=seq, ok=of.ok, used=of.used, pods=of.pods)


def test_seq_starts_again_after_the_largest() -> None:
    """Which only somebody's hand can have written."""
    before = replace_seq(of(), 2**53 - 1)

    now = of(whole=buses(), before=before)

    assert now.seq == 0
    assert decode(encode(now)) == now


gpu_sets = st.frozensets(st.integers(0, 9)).map(lambda at: buses(*at))
names = st.text(st.characters(codec="utf-8"), max_size=8)


@given(
    st.integers(0, 9),
    gpu_sets,
    st.dictionaries(st.tuples(names, names), gpu_sets, max_size=5),
    st.integers(0, 2**53 - 1),
)
def test_what_is_written_is_read_again(
    gpus: int,
    whole: frozenset[str],
    pods: dict[tuple[str, str], frozenset[str]],
    seq: int,
) -> None:
    """By us, and by whoever goes by the published schema; free GPUs are ok and not used."""
    node = build.node([build.gpu(at) for at in range(gpus)])
    wanted = replace_seq(of(node, whole=whole, pods=pods), seq)

    text = encode(wanted)

    assert decode(text) == wanted
    jsonschema.validate(json.loads(text), json_schema())
    assert wanted.free & int(wanted.used, 16) == 0
    assert wanted.free | (int(wanted.ok, 16) & int(wanted.used, 16)) == int(wanted.ok, 16)


GOOD = encode(of(pods={JOB: buses(0)}))


def changed(**keys: Any) -> str:
    """The annotation with these keys set; a key set to ``...`` is left out."""
    content = json.loads(GOOD) | keys
    return json.dumps({key: value for key, value in content.items() if value is not ...})


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (changed(gen=...), "`gen`"),
        (changed(gen="9F31c07ab2"), "`$.gen`"),
        (changed(gen="9f31c07ab2\n"), "`gen`"),
        (changed(seq=-1), "`$.seq`"),
        (changed(seq=1.5), "`$.seq`"),
        (changed(seq=2**53), "`$.seq`"),
        (changed(ok=255), "`$.ok`"),
        (changed(ok="0xff"), "`$.ok`"),
        (changed(ok=""), "`$.ok`"),
        (changed(ok="f" * 257), "`$.ok`"),
        (changed(ok="ff\n"), "`ok`"),
        (changed(used="f"), "`used`"),
        (changed(used="fff"), "`used`"),
        (changed(pods=[]), "`$.pods`"),
        (changed(pods={"team/job": "01"}), "`$.pods`"),
        (changed(pods={"2c59dedc\n": "01"}), "`pods`"),
        (changed(pods={"2c59dedc": 1}), "`$.pods[...]`"),
        (changed(pods={"2c59dedc": "1"}), "`pods.2c59dedc`"),
        (changed(pods={"2c59dedc": "01\n"}), "`pods.2c59dedc`"),
    ],
)
def test_a_damaged_annotation_is_refused_by_the_key(text: str, key: str) -> None:
    """With what to do about it."""
    with pytest.raises(BadInput, match=r"annotation gpuscape\.io/state is damaged") as caught:
        decode(text)

    assert key in str(caught.value)
    assert str(caught.value).endswith("; delete it and the agent writes it again")
