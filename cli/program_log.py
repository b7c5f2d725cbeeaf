# SPDX-License-Identifier: Apache-2.0
"""Start of the log of a program in a pod."""

from __future__ import annotations

from base.log import configure
from base.settings import version_skew


def begin_log(level: str, form: str) -> None:
    """Log from now on; the first line says where chart or manifests are of another version."""
    configure(level, form)
    version_skew.report(version_skew.of_this_process())
