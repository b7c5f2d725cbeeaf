# SPDX-License-Identifier: Apache-2.0
"""Series that a selector finds on the old exporter and not on the new one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from exporters.queries.grafana_variables import ANY, ANY_NAME
from exporters.queries.losses import LossKind, QueryNotes, metric_names, served_instead
from exporters.queries.promql import NAME_LABEL, LabelMatcher, Selector
from exporters.queries.results import value_of
from exporters.queries.served_series import Finder, Labels, is_open, label_names

_DEVICE: Final = ("gpu", "GPU_I_ID")
_MOST_NAMED: Final = 5


class SelectorLosses:
    """Compares the series that selectors find on the old and on the new exporter."""

    def __init__(self, finder: Finder, served: tuple[str, ...]) -> None:
        """``served`` are the names of the new exporter's metrics."""
        self._finder = finder
        self._served = served

    def compare(
        self,
        selector: Selector,
        pools: tuple[list[Labels], list[Labels]],
        selected: tuple[list[Labels], list[Labels]],
        notes: QueryNotes,
    ) -> None:
        """Note what the selector found on the old exporter and does not find on the new one.

        ``pools`` are the series of the metrics that its name allows, ``selected`` those of them
        that it finds; each on the old and on the new exporter.
        """
        old, new = selected
        served = frozenset(value_of(labels, NAME_LABEL) for labels in pools[1])
        lost = sorted({value_of(labels, NAME_LABEL) for labels in old} - served)
        if not _has_open_name(selector) or not new:
            for name in lost:
                if not served_instead(metric_names(name), served, name):
                    instead = served_instead(metric_names(name), self._served, name)
                    notes.lose(LossKind.SERIES, name, "the metric has no series", instead)
        before = [labels for labels in pools[0] if value_of(labels, NAME_LABEL) in served]
        if not before or not pools[1]:
            return
        known = len(notes.losses)
        self._compare_conditions(selector, before, pools[1], notes)
        if old and not new and len(notes.losses) == known:
            self._compare_values(selector, pools[1], notes)
        elif new:
            _compare_devices(selector, old, new, notes)

    def _compare_conditions(
        self, selector: Selector, before: list[Labels], after: list[Labels], notes: QueryNotes
    ) -> None:
        had, has = label_names(before), label_names(after)
        used = [
            matcher.label for matcher in _conditions(selector) if not matcher.matches_everything
        ]
        for label, name in self._finder.served_names(used):
            if name in had and name not in has:
                notes.lose_label(label, "a condition", after)

    def _compare_values(self, selector: Selector, after: list[Labels], notes: QueryNotes) -> None:
        for matcher in _conditions(selector):
            if not any(self._finder.holds(matcher, labels) for labels in after):
                notes.lose(LossKind.VALUE, str(matcher), "no value matches")
                return
        notes.lose(LossKind.VALUE, selector.text, "no series meets all conditions")


def _compare_devices(
    selector: Selector, old: list[Labels], new: list[Labels], notes: QueryNotes
) -> None:
    """Note the GPUs and GPU instances that only the old series have."""
    lost_devices = sorted(_devices(old) - _devices(new)) if label_names(new) & {"gpu"} else []
    if lost_devices:
        named = ", ".join(lost_devices[:_MOST_NAMED])
        more = (
            f" and {len(lost_devices) - _MOST_NAMED} more"
            if len(lost_devices) > _MOST_NAMED
            else ""
        )
        notes.lose(
            LossKind.SERIES,
            metric_name_of(selector) or selector.text,
            f"no series of {named}{more}",
        )


def _devices(series: Iterable[Labels]) -> set[str]:
    places = ([value_of(labels, name) for name in _DEVICE] for labels in series)
    return {
        f"gpu {gpu}" + (f" instance {instance}" if instance else "")
        for gpu, instance in places
        if gpu
    }


def _conditions(selector: Selector) -> Iterator[LabelMatcher]:
    for group in selector.alternatives:
        yield from (matcher for matcher in group if matcher.label != NAME_LABEL)


def metric_name_of(selector: Selector) -> str | None:
    """The metric that the selector names; None for one that may find several."""
    names = {
        matcher.value
        for group in selector.alternatives
        for matcher in group
        if matcher.label == NAME_LABEL and matcher.operator == "=" and not is_open(matcher)
    }
    return names.pop() if len(names) == 1 else None


def _name_conditions(selector: Selector) -> list[LabelMatcher]:
    return [
        matcher
        for group in selector.alternatives
        for matcher in group
        if matcher.label == NAME_LABEL
    ]


def _has_open_name(selector: Selector) -> bool:
    return any(map(is_open, _name_conditions(selector)))


def is_all_open(selector: Selector) -> bool:
    """Whether a variable alone names the metric."""
    return any(matcher.value in (ANY, ANY_NAME) for matcher in _name_conditions(selector))
