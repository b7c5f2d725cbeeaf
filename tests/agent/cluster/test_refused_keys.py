# SPDX-License-Identifier: Apache-2.0
"""Which keys are left out after a refusal, and for how long."""

from __future__ import annotations

import pytest

from agent.cluster.refused_keys import MOST_REFUSED, RESTS_SECONDS, RefusedKeys
from kube.api_errors import AdmissionRefused, Forbidden, Invalid

GPU, COUNT, MODE = "nvidia.com/gpu", "nvidia.com/gpu.count", "nvidia.com/gpu.mode"
KEYS = {COUNT, MODE}


def refused(message: str) -> AdmissionRefused:
    return AdmissionRefused("422: cut…", policy="p", message=message)


@pytest.mark.parametrize(
    "message",
    [
        f"not labels of the agent: {COUNT}",
        f"not labels of the agent: {COUNT}, example.com/x",
        f"the label {COUNT}.",
        f'"{COUNT}" is for team a',
        f"'{COUNT}'='8'",
        f"metadata.labels[{COUNT}]: no",
        f"({COUNT})",
    ],
)
def test_a_key_that_the_message_names_is_left_out_alone(message: str) -> None:
    refusals = RefusedKeys()

    refusals.refused(KEYS, refused(message), 0)

    assert refusals.left_out(0) == {COUNT}
    assert refusals.aside == set()


def test_a_key_that_another_refusal_names_is_left_out_alone_too() -> None:
    """As the API server's own validation does."""
    refusals = RefusedKeys()
    error = Invalid(f"metadata.labels: Invalid value: {COUNT}")

    refusals.refused(KEYS, error, 0)

    assert refusals.reasons == {COUNT: str(error)}
    assert refusals.aside == set()


@pytest.mark.parametrize(
    "message",
    [f"{COUNT}s", f"{COUNT}.x", f"x{COUNT}", f"a.{COUNT}", f"{GPU}", "gpu.count", f"{COUNT}/x"],
)
def test_a_key_that_is_like_it_is_not_it(message: str) -> None:
    refusals = RefusedKeys()

    refusals.refused(KEYS, refused(message), 0)

    assert refusals.aside == {MODE}
    assert refusals.reasons == {}


def test_while_some_of_a_part_is_left_to_write_the_next_part_waits() -> None:
    refusals = RefusedKeys()
    refusals.refused({"a", "b", "c", "d"}, refused("no"), 0)

    refusals.refused({"a", "b"}, refused("not a"), 1)

    assert refusals.aside == {"c", "d"}
    assert refusals.left_out(1) == {"a", "c", "d"}


def test_all_keys_named_ends_the_search() -> None:
    refusals = RefusedKeys()
    refusals.refused(KEYS, refused("no"), 0)

    refusals.refused({COUNT}, refused(COUNT), 1)

    assert refusals.aside == set()
    assert refusals.left_out(1) == {COUNT}


def test_a_missing_role_has_all_rest_at_once_whatever_its_message_names() -> None:
    refusals = RefusedKeys()

    refusals.refused(KEYS, Forbidden(f"403: {COUNT}"), 0)

    assert refusals.left_out(0) == KEYS


def test_each_refusal_more_makes_the_rest_longer_up_to_an_hour() -> None:
    refusals, now, rests = RefusedKeys(), 0.0, []
    for _ in range(6):
        refusals.refused({COUNT}, Invalid("422: no"), now)
        rest = next(s for s in range(10_000) if not refusals.left_out(now + s))
        rests.append(float(rest))
        now += rest

    assert tuple(rests) == (*RESTS_SECONDS, 3600.0, 3600.0)
    assert refusals.reasons == {COUNT: "422: no"}


def test_a_key_that_was_taken_is_forgotten() -> None:
    refusals = RefusedKeys()
    refusals.refused({COUNT}, Invalid("422: no"), 0)

    refusals.taken({COUNT})

    assert refusals.reasons == {}


def searched(count: int, bad: set[str]) -> tuple[RefusedKeys, int, set[str]]:
    """A search among so many keys: its end, the writes it took, and what was written."""
    refusals, tries, written = RefusedKeys(), 0, set[str]()
    keys = {f"k{at:03}" for at in range(count)}
    while now_tried := keys - written - refusals.left_out(0):
        tries += 1
        if now_tried & bad:
            refusals.refused(now_tried, Invalid("422: no"), 0)
        else:
            written |= now_tried
            refusals.taken(now_tried)
    return refusals, tries, written


@pytest.mark.parametrize("count", [1, 2, 3, 40, 128])
def test_one_bad_key_is_found_wherever_it_is(count: int) -> None:
    for at in range(count):
        refusals, _, written = searched(count, {f"k{at:03}"})

        assert refusals.left_out(0) == {f"k{at:03}"}
        assert len(written) == count - 1


@pytest.mark.parametrize("count", [1, 2, 40, 256])
@pytest.mark.parametrize("every", [1, 2, 3, 10])
def test_no_search_takes_more_writes_than_it_may(count: int, every: int) -> None:
    bad = {f"k{at:03}" for at in range(0, count, every)}

    refusals, tries, written = searched(count, bad)

    assert tries <= 2 * MOST_REFUSED + 1
    assert refusals.aside == set()
    assert written | refusals.left_out(0) == {f"k{at:03}" for at in range(count)}
    assert not written & bad


def test_the_next_search_has_as_many_writes_again() -> None:
    refusals, _, _ = searched(256, {f"k{at:03}" for at in range(256)})

    refusals.refused({"a", "b"}, Invalid("422: no"), 0)

    assert refusals.aside == {"b"}
