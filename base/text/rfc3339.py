# SPDX-License-Identifier: Apache-2.0
"""Times of day as text, as the API server and our annotations have them (RFC 3339)."""

from __future__ import annotations

from datetime import UTC, datetime


def whole_seconds(unix_seconds: float) -> str:
    """A time in UTC, as ``2026-11-26T02:00:00Z``; parts of a second are cut off."""
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def unix_seconds(text: object) -> float | None:
    """The time that a text names; None for what names none."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return None
