# SPDX-License-Identifier: Apache-2.0
"""A file that is polled: what is logged and reported when it breaks and when it is mended."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from base.errors import BadInput
from base.followed_file import POLL_SECONDS, FollowedFile

PATH = Path("/etc/any.yaml")


class Followed:
    """A file whose state a test sets, and what became known of it."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.reads = 0
        self.reports: list[bool] = []
        self.file = FollowedFile(PATH, self._read, report=self.reports.append)

    def _read(self) -> None:
        self.reads += 1
        if self.why is not None:
            raise BadInput(self.why)

    def poll(self, why: str | None) -> float:
        self.why = why
        return self.file.poll(0.0)


@pytest.fixture
def followed() -> Followed:
    return Followed()


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str, str, str | None]]:
    """Level, message, file and reason of each line that was logged."""
    return [
        (each.levelno, each.message, vars(each)["file"], vars(each).get("why"))
        for each in caplog.records
    ]


def test_each_failure_and_its_end_are_logged_and_reported_once(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for why in (None, "no text", "no text", "no key", None, None, "no text"):
        assert followed.poll(why) == POLL_SECONDS

    rejected = (logging.ERROR, "file rejected, previous content kept", str(PATH))
    assert lines(caplog) == [
        (*rejected, "no text"),
        (*rejected, "no key"),
        (logging.INFO, "file valid again", str(PATH), None),
        (*rejected, "no text"),
    ]
    assert followed.reports == [True, False, False, True, False]
    assert followed.reads == 7


def test_a_failure_is_one_line_without_a_traceback(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    followed.poll("no text")
    assert [each.exc_info for each in caplog.records] == [None]


def test_whoever_needs_no_report_has_the_same_log(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> None:
        raise BadInput("no text")

    assert FollowedFile(PATH, refuse).poll(0.0) == POLL_SECONDS
    assert [each.message for each in caplog.records] == ["file rejected, previous content kept"]
