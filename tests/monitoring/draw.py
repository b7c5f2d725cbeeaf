"""The dashboards drawn without Grafana: every panel's data as a plain page to look at.

    python -m tests.monitoring.draw FOLDER [SECONDS]

starts the simulated fleet and a Prometheus, lets it scrape for so long (two minutes), and writes
a page for each dashboard. No Grafana is to be had from the package registries: tables are what its
own code makes of the answers, all else is the data of the panels and not how Grafana draws them.
"""

from __future__ import annotations

import html
import math
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.monitoring import fleet as simulated
from tests.monitoring import prometheus as real
from tests.monitoring import shipped
from tests.monitoring.grafana import Column, Panel, Table, tables
from tests.monitoring.prometheus import Prometheus, Series
from tests.monitoring.shipped import CHOSEN, RULES, filled

CHOSEN_IN = {"gpuscape-node": {"$instance": "hgx16-0"}}
"""What is chosen in place of everything: the dashboard of a node shows one."""

COLORS = ("#3274d9", "#e0752d", "#37872d", "#8f3bb8", "#c4162a", "#1f9e9e", "#b0872d", "#6d6d6d")
STEPS = {"green": "#37872d", "blue": "#3274d9", "orange": "#e0752d", "red": "#c4162a"}
WIDTH, HEIGHT = 560, 190
PAGE = """\
<!doctype html><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 12px DejaVu Sans, sans-serif; margin: 12px; background: #f4f5f5; color: #222 }}
h1 {{ font-size: 18px }} h2 {{ grid-column: 1 / 25; font-size: 14px; margin: 6px 0 0 }}
main {{ display: grid; grid-template-columns: repeat(24, 1fr); gap: 6px }}
section {{ background: #fff; border: 1px solid #ddd; padding: 6px; overflow: hidden }}
h3 {{ font-size: 12px; margin: 0 0 4px }} .number {{ font-size: 26px; text-align: center }}
table {{ border-collapse: collapse }} td, th {{ padding: 2px 6px; text-align: left;
border-bottom: 1px solid #eee }}
svg {{ width: 100% }} .legend {{ column-count: 2; font-size: 10px }} .bar {{ height: 12px }}
.none {{ color: #c4162a }}
</style><h1>{title}</h1><main>{body}</main>
"""


def main(folder: Path, seconds: float) -> None:
    """Write the pages."""
    with tempfile.TemporaryDirectory() as scratch:
        places = [Path(scratch, name) for name in ("fleet", "prometheus")]
        for place in places:
            place.mkdir()
        with simulated.running(places[0]) as fleet:
            config = real.configuration(fleet.jobs(), rule_files=[RULES])
            with real.running(places[1], config) as prometheus:
                time.sleep(seconds)
                drawing = Drawing(prometheus, seconds)
                for uid, dashboard in shipped.dashboards().items():
                    (folder / f"{uid}.html").write_text(drawing.page(dashboard), "utf-8")


class Drawing:
    """Pages of the last seconds of a Prometheus."""

    def __init__(self, prometheus: Prometheus, seconds: float) -> None:
        self._prometheus = prometheus
        self._seconds = seconds

    def page(self, dashboard: Mapping[str, Any]) -> str:
        """One dashboard."""
        chosen = CHOSEN | CHOSEN_IN.get(dashboard["uid"], {})
        chosen["$__range"] = f"{self._seconds:.0f}s"
        body = "".join(self._sections(dashboard["panels"], chosen))
        return PAGE.format(title=html.escape(dashboard["title"]), body=body)

    def _sections(self, panels: Iterable[Panel], chosen: Mapping[str, str]) -> Iterator[str]:
        for panel in panels:
            if panel["type"] == "row":
                yield f"<h2>{html.escape(panel['title'])}</h2>"
                yield from self._sections(panel["panels"], chosen)
                continue
            drawn = self._drawn(panel, chosen) or "<p class=none>no data</p>"
            span = f"grid-column: span {panel['gridPos']['w']}"
            yield f'<section style="{span}"><h3>{html.escape(panel["title"])}</h3>{drawn}</section>'

    def _drawn(self, panel: Panel, chosen: Mapping[str, str]) -> str:
        expressions = [filled(target["expr"], chosen) for target in panel["targets"]]
        legend = panel["targets"][0].get("legendFormat", "")
        if panel["type"] in ("timeseries", "state-timeline"):
            now = time.time()
            series = self._prometheus.query_range(
                expressions[0], start=now - self._seconds, end=now, step=1
            )
            draw = lines if panel["type"] == "timeseries" else states
            return draw(panel, [(named(it, legend), it) for it in series])
        answers = [self._prometheus.query(it) for it in expressions]
        match panel["type"]:
            case "stat":
                shown = [named(it, legend) if legend else value(panel, it) for it in answers[0]]
                return f'<div class="number">{", ".join(shown)}</div>' if shown else ""
            case "bargauge":
                return bars(panel, [(named(it, legend), it) for it in answers[0]])
            case "table":
                (columns,) = tables([(panel, answers)])
                return table(columns)
        raise AssertionError(panel["type"])


def named(series: Series, legend: str) -> str:
    """A series as its legend calls it."""
    filled_in = re.sub(r"{{(\w+)}}", lambda it: series.labels.get(it[1], ""), legend)
    return html.escape(filled_in)


def value(panel: Panel, series: Series) -> str:
    """A number with its unit."""
    return number(series.value, panel["fieldConfig"]["defaults"]["unit"])


def number(of: float, unit: str) -> str:
    """A number as people read it."""
    match unit:
        case "percentunit":
            return f"{of:.0%}"
        case "bytes" | "Bps":
            return f"{of / 2**30:.1f} GiB" + ("/s" if unit == "Bps" else "")
        case "hertz":
            return f"{of / 1e9:.2f} GHz"
    return f"{of:.4g} {'' if unit == 'short' else unit}"


def lines(panel: Panel, series: Sequence[tuple[str, Series]]) -> str:
    """Lines over time."""
    if not series:
        return ""
    points = [point for _, each in series for point in each.points if math.isfinite(point[1])]
    first, last = min(at for at, _ in points), max(at for at, _ in points)
    top = max(1e-9, *(height for _, height in points))
    paths = []
    for place, (_, each) in enumerate(series):
        path = " ".join(
            f"{(at - first) / max(last - first, 1) * WIDTH:.1f},{(1 - height / top) * HEIGHT:.1f}"
            for at, height in each.points
        )
        color = COLORS[place % len(COLORS)]
        paths.append(f'<polyline points="{path}" fill="none" stroke="{color}"/>')
    most = number(top, panel["fieldConfig"]["defaults"]["unit"])
    return (
        f'<svg viewBox="0 -12 {WIDTH} {HEIGHT + 16}"><text x="0" y="-2" font-size="10">{most}'
        f"</text>{''.join(paths)}</svg>{_legend(panel, series)}"
    )


def _legend(panel: Panel, series: Sequence[tuple[str, Series]]) -> str:
    shown = "".join(
        f'<div style="color: {COLORS[place % len(COLORS)]}">{name} {value(panel, each)}</div>'
        for place, (name, each) in enumerate(series[:24])
    )
    return f'<div class="legend">{shown}</div>'


def states(_: Panel, series: Sequence[tuple[str, Series]]) -> str:
    """A row for each series that is not 0 all the time."""
    changing = [(name, it) for name, it in series if any(height for _, height in it.points)]
    rows = "".join(
        f"<tr><td>{name}<td>{sum(height for _, height in it.points) / len(it.points):.0%}"
        for name, it in changing
    )
    return f"<p>{len(series)} series, {len(changing)} not always 0</p><table>{rows}</table>"


def bars(panel: Panel, series: Sequence[tuple[str, Series]]) -> str:
    """One bar for each series."""
    top = max((it.value for _, it in series), default=0) or 1
    return "".join(
        f"<div>{name}: {value(panel, it)}"
        f'<div class="bar" style="width: {it.value / top:.0%}; background: {color(panel, it)}">'
        "</div></div>"
        for name, it in series
    )


def color(panel: Panel, series: Series) -> str:
    """That of the last step that the value reaches."""
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    reached = [it for it in steps if it["value"] is None or series.value >= it["value"]]
    return STEPS[reached[-1]["color"]]


def table(shown: Table) -> str:
    """What Grafana's own code made of the answers, cells with their colours."""
    if not shown:
        return ""
    head = "".join(f"<th>{html.escape(column.name)}" for column in shown)
    rows = zip(
        *([cell(column, at) for at in range(len(column.texts))] for column in shown), strict=True
    )
    body = "".join("<tr>" + "".join(row) for row in rows)
    return f"<table><tr>{head}{body}</table>"


def cell(column: Column, at: int) -> str:
    """One cell."""
    style = f' style="background: {column.colors[at]}; color: #fff"' if column.is_colored else ""
    return f"<td{style}>{html.escape(column.texts[at])}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 120.0)
