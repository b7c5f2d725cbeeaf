# SPDX-License-Identifier: Apache-2.0
"""The journal's folder is the actuator's for its whole life: nobody else begins a change there."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from actuator.journal import Journal, JournalBusy, JournalUnusable
from actuator.journal_owner import OWNER, owned, owner_of, refuse_owned
from actuator.supervisor import run_change
from tests.actuator.simulated_node import FIVE, node


def test_the_owner_is_named_and_gone_with_the_block(tmp_path: Path) -> None:
    """A change takes the journal's own lock next to it."""
    place = tmp_path / "journal"
    assert owner_of(place) == ""

    with owned(place):
        assert owner_of(place).startswith(f"gpuscape actuator, process {os.getpid()} of ")
        with pytest.raises(JournalBusy, match=r"annotate the Node with gpuscape\.io/mig-layout"):
            refuse_owned(place)
        Journal(place).close()

    assert owner_of(place) == ""
    refuse_owned(place)


def test_a_second_owner_is_refused_after_some_patience_and_the_first_keeps_it(
    tmp_path: Path,
) -> None:
    ticks = count()
    with owned(tmp_path):
        before = owner_of(tmp_path)
        with (
            pytest.raises(JournalBusy, match="only one actuator runs on a node"),
            owned(tmp_path, clock=lambda: float(next(ticks)), sleep=lambda _: None),
        ):
            pytest.fail("two have it")
        assert owner_of(tmp_path) == before


def test_a_link_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    """Else an actuator would write where somebody else wants it to."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    place = tmp_path / "journal"
    place.mkdir(mode=0o700)
    (place / OWNER).symlink_to(elsewhere)

    with pytest.raises(JournalUnusable), owned(place):
        pytest.fail("a link is followed")

    assert elsewhere.read_text() == "kept"
    assert owner_of(place) == ""


def test_a_worker_that_is_not_the_actuator_s_is_refused_too(tmp_path: Path) -> None:
    """An actuator that came after the command has looked is in the way as well."""
    on = node(tmp_path, *FIVE)
    with owned(on.journal):
        with pytest.raises(JournalBusy, match="changes MIG on this node"):
            run_change(on.order())
        own = run_change(replace(on.order(), owner=True))
    assert own.reason == "no change is open"
