# SPDX-License-Identifier: Apache-2.0
"""A file that cannot be written is named, with the reason and what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from base.files import cannot_write


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.ENOSPC, "No space left on device: free some space"),
        (errno.EROFS, "Read-only file system: name another place"),
        (errno.EACCES, "Permission denied: let this user write there"),
        (errno.ENOENT, "No such file or directory: create the folder"),
    ],
)
def test_place_reason_and_fix_are_one_sentence(number: int, fix: str) -> None:
    sentence = cannot_write(Path("/a/b"), OSError(number, os.strerror(number)))
    assert sentence.startswith(f"cannot write /a/b: {fix}")


def test_another_reason_stands_alone() -> None:
    error = OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    assert cannot_write("x", error) == "cannot write x: No such device"
    assert cannot_write("x", OSError("odd")) == "cannot write x: odd"
