"""A file of settings that is looked at again and again while the agent runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from base.errors import BadInput
from exporters.gpuscape.agent_metrics import AgentMetrics

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0

Tell = Callable[[Callable[[AgentMetrics], None]], None]
"""Takes what to say in metrics."""


class FollowedFile:
    """Whether the file is right, told when that changes; for one thread."""

    def __init__(
        self,
        path: Path,
        source: str,
        read: Callable[[], None],
        *,
        tell: Tell = lambda _change: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """It is right now. ``read`` takes what has changed, or raises BadInput and takes nothing;
        ``source`` is its name in metrics; ``wall`` is Unix time, only shown.
        """
        self._path = path
        self._source = source
        self._read = read
        self._tell = tell
        self._wall = wall
        self._fault = ""
        self._tell_good()

    def look(self, _now: float) -> float:
        """Take what has changed; a broken file is told once, and what held before holds on.

        The seconds until the next time.
        """
        try:
            self._read()
        except BadInput as error:
            if str(error) != self._fault:
                self._fault = str(error)
                facts = {"file": str(self._path), "why": str(error)}
                log.error("file rejected, previous content kept", extra=facts)  # noqa: TRY400  # the sentence is enough
                self._tell(lambda own: own.source_failed(self._source))
        else:
            if self._fault:
                self._fault = ""
                log.info("file valid again", extra={"file": str(self._path)})
                self._tell_good()
        return LOOK_SECONDS

    def _tell_good(self) -> None:
        at = self._wall()
        self._tell(lambda own: own.source_answered(self._source, at))
