# SPDX-License-Identifier: Apache-2.0
"""The web config file and the files that it names: read at the start, and again after a change.

Import it only where there is such a file: YAML and hashes take memory.
"""

from __future__ import annotations

import logging
from pathlib import Path

from base.bucket import Bucket
from base.files import read_text
from base.followed_file import FileReport, FollowedFile
from web.client_access import OPEN, ClientAccess
from web.tls import Material, context_of, read_material
from web.web_config import WebConfig, read_web_config

log = logging.getLogger(__name__)


class WebConfigFile:
    """Follows a web config file and the files it names; :attr:`current` is for any thread."""

    def __init__(
        self,
        path: Path,
        *,
        report: FileReport = lambda _is_good: None,
    ) -> None:
        """Read the file. Raises BadInput that names file, line and key."""
        self._path = path
        self._text = ""
        self._config = WebConfig()
        self._material: Material = {}
        self.current = OPEN
        self._read(first=True)
        self._followed = FollowedFile(path, self._read, report=report)

    def poll(self, now: float) -> float:
        """Take over changed files; the seconds until the next poll."""
        return self._followed.poll(now)

    def _read(self, *, first: bool = False) -> None:
        text = read_text(self._path, "web config file")
        changed = first or text != self._text
        config = read_web_config(text, str(self._path)) if changed else self._config
        material = {} if config.tls is None else read_material(config.tls)
        if not changed and material == self._material:
            return
        self.current = self._access(config, material)
        self._text, self._config, self._material = text, config, material
        for note in config.notes if changed else ():
            log.warning("web config setting not served as written", extra={"why": note})
        log.info(
            "web config file loaded",
            extra={"tls": config.tls is not None, "users": len(config.users)},
        )

    def _access(self, config: WebConfig, material: Material) -> ClientAccess:
        """The rules for clients by file and material; unchanged parts are kept as they are."""
        before = self.current
        passwords = before.passwords
        if config.users != self._config.users:
            passwords = None
            if config.users:
                from web.passwords import Passwords  # the hash function takes memory

                passwords = Passwords(config.users)
        context = before.context
        if config.tls != self._config.tls or material != self._material:
            context = None if config.tls is None else context_of(config.tls, material)
        return ClientAccess(
            context=context,
            client_names=None if config.tls is None else config.tls.client_names,
            passwords=passwords,
            headers=config.headers,
            bucket=None
            if config.rate is None
            else Bucket(interval_seconds=config.rate.interval_seconds, burst=config.rate.burst),
        )
