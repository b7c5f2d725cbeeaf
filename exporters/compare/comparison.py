# SPDX-License-Identifier: Apache-2.0
"""Compare what two exporters serve over a run of scrapes, with a verdict on each metric. Pure.

Both are scraped at the same moments. What is kept of a series is a few numbers, so a run may
take as long as one likes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from exporters.compare.exposition_parser import MOST_SERIES, Families, Key, Labels, written
from exporters.compare.series_match import Matching, paired
from exporters.compare.tolerance import Measure, Tolerance, ToleranceOverride, how_to_compare
from exporters.compare.tracks import SeriesTrack
from exporters.compare.verdict import (
    STALE_ROUNDS,
    Compared,
    ComparisonResult,
    Finding,
    MetricSide,
    MetricVerdict,
    SideActivity,
    compared_value,
    judge,
)

EXAMPLES = 3
"""Series that a finding shows."""

MOST_TRACKS = 2 * MOST_SERIES
"""Series that are followed on one side: more than one scrape may have, since some come and go."""


_WORST_FIRST = {verdict: place for place, verdict in enumerate(MetricVerdict)}
_HARMLESS = frozenset({MetricVerdict.HELP})
_EXTRA = frozenset({MetricVerdict.ONLY_RIGHT, MetricVerdict.MISSING_LEFT})


Names = defaultdict[str, set[str]]
"""Today's name of a label to the names that a side writes."""


class TooManySeries(ValueError):
    """A side has more series over the run than are followed."""


class _Metric:
    """One metric on both sides, so far; the left side is 0."""

    __slots__ = ("collisions", "helps", "kinds", "names", "tracks")

    def __init__(self) -> None:
        self.kinds: list[str | None] = [None, None]
        self.helps: list[str | None] = [None, None]
        self.tracks: tuple[dict[Labels, SeriesTrack], dict[Labels, SeriesTrack]] = ({}, {})
        self.names: tuple[Names, Names] = (defaultdict(set), defaultdict(set))
        self.collisions: set[Labels] = set()


class Comparison:
    """Compares the series of two exporters over a run of scrapes."""

    def __init__(
        self,
        matching: Matching,
        *,
        wanted: Callable[[str], bool] = lambda _name: True,
        wishes: Sequence[ToleranceOverride] = (),
        allow_extra: bool = False,
    ) -> None:
        """With ``allow_extra`` what only the right side has is no difference.

        ``wanted`` is called with names as they are written, without the prefix.
        """
        self._matching = matching
        self._wanted = wanted
        self._wishes = wishes
        self._harmless = _HARMLESS | (_EXTRA if allow_extra else frozenset())
        self._metrics: defaultdict[str, _Metric] = defaultdict(_Metric)
        self._labels: list[dict[Key, Labels]] = [{}, {}]
        self._followed = [0, 0]
        self.rounds = 0
        """In which both sides were added."""
        self._first_at = self._last_at = 0.0

    def add(self, left: Families, right: Families, at_seconds: float) -> None:
        """Take one round of scrapes: what both served at this time. Raises TooManySeries."""
        self.rounds += 1
        self._first_at = at_seconds if self.rounds == 1 else self._first_at
        self._last_at = at_seconds
        self._add(0, left, at_seconds)
        self._add(1, right, at_seconds)

    def _add(self, side: int, families: Families, at_seconds: float) -> None:
        known, used = self._labels[side], dict[Key, Labels]()
        for family in families.values():
            name = self._matching.name(family.name)
            if not family.series or not self._wanted(name):
                continue
            metric = self._metrics[name]
            metric.kinds[side], metric.helps[side] = family.kind, family.help
            tracks = metric.tracks[side]
            for key, value in family.series.items():
                labels = known.get(key)
                if labels is None:
                    labels = self._matching.labels(key, family.name)
                    for today, name_written in self._matching.written_names(key):
                        metric.names[side][today].add(name_written)
                used[key] = labels
                track = tracks.get(labels)
                if track is None:
                    tracks[labels] = SeriesTrack(value, at_seconds, self.rounds)
                    self._followed[side] += 1
                elif track.round == self.rounds:
                    metric.collisions.add(labels)
                else:
                    track.add(value, at_seconds, self.rounds)
        self._labels[side] = used
        if self._followed[side] > MOST_TRACKS:
            raise TooManySeries(f"more than {MOST_TRACKS} different series in this run")

    def outcome(self) -> ComparisonResult:
        """The result of all rounds so far: a verdict on each metric."""
        judged = [
            _Judged(name, metric, self.rounds, *how_to_compare(name, metric.kinds, self._wishes))
            for name, metric in sorted(self._metrics.items())
        ]
        metrics = tuple(each.compared(self._harmless) for each in judged)
        seconds = self._last_at - self._first_at
        return ComparisonResult(
            same=all(metric.verdict is MetricVerdict.SAME for metric in metrics),
            rounds=self.rounds,
            seconds=seconds,
            left=_pace(0, judged, seconds),
            right=_pace(1, judged, seconds),
            metrics=metrics,
        )


class _Pair(NamedTuple):
    """One series on both sides."""

    labels: Labels
    left: SeriesTrack
    right: SeriesTrack
    right_labels: Labels | None = None
    """Where they differ from ``labels``, the left side's."""


class _Judged:
    """One metric after the run: which series are pairs, and how they differ."""

    def __init__(
        self, name: str, metric: _Metric, rounds: int, measure: Measure, tolerance: Tolerance
    ) -> None:
        self._name = name
        self._metric = metric
        self._rounds = rounds
        self._measure = measure
        self._tolerance = tolerance
        left, right = metric.tracks
        self.pairs = [_Pair(it, left[it], right[it]) for it in left if it in right]
        self._lonely = tuple(
            {labels for labels in mine if labels not in other}
            for mine, other in ((left, right), (right, left))
        )
        for mine, others in list(paired(*self._lonely)):
            self._lonely[0].discard(mine)
            self._lonely[1].discard(others)
            self.pairs.append(_Pair(mine, left[mine], right[others], others))
        self._moved = sum(bool(it.left.changes or it.right.changes) for it in self.pairs)
        self._still = measure is Measure.RATE and not self._moved
        """Nothing of a counter moved: there is no rate to speak of."""
        self._verdicts = [
            judge(pair.left, pair.right, measure, tolerance, rounds) for pair in self.pairs
        ]

    def tracks(self, side: int) -> Mapping[Labels, SeriesTrack]:
        """All series of one side."""
        return self._metric.tracks[side]

    def frozen(self, side: int) -> int:
        """Series that stood still on this side alone."""
        stale = (MetricVerdict.STALE_LEFT, MetricVerdict.STALE_RIGHT)[side]
        return self._verdicts.count(stale)

    def compared(self, harmless: frozenset[MetricVerdict]) -> Compared:
        findings = sorted(self._findings(), key=lambda it: _WORST_FIRST[it.verdict])
        counting = [it.verdict for it in findings if it.verdict not in harmless]
        return Compared(
            name=self._name,
            verdict=counting[0] if counting else MetricVerdict.SAME,
            measure=self._measure,
            tolerance=str(self._tolerance) if self._measure is not Measure.EXACT else "none",
            pairs=len(self.pairs),
            moved=self._moved,
            left=self._side(0),
            right=self._side(1),
            findings=tuple(findings),
        )

    def _side(self, side: int) -> MetricSide:
        values = [self._value((pair.left, pair.right)[side]) for pair in self.pairs]
        return MetricSide(
            type=self._metric.kinds[side],
            help=self._metric.helps[side],
            series=len(self._metric.tracks[side]),
            value=sum(values) / len(values) if values else None,
        )

    def _value(self, track: SeriesTrack) -> float:
        return track.last if self._still else compared_value(track, self._measure)

    def _findings(self) -> Iterator[Finding]:
        left, right = self._metric.tracks
        if not left or not right:
            verdict = MetricVerdict.ONLY_LEFT if left else MetricVerdict.ONLY_RIGHT
            all_of_it = [*left, *right]
            yield _finding(verdict, all_of_it, f"{len(all_of_it)} series")
            return
        yield from self._announcements()
        yield from self._missing(0, MetricVerdict.MISSING_RIGHT)
        yield from self._missing(1, MetricVerdict.MISSING_LEFT)
        yield from self._labels()
        yield from self._spellings()
        yield from self._values()
        if collisions := sorted(self._metric.collisions):
            detail = "several series of one side are one by the labels they are matched by"
            yield _finding(MetricVerdict.COLLIDING, collisions, detail)

    def _announcements(self) -> Iterator[Finding]:
        types = [kind or "untyped" for kind in self._metric.kinds]
        if types[0] != types[1]:
            yield _finding(MetricVerdict.TYPE, (), f"{types[0]} against {types[1]}")
        if self._metric.helps[0] != self._metric.helps[1]:
            yield _finding(MetricVerdict.HELP, (), "the help texts differ")

    def _missing(self, side: int, verdict: MetricVerdict) -> Iterator[Finding]:
        """Series that only this side has, or has in far more rounds."""
        tracks = self._metric.tracks[side]
        lonely = [it for it in self._lonely[side] if self._is_missing(tracks[it].rounds, 0)]
        for pair in self.pairs:
            here, there = (pair.left.rounds, pair.right.rounds)[:: -1 if side else 1]
            if self._is_missing(here, there):
                lonely.append(pair.labels)
        if lonely:
            yield _finding(verdict, sorted(lonely), f"{len(lonely)} of {len(tracks)} series")

    def _is_missing(self, here: int, there: int) -> bool:
        """Whether a series that one side had in so many rounds is missing on the other.

        One that came and went may have ended before the other side was scraped.
        """
        if there == 0 and 2 * here > self._rounds:
            return True
        return here > 2 * there and here - there >= STALE_ROUNDS

    def _labels(self) -> Iterator[Finding]:
        """One finding for each set of labels that differ."""
        groups: defaultdict[tuple[str, ...], list[_Pair]] = defaultdict(list)
        for pair in self.pairs:
            if pair.right_labels is not None:
                apart = set(pair.labels) ^ set(pair.right_labels)
                groups[tuple(sorted({name for name, _ in apart}))].append(pair)
        for names, concerned in sorted(groups.items(), key=lambda it: -len(it[1]))[:EXAMPLES]:
            detail = ", ".join(_label_difference(name, concerned[0]) for name in names)
            yield _finding(MetricVerdict.LABELS, [pair.labels for pair in concerned], detail)

    def _spellings(self) -> Iterator[Finding]:
        """One finding for all labels that the sides spell differently."""
        left, right = self._metric.names
        apart = [
            f"{'/'.join(sorted(left[today]))} against {'/'.join(sorted(right[today]))}"
            for today in sorted(left.keys() & right.keys())
            if left[today] != right[today]
        ]
        if apart:
            pairs = [pair.labels for pair in self.pairs]
            yield _finding(MetricVerdict.LABELS, pairs, "; ".join(apart))

    def _values(self) -> Iterator[Finding]:
        for verdict in (MetricVerdict.STALE_RIGHT, MetricVerdict.STALE_LEFT, MetricVerdict.VALUES):
            concerned = [
                pair
                for pair, judged in zip(self.pairs, self._verdicts, strict=True)
                if judged is verdict
            ]
            if concerned:
                worst = max(concerned, key=self._apart)
                concerned = [worst, *(pair for pair in concerned if pair is not worst)]
                yield _finding(verdict, [it.labels for it in concerned], self._described(worst))

    def _apart(self, pair: _Pair) -> float:
        """How far apart the values are, to find the worst."""
        left, right = self._value(pair.left), self._value(pair.right)
        apart = abs(left - right) / (max(abs(left), abs(right)) or 1.0)
        return math.inf if math.isnan(apart) else apart

    def _described(self, pair: _Pair) -> str:
        left, right = self._value(pair.left), self._value(pair.right)
        if self._measure is not Measure.RATE:
            return f"{left:.6g} against {right:.6g}"
        if self._still:
            return f"{left:.6g} against {right:.6g}, and neither moves"
        return f"{left:.6g}/s against {right:.6g}/s"


def _label_difference(name: str, pair: _Pair) -> str:
    left, right = dict(pair.labels).get(name), dict(pair.right_labels or ()).get(name)
    if left is None or right is None:
        return f"{name} ({'right' if left is None else 'left'} only)"
    return f"{name} {left[:60]!r} against {right[:60]!r}"


def _finding(verdict: MetricVerdict, series: Sequence[Labels], detail: str) -> Finding:
    examples = tuple(written(labels) for labels in series[:EXAMPLES])
    return Finding(verdict=verdict, series=len(series), detail=detail, examples=examples)


def _pace(side: int, judged: Sequence[_Judged], seconds: float) -> SideActivity:
    tracks = [track for each in judged for track in each.tracks(side).values()]
    most_changes = max((track.changes for track in tracks), default=0)
    pairs = [(pair.left, pair.right)[side] for each in judged for pair in each.pairs]
    return SideActivity(
        series=len(tracks),
        moving=sum(track.changes > 0 for track in pairs),
        frozen=sum(each.frozen(side) for each in judged),
        renewed_seconds=seconds / most_changes if most_changes > 1 else None,
    )
