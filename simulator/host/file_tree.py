# SPDX-License-Identifier: Apache-2.0
"""A tree of files and links that stands for a host, and how it is written to a directory."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from base.errors import BadInput

MARKER = ".gpuscape-host-tree"
"""File in the root that says: this tree is ours to replace; it holds the tree's digest."""

_TOPS = ("sys", "proc", "dev")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTree:
    """Files and links below a root: paths without a leading slash."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    """Path to target, both from the root; written relative, so that the tree can be moved."""

    def text(self, path: str, *lines: object) -> None:
        """Add a text file of these lines."""
        self.files[path] = "".join(f"{line}\n" for line in lines).encode()

    def digest(self) -> str:
        """Changes with anything in the tree."""
        everything = repr((sorted(self.files.items()), sorted(self.links.items())))
        return hashlib.sha256(everything.encode()).hexdigest()


def write_host_tree(tree: HostTree, root: Path) -> None:
    """Write a host tree into ``root``, an empty or missing directory or one of ours.

    The same tree is left as it is; another one of ours is replaced, also one that
    was written half. Raises BadInput for a directory that holds anything else, and
    changes nothing in it.
    """
    marker = root / MARKER
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"cannot write a simulated host to {root}: {error.strerror}; name another directory"
        ) from error
    if not marker.is_file() and any(root.iterdir()):
        raise BadInput(f"{root} is not empty and not a simulated host: name another directory")
    if marker.is_file() and marker.read_text() == tree.digest():
        return
    marker.write_text("incomplete")
    for top in _TOPS:
        if (root / top).exists():
            shutil.rmtree(root / top)
    for path, content in tree.files.items():
        _new_parents(root / path).write_bytes(content)
    for path, target in tree.links.items():
        relative = os.path.relpath(target, PurePosixPath(path).parent)
        _new_parents(root / path).symlink_to(relative)
    marker.write_text(tree.digest())


def _new_parents(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
