# SPDX-License-Identifier: Apache-2.0
"""Sockets in the kubelet's folder of device plugins: names of ours, and those of others."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PLUGIN_FOLDER: Final = Path("/var/lib/kubelet/device-plugins")
KUBELET_SOCKET: Final = "kubelet.sock"
_OURS: Final = "gpuscape-"
_MOST_NAME: Final = 24
_DIGEST_LENGTH: Final = 8
_TRIAL_SECONDS: Final = 0.5
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9.]+")


def fresh_name(resource: str) -> str:
    """A name for the socket of a registration that no other one had: at most 47 characters.

    Up to Kubernetes 1.36 the end of an old stream disconnects the new client of a resource, and
    from 1.37 on a path that is connected cannot be registered again: so each registration has a
    path of its own. A path of a Unix socket has at most 107 bytes.
    """
    return name_pattern(resource).replace("*", secrets.token_hex(4))


def name_pattern(resource: str) -> str:
    """What all our names for a resource match, and none for another resource."""
    return f"{_OURS}{_short(resource)}-*.sock"


def _short(resource: str) -> str:
    name = _NOT_IN_NAMES.sub(".", resource.rpartition("/")[2])
    if len(name) <= _MOST_NAME:
        return name
    digest = hashlib.sha256(resource.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: _MOST_NAME - _DIGEST_LENGTH]}{digest}"


def identity(path: Path) -> tuple[int, int, int] | None:
    """Device, inode and time of creation of a file; None where there is none.

    A file system may give a new file the inode of a removed one.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def rival_socket(folder: Path, resource: str, own: str = "") -> Path | None:
    """The socket of another plugin for this resource, where a program holds it.

    That is NVIDIA's plugin, and another process of this program; ``own``: the name of the caller's
    socket. Two plugins of one resource overwrite each other. Nobody says which resource a socket is
    for; NVIDIA's plugin always names it ``nvidia-gpu.sock`` and so on.
    Source: k8s-device-plugin v0.20.0, internal/plugin/server.go.
    """
    return next(filter(is_listened_to, _possible_rivals(folder, resource, own)), None)


def _possible_rivals(folder: Path, resource: str, own: str) -> Iterator[Path]:
    yield folder / f"nvidia-{resource.rpartition('/')[2]}.sock"
    yield from (path for path in folder.glob(name_pattern(resource)) if path.name != own)


def is_listened_to(path: Path) -> bool:
    """Whether a program listens on this socket; also where it accepts nothing now."""
    with socket.socket(socket.AF_UNIX) as trial:
        trial.settimeout(_TRIAL_SECONDS)
        try:
            trial.connect(os.fspath(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:  # such as its queue being full
            return path.exists()
    return True


def remove_leftovers(folder: Path) -> None:
    """Remove sockets of ours that no program holds: those of a process that was killed."""
    for path in sorted(folder.glob(f"{_OURS}*.sock")):
        if not is_listened_to(path):
            with contextlib.suppress(OSError):
                path.unlink()
