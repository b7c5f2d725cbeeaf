# SPDX-License-Identifier: Apache-2.0
"""Which series of two expositions are the same one, though names and labels differ. Pure.

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
"""Of a series with ``err_code``: that code in words, which each exporter has of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """Rules for matching series of two exporters: labels and prefixes that do not count."""

    ignored_labels: frozenset[str] = frozenset()
    prefixes: Sequence[str] = ()
    """Taken off the metrics' names, as shadow mode puts one before them."""
    spellings: Mapping[str, str] = field(default_factory=lambda: SPELLINGS)

    def name(self, name: str) -> str:
        """The metric's name without the first prefix that it has."""
        prefix = next((it for it in self.prefixes if it and name.startswith(it)), "")
        return name.removeprefix(prefix)

    def labels(self, key: Key, family: str) -> Labels:
        """By what a series is found on the other side, under the family that it stands under.

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
"""The same series as the left and as the right side label it."""


def paired(left: Iterable[Labels], right: Iterable[Labels]) -> Iterator[Pair]:
    """Series that match once some labels are left out of account; ``left`` and ``right`` are apart.

    First without the labels that only one side has, and those for which it shares no value with
    the other; of what is left then, without one label more. A series that would match several
    matches none, and one of another GPU never. The time is linear in the number of series.
    """
    lefts, rights = set(left), set(right)
    values_left, values_right = _values(lefts), _values(rights)
    dropped = frozenset(
        name
        for name in values_left.keys() | values_right.keys()
        if not values_left[name] & values_right[name]
    )
    kept = (values_left.keys() | values_right.keys()) - dropped
    for also in ("", *sorted(kept)[:_MOST_LABELS]):
        if not lefts or not rights:
            return
        for one, other in _unique(lefts, rights, dropped | {also}):
            lefts.discard(one)
            rights.discard(other)
            yield one, other


def _values(series: Iterable[Labels]) -> defaultdict[str, set[str]]:
    values: defaultdict[str, set[str]] = defaultdict(set)
    for labels in series:
        for name, value in labels:
            values[name].add(value)
    return values


def _unique(left: set[Labels], right: set[Labels], dropped: frozenset[str]) -> list[Pair]:
    """Pairs of series that are the only ones of their side once these labels are dropped."""
    by_rest_left, by_rest_right = _by_rest(left, dropped), _by_rest(right, dropped)
    pairs = (
        (one, other)
        for rest, one in sorted(by_rest_left.items())
        if one is not None and (other := by_rest_right.get(rest)) is not None
    )
    return [(one, other) for one, other in pairs if _may_be_one_device(one, other)]


def _may_be_one_device(one: Labels, other: Labels) -> bool:
    """Something that names a GPU is the same in both, and so is the GPU instance."""
    left, right = dict(one), dict(other)
    same = [left[name] == right[name] for name in _DEVICE if name in left and name in right]
    return (any(same) or not same) and left.get(_INSTANCE) == right.get(_INSTANCE)


def _by_rest(series: Iterable[Labels], dropped: frozenset[str]) -> dict[Labels, Labels | None]:
    """Series by their labels without the dropped ones; None where there are several."""
    found: dict[Labels, Labels | None] = {}
    for labels in series:
        rest = tuple(label for label in labels if label[0] not in dropped)
        found[rest] = None if rest in found else labels
    return found
