# SPDX-License-Identifier: Apache-2.0
"""Find the series that two expositions have in common, though names and labels differ. Pure.

Older spellings of labels are matched with today's, so that values can be compared. They are a
difference all the same: a query by the one finds nothing by the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from exporters.compare.exposition_parser import Key, Labels

SPELLINGS: Mapping[str, str] = {
    "Hostname": "hostname",
    "uuid": "UUID",
    "pod_name": "pod",
    "pod_namespace": "namespace",
    "container_name": "container",
}
"""Labels of older versions and of dcgm-exporter's old namespace, to their names today."""


_IMPLIED = frozenset({"err_msg"})
"""Labels ignored on a series with ``err_code``: the code in the words of each exporter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """Rules for matching series of two exporters: labels and prefixes that do not count."""

    ignored_labels: frozenset[str] = frozenset()
    prefixes: Sequence[str] = ()
    """Taken off the metrics' names, as shadow mode puts one before them."""
    spellings: Mapping[str, str] = field(default_factory=lambda: SPELLINGS)

    def name(self, name: str) -> str:
        """The metric's name without the first prefix that it has."""
        prefixes = (prefix for prefix in self.prefixes if prefix and name.startswith(prefix))
        return name.removeprefix(next(prefixes, ""))

    def labels(self, key: Key, family: str) -> Labels:
        """Labels by which a series is found on the other side, below its family.

        Empty labels are left out, as Prometheus does; what a histogram's series is goes in as
        ``__name__``.
        """
        name, own = key
        names = {label for label, _ in own}
        ignored = self.ignored_labels | (_IMPLIED if "err_code" in names else frozenset())
        labels = {
            today: value
            for label, value in own
            if value
            and label not in ignored
            and (today := self._spelling(label, names)) not in self.ignored_labels
        }
        if name != family:
            labels["__name__"] = name.removeprefix(family)
        return tuple(sorted(labels.items()))

    def written_names(self, key: Key) -> Iterator[tuple[str, str]]:
        """Today's name and the written one, of labels that have several spellings."""
        _, own = key
        names = {label for label, _ in own}
        for label, value in own:
            today = self._spelling(label, names)
            ignored = not self.ignored_labels.isdisjoint((label, today))
            if value and today in self.spellings.values() and not ignored:
                yield today, label

    def _spelling(self, label: str, names: set[str]) -> str:
        """Today's name, unless the series has a label of that name too."""
        today = self.spellings.get(label, label)
        return label if today in names else today


_DEVICE = ("UUID", "gpu", "pci_bus_id", "device")
_INSTANCE = "GPU_I_ID"
_MOST_LABELS = 32
"""Labels that are tried one by one; dcgm-exporter's series have no more."""

Pair = tuple[Labels, Labels]
"""Labels of a series on the left side, and of the same series on the right."""


def paired(left_series: Iterable[Labels], right_series: Iterable[Labels]) -> Iterator[Pair]:
    """Pairs of series that match once some labels are ignored; the two sides are disjoint.

    First without the labels that only one side has, and those for which it shares no value with
    the other; of what is left then, without one label more. A series that would match several
    matches none, and one of another GPU never. The time is linear in the number of series.
    """
    left_unpaired, right_unpaired = set(left_series), set(right_series)
    left_values, right_values = _values(left_unpaired), _values(right_unpaired)
    dropped = frozenset(
        name
        for name in left_values.keys() | right_values.keys()
        if not left_values[name] & right_values[name]
    )
    kept = (left_values.keys() | right_values.keys()) - dropped
    for extra_label in ("", *sorted(kept)[:_MOST_LABELS]):
        if not left_unpaired or not right_unpaired:
            return
        for left_labels, right_labels in _unique(
            left_unpaired, right_unpaired, dropped | {extra_label}
        ):
            left_unpaired.discard(left_labels)
            right_unpaired.discard(right_labels)
            yield left_labels, right_labels


def _values(series: Iterable[Labels]) -> defaultdict[str, set[str]]:
    values: defaultdict[str, set[str]] = defaultdict(set)
    for labels in series:
        for name, value in labels:
            values[name].add(value)
    return values


def _unique(
    left_series: set[Labels], right_series: set[Labels], dropped: frozenset[str]
) -> list[Pair]:
    """Pairs of series that are the only ones of their side once these labels are dropped."""
    left_by_rest, right_by_rest = _by_rest(left_series, dropped), _by_rest(right_series, dropped)
    pairs = (
        (left_labels, right_labels)
        for rest, left_labels in sorted(left_by_rest.items())
        if left_labels is not None and (right_labels := right_by_rest.get(rest)) is not None
    )
    return [
        (left_labels, right_labels)
        for left_labels, right_labels in pairs
        if _may_be_one_device(left_labels, right_labels)
    ]


def _may_be_one_device(left_labels: Labels, right_labels: Labels) -> bool:
    """Whether a label that names the GPU is equal, if both have one, and the GPU instance is."""
    left_values, right_values = dict(left_labels), dict(right_labels)
    same = [
        left_values[name] == right_values[name]
        for name in _DEVICE
        if name in left_values and name in right_values
    ]
    return (any(same) or not same) and left_values.get(_INSTANCE) == right_values.get(_INSTANCE)


def _by_rest(series: Iterable[Labels], dropped: frozenset[str]) -> dict[Labels, Labels | None]:
    """Series by their labels without the dropped ones; None where there are several."""
    series_by_rest: dict[Labels, Labels | None] = {}
    for labels in series:
        rest = tuple(label for label in labels if label[0] not in dropped)
        series_by_rest[rest] = None if rest in series_by_rest else labels
    return series_by_rest
