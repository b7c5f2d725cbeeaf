# SPDX-License-Identifier: Apache-2.0
"""The settings of logging, which every program declares alike: see :mod:`base.log`."""

from __future__ import annotations

from base.settings import setting_kinds as kinds
from base.settings.option import setting


def log_level() -> str:
    """Declare ``log_level``; the subject Log begins with it."""
    return setting(
        "info",
        kinds.choice_kind("debug", "info", "warning", "error"),
        "The least severe level that is logged.",
        subject="Log",
    )


def log_format() -> str:
    """Declare ``log_format``; it stands after the level, whose subject it shares."""
    return setting(
        "text", kinds.choice_kind("text", "json"), "Log lines for people or for programs."
    )
