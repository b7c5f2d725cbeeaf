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


def text(dashboard: Dashboard) -> str:
    """The dashboard's file."""
    return json.dumps(_dashboard(dashboard), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _dashboard(dashboard: Dashboard) -> Json:
    return {
        "description": dashboard.description,
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
        "panels": list(_laid_out(dashboard.rows)),
        "refresh": "30s",
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["gpuscape", "gpu"],
        "templating": {"list": [_DATASOURCES, *map(_variable, dashboard.variables)]},
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "title": dashboard.title,
        "uid": dashboard.uid,
    }


_DATASOURCES: Json = {
    "label": "Data source",
    "name": "datasource",
    "query": "prometheus",
    "type": "datasource",
}


def _variable(variable: Variable) -> Json:
    query = f"label_values({variable.series}, {variable.values_of})"
    fields = {
        "datasource": DATASOURCE,
        "definition": query,
        "includeAll": variable.several,
        "label": variable.label,
        "multi": variable.several,
        "name": variable.name,
        "query": {"qryType": 1, "query": query, "refId": variable.name},
        "refresh": 2,  # with the time range
        "sort": NATURAL,
        "type": "query",
    }
    if variable.several:
        # everything, also series without the label: few clusters have a label cluster
        fields |= {"allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}}
    return fields


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
            _panel(panel, number + index, place)
            for index, (panel, place) in enumerate(zip(row.panels, places, strict=True), 1)
        ]
        number += len(inside)
        if row.collapsed:
            head["panels"] = inside
            yield head
        else:
            yield head
            yield from inside


def _places(panels: Iterable[Panel], y: int) -> tuple[list[Json], int]:
    """Position of each panel, and the height at which the next row begins."""
    places, x, height = [], 0, 0
    for panel in panels:
        if x + panel.width > COLUMNS:
            x, y, height = 0, y + height, 0
        places.append({"h": panel.height, "w": panel.width, "x": x, "y": y})
        x, height = x + panel.width, max(height, panel.height)
    return places, y + height


def _panel(panel: Panel, number: int, place: Json) -> Json:
    return {
        "datasource": DATASOURCE,
        "description": panel.description,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": panel.overrides()},
        "gridPos": place,
        "id": number,
        "options": panel.options(),
        "targets": [panel.target(index, query) for index, query in enumerate(panel.queries)],
        "title": panel.title,
        "transformations": panel.transformations(),
        "type": panel.kind,
    }


def _defaults(panel: Panel) -> Json:
    steps: list[Json] = [{"color": Color.NEUTRAL, "value": None}]
    steps += [{"color": color, "value": value} for value, color in panel.steps]
    defaults: Json = {
        "color": {"mode": "palette-classic" if panel.kind == "timeseries" else "thresholds"},
        "custom": panel.custom(),
        "mappings": [],
        "noValue": "-",
        "thresholds": {"mode": "absolute", "steps": steps},
        "unit": panel.unit,
    }
    if isinstance(panel, Matrix):
        defaults["color"] = {"mode": panel.scheme}
    if isinstance(panel, Timeline):
        defaults["mappings"] = mapped(panel.words)
    if panel.link is not None:
        defaults["links"] = [panel.link.json()]
    for name, value in (
        ("min", panel.minimum),
        ("max", panel.maximum),
        ("decimals", panel.decimals),
    ):
        if value is not None:
            defaults[name] = value
    return defaults
