# SPDX-License-Identifier: Apache-2.0
"""``gpuscape compare``: do two exporters serve the same?"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import click

from base.errors import BadInput
from base.settings import setting_kinds as kinds
from base.settings.layers import WrittenValue
from base.words import first_names
from cli import options, terminal
from cli.exporter_comparison.endpoints import MIB, ExpositionSource, exposition_source, side_access
from cli.exporter_comparison.scrapes import ScrapedSide, ScrapePlan, scrape_sides
from cli.failures import UNREADABLE, CommandFailure
from cli.terminal import Cell, Styled, TextTable
from exporters.compare.comparison import Comparison, TooManySeries
from exporters.compare.series_match import Matching
from exporters.compare.tolerance import EVERYTHING, Tolerance, ToleranceOverride
from exporters.compare.verdict import Compared, ComparisonResult, MetricVerdict, SideActivity

DIFFERENT = 1

ABOUT_THE_EXPORTER = (
    "gpuscape_*",
    "go_*",
    "process_*",
    "python_*",
    "promhttp_*",
    "dcgm_exporter_*",
)
MOST_ROUNDS = 100_000

_DURATION = kinds.duration_kind("100ms")
_COUNT = kinds.count_kind(MOST_ROUNDS)
_EXISTING = click.Path(exists=True, path_type=Path)
_TOLERANCE = re.compile(r"(?:(?P<names>[^=\s]+)=)?(?P<number>\d+(?:\.\d+)?)(?P<percent>%?)")

_MOST_NAMED = 5
"""Metrics that a sentence names."""

_GOOD, _BAD = "green", "red"

Function = TypeVar("Function", bound=Callable[..., Any])
Value = TypeVar("Value")


def _files_option(name: str, metavar: str, files: str) -> Callable[[Function], Function]:
    help_text = f"Check the queries of these {files}."
    return click.option(name, multiple=True, type=_EXISTING, metavar=metavar, help=help_text)


def _access_options(side: str) -> Callable[[Function], Function]:
    """The options of access to one side, so that no secret goes to the other."""
    path = click.Path(dir_okay=False, path_type=Path)
    access_options = (
        click.option(f"--{side}-token-file", type=path, help=f"Bearer token for {side.upper()}."),
        click.option(f"--{side}-user", metavar="NAME", help=f"Basic auth for {side.upper()}."),
        click.option(f"--{side}-password-file", type=path, help="The password of this user."),
        click.option(
            f"--{side}-ca-file", type=path, help=f"Certificate authority of {side.upper()}."
        ),
        click.option(
            f"--{side}-insecure", is_flag=True, help=f"Accept any certificate from {side.upper()}."
        ),
    )

    def decorate(function: Function) -> Function:
        for option in reversed(access_options):
            function = option(function)
        return function

    return decorate


@click.command(
    epilog="""\b
Examples:
  gpuscape compare http://node-1:9400/metrics http://node-1:9410/metrics
  gpuscape compare node-1:9400 node-1:9410 --prefix shadow_ --duration 10m
  gpuscape compare before.txt after.txt
  curl -s node-1:9400/metrics | gpuscape compare - node-1:9410
  gpuscape compare --dashboards dashboards/ --rules rules.yml before.txt after.txt
  gpuscape compare node-1:9400 node-1:9410 --tolerance 'DCGM_FI_DEV_POWER_*=3%' -o json

\b
LEFT and RIGHT are addresses, files, or - for standard input; the path is /metrics by default.
Both are scraped at the same moments. For gauges, the means over the run are compared, for counters
the rates. Metrics that name or count a fact (XIDs, totals, limits) must be equal. -o wide shows
which of these applies to a metric. A longer run shows more, because two exporters read the same
sensor at different times. If a side is a file, there is one round and single values are compared.
On an idle machine everything looks equal, so the last lines list metrics that did not change.
Ctrl-C ends a run early and prints the result so far.

\b
Verdicts, the worst first:
  only-left, only-right        only this side has the metric
  type                         # TYPE differs
  missing-right, missing-left  series that this side lacks and the other side has
  labels                       the same series with other labels
  stale-right, stale-left      values on this side stay the same while the other side's change
  values                       values are further apart than the tolerance
  colliding                    series that are identical without the ignored labels
  same                         none of these; help texts may differ

\b
--dashboards and --rules check the PromQL queries in these files: what each query loses when RIGHT
replaces LEFT. They need gpuscape[promql]. The exit code is 2 also for files that cannot be parsed.

\b
Exit codes:
  0  all metrics are the same
  1  there are differences
  2  bad input: options, files
  4  a side could not be read at all"""
)
@click.argument("left_text", metavar="LEFT")
@click.argument("right_text", metavar="RIGHT")
@click.option("--interval", default="10s", show_default=True, help="Time from scrape to scrape.")
@click.option("--duration", help="How long to scrape.  [default: 1m]")
@click.option("--count", metavar="N", help="How often to scrape, in place of --duration.")
@click.option("--timeout", default="10s", show_default=True, help="Longest wait for an answer.")
@click.option("--max-size", default="64", show_default=True, metavar="MIB", help="Largest answer.")
@click.option(
    "--only", multiple=True, metavar="PATTERN", help="Compare these metrics, such as 'DCGM_*'."
)
@click.option(
    "--skip",
    multiple=True,
    default=ABOUT_THE_EXPORTER,
    metavar="PATTERN",
    help="Leave these out.  [default: metrics of exporters about themselves]",
)
@click.option(
    "--ignore-label", "ignored", multiple=True, metavar="NAME", help="Match series without it."
)
@click.option(
    "--prefix", "prefixes", multiple=True, metavar="TEXT", help="Remove this from metric names."
)
@click.option(
    "--tolerance",
    "tolerances",
    multiple=True,
    metavar="[PATTERN=]VALUE",
    help="How far values may be apart: 5% of the larger one, or 3 in the metric's unit.",
)
@click.option("--allow-extra", is_flag=True, help="Metrics that only RIGHT has are no difference.")
@_files_option("--dashboards", "FOLDER", "Grafana dashboards")
@_files_option("--rules", "FILE", "Prometheus rules")
@_access_options("left")
@_access_options("right")
@options.output("table", "wide", "json", "yaml")
def command(left_text: str, right_text: str, **flags: Any) -> None:
    """Scrape two exporters for a while and show where they differ, metric by metric.

    Made for dcgm-exporter next to gpuscape; works for any two that serve Prometheus' text format.
    """
    if left_text == right_text == "-":
        raise BadInput("both sides are standard input: give a file or an address for one")
    sides = (
        ScrapedSide("left", _source("left", left_text, flags)),
        ScrapedSide("right", _source("right", right_text, flags)),
    )
    if flags["dashboards"] or flags["rules"]:
        sys.exit(_queries(sides, flags))
    comparison = _comparison(flags)
    try:
        scrape_sides(
            *sides, comparison, _plan(flags, live=all(side.source.is_live for side in sides))
        )
    except TooManySeries as error:
        raise CommandFailure(f"this cannot be compared: {error}", UNREADABLE) from error
    outcome = comparison.outcome()
    if not outcome.rounds:
        raise CommandFailure(_why_not(sides), UNREADABLE)
    if not outcome.metrics:
        raise BadInput("there is nothing to compare: no metric that --only and --skip leave")
    _show(outcome, sides, flags["output"])
    sys.exit(0 if outcome.same else DIFFERENT)


def _queries(sides: tuple[ScrapedSide, ScrapedSide], flags: dict[str, Any]) -> int:
    from cli.exporter_comparison.query_comparison import QueryFiles, compare_queries

    return compare_queries(
        sides,
        QueryFiles(dashboards=flags["dashboards"], rules=flags["rules"]),
        prefixes=flags["prefixes"],
        timeout_seconds=_read("--timeout", _DURATION, flags["timeout"]),
        output=flags["output"],
    )


# What the options mean


def _source(side: str, text: str, flags: dict[str, Any]) -> ExpositionSource:
    endpoint_access = side_access(
        side,
        user=flags[f"{side}_user"],
        password_file=flags[f"{side}_password_file"],
        token_file=flags[f"{side}_token_file"],
        ca_file=flags[f"{side}_ca_file"],
        insecure=flags[f"{side}_insecure"],
    )
    mebibytes = _read("--max-size", kinds.count_kind(1024), flags["max_size"])
    if not mebibytes:
        raise BadInput("--max-size is '0': expected a whole number from 1 to 1024")
    return exposition_source(text, endpoint_access, mebibytes * MIB)


def _plan(flags: dict[str, Any], *, live: bool) -> ScrapePlan:
    if flags["count"] is not None and flags["duration"] is not None:
        raise BadInput("--count and --duration exclude each other: give one")
    interval = _read("--interval", _DURATION, flags["interval"])
    rounds = 1 + int(60 / interval) if live else 1
    if flags["count"] is not None:
        rounds = _read("--count", _COUNT, flags["count"])
    elif flags["duration"] is not None:
        rounds = 1 + int(_read("--duration", _DURATION, flags["duration"]) / interval)
    if not 1 <= rounds <= MOST_ROUNDS:
        raise BadInput(f"that makes {rounds} scrapes: give 1 to {MOST_ROUNDS}")
    timeout = _read("--timeout", _DURATION, flags["timeout"])
    return ScrapePlan(rounds=rounds, interval_seconds=interval, timeout_seconds=timeout)


def _read(option: str, kind: kinds.SettingKind[Value], text: str) -> Value:
    return WrittenValue(text=text, source=option).read(kind)


def _comparison(flags: dict[str, Any]) -> Comparison:
    only, skip = flags["only"] or ("*",), flags["skip"]

    def is_compared(name: str) -> bool:
        return _fits(name, only) and (bool(flags["only"]) or not _fits(name, skip))

    return Comparison(
        Matching(ignored_labels=frozenset(flags["ignored"]), prefixes=flags["prefixes"]),
        is_compared=is_compared,
        overrides=[_tolerance_override(text) for text in flags["tolerances"]],
        allow_extra=flags["allow_extra"],
    )


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _tolerance_override(text: str) -> ToleranceOverride:
    match = _TOLERANCE.fullmatch(text)
    if match is None:
        raise BadInput(f"--tolerance is {text!r}: expected 5%, 3, or a metric's name=5%")
    number = float(match["number"])
    tolerance = Tolerance(ratio=number / 100) if match["percent"] else Tolerance(absolute=number)
    return ToleranceOverride(tolerance=tolerance, names=match["names"] or EVERYTHING)


# What comes out


def _why_not(sides: Sequence[ScrapedSide]) -> str:
    errors = [
        f"{side.name.upper()} {side.source.name}: {side.failure}"
        for side in sides
        if side.failures == side.scrapes
    ]
    return "; ".join(errors) or "no round in which both sides could be read"


def _show(outcome: ComparisonResult, sides: Sequence[ScrapedSide], output: str) -> None:
    if output in ("json", "yaml"):
        terminal.print_data(_document(outcome, sides), output)
        return
    for side, pace in zip(sides, (outcome.left, outcome.right), strict=True):
        terminal.note(_about(side, pace))
    for line in _warnings(outcome, sides):
        terminal.note(line)
    terminal.note("")
    terminal.show_table(_table(outcome, wide=output == "wide"))
    if output == "wide" and (examples := _examples(outcome)).rows:
        terminal.note("")
        terminal.show_table(examples)
    terminal.note("")
    for line in _conclusion(outcome):
        terminal.note(line)


def _about(side: ScrapedSide, pace: SideActivity) -> str:
    parts = [f"{side.scrapes - side.failures} of {side.scrapes} scrapes", f"{pace.series} series"]
    if pace.renewed_seconds is not None:
        parts.append(f"renewed about every {pace.renewed_seconds:.3g} s")
    return f"{side.name.upper():5} {side.source.name}: {', '.join(parts)}"


def _warnings(outcome: ComparisonResult, sides: Sequence[ScrapedSide]) -> Iterator[str]:
    paces = (outcome.left, outcome.right)
    for side, pace, other in zip(sides, paces, reversed(paces), strict=True):
        name = side.name.upper()
        if side.failures:
            yield f"{name} could not be read {side.failures} times: {side.failure}"
        if side.faults:
            yield f"{name} serves lines that break the format, such as {side.faults[0]}"
        if pace.frozen and 2 * pace.frozen >= other.moving:
            yield f"{name} is stale: {pace.frozen} of {other.moving} moving series stand still"


def _conclusion(outcome: ComparisonResult) -> Iterator[str]:
    """Lines on how many metrics are the same, and how much that proves."""
    same = sum(metric.verdict is MetricVerdict.SAME for metric in outcome.metrics)
    yield f"{same} of {len(outcome.metrics)} metrics are the same."
    if outcome.rounds == 1:
        yield "There was one scrape of each, so nothing could move: compare addresses for a while."
        return
    moved = sum(metric.moved for metric in outcome.metrics)
    pairs = sum(metric.pairs for metric in outcome.metrics)
    yield f"{moved} of {pairs} series moved in {outcome.seconds:.3g} s."
    if still := outcome.still:
        names = first_names([metric.name for metric in still], _MOST_NAMED)
        yield (
            f"{len(still)} are the same and stood still on both sides, which proves little: "
            f"{names}. Compare while jobs run."
        )


def _table(outcome: ComparisonResult, *, wide: bool) -> TextTable:
    header: tuple[str, ...] = ("METRIC", "VERDICT", "SERIES", "LEFT", "RIGHT", "DIFFERENCE")
    if wide:
        header += ("COMPARED", "TOLERANCE", "MOVED")
    return TextTable(
        header=header,
        rows=tuple(_row(metric, wide=wide) for metric in outcome.metrics),
        right=frozenset({3, 4}),
    )


def _row(metric: Compared, *, wide: bool) -> tuple[Cell, ...]:
    worst = next(
        (finding for finding in metric.findings if finding.verdict is metric.verdict), None
    )
    series = str(metric.left.series)
    if metric.right.series != metric.left.series:
        series = f"{metric.left.series} / {metric.right.series}"
    row: tuple[Cell, ...] = (
        metric.name,
        Styled(metric.verdict.value, _GOOD if worst is None else _BAD),
        series,
        _number(metric.left.value),
        _number(metric.right.value),
        "" if worst is None else worst.detail,
    )
    return (*row, metric.measure.value, metric.tolerance, str(metric.moved)) if wide else row


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _examples(outcome: ComparisonResult) -> TextTable:
    """Every finding with some of its series."""
    rows = (
        (metric.name, finding.verdict.value, str(finding.series), finding.detail, example)
        for metric in outcome.metrics
        for finding in metric.findings
        if finding.verdict
        is not MetricVerdict.HELP  # every metric's, where two projects wrote them
        for example in finding.examples or ("",)
    )
    return TextTable(
        header=("METRIC", "FINDING", "SERIES", "DIFFERENCE", "FOR EXAMPLE"), rows=tuple(rows)
    )


def _document(outcome: ComparisonResult, sides: Sequence[ScrapedSide]) -> dict[str, Any]:
    """The result as plain data, for json and yaml."""
    side_documents = {
        side.name: {
            "source": side.source.name,
            "scrapes": side.scrapes,
            "failures": side.failures,
            "failure": side.failure or None,
            "faults": [str(fault) for fault in side.faults],
            "pace": pace,
        }
        for side, pace in zip(sides, (outcome.left, outcome.right), strict=True)
    }
    return {
        "same": outcome.same,
        "rounds": outcome.rounds,
        "seconds": outcome.seconds,
        **side_documents,
        "metrics": outcome.metrics,
    }
