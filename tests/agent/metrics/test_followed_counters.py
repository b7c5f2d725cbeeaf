# SPDX-License-Identifier: Apache-2.0
"""The counters file is read again when it changes; a broken one changes nothing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from agent.metrics.followed_counters import CountersFile, read_file
from agent.metrics.source_reports import source_report
from base.errors import BadInput
from base.followed_file import POLL_SECONDS
from exporters.dcgm.counters_format import CountersConfig
from exporters.gpuscape.agent_metrics import AgentMetrics
from tests.log_lines import log_lines, whys

CLOCK = "DCGM_FI_DEV_SM_CLOCK, gauge, x\n"
POWER = "DCGM_FI_DEV_POWER_USAGE, gauge, x\n"


class Followed:
    """A file that asked for the clock when the agent started."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.write_text(CLOCK)
        self.own = AgentMetrics("1", lambda: 0.0)
        self.taken: list[CountersConfig] = []
        self.counters = CountersFile(
            path,
            read_file(path),
            take=self.taken.append,
            report=source_report(lambda change: change(self.own), "counters", lambda: 7.0),
        )

    def after(self, *texts: str) -> list[list[str]]:
        """Names of what was taken, when the file held one text after the other."""
        for text in texts:
            self.path.write_text(text)
            self.counters.poll(0.0)
        return [[family.name for family in each.families] for each in self.taken]

    @property
    def up(self) -> bool:
        return b'gpuscape_source_up{source="counters"} 1.0' in self.own.render()


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path / "counters.csv")


def test_a_look_at_what_has_not_changed_changes_nothing(followed: Followed) -> None:
    assert followed.counters.poll(0.0) == POLL_SECONDS
    assert followed.taken == []


def test_a_change_is_taken_once(followed: Followed) -> None:
    assert followed.after(CLOCK + POWER, CLOCK + POWER) == [
        ["DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_POWER_USAGE"]
    ]


def test_each_change_is_taken_the_way_back_too(followed: Followed) -> None:
    assert followed.after(POWER, CLOCK) == [["DCGM_FI_DEV_POWER_USAGE"], ["DCGM_FI_DEV_SM_CLOCK"]]


def test_a_change_that_asks_for_the_same_is_none(followed: Followed) -> None:
    assert followed.after(f"# the clock\n{CLOCK}") == []


def test_a_file_that_kubelet_replaces_by_a_link_is_seen(tmp_path: Path) -> None:
    """A mounted ConfigMap is a link to a folder that is put in place of another at once."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    (tmp_path / "..data").symlink_to("old")
    followed = Followed(tmp_path / "..data" / "counters.csv")
    (tmp_path / "new" / "counters.csv").write_text(POWER)
    (tmp_path / "..tmp").symlink_to("new")
    (tmp_path / "..tmp").rename(tmp_path / "..data")

    followed.counters.poll(0.0)

    assert len(followed.taken) == 1


def test_lines_that_cannot_be_served_are_told_and_the_others_taken(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    assert followed.after(f"{POWER}nonsense\n", f"{POWER}nonsense\n") == [
        ["DCGM_FI_DEV_POWER_USAGE"]
    ]
    skipped = whys(caplog, "counter not served")
    assert len(skipped) == 1
    assert f"{followed.path}, line 2: " in skipped[0]
    assert followed.up


@pytest.mark.parametrize("broken", ["", "# nothing\n", "<html>\n", "\0\0", "a,b,c\n"])
def test_a_file_that_asks_for_nothing_that_can_be_served_changes_nothing(
    followed: Followed, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert followed.after(broken) == []
    assert not followed.up
    assert whys(caplog, "file rejected, previous content kept") == [
        f"{followed.path} asks for no metric that can be served: correct it, or send SIGHUP to"
        " serve none"
    ]


def test_a_broken_file_and_its_end_are_told_once_in_the_log_and_in_metrics(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    states = []
    for text in (CLOCK, "", "", None, None, CLOCK, POWER):
        followed.path.unlink(missing_ok=True)
        if text is not None:
            followed.path.write_text(text)
        followed.counters.poll(0.0)
        states.append(followed.up)

    assert states == [True, False, False, False, False, True, True]
    assert caplog.messages == [
        "file rejected, previous content kept",
        "file rejected, previous content kept",
        "file valid again",
        "counters file reloaded",
    ]
    assert "asks for no metric that can be served" in caplog.records[0].__dict__["why"]
    assert "No such file" in caplog.records[1].__dict__["why"]
    assert log_lines(caplog)[-1] == ("INFO", "counters file reloaded", {"families": 1})


def test_the_agent_cannot_start_without_the_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*none\.csv: No such file or directory"):
        read_file(tmp_path / "none.csv")
