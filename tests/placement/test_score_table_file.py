# SPDX-License-Identifier: Apache-2.0
"""What a reader of a score table file finds in it."""

from __future__ import annotations

import hashlib
import json

import msgspec
import pytest

from api.gpu_request import gpu_request
from base.errors import BadInput
from tests.placement.score_table_file import ScoreRow, ScoreTableFile, decode, encode, with_hash

TABLE = with_hash(
    ScoreTableFile(
        gen="a" * 16,
        rows=(
            ScoreRow(
                wish=gpu_request(1),
                free=(1, 2, 3),
                scores=(10, 20, 30),
                speeds=(1, 2, 3),
                sets=(1, 2, 1),
                best=3,
            ),
            ScoreRow(wish=gpu_request(2), free=(3,), scores=(70,), speeds=(7,), sets=(3,), best=9),
        ),
    )
)


def test_a_score_is_that_of_the_wish_and_of_the_free_gpus() -> None:
    assert [TABLE.score(free, gpu_request(1)) for free in (1, 2, 3)] == [10, 20, 30]
    assert TABLE.score(3, gpu_request(2)) == 70


def test_a_speed_is_that_of_the_wish_and_of_the_free_gpus() -> None:
    assert [TABLE.score_and_speed(free, gpu_request(1)) for free in (1, 3)] == [(10, 1), (30, 3)]
    assert TABLE.score_and_speed(1, gpu_request(2)) == (0, 0)


def test_a_set_of_free_gpus_that_serves_no_such_pod_scores_nothing() -> None:
    assert TABLE.score(1, gpu_request(2)) == 0


def test_of_a_wish_that_is_not_in_the_table_nothing_is_known() -> None:
    assert TABLE.score(3, gpu_request(1, 1)) is None


@pytest.mark.parametrize("column", ["free", "scores", "speeds", "sets"])
def test_a_row_whose_columns_do_not_belong_together_is_refused(column: str) -> None:
    """Else a score would be that of another set of free GPUs, or looking it up would fail."""
    row = msgspec.structs.replace(TABLE.rows[0], **{column: (1, 2)})
    table = with_hash(msgspec.structs.replace(TABLE, rows=(TABLE.rows[1], row)))

    with pytest.raises(BadInput) as refused:
        decode(encode(table))
    assert str(refused.value) == (
        "score table is damaged: the columns of `rows[1]` differ in length;"
        " delete the file and it is written again"
    )


def test_the_hash_is_of_the_file_with_an_empty_hash() -> None:
    """Computed from the bytes as any reader would, without the product's own types."""
    content = {**json.loads(encode(TABLE)), "hash": ""}
    plain = json.dumps(content, separators=(",", ":")).encode()
    assert TABLE.hash == hashlib.sha256(plain).hexdigest()[:16]
    assert with_hash(TABLE) == TABLE


def test_a_table_that_was_edited_by_hand_is_refused() -> None:
    edited = encode(TABLE).replace(b"70", b"71")
    with pytest.raises(BadInput) as refused:
        decode(edited)
    assert str(refused.value) == (
        "score table is damaged: `hash` is not that of its content;"
        " delete the file and it is written again"
    )
    assert decode(encode(TABLE)) == TABLE


def test_a_table_of_another_version_is_not_read() -> None:
    assert decode(encode(TABLE).replace(b'"v":3', b'"v":4')) is None
    assert msgspec.json.decode(encode(TABLE))["v"] == 3
