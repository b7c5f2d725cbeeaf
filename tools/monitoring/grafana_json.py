# SPDX-License-Identifier: Apache-2.0
"""The JSON that Grafana imports, of a dashboard's declaration. Pure.

Panels are laid out in reading order, on 24 columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from tools.monitoring.grafana import (
    DATASOURCE,
    Color,
    Dashboard,
    Json,
    Panel,
    Row,
    Timeline,
    Variable,
    mapped,
)
from tools.monitoring.grafana_tables import Matrix

SCHEMA_VERSION = 39
COLUMNS = 24
NATURAL = 7
"""How values of variables are sorted: VariableSort.naturalAsc."""


def text(of: Dashboard) -> str:
    """The dashboard's file."""
    return json.dumps(_dashboard(of), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _dashboard(of: Dashboard) -> Json:
    return {
        "description": of.description,
        "editable": True,
        "graphTooltip": 1,  # one crosshair for all panels
        "links": [
            {
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
                "tags": ["gpuscape"],
                "title": "gpuscape",
                "type": "dashboards",
            }
        ],
        "panels": list(_laid_out(of.rows)),
        "refresh": "30s",
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["gpuscape", "gpu"],
        "templating": {"list": [_DATASOURCES, *map(_variable, of.variables)]},
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "title": of.title,
        "uid": of.uid,
    }


_DATASOURCES: Json = {
    "label": "Data source",
    "name": "datasource",
    "query": "prometheus",
    "type": "datasource",
}


def _variable(of: Variable) -> Json:
    query = f"label_values({of.series}, {of.of})"
    found = {
        "datasource": DATASOURCE,
        "definition": query,
        "includeAll": of.several,
        "label": of.label,
        "multi": of.several,
        "name": of.name,
        "query": {"qryType": 1, "query": query, "refId": of.name},
        "refresh": 2,  # with the time range
        "sort": NATURAL,
        "type": "query",
    }
    if of.several:
        # everything, also series without the label: few clusters have a label cluster
        found |= {"allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}}
    return found


def _laid_out(rows: Sequence[Row]) -> Iterator[Json]:
    number, y = 0, 0
    for row in rows:
        number += 1
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
        head: Json = {
            "collapsed": row.collapsed,
            "gridPos": place,
            "id": number,
            "panels": [],
            "title": row.title,
            "type": "row",
        }
        y += 1
        places, y = _places(row.panels, y)
        inside = [
            _panel(panel, number + at, place)
            for at, (panel, place) in enumerate(zip(row.panels, places, strict=True), 1)
        ]
        number += len(inside)
        if row.collapsed:
            head["panels"] = inside
            yield head
        else:
            yield head
            yield from inside


def _places(panels: Iterable[Panel], y: int) -> tuple[list[Json], int]:
    """Where each panel is, and where the next row begins."""
    places, x, height = [], 0, 0
    for panel in panels:
        if x + panel.width > COLUMNS:
            x, y, height = 0, y + height, 0
        places.append({"h": panel.height, "w": panel.width, "x": x, "y": y})
        x, height = x + panel.width, max(height, panel.height)
    return places, y + height


def _panel(of: Panel, number: int, place: Json) -> Json:
    return {
        "datasource": DATASOURCE,
        "description": of.description,
        "fieldConfig": {"defaults": _defaults(of), "overrides": of.overrides()},
        "gridPos": place,
        "id": number,
        "options": of.options(),
        "targets": [of.target(at, query) for at, query in enumerate(of.queries)],
        "title": of.title,
        "transformations": of.transformations(),
        "type": of.kind,
    }


def _defaults(of: Panel) -> Json:
    steps: list[Json] = [{"color": Color.NEUTRAL, "value": None}]
    steps += [{"color": color, "value": value} for value, color in of.steps]
    found: Json = {
        "color": {"mode": "palette-classic" if of.kind == "timeseries" else "thresholds"},
        "custom": of.custom(),
        "mappings": [],
        "noValue": "-",
        "thresholds": {"mode": "absolute", "steps": steps},
        "unit": of.unit,
    }
    if isinstance(of, Matrix):
        found["color"] = {"mode": of.scheme}
    if isinstance(of, Timeline):
        found["mappings"] = mapped(of.words)
    if of.link is not None:
        found["links"] = [of.link.json()]
    for name, value in (("min", of.least), ("max", of.most), ("decimals", of.decimals)):
        if value is not None:
            found[name] = value
    return found
