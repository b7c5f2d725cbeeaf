# SPDX-License-Identifier: Apache-2.0
"""Errors sorted by what the caller does next: wait and retry, or report and change nothing."""


class GpuscapeError(Exception):
    """Base of all errors raised on purpose; its text is one sentence with cause and fix."""


class Transient(GpuscapeError):
    """An error that may pass: keep the last snapshot and try again with backoff."""


class Unreadable(Transient):
    """An endpoint, or a cluster, that was to be read does not answer, or answers something else."""


class Permanent(GpuscapeError):
    """An error that lasts until somebody acts: report it and change nothing."""


class BadInput(Permanent):
    """Something a person wrote is wrong: the text names the file, line or key, and the fix."""
