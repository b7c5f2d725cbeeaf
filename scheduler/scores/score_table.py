# SPDX-License-Identifier: Apache-2.0
"""The score table of one topology class: for free GPUs and a wish, what comes of it."""

from __future__ import annotations

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial

from api.gpu_request import GpuRequest, wish
from scheduler.scores.best_effort import LOST, Odds
from scheduler.scores.grade import Grades
from scheduler.scores.kubelet_model import KubeletModel, Policies
from scheduler.scores.masks import members, union
from scheduler.scores.score import (
    BROKEN,
    FILLED,
    KEPT_WHOLE,
    MOST_KEPT,
    Aims,
    relative_speed,
    score,
)
from scheduler.scores.shape import Shape
from scheduler.scores.speed import HUNDREDTHS, SetSpeeds
from scheduler.scores.workspace import TooMuchWork, Workspace
from scheduler.scores.worth import Worth

QUICK_GPUS = 8
"""Up to so many GPUs an outcome takes a millisecond or so."""
MOST_GPUS = 16
"""No node has more, and the device plugin's own policy does not end for many more."""
_QUICK_STEPS = 2
_MOST_STEPS, _MOST_STEPS_OF_MANY = 16, 3
"""Containers with GPUs in one pod; beyond these there is no outcome. The sets that they may get
multiply, with many GPUs to hours of work."""
_MOST_OUTCOME_BYTES = 16 << 20
"""Of one class: 20,000 outcomes of pods with one container. The oldest go."""
_MOST_DUE = 1000
_MOST_GIVEN_UP = 3
"""Outcomes of a class that were given up; then no new one is begun. So a topology made for it
keeps the thread that computes outcomes for a minute."""

_STEPS_OF_A_SET = 100_000
"""For the speed of one set, which threads wait for."""

log = logging.getLogger(__name__)

Later = Callable[[Callable[[], object]], object]
"""Runs a job off the request path, as an executor's ``submit`` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOutcome:
    """Outcome of a request on a node with these free GPUs: likely sets, and a score."""

    sets: Odds
    """All GPUs that the pod's containers get together; empty where they are too few."""
    reported: Odds
    """Those that the kubelet will report: the same, but for GPUs that only init containers have
    had which have ended."""
    score: int
    """Higher is better; it compares across classes, as if no class of the same product had faster
    sets than this one. 0 where the request cannot be met."""
    speed: int = 0
    """Expected, of the GPUs of the slowest container that has several: in hundredths of a GB/s, as
    :meth:`SetSpeeds.speed` has it."""
    gbps: float = 0.0
    """The same in GB/s."""
    kept: float = 0.0
    """Expected worth of what is left for others at once, in GPUs."""
    linked: float = 0.0
    """Odds that the pod's link wish is met."""
    nic: float = 0.0
    """Expected closeness of a NIC, 0 (across CPUs, or none) to 5."""
    given_up: bool = False
    """It takes too much work to compute: nothing is known of it, and nothing held against it."""
    likely: int = field(init=False)
    """The set of the highest odds, of equals that with the lowest GPUs; LOST, 0, for none. Worked
    out once: each change of a node asks for it, for each of its pods."""

    def __post_init__(self) -> None:
        likely = max(self.sets, key=lambda each: (self.sets[each], -each), default=LOST)
        object.__setattr__(self, "likely", likely)

    @property
    def lost(self) -> float:
        """Odds that the node refuses the pod, or that the device plugin crashes over it."""
        return float(self.sets.get(LOST, 0))


GIVEN_UP = PlacementOutcome(sets={}, reported={}, score=0, given_up=True)
_NO_SETS = PlacementOutcome(sets={}, reported={}, score=0)


class ScoreTable:
    """Outcomes of one class, each computed once. Thread-safe."""

    def __init__(
        self,
        shape: Shape,
        policies: Policies | None = None,
        later: Later | None = None,
        grown: Callable[[], None] = lambda: None,
    ) -> None:
        """``later`` is for outcomes that take too long within a request; None: at once.

        ``grown`` is called after an outcome was computed.
        """
        self._grown = grown
        self._shape = shape
        self._workspace = workspace = Workspace()
        self._speeds = SetSpeeds(shape, workspace)
        grades = Grades(shape, self._speeds, workspace)
        self._kubelet = KubeletModel(shape, policies or Policies(), grades, workspace)
        self._later = later
        self._outcomes: dict[tuple[int, GpuRequest], PlacementOutcome] = {}
        self._outcome_bytes = 0
        self._given_up = 0
        self._most_steps = _MOST_STEPS if self.is_quick else _MOST_STEPS_OF_MANY
        self._shared = workspace.cache(_itself)
        """Odds, which are the same in many outcomes: each is kept in memory once."""
        self._due: set[tuple[int, GpuRequest]] = set()
        self._lock = threading.Lock()

    @property
    def n(self) -> int:
        """Number of GPUs of the class."""
        return self._shape.n

    @property
    def bytes(self) -> int:
        """About what outcomes, and what was computed on the way to them, take now."""
        return self._outcome_bytes + self._workspace.bytes

    def forget(self) -> None:
        """Drop all outcomes, and what was computed on the way to them; they are computed anew."""
        with self._lock:
            self._outcomes.clear()
            self._outcome_bytes = 0
        self._workspace.clear()

    @property
    def is_quick(self) -> bool:
        """Whether the outcomes of this class are computed within milliseconds."""
        return self.n <= QUICK_GPUS

    def fits_a_request(self, wish: GpuRequest) -> bool:
        """Whether an outcome of this wish may be worked out within a request."""
        return self.is_quick and len(wish.steps) <= _QUICK_STEPS

    def fill(self, wishes: Iterable[GpuRequest] | None = None) -> None:
        """Work out all free sets for these, else for one container with nothing but GPUs."""
        for each in wishes or [wish(gpus + 1) for gpus in range(self.n)]:
            for free in range(1 << self.n):
                self.outcome(free, each)

    def outcomes(self) -> Mapping[tuple[int, GpuRequest], PlacementOutcome]:
        """All that were worked out so far, by free GPUs and wish."""
        with self._lock:
            return dict(self._outcomes)

    def outcome(self, free: int, wish: GpuRequest) -> PlacementOutcome:
        """What comes of the wish on these free GPUs, however long that takes to work out."""
        found = self.kept(free, wish)
        if found is None:
            found = self._bounded(free, wish)
            with self._lock:
                self._due.discard((free, wish))
                self._keep((free, wish), found)
            self._grown()
        return found

    def _bounded(self, free: int, wish: GpuRequest) -> PlacementOutcome:
        """The outcome, or that it is given up; a class that is too much work is so as a whole."""
        if self._given_up >= _MOST_GIVEN_UP:
            return GIVEN_UP
        try:
            with self._workspace.counted():
                return self._outcome(free, wish)
        except TooMuchWork:
            self._given_up += 1
            log.warning(
                "outcome given up", extra={"gpus": self.n, "free": f"{free:x}", "wanted": wish.gpus}
            )
            return GIVEN_UP

    def _keep(self, key: tuple[int, GpuRequest], found: PlacementOutcome) -> None:
        """Within the budget; the caller has the lock."""
        if key in self._outcomes:  # two threads worked it out
            return
        self._outcomes[key] = found
        self._outcome_bytes += _bytes(found)
        while self._outcome_bytes > _MOST_OUTCOME_BYTES and len(self._outcomes) > 1:
            self._outcome_bytes -= _bytes(self._outcomes.pop(next(iter(self._outcomes))))

    def kept(self, free: int, wish: GpuRequest) -> PlacementOutcome | None:
        """The outcome where it is there, as that of too many containers is; None where it has to
        be computed."""
        if len(wish.steps) > self._most_steps:  # not as a key: there may be thousands
            return _NO_SETS
        return self._outcomes.get((free, wish))

    def known(self, free: int, wish: GpuRequest) -> PlacementOutcome | None:
        """The outcome without waiting; None where it is still being computed."""
        found = self.kept(free, wish)
        if found is None:
            if self._later is None:
                return self.outcome(free, wish)
            with self._lock:
                is_new = (free, wish) not in self._due and len(self._due) < _MOST_DUE
                if is_new:
                    self._due.add((free, wish))
            if is_new:
                self._later(partial(self.outcome, free, wish))
        return found

    def likely(self, free: int, wish: GpuRequest) -> int:
        """The likely set of the outcome. Where that is not known yet the lowest free GPUs: their
        number is right, and the set a guess."""
        outcome = self.outcome(free, wish) if self.is_quick else self.known(free, wish)
        if outcome is None or outcome.given_up:
            return union(members(free)[: wish.gpus])
        return outcome.likely

    def ideal(self, wish: GpuRequest) -> float:
        """The best ``gbps`` that the class has for this wish, each container for itself."""
        return self.best_speed(wish) / HUNDREDTHS

    def best_speed(self, wish: GpuRequest) -> int:
        """The best ``speed`` of an outcome that the class has for this wish; 0 for a pod without a
        container that has several GPUs, and for more than the node has."""
        return min((self._speeds.ideal(size) for size in wish.several), default=0)

    def known_best_speed(self, wish: GpuRequest) -> int | None:
        """The same; None where it was not computed yet and is for later."""
        if self._later is None or self._shape.switched:
            return self.best_speed(wish)
        found = [self._speeds.known_ideal(size) for size in wish.several]
        known = [each for each in found if each is not None]
        return min(known, default=0) if len(known) == len(found) else None

    def compute_best_speeds(self) -> None:
        """Have those of all sizes known, unless that is too much work."""
        with suppress(TooMuchWork), self._workspace.counted():
            for size in range(2, self.n + 1):
                self._speeds.ideal(size)

    def gbps(self, group: int) -> float:
        """GB/s of the set of these GPUs; 0 for one alone, and where it is too much work."""
        with suppress(TooMuchWork), self._workspace.counted(_STEPS_OF_A_SET):
            return self._speeds.gbps(group)
        return 0.0

    def is_linked(self, group: int) -> bool:
        """Whether NVLinks alone lead around these GPUs; not where that is too much work."""
        with suppress(TooMuchWork), self._workspace.counted(_STEPS_OF_A_SET):
            return self._speeds.is_linked(group)
        return False

    def linked_worth(self, free: int) -> float:
        """What free GPUs are worth to others at once, in GPUs."""
        return self._worth.linked(free) / 10

    def most_worth(self, count: int) -> float:
        """The same of so many free GPUs where they lie best."""
        return self._worth.most(count) / 10

    def cost(self, free: int, taken: int) -> float:
        """What others are expected to lose where this set is taken of the free GPUs, in GPUs."""
        return float((self._worth.of(free) - self._worth.of(free & ~taken)) / 10)

    @cached_property
    def _worth(self) -> Worth:
        return Worth(self._shape, self._speeds, self._workspace)  # it takes long for many GPUs

    def _odds(self, parts: Iterable[tuple[int, Fraction]]) -> Odds:
        """Each set once, with all its odds."""
        found: dict[int, Fraction] = defaultdict(Fraction)
        for each, odds in parts:
            found[each] += odds
        return {each: self._shared(odds) for each, odds in found.items()}

    def _outcome(self, free: int, wish: GpuRequest) -> PlacementOutcome:
        free &= (1 << self.n) - 1  # the caller may know of other GPUs
        served_sets = self._kubelet.serve(free, wish)
        sets = self._odds((each.taken, odds) for each, odds in served_sets.items())
        reported = sets
        if any(each.ended for each in served_sets):
            reported = self._odds(
                (each.taken & ~each.ended, odds) for each, odds in served_sets.items()
            )
        served = {each: odds for each, odds in served_sets.items() if each.taken != LOST}
        taken = sum(served.values(), Fraction())
        if not taken:
            return PlacementOutcome(sets=sets, reported=reported, score=0)
        grades = [(each.grade, odds) for each, odds in served.items()]
        linked = _sum((grade.grants(wish.link), odds) for grade, odds in grades)
        speed = _sum((grade.several, odds) for grade, odds in grades)
        nic = _sum((grade.nic, odds) for grade, odds in grades)
        rests = [(free & ~each, odds) for each, odds in sets.items()]
        cost = self._worth.of(free) - _sum((self._worth.of(rest), odds) for rest, odds in rests)
        aims = Aims(
            taken=max(1, int(taken * 100)),
            linked=int(linked * 100),
            speed=relative_speed(int(speed), self.best_speed(wish)),
            whole=self._whole(free, wish),
            nic=int(nic * 10) if wish.nic else 0,
            kept=MOST_KEPT - math.ceil(cost * 10),
        )
        return PlacementOutcome(
            sets=sets,
            reported=reported,
            score=score(aims),
            speed=int(speed),
            gbps=float(speed / HUNDREDTHS),
            kept=float(_sum((self._worth.linked(rest), odds) for rest, odds in rests) / 10),
            linked=float(linked),
            nic=float(nic),
        )

    def _whole(self, free: int, wish: GpuRequest) -> int:
        """The aim of this name."""
        if wish.gpus >= free.bit_count():
            return FILLED
        return BROKEN if free == (1 << self.n) - 1 else KEPT_WHOLE


def _itself(odds: Fraction) -> Fraction:
    return odds


def _bytes(outcome: PlacementOutcome) -> int:
    """About what it takes with its key, where its odds are not of it alone."""
    own = 0 if outcome.reported is outcome.sets else len(outcome.reported)
    return 700 + 100 * (len(outcome.sets) + own)


def _sum(parts: Iterable[tuple[int | Fraction, Fraction]]) -> Fraction:
    """The expectation: of each value its odds."""
    return sum((value * odds for value, odds in parts), Fraction())
