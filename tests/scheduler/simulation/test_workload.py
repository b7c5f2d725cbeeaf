# SPDX-License-Identifier: Apache-2.0
"""Workloads from files are read as they are written, or refused by line; drawn ones repeat."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from api.gpu_request import Link, gpu_request
from base.errors import BadInput
from scheduler.simulation.workload import (
    PUBLISHED,
    USUAL,
    Arrival,
    Mix,
    drawn_arrivals,
    read_arrivals,
)
from tests.scheduler.simulated import seeded

HEADER = "submit_seconds,duration_seconds,gpus"


def pods(mix: Mix, seed: int = 1) -> tuple[Arrival, ...]:
    return drawn_arrivals(mix, 512, seeded(seed))


def test_pods_of_a_file_come_in_the_order_of_time() -> None:
    found = read_arrivals(f"{HEADER}\n5,60,2\n1.5,30,1\n", "pods.csv")
    assert found == (
        Arrival(at_seconds=1.5, lasts_seconds=30, wish=gpu_request(1)),
        Arrival(at_seconds=5, lasts_seconds=60, wish=gpu_request(2)),
    )


def test_wishes_are_read_and_other_columns_passed_over() -> None:
    text = "name,gpus,nic,link,submit_seconds,duration_seconds\na,4,true,nvlink,0,1\nb,1,,,0,1\n"
    assert [each.wish for each in read_arrivals(text, "pods.csv")] == [
        gpu_request(4, link=Link.NVLINK, nic=True),
        gpu_request(1),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "pods.csv:1: no column submit_seconds, duration_seconds, gpus"),
        ("gpus,submit_seconds\n1,2\n", "pods.csv:1: no column duration_seconds"),
        (f"{HEADER}\n", "pods.csv has no pods"),
        (f"{HEADER}\n0,1,1\n0,1,two\n", "pods.csv:3: gpus is 'two'"),
        (f"{HEADER}\n0,1,1.5\n", "pods.csv:2: gpus is '1.5'"),
        (f"{HEADER}\n0,1,0\n", "pods.csv:2: gpus is '0'"),
        (f"{HEADER}\n0,1,1025\n", "pods.csv:2: gpus is '1025'"),
        (f"{HEADER}\n-1,1,1\n", "pods.csv:2: submit_seconds is '-1'"),
        (f"{HEADER}\n0,inf,1\n", "pods.csv:2: duration_seconds is 'inf'"),
        (f"{HEADER}\n0,nan,1\n", "pods.csv:2: duration_seconds is 'nan'"),
        (f"{HEADER}\n0,1\n", "pods.csv:2: gpus is ''"),
        (f"{HEADER},link\n0,1,1,fast\n", "pods.csv:2: link is 'fast', not one of any, numa"),
        (f"{HEADER},nic\n0,1,1,yes\n", "pods.csv:2: nic is 'yes'"),
        (f"{HEADER}\n0,1,{'1' * 200_000}\n", "pods.csv:2: not CSV"),
    ],
)
def test_a_bad_line_is_named_with_its_column(text: str, said: str) -> None:
    with pytest.raises(BadInput) as error:
        read_arrivals(text, "pods.csv")
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "",
            "f:1: no column submit_seconds, duration_seconds, gpus; name it in the first line",
        ),
        (f"{HEADER}\n", "f has no pods: give one a line"),
        (f"{HEADER}\n0,1,1025\n", "f:2: gpus is '1025', not a whole number of 1 to 1024"),
        (f"{HEADER}\n0,1,x\n", "f:2: gpus is 'x', not a number of 0 or more"),
        (f"{HEADER},link\n0,1,1,a\n", "f:2: link is 'a', not one of any, numa, nvlink"),
        (f"{HEADER},nic\n0,1,1,yes\n", "f:2: nic is 'yes', not true or false"),
    ],
)
def test_a_refusal_of_a_workload_is_one_whole_sentence(text: str, sentence: str) -> None:
    with pytest.raises(BadInput) as error:
        read_arrivals(text, "f")
    assert str(error.value) == sentence


def test_a_pod_may_come_at_once_last_no_time_and_ask_for_the_most_there_may_be() -> None:
    assert read_arrivals(f"{HEADER}\n0,0,1024\n", "f") == (
        Arrival(at_seconds=0, lasts_seconds=0, wish=gpu_request(1024)),
    )


def test_lives_and_gaps_have_the_means_that_were_asked_for() -> None:
    found = pods(Mix(sizes={1: 1}, load=0.5, pods=20_000, mean_seconds=60))
    mean = sum(each.lasts_seconds for each in found) / len(found)
    assert mean == pytest.approx(60, rel=0.05)
    assert found[-1].at_seconds / len(found) == pytest.approx(60 / (0.5 * 512), rel=0.05)
    assert len({each.lasts_seconds for each in found}) == len(found)


def test_the_same_seed_draws_the_same_pods() -> None:
    assert pods(Mix(pods=50)) == pods(Mix(pods=50)) != pods(Mix(pods=50), seed=2)


@pytest.mark.parametrize("sizes", [USUAL, PUBLISHED])
@pytest.mark.parametrize("job_pods", [1, 8])
def test_drawn_pods_ask_for_the_load(sizes: dict[int, float], job_pods: int) -> None:
    found = pods(Mix(sizes=sizes, load=0.7, pods=20_000, mean_seconds=60, job_pods=job_pods))
    asked = sum(each.wish.gpus * each.lasts_seconds for each in found)
    assert asked / (512 * found[-1].at_seconds) == pytest.approx(0.7, rel=0.05)


def test_sizes_are_drawn_by_their_shares() -> None:
    found = Counter(each.wish.gpus for each in pods(Mix(sizes={1: 3, 4: 1}, pods=20_000)))
    assert found[1] / found[4] == pytest.approx(3, rel=0.05)


def test_pods_of_a_job_come_at_one_moment_and_are_alike() -> None:
    first, second, third = pods(Mix(pods=3, job_pods=2))
    assert (first.at_seconds, first.wish) == (second.at_seconds, second.wish)
    assert third.at_seconds > second.at_seconds
    assert first.job == second.job not in (third.job, None)


def test_pods_on_their_own_are_of_no_job() -> None:
    assert {each.job for each in pods(Mix(pods=3))} == {None}


def test_pods_of_a_file_with_the_same_text_are_of_one_job() -> None:
    found = read_arrivals(f"{HEADER},job\n0,1,1,a\n1,1,1,\n2,1,1,b\n3,1,1,a\n", "pods.csv")
    assert [each.job for each in found] == ["a", None, "b", "a"]


def test_a_mix_knows_how_many_lives_of_a_pod_it_lasts() -> None:
    """Of 64 GPUs 32 are in use at a time, by 8 pods of 4; 80 pods are ten times as many."""
    mix = Mix(sizes={2: 1, 6: 1}, load=0.5, pods=80, mean_seconds=7.0)
    assert mix.mean_size == 4
    assert mix.lives(64) == 10
    (last,) = drawn_arrivals(replace(mix, pods=8000), 64, seeded())[-1:]
    assert last.at_seconds == pytest.approx(1000 * 7.0, rel=0.05)
