# SPDX-License-Identifier: Apache-2.0
"""Compare what two exporters serve over a run of scrapes, with a verdict on each metric. Pure.

Both are scraped at the same moments. A series is kept as a few numbers, so a run may take as long
as one likes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from exporters.compare.exposition_parser import (
    MOST_SERIES,
    Families,
    Key,
    Labels,
    exposition_labels,
)
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
    metric_verdict,
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
    """Series of a metric on both sides, as far as they were read; the left side is 0."""

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
        is_compared: Callable[[str], bool] = lambda _name: True,
        overrides: Sequence[ToleranceOverride] = (),
        allow_extra: bool = False,
    ) -> None:
        """With ``allow_extra`` metrics and series that only the right side has are no difference.

        ``is_compared`` is called with names as they are written, without the prefix.
        """
        self._matching = matching
        self._is_compared = is_compared
        self._overrides = overrides
        self._harmless = _HARMLESS | (_EXTRA if allow_extra else frozenset())
        self._metrics: defaultdict[str, _Metric] = defaultdict(_Metric)
        self._labels: list[dict[Key, Labels]] = [{}, {}]
        self._followed = [0, 0]
        self.rounds = 0
        """Rounds in which both sides were added."""
        self._first_at = self._last_at = 0.0

    def add(self, left_families: Families, right_families: Families, at_seconds: float) -> None:
        """Take one round of scrapes: what both served at this time. Raises TooManySeries."""
        self.rounds += 1
        self._first_at = at_seconds if self.rounds == 1 else self._first_at
        self._last_at = at_seconds
        self._add(0, left_families, at_seconds)
        self._add(1, right_families, at_seconds)

    def _add(self, side: int, families: Families, at_seconds: float) -> None:
        known, used = self._labels[side], dict[Key, Labels]()
        for family in families.values():
            name = self._matching.name(family.name)
            if not family.series or not self._is_compared(name):
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
            _Judged(name, metric, self.rounds, *how_to_compare(name, metric.kinds, self._overrides))
            for name, metric in sorted(self._metrics.items())
        ]
        metrics = tuple(judged_metric.compared(self._harmless) for judged_metric in judged)
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
    """A series that both sides have."""

    labels: Labels
    left_track: SeriesTrack
    right_track: SeriesTrack
    right_labels: Labels | None = None
    """Labels on the right side where they differ from ``labels``, those of the left."""


class _Judged:
    """A metric after the run: its pairs of series and their differences."""

    def __init__(
        self, name: str, metric: _Metric, rounds: int, measure: Measure, tolerance: Tolerance
    ) -> None:
        self._name = name
        self._metric = metric
        self._rounds = rounds
        self._measure = measure
        self._tolerance = tolerance
        left_tracks, right_tracks = metric.tracks
        self.pairs = [
            _Pair(labels, left_tracks[labels], right_tracks[labels])
            for labels in left_tracks
            if labels in right_tracks
        ]
        self._lonely = tuple(
            {labels for labels in own if labels not in other}
            for own, other in ((left_tracks, right_tracks), (right_tracks, left_tracks))
        )
        for left_labels, right_labels in list(paired(*self._lonely)):
            self._lonely[0].discard(left_labels)
            self._lonely[1].discard(right_labels)
            self.pairs.append(
                _Pair(
                    left_labels, left_tracks[left_labels], right_tracks[right_labels], right_labels
                )
            )
        self._moved = sum(
            bool(pair.left_track.changes or pair.right_track.changes) for pair in self.pairs
        )
        self._still = measure is Measure.RATE and not self._moved
        """No series of a counter moved, so that there is no rate to compare."""
        self._verdicts = [
            metric_verdict(pair.left_track, pair.right_track, measure, tolerance, rounds)
            for pair in self.pairs
        ]

    def tracks(self, side: int) -> Mapping[Labels, SeriesTrack]:
        """All series of a side."""
        return self._metric.tracks[side]

    def frozen(self, side: int) -> int:
        """Series that stood still on this side alone."""
        stale = (MetricVerdict.STALE_LEFT, MetricVerdict.STALE_RIGHT)[side]
        return self._verdicts.count(stale)

    def compared(self, harmless: frozenset[MetricVerdict]) -> Compared:
        findings = sorted(self._findings(), key=lambda finding: _WORST_FIRST[finding.verdict])
        counting = [finding.verdict for finding in findings if finding.verdict not in harmless]
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
        values = [self._value((pair.left_track, pair.right_track)[side]) for pair in self.pairs]
        return MetricSide(
            type=self._metric.kinds[side],
            help=self._metric.helps[side],
            series=len(self._metric.tracks[side]),
            value=sum(values) / len(values) if values else None,
        )

    def _value(self, track: SeriesTrack) -> float:
        return track.last if self._still else compared_value(track, self._measure)

    def _findings(self) -> Iterator[Finding]:
        left_tracks, right_tracks = self._metric.tracks
        if not left_tracks or not right_tracks:
            verdict = MetricVerdict.ONLY_LEFT if left_tracks else MetricVerdict.ONLY_RIGHT
            all_of_it = [*left_tracks, *right_tracks]
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
        lonely = [
            labels for labels in self._lonely[side] if self._is_missing(tracks[labels].rounds, 0)
        ]
        for pair in self.pairs:
            own_rounds, other_rounds = (pair.left_track.rounds, pair.right_track.rounds)[
                :: -1 if side else 1
            ]
            if self._is_missing(own_rounds, other_rounds):
                lonely.append(pair.labels)
        if lonely:
            yield _finding(verdict, sorted(lonely), f"{len(lonely)} of {len(tracks)} series")

    def _is_missing(self, own_rounds: int, other_rounds: int) -> bool:
        """Whether a series that one side had in so many rounds is missing on the other.

        One that came and went may have ended before the other side was scraped.
        """
        if other_rounds == 0 and 2 * own_rounds > self._rounds:
            return True
        return own_rounds > 2 * other_rounds and own_rounds - other_rounds >= STALE_ROUNDS

    def _labels(self) -> Iterator[Finding]:
        """A finding for each set of labels that differ."""
        groups: defaultdict[tuple[str, ...], list[_Pair]] = defaultdict(list)
        for pair in self.pairs:
            if pair.right_labels is not None:
                differing = set(pair.labels) ^ set(pair.right_labels)
                groups[tuple(sorted({name for name, _ in differing}))].append(pair)
        for names, concerned in sorted(groups.items(), key=lambda group: -len(group[1]))[:EXAMPLES]:
            detail = ", ".join(_label_difference(name, concerned[0]) for name in names)
            yield _finding(MetricVerdict.LABELS, [pair.labels for pair in concerned], detail)

    def _spellings(self) -> Iterator[Finding]:
        """A finding for all labels that the sides spell differently."""
        left_names, right_names = self._metric.names
        spellings = [
            f"{'/'.join(sorted(left_names[today]))} against {'/'.join(sorted(right_names[today]))}"
            for today in sorted(left_names.keys() & right_names.keys())
            if left_names[today] != right_names[today]
        ]
        if spellings:
            pairs = [pair.labels for pair in self.pairs]
            yield _finding(MetricVerdict.LABELS, pairs, "; ".join(spellings))

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
                yield _finding(verdict, [pair.labels for pair in concerned], self._described(worst))

    def _apart(self, pair: _Pair) -> float:
        """Relative difference of the pair's values, to find the worst."""
        left_value, right_value = self._value(pair.left_track), self._value(pair.right_track)
        difference = abs(left_value - right_value) / (max(abs(left_value), abs(right_value)) or 1.0)
        return math.inf if math.isnan(difference) else difference

    def _described(self, pair: _Pair) -> str:
        left_value, right_value = self._value(pair.left_track), self._value(pair.right_track)
        if self._measure is not Measure.RATE:
            return f"{left_value:.6g} against {right_value:.6g}"
        if self._still:
            return f"{left_value:.6g} against {right_value:.6g}, and neither moves"
        return f"{left_value:.6g}/s against {right_value:.6g}/s"


def _label_difference(name: str, pair: _Pair) -> str:
    left_value, right_value = dict(pair.labels).get(name), dict(pair.right_labels or ()).get(name)
    if left_value is None or right_value is None:
        return f"{name} ({'right' if left_value is None else 'left'} only)"
    return f"{name} {left_value[:60]!r} against {right_value[:60]!r}"


def _finding(verdict: MetricVerdict, series: Sequence[Labels], detail: str) -> Finding:
    examples = tuple(exposition_labels(labels) for labels in series[:EXAMPLES])
    return Finding(verdict=verdict, series=len(series), detail=detail, examples=examples)


def _pace(side: int, judged: Sequence[_Judged], seconds: float) -> SideActivity:
    tracks = [track for judged_metric in judged for track in judged_metric.tracks(side).values()]
    most_changes = max((track.changes for track in tracks), default=0)
    pairs = [
        (pair.left_track, pair.right_track)[side]
        for judged_metric in judged
        for pair in judged_metric.pairs
    ]
    return SideActivity(
        series=len(tracks),
        moving=sum(track.changes > 0 for track in pairs),
        frozen=sum(judged_metric.frozen(side) for judged_metric in judged),
        renewed_seconds=seconds / most_changes if most_changes > 1 else None,
    )
