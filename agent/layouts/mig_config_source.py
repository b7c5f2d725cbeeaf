# SPDX-License-Identifier: Apache-2.0
"""The file with MIG configurations while the agent runs: read again when it changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from base.files import read_text

if TYPE_CHECKING:
    from mig.configs.config_overlap import Overlap
    from mig.configs.mig_configs import MigConfigs


class MigConfigSource:
    """The configurations as the file has them now; for one thread."""

    def __init__(self, path: Path, overlap: Overlap) -> None:
        self._path = path
        self._overlap = overlap
        self._text: str | None = None
        self._configs: MigConfigs | None = None

    def read(self) -> MigConfigs:
        """Equal content gives the same object. Raises BadInput naming file, line and key."""
        from mig.configs.mig_config_file import parse_mig_configs  # the parser takes memory

        text = read_text(self._path, "configuration file")
        if self._configs is None or text != self._text:
            self._configs = parse_mig_configs(text, str(self._path), self._overlap)
            self._text = text
        return self._configs
