# SPDX-License-Identifier: Apache-2.0
"""The score table of one topology class: the outcome of each wish on each set of free GPUs."""

from __future__ import annotations

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial

from api.gpu_request import GpuRequest
from placement.best_effort import LOST, Odds
from placement.kubelet_model import KubeletModel, Policies
from placement.masks import members, union
from placement.shape import Shape
from placement.speed import HUNDREDTHS, SetSpeeds
from placement.workspace import TooMuchWork, Workspace
from placement.worth import Worth

QUICK_GPUS = 8
"""GPUs of a node up to which an outcome takes about a millisecond."""
MOST_GPUS = 16
"""GPUs of a node at most: none has more, and the device plugin's policy takes too long for more."""
_QUICK_STEPS = 2
_MOST_STEPS, _MOST_STEPS_OF_MANY = 16, 3
"""Containers with GPUs in one pod; beyond these there is no outcome. The sets that they may get
multiply, with many GPUs to hours of work."""
_MOST_OUTCOME_BYTES = 16 << 20
"""Memory for the outcomes of one class: 20,000 of pods with one container. The oldest go."""
_MOST_DUE = 1000
_MOST_GIVEN_UP = 3
"""Outcomes of a class that were given up; then no new one is begun. So a topology made for it
keeps the thread that computes outcomes for a minute."""

_STEPS_OF_A_SET = 100_000
"""Steps of work at most for the speed of one set, as threads wait for it."""

log = logging.getLogger(__name__)

Later = Callable[[Callable[[], object]], object]
"""Runs a job off the request path, as an executor's ``submit`` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOutcome:
    """Outcome of a request on a node with these free GPUs: likely sets, and what they are worth."""

    sets: Odds
    """All GPUs that the pod's containers get together; empty where they are too few."""
    reported: Odds
    """Sets that the kubelet will report: without the GPUs that only ended init containers had."""
    taken: int = 0
    """Percent of the odds that the node takes the pod and does not refuse it, at least 1; 0 where
    the request cannot be met."""
    speed: int = 0
    """Expected speed of the slowest container with several GPUs, in hundredths of a GB/s
    (:meth:`SetSpeeds.speed`)."""
    gbps: float = 0.0
    """Expected speed in GB/s."""
    cost: int = 0
    """Expected loss of other pods, in hundredths of a GPU."""
    kept: float = 0.0
    """Expected worth of what is left for others at once, in GPUs."""
    linked: float = 0.0
    """Odds that the pod's link wish is met."""
    nic: float = 0.0
    """Expected closeness of a NIC, 0 (across CPUs, or none) to 5."""
    given_up: bool = False
    """Whether it takes too much work to compute: it stays unknown, and its rank neutral."""
    likely: int = field(init=False)
    """The set of the highest odds, of equals that with the lowest GPUs; LOST, 0, for none. Worked
    out once: each change of a node asks for it, for each of its pods."""

    def __post_init__(self) -> None:
        likely = max(self.sets, key=lambda group: (self.sets[group], -group), default=LOST)
        object.__setattr__(self, "likely", likely)


GIVEN_UP = PlacementOutcome(sets={}, reported={}, given_up=True)
_NO_SETS = PlacementOutcome(sets={}, reported={})


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
        self._kubelet = KubeletModel(shape, policies or Policies(), self._speeds, workspace)
        self._later = later
        self._outcomes: dict[tuple[int, GpuRequest], PlacementOutcome] = {}
        self._outcome_bytes = 0
        self._given_up = 0
        self._most_steps = _MOST_STEPS if self.is_quick else _MOST_STEPS_OF_MANY
        self._shared = workspace.cache(lambda odds: odds)
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

    def fill(self, wish: GpuRequest) -> None:
        """Work out the outcome of the wish on every set of free GPUs."""
        for free in range(1 << self.n):
            self.outcome(free, wish)

    def outcome(self, free: int, wish: GpuRequest) -> PlacementOutcome:
        """The outcome of the wish on these free GPUs, however long it takes to compute."""
        outcome = self.kept(free, wish)
        if outcome is None:
            outcome = self._bounded(free, wish)
            with self._lock:
                self._due.discard((free, wish))
                self._keep((free, wish), outcome)
            self._grown()
        return outcome

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

    def _keep(self, key: tuple[int, GpuRequest], outcome: PlacementOutcome) -> None:
        """Keep an outcome, within the budget; the caller has the lock."""
        if key in self._outcomes:  # two threads worked it out
            return
        self._outcomes[key] = outcome
        self._outcome_bytes += _bytes(outcome)
        while self._outcome_bytes > _MOST_OUTCOME_BYTES and len(self._outcomes) > 1:
            self._outcome_bytes -= _bytes(self._outcomes.pop(next(iter(self._outcomes))))

    def kept(self, free: int, wish: GpuRequest) -> PlacementOutcome | None:
        """The outcome if it is there, also that of too many containers; None if it has to be
        computed."""
        if len(wish.steps) > self._most_steps:  # not as a key: there may be thousands
            return _NO_SETS
        return self._outcomes.get((free, wish))

    def known(self, free: int, wish: GpuRequest) -> PlacementOutcome | None:
        """The outcome without waiting; None where it is still being computed."""
        outcome = self.kept(free, wish)
        if outcome is None:
            if self._later is None:
                return self.outcome(free, wish)
            with self._lock:
                is_new = (free, wish) not in self._due and len(self._due) < _MOST_DUE
                if is_new:
                    self._due.add((free, wish))
            if is_new:
                self._later(partial(self.outcome, free, wish))
        return outcome

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
        """The best ``speed`` for this wish; None where it is still to be computed later."""
        takes_long = self._later is not None and not self._shape.switched
        if takes_long and not all(map(self._speeds.knows_ideal, wish.several)):
            return None
        return self.best_speed(wish)

    def compute_best_speeds(self) -> None:
        """Compute the best speeds of all sizes, unless that is too much work."""
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
        """Worth of free GPUs to other pods at once, in GPUs."""
        return self._worth.linked(free) / 10

    def most_worth(self, count: int) -> float:
        """Worth of ``count`` free GPUs to other pods where they lie best, in GPUs."""
        return self._worth.most_linked(count) / 10

    def cost(self, free: int, taken: int) -> float:
        """Expected loss of other pods if this set is taken from the free GPUs, in GPUs."""
        return float(
            (self._worth.expected_linked(free) - self._worth.expected_linked(free & ~taken)) / 10
        )

    @cached_property
    def _worth(self) -> Worth:
        return Worth(self._shape, self._speeds, self._workspace)  # it takes long for many GPUs

    def _odds(self, parts: Iterable[tuple[int, Fraction]]) -> Odds:
        """Each set once, with the sum of its odds."""
        total_odds: dict[int, Fraction] = defaultdict(Fraction)
        for group, odds in parts:
            total_odds[group] += odds
        return {group: self._shared(odds) for group, odds in total_odds.items()}

    def _outcome(self, free: int, wish: GpuRequest) -> PlacementOutcome:
        free &= (1 << self.n) - 1  # the caller may know of other GPUs
        served_sets = self._kubelet.serve(free, wish)
        sets = self._odds((assigned.taken, odds) for assigned, odds in served_sets.items())
        reported = sets
        if any(assigned.ended for assigned in served_sets):
            reported = self._odds(
                (assigned.taken & ~assigned.ended, odds) for assigned, odds in served_sets.items()
            )
        grades = [
            (assigned.grade, odds)
            for assigned, odds in served_sets.items()
            if assigned.taken != LOST
        ]
        taken = sum(odds for _, odds in grades)
        if not taken:
            return PlacementOutcome(sets=sets, reported=reported)
        linked = _sum((grade.grants(wish.link), odds) for grade, odds in grades)
        speed = _sum((grade.several, odds) for grade, odds in grades)
        nic = _sum((grade.nic, odds) for grade, odds in grades)
        rests = [(free & ~group, odds) for group, odds in sets.items()]
        cost = self._worth.expected_linked(free) - _sum(
            (self._worth.expected_linked(rest), odds) for rest, odds in rests
        )
        return PlacementOutcome(
            sets=sets,
            reported=reported,
            taken=max(1, int(taken * 100)),  # odds below 1 % are not none
            speed=int(speed),
            gbps=float(speed / HUNDREDTHS),
            cost=math.ceil(cost * 10),  # up: the smallest loss is worse than none
            kept=float(_sum((self._worth.linked(rest), odds) for rest, odds in rests) / 10),
            linked=float(linked),
            nic=float(nic),
        )


def _bytes(outcome: PlacementOutcome) -> int:
    """Memory of an outcome and its key, about; most odds are shared with other outcomes."""
    own = 0 if outcome.reported is outcome.sets else len(outcome.reported)
    return 700 + 100 * (len(outcome.sets) + own)


def _sum(parts: Iterable[tuple[int | Fraction, Fraction]]) -> Fraction:
    """The expected value; parts are a value and its odds."""
    return sum((value * odds for value, odds in parts), Fraction())
