# SPDX-License-Identifier: Apache-2.0
"""The image's file system, as far as it can be made in a moment."""

from __future__ import annotations

import stat
from pathlib import Path
from types import ModuleType


def test_the_user_of_the_image_may_write_to_tmp_and_nowhere_else(
    image_tool: ModuleType, tmp_path: Path
) -> None:
    image_tool.make_folders(tmp_path)

    modes = {folder.name: stat.S_IMODE(folder.stat().st_mode) for folder in tmp_path.iterdir()}
    assert modes.pop("tmp") == 0o1777
    assert [name for name, mode in modes.items() if mode & stat.S_IWOTH] == []
