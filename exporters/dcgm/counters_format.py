# SPDX-License-Identifier: Apache-2.0
"""The counters file of dcgm-exporter, which selects families and labels. Pure.

Each line names a DCGM field, what stands behind ``# TYPE``, and the help text. Source of the
format: dcgm-exporter, ``etc/default-counters.csv`` and ``counter_config.go``. Upstream ends
where a line is wrong; here that line is skipped and reported, the others count.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Collection, Mapping
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
    UNSERVED,
)
from exporters.dcgm.dcgm_family import AnyFamily, LabelRow
from exporters.prometheus_text import MetricType

MOST_BYTES = 16 << 20
"""A ConfigMap holds 1 MiB; the rest of a larger file is not read."""
MOST_LINES = 10_000
MOST_LINE_BYTES = 4096

LABEL = "label"
_NUMBERS = " or ".join(MetricType)
_FIELDS = ("name", "type", "help text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A line that is not served, and why."""

    file: str
    line: int
    """From 1."""
    reason: str

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
        """The readings that the families need in addition to those that are always made."""
        return frozenset(family.group for family in self.families if family.group is not None)


DEFAULT_COUNTERS = CountersConfig()

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


def read_counters(text: str | bytes, file: str) -> CountersConfig:
    """Parse a counters file: its families and labels, and the lines that cannot be served.

    ``file`` is what messages call it. Never raises: at worst nothing is served. A line is a
    record, so a quoted text ends on its line.
    """
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogateescape")
    served: dict[str, AnyFamily | LabelRow] = {}
    skipped: list[Skipped] = []

    def skip(number: int, reason: str) -> None:
        skipped.append(Skipped(file=file, line=number, reason=reason))

    lines = text[:MOST_BYTES].removeprefix(codecs.BOM_UTF8).split(b"\n")
    for number, line in enumerate(lines[:MOST_LINES], 1):
        if not line.strip() or line.startswith(b"#"):
            continue
        try:
            row = _row(*_fields(line), taken=served)
        except _Refused as error:
            skip(number, str(error))
        else:
            served[row.name] = row
    if len(lines) > MOST_LINES:
        skip(MOST_LINES + 1, f"no more than {MOST_LINES} lines are read: take lines out")
    elif len(text) > MOST_BYTES:
        skip(len(lines), f"no more than {MOST_BYTES} bytes are read: make the file smaller")
    return CountersConfig(
        families=tuple(row for row in served.values() if not isinstance(row, LabelRow)),
        labels=tuple(row for row in served.values() if isinstance(row, LabelRow)),
        skipped=tuple(skipped),
    )


def _fields(line: bytes) -> tuple[str, str, str]:
    """Name, type and help text without the blanks around them.

    Raises _Refused when the line is too long, is not text or has another number of fields.
    """
    if len(line) > MOST_LINE_BYTES:
        raise _Refused(f"{len(line)} bytes are too long for a line: {MOST_LINE_BYTES} are allowed")
    try:
        text = line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise _Refused(f"byte {error.start + 1} is not UTF-8: save the file as UTF-8") from error
    if "\0" in text:
        raise _Refused("it holds a NUL byte: write it as plain text")
    try:
        (fields,) = csv.reader([text], strict=True, skipinitialspace=True)
    except csv.Error as error:
        raise _Refused(f"it is not CSV ({error}): a quoted text ends on its line") from error
    if len(fields) != len(_FIELDS):
        raise _Refused(
            f"{len(fields)} fields instead of {', '.join(_FIELDS)}: "
            "put quotes around a help text with commas"
        )
    name, kind, help_text = (field.strip() for field in fields)
    return name, kind, help_text


def _row(name: str, kind: str, help_text: str, *, taken: Collection[str]) -> AnyFamily | LabelRow:
    """The family or label in the file's own words. Raises _Refused when it cannot be served."""
    if name in taken:
        raise _Refused(f"{name} stands in an earlier line already")
    family, label = _FAMILIES.get(name), _LABELS.get(name)
    if family is None and label is None:
        raise _Refused(_why_unknown(name))
    if label is not None:
        if kind != LABEL:
            raise _Refused(f"{name} is text, not {quoted(kind)}: its type can only be {LABEL}")
        return replace(label, name=name, help=help_text)
    if family is None or kind not in set(MetricType):
        raise _Refused(f"{name} is a number, not {quoted(kind)}: its type can be {_NUMBERS}")
    return replace(family, name=name, kind=MetricType(kind), help=help_text)


def _why_unknown(name: str) -> str:
    if name in UNSERVED:
        return f"{name} is not served: {UNSERVED[name]}"
    if name.startswith("DCGM_"):
        return f"{quoted(name)} is not served: docs/metrics.md lists what is"
    return f"{quoted(name)} is no DCGM field: names begin with DCGM_FI_ or DCGM_EXP_"
