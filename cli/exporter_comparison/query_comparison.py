# SPDX-License-Identifier: Apache-2.0
"""``gpuscape compare --dashboards --rules``: what queries lose when RIGHT takes LEFT's place."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from base.text.safe_text import short_line
from cli import terminal
from cli.exporter_comparison.query_files import read_queries
from cli.exporter_comparison.scrapes import ScrapedSide
from cli.failures import BAD_INPUT, UNREADABLE, CommandFailure
from cli.terminal import Cell, Styled, TextTable
from exporters.queries.judged_queries import JudgedQuery, QueryVerdict, counts_by_verdict, judged
from exporters.queries.losses import Loss
from exporters.queries.served_series import ServedSeries

LOST = 1

_MOST_CHARACTERS = 60
_STYLES = {QueryVerdict.LOST: "red", QueryVerdict.UNREADABLE: "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFiles:
    """Files and folders with queries, as the options name them."""

    dashboards: Sequence[Path]
    rules: Sequence[Path]


def compare_queries(
    sides: tuple[ScrapedSide, ScrapedSide],
    files: QueryFiles,
    *,
    prefixes: Sequence[str],
    timeout_seconds: float,
    output: str,
) -> int:
    """Print the verdict on each query and return the exit code.

    Raises BadInput and CommandFailure.
    """
    queries = [
        *read_queries("--dashboards", files.dashboards),
        *read_queries("--rules", files.rules),
    ]
    old, new = (_served(side, prefixes, timeout_seconds) for side in sides)
    results = judged(queries, old, new)
    counts = counts_by_verdict(results)
    if output in ("json", "yaml"):
        document = {"same": not counts["lost"], "counts": counts, "queries": results}
        terminal.print_data(document, output)
    else:
        _show(results, wide=output == "wide")
    if counts["lost"]:
        return LOST
    return BAD_INPUT if counts["unreadable"] else 0


def _served(side: ScrapedSide, prefixes: Sequence[str], timeout_seconds: float) -> ServedSeries:
    side.start(timeout_seconds)
    side.wait(time.monotonic() + timeout_seconds + 1)
    families = side.families(timeout_seconds)
    if families is None:
        name = f"{side.name.upper()} {side.source.name}"
        raise CommandFailure(f"{name}: {side.failure}", UNREADABLE)
    return ServedSeries.from_families(families, prefixes)


def _show(results: Sequence[JudgedQuery], *, wide: bool) -> None:
    rows = tuple(
        row
        for verdict in QueryVerdict
        if wide or verdict not in (QueryVerdict.FOREIGN, QueryVerdict.KEPT)
        for result in results
        if result.verdict is verdict
        for row in _rows(result, wide=wide)
    )
    if rows:
        header = ("FILE", "QUERY", "VERDICT", "EXPRESSION", "WHAT")
        terminal.show_table(TextTable(header=header, rows=rows))
        terminal.note("")
    counts = counts_by_verdict(results)
    terminal.note(
        f"{counts['lost']} of {len(results)} queries lose something.",
        f"{counts['unreadable']} cannot be parsed.",
        f"{counts['dead']} have a selector that finds nothing on LEFT either: no loss.",
        f"{counts['foreign']} have no metric of these exporters, and are not judged.",
    )


def _rows(result: JudgedQuery, *, wide: bool) -> Iterator[tuple[Cell, ...]]:
    query = result.query
    expression = query.expression if wide else short_line(query.expression, _MOST_CHARACTERS)
    verdict = Styled(result.verdict.value, _STYLES.get(result.verdict, "dim"))
    for reason in _reasons(result) or ("",):
        yield query.file, f"{query.place.value} {query.title}", verdict, expression, reason


def _reasons(result: JudgedQuery) -> Sequence[str]:
    match result.verdict:
        case QueryVerdict.LOST:
            return [_sentence(loss) for loss in result.losses]
        case QueryVerdict.UNREADABLE:
            return [result.problem]
        case QueryVerdict.DEAD:
            return result.dead
        case _:
            return result.foreign


def _sentence(loss: Loss) -> str:
    through = f", through the rule {loss.rule}" if loss.rule else ""
    instead = f"; RIGHT has {', '.join(loss.instead)}" if loss.instead else ""
    return f"{loss.kind.value} {loss.subject}: {loss.detail}{through}{instead}"
