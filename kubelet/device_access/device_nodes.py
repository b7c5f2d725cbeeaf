# SPDX-License-Identifier: Apache-2.0
"""Reads the host's /proc for capability nodes, and makes the missing nodes in its /dev.

A node is made under another name and renamed in one step. A file that is no character device is
never touched: this program did not make it, and does not know its purpose.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from base.errors import BadInput
from base.files import cannot_write, read_text
from kubelet.device_access.capability_nodes import (
    CapabilityNode,
    capability_of,
    instance_minors,
    required_nodes,
)

NODES: Final = "dev/nvidia-caps"
_FILES: Final = "proc/driver/nvidia/capabilities"
_MINORS: Final = "proc/driver/nvidia-caps/mig-minors"
_DEVICES: Final = "proc/devices"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesMade:
    """The device nodes that were made, and the problems."""

    created: tuple[str, ...] = ()
    """Capabilities whose node was missing, or had the number of a driver that is gone."""
    problems: tuple[str, ...] = ()
    """Problems, each in one sentence that names the node or the capability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Minors:
    """Minor numbers of the device nodes of instances."""

    used: frozenset[int]
    """Numbers of current instances."""
    possible: frozenset[int]
    """Numbers of all possible instances."""


def read_minors(root: Path) -> Minors:
    """Minor numbers of a host, whose tree is below ``root``; none if it has no MIG."""
    possible = instance_minors(_text(root / _MINORS))
    present = {capability_of(path) for path in _access_files(root)}
    return Minors(
        used=frozenset(minor for minor, name in possible.items() if name in present),
        possible=frozenset(possible),
    )


def capability_minors(root: Path) -> Mapping[str, int]:
    """Capability, such as ``gpu0/gi1/access``, to the minor number of its node, of all possible
    instances of a host; empty if it has no MIG."""
    return {name: minor for minor, name in instance_minors(_text(root / _MINORS)).items()}


def make_nodes(root: Path, *, stand_ins: bool = False) -> NodesMade:
    """Make the missing device nodes of all instances of a host, whose tree is below ``root``.

    Takes the right to make device nodes (CAP_MKNOD). A node of the right number stays as it is,
    whatever its mode. ``stand_ins``: the tree is a simulated one, where empty files stand for
    nodes. Raises nothing: what cannot be made is a problem of the result.
    """
    files = {path: _text(root / _FILES / path) for path in _access_files(root)}
    required = required_nodes(_text(root / _DEVICES), _text(root / _MINORS), files)
    if not required.nodes:
        return NodesMade(problems=required.problems)
    created, problems = list[str](), list(required.problems)
    try:
        folder = _open_folder(root)
    except OSError as error:
        return NodesMade(problems=(*problems, _refused("", error)))
    try:
        for node in required.nodes:
            try:
                if _make(folder, node, stand_ins):
                    created.append(node.capability)
            except OSError as error:
                problems.append(_refused(f"/{node.name} of {node.capability}", error))
    finally:
        os.close(folder)
    return NodesMade(created=tuple(created), problems=tuple(problems))


def _access_files(root: Path) -> list[str]:
    """Paths of the access files of all current instances, below the folder of capabilities."""
    folder = root / _FILES
    paths = (*folder.glob("gpu*/mig/gi*/access"), *folder.glob("gpu*/mig/gi*/ci*/access"))
    return sorted(str(path.relative_to(folder)) for path in paths)


def _text(file: Path) -> str:
    """A file's text; empty if it cannot be read: nodes that depend on it are then problems."""
    try:
        return read_text(file)
    except BadInput:
        return ""


def _open_folder(root: Path) -> int:
    path = root / NODES
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o755)
    return os.open(path, _FOLDER)


def _make(folder: int, node: CapabilityNode, stand_ins: bool) -> bool:
    """Make a node; False if it exists. Raises OSError, and leaves nothing behind."""
    device = os.makedev(node.major, node.minor)
    try:
        status = os.stat(node.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        pass
    else:
        if stand_ins and stat.S_ISREG(status.st_mode):
            return False
        if not stat.S_ISCHR(status.st_mode):
            raise OSError(errno.EEXIST, "another file is in its place; remove it")
        if status.st_rdev == device:
            return False
    new = f".{node.name}.new"
    with contextlib.suppress(FileNotFoundError):  # of a process that died here
        os.unlink(new, dir_fd=folder)
    kind = stat.S_IFREG if stand_ins else stat.S_IFCHR
    os.mknod(new, kind | 0o000, device, dir_fd=folder)
    try:
        os.chown(new, node.uid, node.gid, dir_fd=folder, follow_symlinks=False)
        os.chmod(new, node.mode, dir_fd=folder)
        os.rename(new, node.name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise
    return True


def _refused(name: str, error: OSError) -> str:
    """Message about a node that cannot be made, with the cause and the fix."""
    place = f"/{NODES}{name}"
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return f"{place}: a link or another file is in its place; remove it"
    if error.errno == errno.EEXIST:
        return f"{place}: {error.strerror}"
    if error.errno == errno.EPERM:
        return f"{place}: it takes the right to make device nodes (CAP_MKNOD)"
    return cannot_write(place, error)
