# SPDX-License-Identifier: Apache-2.0
"""Measures and tolerances by which two exporters' values of a metric are compared. Pure.

Two programs that read the same sensor do so at different moments, and round differently. So
what moves is compared over a run: gauges by their means, counters by their rates. What names
or counts a fact has to be equal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase


class Measure(StrEnum):
    """The number of a series that is compared: its newest value, its mean or its rate."""

    EXACT = "exact"  # the newest value, which has to be equal
    MEAN = "mean"  # the mean over the run
    RATE = "rate"  # the increase each second; the value itself where it did not move


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Allowed difference of two values: the larger of a ratio and an absolute number."""

    ratio: float = 0.0
    """Allowed difference as a share of the larger value."""
    absolute: float = 0.0
    """Allowed difference in the metric's own unit."""

    def allowed(self, left_value: float, right_value: float) -> float:
        """The allowed difference of these two values."""
        return max(self.absolute, self.ratio * max(abs(left_value), abs(right_value)))

    def __str__(self) -> str:
        parts = [f"{100 * self.ratio:g}%"] if self.ratio else []
        parts += [f"{self.absolute:g}"] if self.absolute else []
        return " or ".join(parts) or "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceRule:
    """Measure and tolerance of the metrics that a pattern names, whatever their type is."""

    pattern: re.Pattern[str]
    measure: Measure
    tolerance: Tolerance = Tolerance()


def _rule(
    pattern: str, measure: Measure, ratio: float = 0.0, absolute: float = 0.0
) -> ToleranceRule:
    tolerance = Tolerance(ratio=ratio, absolute=absolute)
    return ToleranceRule(
        pattern=re.compile(pattern, re.IGNORECASE), measure=measure, tolerance=tolerance
    )


RULES = (
    _rule(r".*_info", Measure.EXACT),
    _rule(r".*(_XID_ERRORS?|ROW_REMAP_(FAILURE|PENDING)|RETIRED_PENDING)", Measure.EXACT),
    _rule(r".*(_LICENSE_STATUS|_RECOVERY_ACTION|_MINOR_NUMBER)", Measure.EXACT),
    _rule(r".*(FB|BAR1)_TOTAL|.*_FB_RESERVED|.*_BAR1_CAPACITY_BYTES", Measure.EXACT),
    _rule(r".*_(MAX_\w+_CLOCK|MAX_CLOCK_HERTZ)", Measure.EXACT),
    _rule(r".*(SLOWDOWN|SHUTDOWN|MAX_OP)_TEMP(_CELSIUS)?", Measure.EXACT),
    _rule(r".*_(POWER_MGMT|POWER)_LIMIT(_\w+)?", Measure.EXACT),
    # counters by type, but what they hold is a rate, or falls again
    _rule(r".*_NVLINK_(BANDWIDTH|THROUGHPUT)_(TOTAL|L\d+)", Measure.MEAN, 0.2, 1),
    _rule(r"DCGM_EXP_(XID_ERRORS|CLOCK_EVENTS)_COUNT", Measure.MEAN, 0.1, 2),
    _rule(r".*_TEMP(_CELSIUS)?", Measure.MEAN, 0, 3),
    _rule(r"DCGM_FI_PROF_\w+_BYTES", Measure.MEAN, 0.2, 1e6),
    _rule(r"DCGM_FI_PROF_\w+", Measure.MEAN, 0.1, 0.05),
    _rule(r"DCGM_\w+_UTIL(_RATIO|IZATION)?", Measure.MEAN, 0.1, 5),  # percent
    _rule(r"DCGM_\w+_CLOCK", Measure.MEAN, 0.1, 30),  # megahertz
    _rule(r"DCGM_\w+_CLOCK_HERTZ", Measure.MEAN, 0.1, 30e6),
    _rule(r"DCGM_(\w+_)?POWER_(USAGE(_INSTANT)?|(RAW_)?WATTS)", Measure.MEAN, 0.1, 5),
    _rule(r"DCGM_(\w+_)?(FB|BAR1)_(USED|FREE)", Measure.MEAN, 0.02, 64),  # mebibytes
    _rule(r"DCGM_\w+_BAR1_(USED|FREE)_BYTES", Measure.MEAN, 0.02, 64 << 20),
)
"""Rules of which the first that fits counts; DCGM's names in all spellings, old ones too."""

OTHERWISE = Tolerance(ratio=0.1)
EVERYTHING = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceOverride:
    """A tolerance that the command line sets for the metrics that a pattern names."""

    tolerance: Tolerance
    names: str = EVERYTHING
    """Shell pattern of the metrics that it is for."""


def how_to_compare(
    name: str, kinds: Sequence[str | None], overrides: Sequence[ToleranceOverride] = ()
) -> tuple[Measure, Tolerance]:
    """The measure and tolerance for a metric whose sides announce ``kinds``.

    An override changes the tolerance and not the measure. An override for every metric does not
    apply to metrics that are compared exactly; one that names such a metric has its means compared.
    The last that fits wins, as the last option does on a command line.
    """
    rule = next((rule for rule in RULES if rule.pattern.fullmatch(name)), None)
    if rule is not None:
        measure, tolerance = rule.measure, rule.tolerance
    else:
        counts = "counter" in kinds or "histogram" in kinds or "summary" in kinds
        measure, tolerance = (Measure.RATE if counts else Measure.MEAN), OTHERWISE
    for override in reversed(overrides):
        exact = measure is Measure.EXACT
        if fnmatchcase(name, override.names) and not (exact and override.names == EVERYTHING):
            return (Measure.MEAN if exact else measure), override.tolerance
    return measure, tolerance
