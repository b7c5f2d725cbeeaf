# SPDX-License-Identifier: Apache-2.0
"""Grafana's tables as values: rows of labels and values, and matrices. Pure.

Grafana has every label as text, and sorts text as text: 0, 1, 10, 2. So what is a number is made
one first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tools.monitoring.grafana import Json, Link, Panel, Query, Unit, mapped


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    label: str
    """A label, or ``Value #A`` and so on for the value of a query."""
    title: str
    unit: Unit | None = None
    is_number: bool = False
    """The label's values are numbers, which name something: SXid 20034 is not 20.0 K. Grafana has
    all labels as text, 10 before 2."""
    is_bar: bool = False
    """The cell has a bar as long as its value."""
    link: Link | None = None
    """Link of the column's cells."""

    def properties(self) -> list[Json]:
        """What holds for this column alone."""
        settings: list[Json] = []
        unit = Unit.AS_IT_IS if self.is_number and self.unit is None else self.unit
        if unit is not None:
            settings.append({"id": "unit", "value": unit})
        if self.is_bar:
            settings.append(
                {"id": "custom.cellOptions", "value": {"type": "gauge", "mode": "basic"}}
            )
            # or the numbers of GPUs count too
            settings.append({"id": "fieldMinMax", "value": True})
        if self.link is not None:
            settings.append({"id": "links", "value": [self.link.json()]})
        return settings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tabular(Panel):
    """A panel that shows the newest answers as rows."""

    kind = "table"

    def target(self, index: int, query: Query) -> Json:
        return Panel.target(self, index, query) | {"format": "table"}

    def options(self) -> Json:
        return {"cellHeight": "sm", "footer": {"show": False}, "showHeader": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(_Tabular):
    """Labels and values as they are now, a row for each set of labels that the columns name.

    Where a column holds numbers, rows are in the order of the columns up to it.
    """

    columns: tuple[Column, ...]

    def custom(self) -> Json:
        return {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True}

    def transformations(self) -> list[Json]:
        kept = [column.label for column in self.columns]
        numbers = [column.label for column in self.columns if column.is_number]
        ordered = kept[: kept.index(numbers[-1]) + 1] if numbers else []
        merged = [{"id": "merge", "options": {}}] if len(self.queries) > 1 else []
        return [
            *merged,
            {"id": "filterFieldsByName", "options": {"include": {"names": kept}}},
            *_sorted(ordered, numbers),
            {
                "id": "organize",
                "options": {
                    "indexByName": {name: index for index, name in enumerate(kept)},
                    "renameByName": {column.label: column.title for column in self.columns},
                },
            },
        ]

    def overrides(self) -> list[Json]:
        return [
            _override(column.title, column.properties())
            for column in self.columns
            if column.properties()
        ]


CELLS = 32
"""Number of cells in a row: the labels that a row of the topology has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix(_Tabular):
    """Rows of a matrix, a series each, as a table whose cells have their value's colour.

    Cells are the labels ``to_00``, ``to_01`` and so on, by the numbers of the columns.
    """

    row: str
    """The label that names the row."""
    rows_by: tuple[str, ...] = ()
    """Labels whose values are numbers by which the rows are ordered; else ``row`` is."""
    corner: str = "GPU"
    """What the rows are, for people."""
    words: Mapping[int, str] = field(default_factory=dict)
    """What is shown in place of a value."""
    scheme: str = "continuous-blues"

    def custom(self) -> Json:
        cell = {"type": "color-background", "mode": "basic"}
        return {"align": "center", "cellOptions": cell, "minWidth": 40}

    def transformations(self) -> list[Json]:
        """The rows' numbers end as text: as numbers they would count for the colours."""
        order = self.rows_by or (self.row,)
        cells = [f"to_{index:02}" for index in range(CELLS)]
        names = {self.row: self.corner} | {cell: str(index) for index, cell in enumerate(cells)}
        return [
            *_sorted(order, order),
            _converted(cells, "number"),
            {"id": "filterFieldsByName", "options": {"include": {"names": list(names)}}},
            {
                "id": "organize",
                "options": {
                    "indexByName": {name: index for index, name in enumerate(names)},
                    "renameByName": names,
                },
            },
            # what is text already would get quotation marks
            *([_converted([self.corner], "string")] if self.row in order else []),
        ]

    def overrides(self) -> list[Json]:
        # what is shown in place of values must not be shown in place of the rows' numbers
        itself = {"match": "null", "result": {"color": "transparent", "text": "·"}}
        words = [
            *mapped({value: (word, None) for value, word in self.words.items()}),
            {"options": itself, "type": "special"},
        ]
        plain = {"id": "custom.cellOptions", "value": {"type": "auto"}}
        return [
            _override(self.corner, [plain]),
            {
                "matcher": {"id": "byRegexp", "options": f"/^(?!{self.corner}$)/"},
                "properties": [{"id": "mappings", "value": words}],
            },
        ]


def _sorted(order: Sequence[str], numbers: Sequence[str]) -> list[Json]:
    """Rows in the order of these fields, the first one before all; sorting is stable."""
    if not order:
        return []
    steps = [{"id": "sortBy", "options": {"sort": [{"field": name}]}} for name in reversed(order)]
    return [_converted(numbers, "number"), *steps]


def _converted(names: Iterable[str], to: str) -> Json:
    conversions = [{"destinationType": to, "targetField": name} for name in names]
    return {"id": "convertFieldType", "options": {"conversions": conversions}}


def _override(title: str, properties: list[Json]) -> Json:
    return {"matcher": {"id": "byName", "options": title}, "properties": properties}
