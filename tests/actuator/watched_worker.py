# SPDX-License-Identifier: Apache-2.0
"""A worker in the test's own process, which is killed at a moment, and may not loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.actuator.ampere_node import NodeTime
from tests.actuator.killed_worker import Effects

MOST_EFFECTS: Final = 400
"""Calls that change GPUs and writes of the journal by one worker; a loop makes more."""
MOST_SECONDS: Final = 900.0
"""Of one worker, in simulated time; a loop that waits takes more."""
HUNG_SECONDS: Final = 300.0
"""In one call of the driver: who supervises the worker kills it then."""


class Killed(BaseException):
    """SIGKILL of the worker: nothing catches it."""


class Hung(BaseException):
    """A call of the driver does not return; the worker is killed for it."""


class WatchedWorker:
    """Kills a worker at a moment, and ends the test where it loops; pauses count as one moment."""

    def __init__(
        self,
        moment: int | None,
        clock: NodeTime,
        before_call: Callable[[str], int],
        has_waiting_mode: Callable[[int], bool],
    ) -> None:
        """``before_call`` gets the name of a call of the driver, and gives the index of its GPU.

        ``has_waiting_mode``: whether the GPU of this index has a mode that should not wait.
        """
        self.effects = Effects(moment, _die)
        self.begun = clock.now
        self._clock, self._before_call, self._has_waiting_mode = (
            clock,
            before_call,
            has_waiting_mode,
        )
        self._waited = 0.0
        self._switched: set[int] = set()
        """GPUs of which it has asked for a mode."""

    def on_sleep(self, seconds: float, in_call: bool) -> None:
        """Time passes, in a call of the driver or between two."""
        self.effects.counted("pause", lambda: None)()
        self._waited = self._waited + seconds if in_call else 0.0
        if self._waited > HUNG_SECONDS:
            raise Hung
        assert self._clock.now - self.begun < MOST_SECONDS, "it waits for ever"
        waiting = [index for index in self._switched if self._has_waiting_mode(index)]
        assert waiting == [], "a mode waits in a pause, and any reset would bring it"

    def watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """A call of the driver, before which things go wrong."""
        counted = self.effects.counted(name, call)

        def checked(*args: Any, **more: Any) -> Any:
            assert len(self.effects.names) < MOST_EFFECTS, "it goes on for ever"
            self._waited = 0.0
            index = self._before_call(name)
            if name == "nvmlDeviceSetMigMode":
                self._switched.add(index)
            return counted(*args, **more)

        return checked


def _die() -> None:
    raise Killed
