# SPDX-License-Identifier: Apache-2.0
"""The counters file while the agent runs: taken again when it changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from base.errors import BadInput
from base.files import read_bytes
from base.followed_file import FileReport, FollowedFile
from exporters.dcgm.counters_format import MOST_BYTES, CountersConfig, read_counters, read_fields
from exporters.dcgm.peer.peer_config import is_config_map, is_configuration

log = logging.getLogger(__name__)


def read_file(path: Path) -> CountersConfig:
    """Counters of a counters file, or of dcgm-exporter's YAML configuration in its place.

    Raises BadInput where the file cannot be read, or where YAML is no such configuration.
    """
    return parsed_counters(_content(path), str(path))


def parsed_counters(content: bytes, name: str) -> CountersConfig:
    """Counters of a file with this content; messages call it ``name``.

    Raises BadInput for a ConfigMap, and for YAML that is no configuration of dcgm-exporter.
    """
    if is_config_map(content):
        raise BadInput(
            f"{name}: this is a ConfigMap, which holds counters: name what stands below its data"
        )
    if not is_configuration(content):
        return read_counters(content, name)
    from exporters.dcgm.peer.peer_config_reader import (
        read_configuration,  # takes memory, and few have one
    )

    text = content.decode("utf-8", "replace")
    return read_fields(read_configuration(text, name).rows, name)


def log_skipped(counters: CountersConfig) -> None:
    """Log the lines that are not served, one by one."""
    for skipped in counters.skipped:
        log.warning("counter not served", extra={"why": str(skipped)})


class CountersFile:
    """Follows the file; for one thread."""

    def __init__(
        self,
        path: Path,
        served: CountersConfig,
        *,
        take: Callable[[CountersConfig], None],
        report: FileReport = lambda _is_good: None,
    ) -> None:
        """``served`` is the configuration until now, ``take`` gets a changed one."""
        self._path = path
        self._served = served
        self._take = take
        self._content: bytes | None = None
        self._followed = FollowedFile(path, self._read, report=report)

    def poll(self, now: float) -> float:
        """Take what has changed; the seconds until the next poll."""
        return self._followed.poll(now)

    def _read(self) -> None:
        content = _content(self._path)
        if content == self._content:
            return
        counters = parsed_counters(content, str(self._path))
        if counters != self._served:
            if not counters.families:
                # as it is for a moment while somebody writes it, and never what he wants
                raise BadInput(
                    f"{self._path} asks for no metric that can be served: correct it, or send"
                    " SIGHUP to serve none"
                )
            self._take(counters)
            log_skipped(counters)
            log.info("counters file reloaded", extra={"families": len(counters.families)})
        self._content, self._served = content, counters


def _content(path: Path) -> bytes:
    return read_bytes(path, most_bytes=MOST_BYTES + 1)
