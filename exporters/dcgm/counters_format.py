# SPDX-License-Identifier: Apache-2.0
"""The counters file of dcgm-exporter, which selects families and labels. Pure.

Each row names a DCGM field, what stands behind ``# TYPE``, and the help text. Source of the
format: dcgm-exporter, ``etc/default-counters.csv`` and ``counter_config.go``. Upstream ends
where a row is wrong; here that row is skipped and reported, the others count.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from base.words import quoted
from discovery.sample import ReadingGroup
from exporters.dcgm import legacy
from exporters.dcgm.catalog import (
    CATALOG,
    COUNTED,
    DEFAULT_FAMILIES,
    DEFAULT_LABELS,
    LABEL_ROWS,
    default_families,
)
from exporters.dcgm.csv_records import records
from exporters.dcgm.dcgm_family import AnyFamily, DcgmFamily, LabelRow
from exporters.dcgm.peer.peer_config import MetricRow
from exporters.dcgm.peer.peer_releases import DEFAULT_RELEASE
from exporters.dcgm.peer.unserved_fields import why_unserved
from exporters.prometheus_text import MetricType

MOST_BYTES = 16 << 20
"""A ConfigMap holds 1 MiB; the rest of a larger file is not read."""
MOST_LINES = 10_000

LABEL = "label"
_TYPES_OF_NUMBERS = f"{', '.join(MetricType)} or {LABEL}"
_TYPES_OF_COUNTS = " or ".join(MetricType)
"""Types of families that have several series for a device."""
_TYPES = frozenset(("gauge", "counter", "histogram", "summary", LABEL))
"""Types that dcgm-exporter takes for any field."""
_PREFIXES = ("DCGM_", "dcgm_")
"""Fields with other names are none of DCGM's; with these it may have some that are not known."""
_FIELDS = ("name", "type", "help text")
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A line that is not served, and why."""

    file: str
    line: int
    """From 1."""
    reason: str
    ends_exporter: bool
    """dcgm-exporter ends at the line; else it serves it, or passes over it too."""

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountersConfig:
    """Families and labels that a counters file selects, and its lines that are not served."""

    families: tuple[AnyFamily, ...] = DEFAULT_FAMILIES
    """By the names, types and help texts of the file, in its order."""
    labels: tuple[LabelRow, ...] = DEFAULT_LABELS
    skipped: tuple[Skipped, ...] = ()

    @property
    def groups(self) -> frozenset[ReadingGroup]:
        """The readings that these need in addition to those that are always made."""
        rows: tuple[AnyFamily | LabelRow, ...] = (*self.families, *self.labels)
        return frozenset(row.group for row in rows if row.group is not None)


@functools.cache
def default_counters(release: str) -> CountersConfig:
    """What is served where nobody asks for counters: as that release of dcgm-exporter does."""
    return CountersConfig(families=default_families(release))


DEFAULT_COUNTERS = default_counters(DEFAULT_RELEASE)

_ALL: tuple[AnyFamily, ...] = (*CATALOG, *COUNTED)
_FAMILIES: Mapping[str, AnyFamily] = {
    name: family for family in _ALL for name in (family.name, family.renamed) if name is not None
} | {
    name: family
    for name, field in legacy.FIELDS.items()
    for family in CATALOG
    if family.field == field
}
_LABELS: Mapping[str, LabelRow] = {
    name: row for row in LABEL_ROWS for name in (row.name, row.renamed) if name is not None
}


class _Refused(ValueError):
    """A line that cannot be served; its text is the reason."""

    def __init__(self, reason: str, *, ends_exporter: bool = True) -> None:
        super().__init__(reason)
        self.ends_exporter = ends_exporter


def read_counters(text: str | bytes, file: str) -> CountersConfig:
    """Parse a counters file: its families and labels, and the lines that cannot be served.

    ``file`` is what messages call it. Never raises: at worst nothing is served. What is served
    here is served by dcgm-exporter too, since a line at which it ends is left out.
    """
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogateescape")
    chosen = _Chosen(file)
    content = text[:MOST_BYTES]
    for record in records(content, MOST_LINES):
        if record.fault:
            chosen.skip(record.line, record.fault, ends_exporter=True)
        else:
            chosen.take(record.line, record.fields)
    lines = 1 + content.count(b"\n")
    if lines > MOST_LINES:
        chosen.skip(
            MOST_LINES + 1,
            f"no more than {MOST_LINES} lines are read: take lines out",
            ends_exporter=False,
        )
    elif len(text) > MOST_BYTES:
        chosen.skip(
            lines,
            f"no more than {MOST_BYTES} bytes are read: make the file smaller",
            ends_exporter=False,
        )
    return chosen.config()


def read_fields(rows: Iterable[MetricRow], file: str) -> CountersConfig:
    """Counters that the entries of a YAML configuration select. Never raises."""
    chosen = _Chosen(file)
    for row in rows:
        chosen.take(row.line, [word.encode() for word in (row.name, row.kind, row.help_text)])
    return chosen.config()


class _Chosen:
    """Families and labels by name, as their rows come, and the rows that cannot be served."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._served: dict[str, AnyFamily | LabelRow] = {}
        self._skipped: list[Skipped] = []

    def take(self, line: int, fields: Sequence[bytes]) -> None:
        """Serve the row at this line, or keep why it is not served."""
        try:
            row = _row(*_texts(fields), taken=self._served)
        except _Refused as error:
            self.skip(line, str(error), ends_exporter=error.ends_exporter)
        else:
            self._served[row.name] = row

    def skip(self, line: int, reason: str, *, ends_exporter: bool) -> None:
        """Keep why the line is not served."""
        self._skipped.append(
            Skipped(file=self._file, line=line, reason=reason, ends_exporter=ends_exporter)
        )

    def config(self) -> CountersConfig:
        """All that was taken."""
        rows = self._served.values()
        return CountersConfig(
            families=tuple(row for row in rows if not isinstance(row, LabelRow)),
            labels=tuple(row for row in rows if isinstance(row, LabelRow)),
            skipped=tuple(self._skipped),
        )


def _texts(fields: Sequence[bytes]) -> tuple[str, str, str]:
    """Name, type and help text without the blanks around them.

    Raises _Refused when they are no text or another number.
    """
    if not b"".join(fields).strip(b" "):
        raise _Refused("it has blanks alone, at which dcgm-exporter ends: leave it empty")
    try:
        texts = [field.decode("utf-8").strip(" ") for field in fields]
    except UnicodeDecodeError as error:
        raise _Refused("it is not UTF-8: save the file as UTF-8", ends_exporter=False) from error
    if any("\0" in text for text in texts):
        raise _Refused("it holds a NUL byte: write it as plain text", ends_exporter=False)
    if texts[0].startswith(_BYTE_ORDER_MARK):
        raise _Refused(
            "the file begins with a byte order mark, at which dcgm-exporter ends: save it as UTF-8"
            " without one"
        )
    if len(texts) != len(_FIELDS):
        raise _Refused(
            f"{len(texts)} fields instead of {', '.join(_FIELDS)}: "
            "put quotes around a help text with commas"
        )
    name, kind, help_text = texts
    return name, kind, help_text


def _row(name: str, kind: str, help_text: str, *, taken: Collection[str]) -> AnyFamily | LabelRow:
    """The family or label in the file's own words. Raises _Refused when it cannot be served."""
    if name in taken:
        raise _Refused(f"{name} stands in an earlier line already", ends_exporter=False)
    family, label = _FAMILIES.get(name), _LABELS.get(name)
    if family is None and label is None:
        raise _Refused(_why_unknown(name), ends_exporter=not name.startswith(_PREFIXES))
    ends = kind not in _TYPES
    if label is not None:
        if kind != LABEL:
            raise _Refused(
                f"{name} is text, not {quoted(kind)}: its type can only be {LABEL}",
                ends_exporter=ends,
            )
        return replace(label, name=name, help=help_text)
    if isinstance(family, DcgmFamily) and kind == LABEL:
        return replace(family.as_label(), name=name, help=help_text)
    if family is None or kind not in set(MetricType):
        types = _TYPES_OF_NUMBERS if isinstance(family, DcgmFamily) else _TYPES_OF_COUNTS
        raise _Refused(
            f"{name} is a number, not {quoted(kind)}: its type can be {types}",
            ends_exporter=ends,
        )
    return replace(family, name=name, kind=MetricType(kind), help=help_text)


def _why_unknown(name: str) -> str:
    if (why := why_unserved(name)) is not None:
        return f"{name} is not served: {why}"
    if name.startswith("DCGM_"):
        return f"{quoted(name)} is not served: docs/metrics.md lists what is"
    return f"{quoted(name)} is no DCGM field: names begin with DCGM_FI_ or DCGM_EXP_"
