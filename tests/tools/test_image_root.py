# SPDX-License-Identifier: Apache-2.0
"""The image's file system, as far as it can be made in a moment."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from pathlib import Path
from types import ModuleType

LONGEST = 127
"""Of a first line that names an interpreter, before Linux 5.1."""


def test_the_command_has_signals_wait_before_python_starts(
    image_tool: ModuleType, tmp_path: Path
) -> None:
    first, *_ = image_tool.start_of(Path(sys.executable)).splitlines()
    command = tmp_path / "command"
    command.write_text(f"{first}\nimport signal\nprint(*signal.pthread_sigmask(0, []))\n")
    command.chmod(0o755)

    found = subprocess.run([command], capture_output=True, text=True, check=True).stdout

    ending = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    assert {*map(int, found.split())} == {*ending}
    assert len(first) < LONGEST


def test_the_user_of_the_image_may_write_to_tmp_and_nowhere_else(
    image_tool: ModuleType, tmp_path: Path
) -> None:
    image_tool.make_folders(tmp_path)

    modes = {folder.name: stat.S_IMODE(folder.stat().st_mode) for folder in tmp_path.iterdir()}
    assert modes.pop("tmp") == 0o1777
    assert [name for name, mode in modes.items() if mode & stat.S_IWOTH] == []
