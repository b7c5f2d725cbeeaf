# SPDX-License-Identifier: Apache-2.0
"""Where no real node can run, the reason is given."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.controlplane.builds import NotPreparedError
from tests.node import needs


@pytest.fixture(autouse=True)
def _asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that allows all, until a test takes something away."""
    needs.why_not.cache_clear()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(needs, "lacking", frozenset)
    monkeypatch.setattr(needs, "_cgroups_problem", str)
    monkeypatch.setattr(needs, "_TRIED_IN", ("env",))
    monkeypatch.setattr(needs, "_TRY", "true")
    yield
    needs.why_not.cache_clear()


def test_a_machine_that_allows_all_lacks_nothing() -> None:
    needs.demand()


@pytest.mark.parametrize(
    ("taken", "by", "reason"),
    [
        ((os, "geteuid"), lambda: 1000, "that takes root"),
        ((shutil, "which"), lambda name: None if name == "ip" else name, "no program ip$"),
        (
            (needs, "lacking"),
            lambda: frozenset(("memory",)),
            "no cgroups with memory$",
        ),
        ((needs, "_TRY"), "echo not permitted >&2; false", "namespaces: not permitted"),
    ],
)
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch,
    taken: tuple[object, str],
    by: Callable[..., object] | str,
    reason: str,
) -> None:
    monkeypatch.setattr(*taken, by)

    with pytest.raises(NotPreparedError, match=f"no real node can run here: {reason}"):
        needs.demand()
