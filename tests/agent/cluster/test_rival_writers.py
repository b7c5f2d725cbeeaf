# SPDX-License-Identifier: Apache-2.0
"""Keys that somebody changes back again and again."""

from __future__ import annotations

from agent.cluster.rival_writers import PEACE_SECONDS, RESTS_SECONDS, RivalWriters

KEY = "nvidia.com/gpu.count"


def fought(times: int, *, text: str | None = "8") -> RivalWriters:
    """A key written once, and so many times again, a second apart from second 0 on."""
    rivals = RivalWriters()
    for at in range(times + 1):
        rivals.wrote({KEY: text}, {KEY: "kubectl-edit"}, at)
    return rivals


def test_a_key_is_put_right_three_times_before_it_rests() -> None:
    assert fought(2).resting(2) == {}
    assert fought(3).resting(3) == {KEY: "kubectl-edit changes it back again and again"}


def test_a_removal_that_is_undone_counts_as_well() -> None:
    assert fought(3, text=None).resting(3).keys() == {KEY}


def test_each_fight_more_makes_the_rest_longer_up_to_an_hour() -> None:
    rivals, now, rests = fought(2), 2.0, []
    for _ in range(6):
        rivals.wrote({KEY: "8"}, {}, now)
        until = next(s for s in range(10_000) if KEY not in rivals.resting(now + s))
        rests.append(float(until))
        now += until

    assert tuple(rests) == (*RESTS_SECONDS, 3600.0, 3600.0)


def test_a_rival_without_a_name_is_somebody() -> None:
    rivals = fought(2)
    rivals.wrote({KEY: "8"}, {}, 3)

    assert rivals.resting(3)[KEY].startswith("somebody")


def test_another_text_of_our_own_is_no_fight() -> None:
    rivals = RivalWriters()
    for at in range(20):
        rivals.wrote({KEY: str(at % 2)}, {}, at)

    assert rivals.resting(20) == {}


def test_a_key_that_stood_for_long_starts_anew() -> None:
    rivals = fought(3)
    rivals.wrote({KEY: "8"}, {}, 3 + PEACE_SECONDS)

    assert rivals.resting(3 + PEACE_SECONDS) == {}


def test_a_new_object_has_no_rivals_yet() -> None:
    rivals = fought(3)
    rivals.forget()

    assert rivals.resting(3) == {}
