# SPDX-License-Identifier: Apache-2.0
"""The file that asks whoever boots the node for a boot, such as kured with ``--reboot-sentinel``.

It is in a folder of its own: whoever may write to the host's /run is root there.
Source: kubereboot/kured, pkg/checkers/filechecker.go: a file that is there asks for a boot.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from base.files import cannot_write

log = logging.getLogger(__name__)

REBOOT_FOLDER: Final = Path("/run/gpuscape-reboot")
NAME: Final = "required"


class RebootSentinel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The file, and how long a change waits for the boot."""

    folder: str
    seconds: float

    @property
    def file(self) -> Path:
        """Its path."""
        return Path(self.folder, NAME)

    def why_not(self) -> str:
        """Why it cannot be written; empty where it can."""
        folder = Path(self.folder)
        if not folder.is_dir():
            return f"no boot can be requested: {folder} is no folder"
        if not os.access(folder, os.W_OK):
            return f"no boot can be requested: {folder} is not writable"
        if folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"no boot can be requested: others may write to {folder}; run chmod go-w on it"
        return ""

    def write(self, text: str) -> str:
        """Ask for a boot; why not, empty where that is done. ``text``: for people."""
        # O_NONBLOCK: to open a named pipe in its place would wait for a reader
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            with os.fdopen(os.open(self.file, flags, 0o644), "w", encoding="utf-8") as file:
                file.write(f"{text}\n")
        except OSError as error:
            return f"no boot can be requested: {cannot_write(self.file, error)}"
        return ""

    def remove(self) -> None:
        """Ask for none any more; where the file stays, the log says so."""
        try:
            self.file.unlink()
        except OSError as error:
            if os.path.lexists(self.file):
                facts = {"file": str(self.file), "why": error.strerror}
                log.warning("boot request not removed", extra=facts)
