# SPDX-License-Identifier: Apache-2.0
"""Sockets in the kubelet's folder of device plugins: names of ours, and those of others."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
from pathlib import Path
from typing import Final

PLUGIN_FOLDER: Final = Path("/var/lib/kubelet/device-plugins")
KUBELET_SOCKET: Final = "kubelet.sock"
_OURS: Final = "gpuscape-"
_MOST_NAME: Final = 24
_TRIAL_SECONDS: Final = 0.5
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9.]+")


def fresh_name(resource: str) -> str:
    """A name for the socket of a registration that no other one had: at most 47 characters.

    Up to Kubernetes 1.36 the end of an old stream disconnects the new client of a resource, and
    from 1.37 on a path that is connected cannot be registered again: so each registration has a
    path of its own. A path of a Unix socket has at most 107 bytes.
    """
    return f"{_OURS}{_short(resource)}-{secrets.token_hex(4)}.sock"


def _short(resource: str) -> str:
    return _NOT_IN_NAMES.sub("-", resource.rpartition("/")[2])[:_MOST_NAME]


def identity(path: Path) -> tuple[int, int, int] | None:
    """Device, inode and time of creation of a file; None where there is none.

    A file system may give a new file the inode of a removed one.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def rival_socket(folder: Path, resource: str) -> Path | None:
    """The socket of NVIDIA's plugin for this resource, where it answers.

    Two plugins of one resource overwrite each other. Nobody says which resource a socket is for;
    NVIDIA's plugin always names it ``nvidia-gpu.sock`` and so on.
    Source: k8s-device-plugin v0.20.0, internal/plugin/server.go.
    """
    path = folder / f"nvidia-{resource.rpartition('/')[2]}.sock"
    return path if is_answered(path) else None


def is_answered(path: Path) -> bool:
    """Whether a program accepts connections on this socket."""
    with socket.socket(socket.AF_UNIX) as trial:
        trial.settimeout(_TRIAL_SECONDS)
        try:
            trial.connect(os.fspath(path))
        except OSError:
            return False
    return True


def remove_leftovers(folder: Path) -> None:
    """Remove sockets of ours on which nobody answers: those of a process that was killed."""
    for path in sorted(folder.glob(f"{_OURS}*.sock")):
        if not is_answered(path):
            with contextlib.suppress(OSError):
                path.unlink()
