# SPDX-License-Identifier: Apache-2.0
"""A Unix socket at a path of any length, where nobody else listens."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from base.errors import BadInput


def listening_socket(address: Path) -> socket.socket:
    """A socket at this path, in place of one that nobody answers at any more.

    Raises OSError where it cannot be made, BadInput where another process answers there.
    """
    folder = os.open(address.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    # by its folder's descriptor: an address holds 107 bytes, a path may be longer
    reachable = f"/proc/self/fd/{folder}/{address.name}"
    try:
        _refuse_second(reachable, address.parent)
        address.unlink(missing_ok=True)
        listening.bind(reachable)
        listening.listen(128)
    except BaseException:
        listening.close()
        raise
    finally:
        os.close(folder)
    return listening


def _refuse_second(address: str, folder: Path) -> None:
    """Raises BadInput where somebody answers: a second server would take its callers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        try:
            asking.connect(address)
        except OSError:
            return
    raise BadInput(
        f"another process serves the machine in {folder}: end it, or name another machine or folder"
    )
