# SPDX-License-Identifier: Apache-2.0
"""A file of settings that is polled for changes while a program runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from base.errors import BadInput
from base.log_once import LogOnce

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 2.0

FileReport = Callable[[bool], None]
"""Takes whether the file can be used: at the start, and with each line that is logged."""


class FollowedFile:
    """Rereads a file, or several that belong together; a broken one changes nothing. One thread."""

    def __init__(
        self,
        path: Path,
        read: Callable[[], None],
        *,
        report: FileReport = lambda _is_good: None,
    ) -> None:
        """``path`` names it in the log; its content was good just now.

        ``read`` takes over what has changed, or raises BadInput and takes over nothing.
        """
        self._path = path
        self._read = read
        self._report = report
        self._failures = LogOnce()
        self._report(True)

    def poll(self, _now: float) -> float:
        """Take over what has changed, else log why not, once. The seconds until the next poll."""
        file = str(self._path)
        try:
            self._read()
        except BadInput as error:
            if self._failures.is_new(str(error)):
                facts = {"file": file, "why": str(error)}
                log.error("file rejected, previous content kept", extra=facts)  # noqa: TRY400  # the sentence is enough
                self._report(False)
        else:
            if self._failures.clear():
                log.info("file valid again", extra={"file": file})
                self._report(True)
        return POLL_SECONDS
