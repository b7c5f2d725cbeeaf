# SPDX-License-Identifier: Apache-2.0
"""Samples of GPM, the profiling counters of Hopper and later, and the metrics between two.

The driver fills sample buffers and computes metrics from two of them. Source: nvml.h, "GPM
Functions".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pynvml

from discovery.model import Gap, Reason
from discovery.nvml.calls import Calls
from discovery.nvml.conversions import between
from discovery.sample import PROFILED, ReadingGroup

Metrics = tuple[int, ...]
"""Metric ids."""

SHORTEST_SECONDS = 0.1
"""Two samples nearer to each other have no metrics. Source: nvml.h, nvmlGpmMetricsGet."""

_RATES = frozenset((20, 21, 60, 61, *range(62, 98), *range(100, 104)))
"""Traffic over PCIe, NVLink and NVLink-C2C, in MiB each second."""

_TOTALS = frozenset(PROFILED[ReadingGroup.TOTALS])
"""Cycles, and bytes over PCIe, since the driver was loaded; all others are ratios."""
_PCIE_TOTALS = frozenset((255, 256))

_GPU_ALONE = _RATES | _PCIE_TOTALS
"""What GPU instances do not have."""


def questions(
    groups: Collection[ReadingGroup], *, of_instance: bool = False
) -> tuple[Metrics, ...]:
    """Metrics that are read together, a call for each group.

    What not every driver knows is by itself: were a whole question refused for one of its
    metrics, the others would still be answered.
    """
    left_out = _GPU_ALONE if of_instance else frozenset[int]()
    selected = (ids for group, ids in PROFILED.items() if group in groups)
    return tuple(tuple(metric for metric in ids if metric not in left_out) for ids in selected)


_MIB = 1 << 20
_PERCENT = 100
_SHARE = between(0, 110)  # samples are not quite as far apart as the counters' own times
_MIB_PER_SECOND = between(0, 1e8)
_TOTAL = between(0, 2.0**62)
_CALL = "nvmlGpmMetricsGet"

Sample = Any
"""Handle of a sample buffer."""

Found = tuple[tuple[int, float], ...]
"""Metric id to value: a ratio, bytes each second, or cycles or bytes in all."""


class GpmTrack:
    """State of a GPU or GPU instance: its two samples, which take turns, and what it refuses."""

    def __init__(self, name: str) -> None:
        """``name``: the reading's name."""
        self._what = name
        self._newest: Sample = None
        self._taken_at = 0.0
        self._spare: Sample = None
        self._refused: Gap | None = None
        self._missing: set[int] = set()

    def ask_again(self) -> None:
        """Ask for what was refused, too."""
        self._refused, self._missing = None, set()

    def metrics(
        self,
        calls: Calls,
        room: Any,
        now: Callable[[], float],
        questions: Sequence[Metrics],
        take: str,
        *args: object,
    ) -> Found:
        """Metrics since the last time; none the first time, or if that was just now.

        ``questions``: metrics, in groups that one call reads; ``pynvml.<take>(*args, sample)``
        takes a sample; ``room`` is for nvmlGpmMetricsGet; ``now`` is the monotonic clock. Raises as
        :meth:`Calls.ask` does.
        """
        samples = self._two(calls, now, take, args)
        if samples is None:
            return ()
        measured: list[tuple[int, float]] = []
        for together in questions:
            metrics = [metric for metric in together if metric not in self._missing]
            measured += self._between(calls, room, metrics, *samples) if metrics else ()
        if self._missing:
            names = ", ".join(map(str, sorted(self._missing)))
            calls.miss(self._what, Reason.UNSUPPORTED, _CALL, f"it has no metric {names}")
        return tuple(measured)

    def close(self) -> None:
        """Give the buffers back; those of a session that is gone are gone with it."""
        for sample in (self._newest, self._spare):
            if sample is not None:
                with contextlib.suppress(pynvml.NVMLError):
                    pynvml.nvmlGpmSampleFree(sample)
        self._newest = self._spare = None

    def _two(
        self, calls: Calls, now: Callable[[], float], take: str, args: tuple[object, ...]
    ) -> tuple[Sample, Sample] | None:
        """The newest sample but one, and the newest, which is taken now."""
        if self._refused is not None:
            calls.gaps.append(self._refused)
            return None
        if self._newest is not None and now() - self._taken_at < SHORTEST_SECONDS:
            return None
        if self._spare is None:
            self._spare = self._sample(calls, "nvmlGpmSampleAlloc")
        if self._spare is None or self._sample(calls, take, *args, self._spare) is None:
            return None
        # the clock after this call and before the next: the driver refuses two that are too near
        # as it refuses metrics that it has not
        self._newest, self._spare, self._taken_at = self._spare, self._newest, now()
        return None if self._spare is None else (self._spare, self._newest)

    def _sample(self, calls: Calls, call: str, *args: object) -> Sample:
        answer = calls.ask(self._what, call, *args)
        if answer is None and calls.gaps[-1].reason is Reason.UNSUPPORTED:
            # a GPU before Hopper has no GPM: not asked again before the next discovery
            self._refused = calls.gaps[-1]
        return answer

    def _between(
        self, calls: Calls, question: Any, metrics: Sequence[int], older: Sample, newer: Sample
    ) -> Iterator[tuple[int, float]]:
        question.sample1, question.sample2, question.numMetrics = older, newer, len(metrics)
        for place, metric in enumerate(metrics):
            question.metrics[place].metricId = metric
        tried = Calls(invalid_argument=Reason.UNSUPPORTED)
        if tried.ask(self._what, _CALL, question) is not None:
            for place, metric in enumerate(metrics):
                value = self._value(calls, metric, question.metrics[place])
                if value is not None:
                    yield metric, value
        elif tried.gaps[0].reason is Reason.UNSUPPORTED:
            self._missing.update(metrics)
        else:
            calls.gaps += tried.gaps

    def _value(self, calls: Calls, metric: int, answer: Any) -> float | None:
        tried = Calls()
        value: float | None = tried.part(
            self._what, f"{_CALL}({metric})", _converted, metric, answer
        )
        if value is None and tried.gaps[0].reason is Reason.UNSUPPORTED:
            self._missing.add(metric)
        else:
            calls.gaps += tried.gaps
        return value


def _converted(metric: int, answer: Any) -> float:
    if answer.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(answer.nvmlReturn)
    if metric in _TOTALS:
        return _TOTAL(answer.value)
    if metric in _RATES:
        return _MIB_PER_SECOND(answer.value) * _MIB
    return _SHARE(answer.value) / _PERCENT
