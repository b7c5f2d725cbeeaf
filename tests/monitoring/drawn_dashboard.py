# SPDX-License-Identifier: Apache-2.0
"""A dashboard whole, as a page: what each panel shows is Grafana's own, where it stands is the
dashboard's, and the drawing is ours.

Sizes are Grafana's: 24 columns, rows of 30 pixels, 8 between them.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from tests.monitoring import grafana, shipped
from tests.monitoring.prometheus import Prometheus, Series

WIDTH: Final = 1600
"""Pixels of the page that dashboards are made for here."""
SECONDS: Final = 60.0
"""Of time that panels show."""
_STEP: Final = 4.0
_SCRIPT: Final = grafana.SCRIPT.with_name("dashboard.cjs")
_PLOT: Final = (1000.0, 200.0)
_STYLE: Final = """
*{box-sizing:border-box}
.page{padding:8px;background:#111217;color:#ccccdc;font:13px sans-serif;color-scheme:dark;
 scrollbar-width:thin}
h1{font-size:18px;margin:4px 8px 10px}
main{display:grid;grid-template-columns:repeat(24,1fr);grid-auto-rows:30px;gap:8px}
section{background:#181b1f;border:1px solid #2c2f36;overflow:hidden;display:flex;
 flex-direction:column;min-width:0}
h2{font-size:13px;margin:0;padding:6px 8px 2px;white-space:nowrap}
.row{font-size:14px;font-weight:bold;align-self:center;padding-left:8px}
.body{flex:1;min-height:0;min-width:0;padding:4px 8px;overflow:hidden;position:relative}
.none{display:grid;place-items:center;color:#8e8e9c}
.stats{display:flex;gap:12px;align-items:center;justify-content:space-around}
.stats div{text-align:center;min-width:0}
.stats b{font-size:26px;font-weight:500;white-space:nowrap}
.name{display:block}
table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:3px 6px;white-space:nowrap;border-bottom:1px solid #2c2f36}
th{color:#6e9fff;font-weight:500}
td.number,th.number{text-align:right}
.tall{overflow-y:auto}
.bars{display:grid;grid-template-columns:max-content 1fr max-content;gap:4px 8px;
 align-content:start}
.bar{background:#22252b;align-self:stretch;min-height:14px}
.bar i{display:block;height:100%}
.lines{display:flex;gap:10px}
.plot{flex:1 1 0;min-width:0;display:flex;flex-direction:column}
.plot svg{flex:1;min-height:0;width:100%}
.axis{position:relative;flex:none;width:max-content;min-width:44px}
.axis span{position:absolute;right:0;transform:translateY(50%);white-space:nowrap}
.lines .axis,.lines .plot{margin:8px 0}
.legend{flex:none;max-width:60%;overflow-y:auto;scrollbar-gutter:stable}
.legend td,.legend th{padding:0 4px;border:0;font-size:12px}
.swatch{display:inline-block;width:12px;height:3px;margin-right:5px;vertical-align:middle}
.states{display:grid;grid-template-columns:max-content 1fr;gap:3px 8px;align-content:start}
.states div{display:flex;min-height:16px}
"""


def answered(
    prometheus: Prometheus, dashboard: Mapping[str, Any], chosen: Mapping[str, str]
) -> list[tuple[Mapping[str, Any], list[list[Series]]]]:
    """Each panel of a dashboard, with the answers to its queries for the last minute."""
    end = time.time()

    def ask(target: Mapping[str, Any]) -> list[Series]:
        expression = shipped.filled(target["expr"], chosen)
        if target["instant"]:
            return prometheus.query(expression, at=end)
        return prometheus.range(expression, start=end - SECONDS, end=end, step=_STEP)

    panels = shipped.panels(dashboard)
    return [(panel, [ask(target) for target in panel["targets"]]) for panel in panels]


def shown(answers: Sequence[tuple[Mapping[str, Any], Sequence[Sequence[Series]]]]) -> list[Any]:
    """What Grafana makes of them, panel by panel."""
    asked = [
        {
            "panel": panel,
            "answers": [[_series(it) for it in answer] for answer in its],
        }
        for panel, its in answers
    ]
    found: list[Any] = grafana.run(_SCRIPT, asked)
    return found


def content(dashboard: Mapping[str, Any], found: Mapping[int, Any]) -> str:
    """A dashboard as XHTML; ``found``: what each panel shows, by its number."""
    drawn = "".join(_placed(it, found) for it in with_rows(dashboard))
    title = escape(str(dashboard["title"]))
    return (
        f'<div class="page" xmlns="http://www.w3.org/1999/xhtml"><style>{_STYLE}</style>'
        f"<h1>{title}</h1><main>{drawn}</main></div>"
    )


def page(content: str) -> str:
    """It as a page of its own."""
    head = '<meta charset="utf-8"><link rel="icon" href="data:,"><style>body{margin:0}</style>'
    return f'<!doctype html><html lang="en">{head}<body>{content}</body></html>'


def picture(dashboard: Mapping[str, Any], content: str, height: int) -> str:
    """It as a picture, so many pixels high, that browsers draw with the fonts that they have."""
    title = escape(str(dashboard["title"]))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        f' height="{height}" role="img" aria-label="{title}" data-of="{fingerprint(dashboard)}">'
        f"<title>{title}</title>"
        f'<foreignObject width="{WIDTH}" height="{height}">{content}</foreignObject></svg>\n'
    )


def fingerprint(dashboard: Mapping[str, Any]) -> str:
    """Of all that a dashboard's JSON and the drawing have to do with a picture."""
    made_of = json.dumps(dashboard, sort_keys=True) + _STYLE
    return hashlib.sha256(made_of.encode()).hexdigest()[:16]


def _series(series: Series) -> Mapping[str, Any]:
    points = [[1e3 * at, grafana.number(value)] for at, value in series.points]
    return {"labels": series.labels, "points": points}


def with_rows(dashboard: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Headings and panels; those of a closed row are shown as when it is opened."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", ())


def _placed(panel: Mapping[str, Any], found: Mapping[int, Any]) -> str:
    at = panel["gridPos"]
    place = f"grid-area:{at['y'] + 1}/{at['x'] + 1}/span {at['h']}/span {at['w']}"
    title = escape(str(panel["title"]))
    if panel["type"] == "row":
        return f'<div class="row" style="{place}">{title}</div>'
    body = _body(panel, found[panel["id"]])
    return f'<section style="{place}" data-title="{title}"><h2>{title}</h2>{body}</section>'


def _body(panel: Mapping[str, Any], shown: Any) -> str:
    is_empty = not (shown["lines"] if panel["type"] == "timeseries" else shown)
    if is_empty:
        return f'<div class="body none">{escape(panel["fieldConfig"]["defaults"]["noValue"])}</div>'
    match panel["type"]:
        case "table":
            return _table(shown)
        case "stat":
            return _stats(panel, shown)
        case "bargauge":
            return _bars(shown)
        case "timeseries":
            return _lines(panel, shown)
        case _:
            return _states(shown)


def _table(columns: Sequence[Mapping[str, Any]]) -> str:
    heads = "".join(
        f'<th class="{"number" if it["isNumber"] else ""}">{escape(it["name"])}</th>'
        for it in columns
    )
    rows = []
    for place in range(len(columns[0]["texts"])):
        cells = []
        for it in columns:
            color, look = it["colors"][place], ""
            if it["cell"] == "color-background" and color:
                look = f"background:{color};text-align:center"
            elif it["cell"] == "color-text" and color:
                look = f"color:{color}"
            elif it["cell"] == "gauge" and color:
                wide = 100 * min(max(it["percents"][place], 0), 1)
                look = f"background:linear-gradient(90deg,{color}88 {wide:.0f}%,#22252b 0)"
            kind = "number" if it["isNumber"] else ""
            cells.append(f'<td class="{kind}" style="{look}">{escape(it["texts"][place])}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="body tall"><table><tr>{heads}</tr>{"".join(rows)}</table></div>'


def _stats(panel: Mapping[str, Any], values: Sequence[Mapping[str, Any]]) -> str:
    by_name = panel["options"]["textMode"] == "name"
    named = len(values) > 1 and not by_name
    drawn = "".join(
        f'<div><b style="color:{it["color"]}">{escape(it["name"] if by_name else it["text"])}</b>'
        + (f'<span class="name">{escape(it["name"])}</span>' if named else "")
        + "</div>"
        for it in values
    )
    return f'<div class="body stats">{drawn}</div>'


def _bars(values: Sequence[Mapping[str, Any]]) -> str:
    drawn = "".join(
        f'<span>{escape(it["name"])}</span><span class="bar"><i style="width:'
        f'{100 * min(max(it["percent"], 0), 1):.0f}%;background:{it["color"]}"></i></span>'
        f'<b style="color:{it["color"]}">{escape(it["text"])}</b>'
        for it in values
    )
    return f'<div class="body bars tall">{drawn}</div>'


def _lines(panel: Mapping[str, Any], shown: Mapping[str, Any]) -> str:
    wide, high = _PLOT
    top = shown["ticks"][-1][0]
    times = [at for line in shown["lines"] for at, _ in line["points"]]
    first, last = min(times), max(times)

    def point(at: float, value: float) -> str:
        x = (at - first) / max(last - first, 1) * wide
        return f"{x:.1f},{high - value / top * high:.1f}"

    drawn = [
        f'<line x1="0" x2="{wide:g}" y1="{y:.1f}" y2="{y:.1f}" stroke="#2c2f36"/>'
        for value, _ in shown["ticks"]
        for y in (high - value / top * high,)
    ]
    opacity = panel["fieldConfig"]["defaults"]["custom"]["fillOpacity"] / 100
    for line in shown["lines"]:
        points = [(at, y, low) for (at, y), low in zip(line["points"], line["floor"], strict=True)]
        points = [it for it in points if it[1] is not None]
        if not points:
            continue
        upper = " ".join(point(at, y) for at, y, _ in points)
        lower = " ".join(point(at, low) for at, _, low in reversed(points))
        drawn.append(
            f'<polygon points="{upper} {lower}" fill="{line["color"]}" opacity="{opacity}"/>'
            f'<polyline points="{upper}" fill="none" stroke="{line["color"]}"'
            ' vector-effect="non-scaling-stroke"/>'
        )
    axis = "".join(
        f'<span style="bottom:{100 * value / top:.1f}%">{escape(text)}</span>'
        for value, text in shown["ticks"]
    )
    widest = max(len(text) for _, text in shown["ticks"])
    heads = "".join(f'<th class="number">{it}</th>' for it in shown["heads"])
    rows = "".join(
        f'<tr><td><span class="swatch" style="background:{it["color"]}"></span>'
        f"{escape(it['name'])}</td>"
        + "".join(f'<td class="number">{escape(text)}</td>' for text in it["legend"])
        + "</tr>"
        for it in sorted(shown["lines"], key=lambda it: str(it["name"]))
    )
    return (
        f'<div class="body lines"><div class="axis" style="width:{widest + 1}ch">{axis}</div>'
        f'<div class="plot"><svg xmlns="http://www.w3.org/2000/svg" preserveAspectRatio="none"'
        f' viewBox="0 0 {wide:g} {high:g}">'
        f'{"".join(drawn)}</svg></div><div class="legend"><table><tr><th>Name</th>{heads}</tr>'
        f"{rows}</table></div></div>"
    )


def _states(rows: Sequence[Mapping[str, Any]]) -> str:
    drawn = "".join(
        f"<span>{escape(row['name'])}</span><div>"
        + "".join(
            f'<i style="flex:1;background:{it["color"]}" title="{escape(it["text"])}"></i>'
            for it in row["cells"]
        )
        + "</div>"
        for row in rows
    )
    return f'<div class="body states tall">{drawn}</div>'
