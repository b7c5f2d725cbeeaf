# SPDX-License-Identifier: Apache-2.0
"""Outcomes of a change of MIG layouts: one enum for annotations, messages, journal and metrics."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How a change ended."""

    APPLIED = "applied"
    """The GPUs have the desired layouts, read back."""
    UNCHANGED = "unchanged"
    """The GPUs had the desired layouts already, or no change was open."""
    ROLLED_BACK = "rolled-back"
    """The change failed; the GPUs have the previous layouts."""
    REFUSED = "refused"
    """There is no plan, or it would disturb a device user; nothing was touched."""
    CANCELLED = "cancelled"
    """Nothing was touched: another layout is desired, or the attempt was called off."""
    EXPIRED = "expired"
    """Nothing was touched: there was no permit in time. The agent does not try again by itself."""
    STUCK = "stuck"
    """Some GPUs could reach neither layout: their idle instances are destroyed, and a person
    decides. The other GPUs have their previous layout."""
