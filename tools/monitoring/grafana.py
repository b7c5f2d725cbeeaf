# SPDX-License-Identifier: Apache-2.0
"""Grafana's panels and dashboards as values, with what is particular to each type. Pure.

Only what our dashboards use. Source: Grafana's dashboard JSON model, schema version 39
(Grafana 11), which later ones migrate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]


class Unit(StrEnum):
    """Units of values as Grafana names them."""

    AS_IT_IS = "none"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    CELSIUS = "celsius"
    COUNT = "short"
    EVENTS_PER_SECOND = "eps"
    HERTZ = "hertz"
    HOURS = "h"
    KILOWATT_HOURS = "kwatth"
    RATIO = "percentunit"
    REQUESTS_PER_SECOND = "reqps"
    SECONDS = "s"
    WATTS = "watt"


class Color(StrEnum):
    """Grafana's names of colours that differ for most people with colour-blindness too."""

    GOOD = "green"
    NEUTRAL = "blue"
    WARNING = "orange"
    BAD = "red"
    QUIET = "#6e7079"
    """Colour of states that do not hold, a grey behind all others; Grafana has no name for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A PromQL expression of a panel."""

    expression: str
    legend: str = ""
    """Legend of the series, with ``{{label}}`` for the value of a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The target of a click."""

    title: str
    url: str
    """Address, with Grafana's variables of the dashboard, the row or the series."""

    def json(self) -> Json:
        """The link in Grafana's JSON."""
        return {"title": self.title, "url": self.url}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel: its queries, and how it shows their results."""

    title: str
    description: str
    """What it shows and when it is empty, for the reader."""
    queries: tuple[Query, ...]
    unit: Unit = Unit.COUNT
    width: int = 12
    height: int = 8
    minimum: float | None = 0
    """Lower end of the scale; None: Grafana chooses."""
    maximum: float | None = None
    decimals: int | None = None
    steps: tuple[tuple[float, Color], ...] = ()
    """Colours from these values on; below them it is neutral."""
    link: Link | None = None
    """Link of each series or number; in tables columns have links."""

    kind = ""
    """Grafana's name of the panel type."""
    instant = True
    """Asks for now; else for all the time shown."""

    def options(self) -> Json:
        """What is particular to the type."""
        return {}

    def custom(self) -> Json:
        """What is particular to the type about each field."""
        return {}

    def overrides(self) -> list[Json]:
        """What holds for some fields alone."""
        return []

    def transformations(self) -> list[Json]:
        """What is done with the answers before they are shown."""
        return []

    def target(self, index: int, query: Query) -> Json:
        """A query in Grafana's JSON; its letter follows from ``index``."""
        shown = {"legendFormat": query.legend} if query.legend else {}
        return {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": query.expression,
            "instant": self.instant,
            "range": not self.instant,
            "refId": chr(ord("A") + index),
            **shown,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph(Panel):
    """Lines over time."""

    stacked: bool = False

    kind = "timeseries"
    instant = False

    def custom(self) -> Json:
        return {
            "drawStyle": "line",
            "fillOpacity": 30 if self.stacked else 8,
            "lineWidth": 1,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if self.stacked else "none"},
        }

    def options(self) -> Json:
        return {
            "legend": {
                "calcs": ["lastNotNull", "max"],
                "displayMode": "table",
                "placement": "right",
                "showLegend": True,
                "sortBy": "Name",  # GPU 2 before GPU 10
                "sortDesc": False,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Panel):
    """A panel with a big number."""

    spark: bool = False
    """Whether its graph over time is drawn behind it."""

    kind = "stat"

    def target(self, index: int, query: Query) -> Json:
        # explicit, since a dataclass with slots has no super() without arguments
        fields = Panel.target(self, index, query)
        return fields | {"instant": not self.spark, "range": self.spark}

    def options(self) -> Json:
        return {
            "colorMode": "value",
            "graphMode": "area" if self.spark else "none",
            "justifyMode": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "auto",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Words(Number):
    """Labels of one series in place of its number."""

    def options(self) -> Json:
        return Number.options(self) | {"textMode": "name", "graphMode": "none"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars(Panel):
    """A bar for the present value of each series."""

    kind = "bargauge"

    def options(self) -> Json:
        return {
            "displayMode": "gradient",
            "orientation": "horizontal",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "showUnfilled": True,
            "valueMode": "color",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline(Panel):
    """States over time, a row for each series."""

    words: Mapping[int, tuple[str, Color]]
    """What a value is called, and its colour."""

    kind = "state-timeline"
    instant = False

    def custom(self) -> Json:
        return {"fillOpacity": 80, "lineWidth": 0}

    def options(self) -> Json:
        return {
            "alignValue": "left",
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "mergeValues": True,
            "rowHeight": 0.9,
            "showValue": "never",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A heading with its panels."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """What can be chosen above a dashboard: values of a label, of the series that match."""

    name: str
    label: str
    """Name of the variable for people."""
    series: str
    values_of: str
    """Label whose values are offered, in natural order, 2 before 10, also within names."""
    several: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A dashboard: its variables, and rows of panels."""

    uid: str
    """Stays, so that links to it do."""
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]


def mapped(words: Mapping[int, tuple[str, Color | None]]) -> list[Json]:
    """Words in place of values, some with a colour."""
    if not words:
        return []
    options = {
        str(value): {"index": index, "text": text} | ({} if color is None else {"color": color})
        for index, (value, (text, color)) in enumerate(words.items())
    }
    return [{"options": options, "type": "value"}]
