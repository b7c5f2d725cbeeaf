# SPDX-License-Identifier: Apache-2.0
"""The GPUs are left alone while anybody wants that."""

from __future__ import annotations

from agent.release_requests import ReleaseRequests


def test_the_first_to_ask_begins_and_the_last_to_let_go_ends_it() -> None:
    holds = ReleaseRequests()
    answers = [
        holds.ask("signal", ("SIGUSR1",)),
        holds.ask("cluster", ("paused",)),
        holds.ask("signal", ()),
        holds.ask("cluster", ()),
    ]
    assert holds.causes == ()
    assert answers == [True, False, False, True]


def test_the_causes_of_all_are_told() -> None:
    holds = ReleaseRequests()
    holds.ask("signal", ("SIGUSR1",))
    holds.ask("cluster", ("paused", "annotated"))
    assert holds.causes == ("SIGUSR1", "paused", "annotated")


def test_asking_for_nothing_changes_nothing() -> None:
    assert not ReleaseRequests().ask("cluster", ())
