# SPDX-License-Identifier: Apache-2.0
"""A limit of threads in this process, which Python reports as it does the machine's."""

from __future__ import annotations

import threading

import pytest

_START = threading.Thread.start


def allow_threads(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let so many threads start from now on."""
    left = iter(range(number))

    def start(self: threading.Thread) -> None:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        _START(self)

    monkeypatch.setattr(threading.Thread, "start", start)
