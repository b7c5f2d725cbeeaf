# SPDX-License-Identifier: Apache-2.0
"""A definition without conditions is waited for, and every other failure is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controlplane import definitions
from tests.controlplane.definitions import wait_until_served

NO_CONDITIONS = "error: .status.conditions accessor error: <nil> is of the type <nil>"


class Cluster:
    """Answers each time with the next of these, an empty text where all is well."""

    def __init__(self, *answers: str) -> None:
        self.answers = [*answers]

    def kubectl(self, *arguments: str | Path) -> str:
        assert arguments[-1] == "crd/x"
        answer = self.answers.pop(0)
        assert not answer, answer
        return answer


def test_a_definition_that_has_no_conditions_yet_is_asked_again() -> None:
    cluster = Cluster(NO_CONDITIONS, NO_CONDITIONS, "")

    wait_until_served(cluster, "crd/x")

    assert cluster.answers == []


def test_any_other_failure_is_raised_at_once() -> None:
    cluster = Cluster("error: timed out", "")

    with pytest.raises(AssertionError, match="timed out"):
        wait_until_served(cluster, "crd/x")


def test_one_that_never_has_conditions_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "PATIENCE_SECONDS", -1.0)

    with pytest.raises(AssertionError, match="accessor error"):
        wait_until_served(Cluster(NO_CONDITIONS, ""), "crd/x")
