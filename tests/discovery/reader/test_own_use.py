# SPDX-License-Identifier: Apache-2.0
"""A reader compares what it takes with its limits, and is the first that the kernel ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from discovery.reader import own_use
from discovery.reader.own_use import OwnUse, open_descriptors, private_bytes, use_now
from discovery.reader.protocol import Grown, ReaderLimits

ROOT = Path(__file__).resolve().parents[3]
MEMORY, DESCRIPTORS = Grown.Resource.MEMORY, Grown.Resource.DESCRIPTORS
LIMITS = ReaderLimits(memory_bytes=100, descriptors=20)


class Use:
    """What the process takes, as the test sets it."""

    def __init__(self, memory: int = 10, descriptors: int = 5) -> None:
        self.now: Mapping[Grown.Resource, int] = {MEMORY: memory, DESCRIPTORS: descriptors}

    def read(self) -> Mapping[Grown.Resource, int]:
        return self.now


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({MEMORY: 100, DESCRIPTORS: 20}, None),
        ({MEMORY: 101, DESCRIPTORS: 5}, Grown(resource=MEMORY, amount=101, limit=100)),
        ({MEMORY: 50, DESCRIPTORS: 21}, Grown(resource=DESCRIPTORS, amount=21, limit=20)),
        ({}, None),
    ],
)
def test_what_exceeds_a_limit_is_reported_once(
    now: Mapping[Grown.Resource, int], expected: Grown | None
) -> None:
    use = Use()
    own = OwnUse(LIMITS, use.read)
    own.has_answered()
    use.now = now
    assert own.exceeded() == expected
    assert own.exceeded() is None


def test_nothing_is_exceeded_before_the_first_answer() -> None:
    use = Use(memory=1000)
    assert OwnUse(LIMITS, use.read).exceeded() is None


def test_a_reader_that_needs_more_than_half_its_limit_may_take_twice_what_it_needs() -> None:
    """Else one on a machine that is larger than expected would be replaced for ever."""
    use = Use(memory=150)
    own = OwnUse(LIMITS, use.read)
    own.has_answered()
    use.now = {MEMORY: 300}
    own.has_answered()  # the first answer counts
    assert own.exceeded() is None
    use.now = {MEMORY: 301}
    assert own.exceeded() == Grown(resource=MEMORY, amount=301, limit=300)


def test_without_limits_nothing_is_read() -> None:
    def read() -> Mapping[Grown.Resource, int]:
        raise AssertionError("nobody asked for it")

    own = OwnUse(ReaderLimits(), read)
    own.has_answered()
    assert own.exceeded() is None


def test_what_is_read_is_what_psutil_sees() -> None:
    before, kept = use_now(), b"\1" * (64 << 20)
    after = use_now()
    assert after[MEMORY] - before[MEMORY] >= len(kept)
    process = psutil.Process()
    assert after[MEMORY] <= process.memory_info().rss
    with Path(os.devnull).open():
        # psutil has the list itself open while it counts
        assert open_descriptors() == process.num_fds() - 1


def test_where_the_kernel_shows_nothing_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_use, "_SELF", Path("/nonexistent"))
    assert (private_bytes(), open_descriptors(), use_now()) == (None, None, {})
    own_use.end_first()


def test_a_process_without_rights_is_the_first_that_the_kernel_ends() -> None:
    code = (
        "from discovery.reader import own_use; own_use.end_first();"
        "print(open('/proc/self/oom_score_adj').read())"
    )
    root = os.geteuid() == 0
    without_rights = ("setpriv", "--inh-caps=-all", "--bounding-set=-all") if root else ()
    done = subprocess.run(
        [*without_rights, sys.executable, "-c", code],
        check=True,
        capture_output=True,
        cwd=ROOT,
        text=True,
    )
    assert int(done.stdout) == own_use.FIRST_TO_END
