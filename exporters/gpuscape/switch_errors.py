# SPDX-License-Identifier: Apache-2.0
"""Counts of NVSwitch errors, as metrics show them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Severity of an NVSwitch error in the driver's log.

    Source: NVSWITCH_REPORT_{FATAL,NONFATAL,CORRECTABLE} in NVIDIA's open kernel modules.
    """

    FATAL = "fatal"  # to the fabric: the GPUs have to be reset
    NON_FATAL = "non-fatal"
    CORRECTABLE = "correctable"
    UNTOLD = "untold"  # temperature, firmware, access to modules


@dataclass(frozen=True, slots=True, kw_only=True)
class Sxid:
    """An error that one NVSwitch reported since this agent started, folded by code."""

    bus_id: str
    """The switch's, as :func:`discovery.bus_id.normal_bus_id` writes it."""
    code: int
    severity: Severity
    count: int
    last_seen_seconds: float
    """Wall clock of the newest one, Unix seconds."""
