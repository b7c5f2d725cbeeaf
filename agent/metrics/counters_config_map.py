# SPDX-License-Identifier: Apache-2.0
"""The counters of a ConfigMap: read once, and awaited while the API server does not answer."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Final

from agent.metrics.followed_counters import log_skipped
from base import threads
from base.backoff import Backoff
from base.errors import GpuscapeError
from base.followed_file import FileReport
from base.log_once import LogOnce
from exporters.dcgm.counters_format import CountersConfig, read_counters

log = logging.getLogger(__name__)

START_SECONDS: Final = 1.0
"""So long the start waits for the API server; then other counters are served until it answers."""
_CHECK_SECONDS: Final = 0.5
"""Time between two checks whether the first request has ended."""
_IDLE_SECONDS: Final = 3600.0


class CountersConfigMap:
    """Reads a ConfigMap until that has succeeded once. The ticks of :meth:`poll` do not overlap."""

    def __init__(
        self,
        name: str,
        read: Callable[[], bytes],
        last_read: CountersConfig | None = None,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``read`` gives the text with the counters, and may take as long as a request may.

        ``last_read``: the ConfigMap's counters when it was read for other settings.
        """
        self._name = name
        self._read = read
        self.counters = last_read
        """Counters of the ConfigMap when it was last read; None where it never was."""
        self.is_read = False
        """Whether this object has read the ConfigMap."""
        self._first = threading.Event()
        self._backoff = Backoff(uniform=uniform)
        self._try_at = float("-inf")
        self._failures = LogOnce()

    def begin(self, wait_seconds: float = START_SECONDS) -> None:
        """Send the first request, and wait for its answer for a moment."""
        try:
            threads.started(self._try_first, "counters-from")
        except threads.NoThread:
            self._first.set()  # the first tick sends it
        self._first.wait(wait_seconds)

    def poll(self, now: float) -> float:
        """Read the ConfigMap if that is due; the seconds until the next time."""
        if not self._first.is_set():
            return _CHECK_SECONDS
        if not self.is_read and now >= self._try_at:
            self._try(now)
        return _IDLE_SECONDS if self.is_read else max(0.0, self._try_at - now)

    def _try_first(self) -> None:
        self._try(float("-inf"))
        self._first.set()

    def _try(self, now: float) -> None:
        try:
            counters = read_counters(self._read(), f"ConfigMap {self._name}")
        except GpuscapeError as error:
            self._try_at = now + self._backoff.failed()
            if self._failures.is_new(str(error)):
                log.warning("counters ConfigMap not read", extra={"why": str(error)})
            return
        log_skipped(counters)
        self.counters, self.is_read = counters, True


def followed_config_map(
    config_map: CountersConfigMap,
    served: CountersConfig,
    *,
    take: Callable[[CountersConfig], None],
    report: FileReport,
    until_read: Callable[[float], float] | None,
) -> Callable[[float], float]:
    """A tick that has the ConfigMap served as soon as it was read.

    ``served`` are the counters until then, ``take`` gets those of the ConfigMap, ``report``
    whether it was read. ``until_read`` is the tick that follows what is served meanwhile.
    """
    is_taken = False

    def poll(now: float) -> float:
        nonlocal is_taken
        wait = config_map.poll(now)
        if config_map.is_read and config_map.counters is not None and not is_taken:
            is_taken = True
            if config_map.counters != served:
                take(config_map.counters)
                log.info(
                    "counters ConfigMap read", extra={"families": len(config_map.counters.families)}
                )
        report(config_map.is_read)
        return wait if config_map.is_read or until_read is None else min(wait, until_read(now))

    return poll
