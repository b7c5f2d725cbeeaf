# SPDX-License-Identifier: Apache-2.0
"""Runs the agent's ticks at their times, whatever the wall clock does.

apscheduler plans by the wall clock: one day back, and no job would run for a day;
one day forward, and every run would be late. So each tick is planned anew after
each run, late runs are never dropped, and a thread that compares the wall clock
with the monotonic one plans all ticks again when they part.
"""

from __future__ import annotations

import contextlib
import logging
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from base import threads
from base.defects import Defects
from base.tick_watch import TickProgress

log = logging.getLogger(__name__)

Tick = Callable[[float], float]
"""Makes one run of a tick at a monotonic time in seconds; returns the seconds until the next."""

STEP_SECONDS = 1.0
"""Clocks that part by more than this between two comparisons were set, not just adjusted."""

COMPARE_SECONDS = 5.0
"""Time between two comparisons of the clocks."""

AFTER_A_DEFECT_SECONDS = 10.0


class Runtime:
    """Runs ticks, each in a thread of its own; a tick never overlaps itself."""

    def __init__(
        self,
        *,
        jitter_ratio: float = 0.0,
        defects: Defects | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """Each wait is varied by up to ``jitter_ratio`` of itself, so that nodes spread out.

        A tick that raises is one of the ``defects``, and runs again AFTER_A_DEFECT_SECONDS later.
        It is made before the parts whose ticks it runs, so that each can get :meth:`trigger`.
        """
        self._defects = defects or Defects()
        self._ticks: Mapping[str, Tick] = {}
        self._jitter = jitter_ratio
        self._clock = clock
        self._wall = wall
        self._uniform = uniform
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._due: dict[str, float] = {}
        self._running: set[str] = set()
        self._steps: Counter[str] = Counter()
        self._again: set[str] = set()
        self._stopping = threading.Event()
        self._is_started = False
        self._scheduler = BackgroundScheduler(
            # no run may be dropped, since each plans the next; _run sees to it that none overlaps
            job_defaults={
                "misfire_grace_time": None,
                "coalesce": True,
                "max_instances": sys.maxsize,
            },
            timezone=UTC,
        )

    def start(self, ticks: Mapping[str, Tick]) -> None:
        """Run every tick once now, and from then on as each asks.

        Raises NoThread; to be stopped then too.
        """
        self._ticks = ticks
        threads.started(self._watch_clock, "clock")
        with contextlib.ExitStack() as undo:
            executor = _started_threads(len(ticks))
            undo.callback(executor.shutdown, wait=False)
            self._scheduler.add_executor(executor)
            with threads.starting("ticks"):
                self._scheduler.start()
            undo.pop_all()
        self._is_started = True
        for name in ticks:
            self.trigger(name)

    def trigger(self, name: str) -> None:
        """Run a tick as soon as it can; once more if it is running now.

        Before the start this changes nothing: the start runs every tick.
        """
        with self._lock:
            if not self._ticks:
                return
            if name in self._running:
                self._again.add(name)
            else:
                self._plan(name, 0.0)

    def progress(self) -> dict[str, TickProgress]:
        """The progress of each tick, by its name."""
        now = self._clock()
        with self._lock:
            return {
                name: TickProgress(
                    steps=self._steps[name],
                    running=name in self._running,
                    due=self._due.get(name, now) <= now,
                )
                for name in self._ticks
            }

    def stop(self) -> None:
        """Start no further run; a run in progress is not waited for."""
        self._stopping.set()
        if self._is_started:
            self._is_started = False
            self._scheduler.pause()
            self._scheduler.get_jobs()  # waits for a round in progress, which shutdown would break
            self._scheduler.shutdown(wait=False)

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait for the runs in progress after :meth:`stop`; False where one takes longer."""
        with self._lock:
            return self._idle.wait_for(lambda: not self._running, seconds)

    def replan(self) -> None:
        """Plan every waiting tick again for the monotonic time at which it is due."""
        now = self._clock()
        with self._lock:
            for name, due in self._due.items():
                # one that runs plans its next run itself; planned here it would run twice
                if name not in self._running:
                    self._plan(name, max(0.0, due - now))

    def _plan(self, name: str, seconds: float) -> None:
        """Plan a tick's next run in place of any other; the lock is held, so that none is lost."""
        if self._stopping.is_set():
            return
        self._due[name] = self._clock() + seconds
        run_date = datetime.fromtimestamp(self._wall() + seconds, UTC)
        self._scheduler.add_job(
            self._run, "date", run_date=run_date, args=[name], id=name, replace_existing=True
        )

    def _run(self, name: str) -> None:
        with self._lock:
            if name in self._running:
                self._again.add(name)
                return
            self._running.add(name)
            self._steps[name] += 1
        try:
            self._run_and_plan(name)
        except BaseException:  # the thread ends: the tick is due from now on, and shows as that
            with self._lock:
                self._running.discard(name)
                self._idle.notify_all()
            raise

    def _run_and_plan(self, name: str) -> None:
        seconds = AFTER_A_DEFECT_SECONDS
        with self._defects.contained(f"tick {name}"):
            seconds = self._ticks[name](self._clock())
        seconds *= self._uniform(1 - self._jitter, 1 + self._jitter)
        # in one lock: a trigger between the end of the run and the plan would be lost
        with self._lock:
            self._running.discard(name)
            self._idle.notify_all()
            self._steps[name] += 1
            self._plan(name, 0.0 if name in self._again else seconds)
            self._again.discard(name)

    def _watch_clock(self) -> None:
        offset = self._wall() - self._clock()
        while not self._stopping.wait(COMPARE_SECONDS):
            before, offset = offset, self._wall() - self._clock()
            if abs(offset - before) > STEP_SECONDS:
                log.warning("wall clock changed", extra={"step_seconds": offset - before})
                with self._defects.contained("thread clock"):
                    self.replan()


def _started_threads(number: int) -> ThreadPoolExecutor:
    """Threads for so many ticks, all started now: later there may be none to be had."""
    executor, go_on = ThreadPoolExecutor(number), threading.Event()
    try:
        with threads.starting("ticks"):
            for _ in range(number):
                # it waits, so that the pool makes a new thread for the next one
                executor._pool.submit(go_on.wait)
    except threads.NoThread:
        executor.shutdown(wait=False)
        raise
    finally:
        go_on.set()
    return executor
