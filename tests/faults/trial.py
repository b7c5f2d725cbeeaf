# SPDX-License-Identifier: Apache-2.0
"""Lets faults happen to an agent that is scraped all the time, and holds it to its promises."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.agent.agent_process import Scraper, until
from tests.faults.fault_list import FAULTS, Fault
from tests.faults.scene import Scene, Usage

SCRAPE_SECONDS: Final = 0.5
RECOVERY_SECONDS: Final = 60.0
"""The promise."""
PATIENCE_SECONDS: Final = 180.0
"""How long a trial waits for what should long be there, to report how late it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one fault, or of several at once."""

    faults: tuple[str, ...]
    scrapes: int
    lost: tuple[str, ...]
    """Scrapes and liveness probes without a whole answer."""
    untrue: tuple[str, ...]
    """Readings in scrapes that no GPU measured within three sampling intervals."""
    recovery_seconds: float
    """From the end of the faults until everything was as before."""
    broken: tuple[str, ...]
    """Other promises that were not kept."""

    @property
    def failures(self) -> tuple[str, ...]:
        """All that breaks a promise, in words."""
        late = (
            [f"recovered after {self.recovery_seconds:.0f} s"]
            if self.recovery_seconds > RECOVERY_SECONDS
            else []
        )
        return (*self.lost, *self.untrue, *self.broken, *late)


def trial(scene: Scene, faults: Sequence[Fault], chance: random.Random | None = None) -> Outcome:
    """Let the faults overlap: each begins while those before it last.

    They end in the order in which they began; with ``chance`` in any, after shorter or longer.
    """
    before, labels = Usage.least(scene.agent.process.pid), _lasting_labels(scene)
    broken: list[str] = []

    def judge(text: str, began: float) -> list[str]:
        return scene.truth.untrue(text, began - scene.pace.oldest_seconds)

    with Scraper(scene.agent, SCRAPE_SECONDS, judge=judge) as scraper:
        open_faults = [contextlib.ExitStack() for _ in faults]
        with contextlib.ExitStack() as rest:
            for fault, stack in zip(faults, open_faults, strict=True):
                rest.enter_context(stack)
                stack.enter_context(fault.happens(scene))
                _hold(scene, chance)
            blind = frozenset[str]().union(*(fault.blinds(scene) for fault in faults))
            met = sum(fault.meets_a_call for fault in faults)
            broken += _unread(scene, frozenset(scene.gpus) - blind, met)
            if chance is not None:
                chance.shuffle(open_faults)
            for at, stack in enumerate(open_faults):
                if at:
                    _hold(scene, chance)
                stack.close()
        ended = time.monotonic()
        for awaited, is_so in (
            ("GPUs, readings or pods", lambda: scene.is_well(ended)),
            ("labels", lambda: _lasting_labels(scene) == labels),
        ):
            broken += _until(awaited, is_so)
        recovery = time.monotonic() - ended
        pid = scene.agent.process.pid
        if _until("", lambda: not Usage.of(pid).exceeds(before)):
            broken.append(f"it takes {Usage.least(pid)}, and took {before}")
    return Outcome(
        faults=tuple(fault.name for fault in faults),
        scrapes=scraper.answers,
        lost=tuple(scraper.failures),
        untrue=tuple(scraper.untrue),
        recovery_seconds=recovery,
        broken=tuple(broken),
    )


def _lasting_labels(scene: Scene) -> dict[str, str]:
    """Labels that are the same after a reload: all but when they were made."""
    return {key: of for key, of in scene.labels().items() if not key.endswith("gfd.timestamp")}


def _hold(scene: Scene, chance: random.Random | None) -> None:
    """Let it last for a while."""
    seconds = scene.pace.hold_seconds
    time.sleep(seconds if chance is None else chance.uniform(0, seconds))


def _unread(scene: Scene, well: frozenset[str], met: int) -> list[str]:
    """The GPUs that are well must be read while the faults last, but for so many of them."""
    since = time.monotonic()
    if not well:
        return []
    return _until(
        f"readings of {len(well) - met} GPUs that are well",
        lambda: len(well - scene.truth.fresh(scene.agent.metrics(), since)) <= met,
        RECOVERY_SECONDS,
    )


def _until(awaited: str, is_so: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> list[str]:
    """Wait for it; in words what did not come in time."""
    try:
        until(is_so, seconds)
    except AssertionError:
        return [f"not as it should be: {awaited}"]
    return []


def composed(seed: int, *, in_cluster: bool) -> tuple[tuple[Fault, Fault], random.Random]:
    """Two faults that may happen at once, and the chance that decides how they overlap."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    pairs = [
        (one, other)
        for one in FAULTS
        for other in FAULTS
        if one is not other
        and not (one.touches and one.touches == other.touches)
        and (in_cluster or not (one.in_cluster or other.in_cluster))
    ]
    return chance.choice(pairs), chance
