# SPDX-License-Identifier: Apache-2.0
"""A condition is new when it begins, when it changes, and when it comes back after its end."""

from __future__ import annotations

from base.log_once import LogOnce


def test_the_same_state_is_new_once() -> None:
    logged = LogOnce()
    assert [logged.is_new(state) for state in ("a", "a", "b", "b", "a")] == [
        *(True, False, True, False, True)
    ]


def test_subjects_are_apart() -> None:
    logged = LogOnce()
    assert [logged.is_new("a", subject) for subject in (1, 2, 1, None)] == [True, True, False, True]


def test_what_came_to_its_end_is_new_when_it_comes_back() -> None:
    logged = LogOnce()
    assert logged.clear() is False
    logged.is_new("a")
    assert (logged.clear(), logged.clear(), logged.is_new("a")) == (True, False, True)


def test_a_state_may_be_empty() -> None:
    logged = LogOnce()
    assert (logged.is_new(""), logged.is_new(""), logged.clear()) == (True, False, True)
