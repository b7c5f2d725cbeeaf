"""What to do when a file cannot be written, by the operating system's reason."""

from __future__ import annotations

import errno
from pathlib import Path

_MENDS = {
    errno.ENOSPC: "free some space, or name another place",
    errno.EDQUOT: "free some space, or name another place",
    errno.EFBIG: "name another place",
    errno.EROFS: "name another place",
    errno.EACCES: "let this user write there, or name another place",
    errno.EPERM: "let this user write there, or name another place",
    errno.ENOENT: "create the folder, or name another place",
    errno.ENOTDIR: "name another place",
    errno.EISDIR: "name a file in it",
    errno.ENAMETOOLONG: "name another place",
    errno.EIO: "the kernel log says what is wrong with the device",
}

ONLY_WRITING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
"""Reasons that reading never has."""


def cannot_write(what: Path | str, error: OSError) -> str:
    """One sentence that names the place, the cause and, where it is known, the fix."""
    reason = error.strerror or str(error)
    mend = _MENDS.get(error.errno or 0)
    return f"cannot write {what}: {reason}" + (f": {mend}" if mend else "")
