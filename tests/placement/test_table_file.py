# SPDX-License-Identifier: Apache-2.0
"""What score table files hold of a table, and fronts that only look up in them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from api.gpu_request import GpuRequest, Link, gpu_request
from base.errors import BadInput
from placement.score import (
    completed_score,
    relative_speed,
    with_fullness,
    with_speed,
    without_filling,
    without_sparing,
)
from placement.score_table import ScoreTable
from scheduler.product_turns import product_aims
from scheduler.rank_levels import ranks
from tests.goldens import Goldens
from tests.placement.score_table_file import ScoreTableFile, decode, encode
from tests.placement.table_file import all_gpu_requests, table_file
from tests.scheduler.corpus import Case, Corpus, corpus, counted
from tests.scheduler.shapes import drawn

GEN = "0123456789"


@pytest.fixture(scope="module")
def table() -> ScoreTable:
    """One pair, and a GPU without links; full."""
    table = ScoreTable(drawn(3, {(0, 1): 300}))
    table.fill(all_gpu_requests(3))
    return table


def test_a_file_has_what_the_table_has(table: ScoreTable) -> None:
    written = table_file(GEN, table.outcomes(), table.best_speed)
    for asked in all_gpu_requests(3):
        for free in range(8):
            assert written.score(free, asked) == table.outcome(free, asked).score
    assert written.score(0b1, gpu_request(1, 1)) is None


def test_every_wish_is_one_of_a_single_container() -> None:
    assert len(set(all_gpu_requests(8))) == 8 * len(Link) * 2


def test_a_file_is_read_as_it_was_written(table: ScoreTable) -> None:
    written = table_file(GEN, table.outcomes(), table.best_speed)
    assert decode(encode(written)) == written


def test_the_likeliest_set_of_each_mask_is_there(table: ScoreTable) -> None:
    row = next(
        row
        for row in table_file(GEN, table.outcomes(), table.best_speed).rows
        if row.wish == gpu_request(2)
    )
    assert dict(zip(row.free, row.sets, strict=True)) == {
        0b011: 0b011, 0b101: 0b101, 0b110: 0b110, 0b111: 0b011
    }  # fmt: skip


def test_the_order_in_which_outcomes_were_worked_out_does_not_show(table: ScoreTable) -> None:
    backwards = dict(reversed(list(table.outcomes().items())))
    assert encode(table_file(GEN, backwards, table.best_speed)) == encode(
        table_file(GEN, table.outcomes(), table.best_speed)
    )


def test_another_table_has_another_hash(table: ScoreTable) -> None:
    fewer = dict(list(table.outcomes().items())[:-1])
    assert (
        table_file(GEN, fewer, table.best_speed).hash
        != table_file(GEN, table.outcomes(), table.best_speed).hash
    )


def test_a_file_that_was_changed_is_refused(table: ScoreTable) -> None:
    changed = msgspec.structs.replace(
        table_file(GEN, table.outcomes(), table.best_speed), gen="9876543210"
    )
    with pytest.raises(BadInput, match="hash"):
        decode(encode(changed))


class _FileTable:
    """The file of one class, as far as counts of products need it."""

    def __init__(self, file: ScoreTableFile) -> None:
        self._best = {row.wish: row.best for row in file.rows}

    def known_best_speed(self, wish: GpuRequest) -> int | None:
        return self._best.get(wish)


class _FileTables:
    def __init__(self, files: Mapping[str, ScoreTableFile]) -> None:
        self._tables = {gen: _FileTable(file) for gen, file in files.items()}

    def find(self, gen: str) -> _FileTable | None:
        return self._tables.get(gen)


def looked_up(
    case: Case, files: Mapping[str, ScoreTableFile], sizes: Mapping[str, int]
) -> list[int]:
    """What a front without scoring logic answers: it keeps counts, and reads the files."""
    fleet, tables = counted(case.products, sizes), _FileTables(files)
    products = {node.product: node.gen for node in case.nodes}
    aims = product_aims(case.wish, products, fleet, tables)
    scores = []
    for node in case.nodes:
        score, speed = files[node.gen].score_and_speed(node.free, case.wish) or (0, 0)
        if score:
            its = aims[node.product]
            score = with_speed(score, relative_speed(speed, its.best_speed))
            score = score if its.fills else without_filling(score)
            score = score if its.spares else without_sparing(score)
            if its.fullest:
                left = node.free.bit_count() - case.wish.gpus
                score = with_fullness(score, 1 - left / sizes[node.gen])
            score = completed_score(score, share=its.share, in_clique=node.clique)
        scores.append(score)
    return [
        max(1, rank - 1) if rank and not node.sure else rank
        for node, rank in zip(case.nodes, ranks(scores), strict=True)
    ]


def test_a_front_that_only_looks_up_answers_the_corpus_as_the_judge_does(goldens: Goldens) -> None:
    """Golden: a changed score or rank shows in the review."""
    written = msgspec.json.encode(corpus())
    goldens.check_text("scheduler/corpus.json", written.decode() + "\n")
    read = msgspec.json.decode(written, type=Corpus)
    files = {each.gen: each for each in read.tables}
    for case in read.cases:
        assert looked_up(case, files, read.sizes) == [node.rank for node in case.nodes]
    assert {node.rank for case in read.cases for node in case.nodes} >= {*range(11)} - {7}
