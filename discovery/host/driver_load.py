# SPDX-License-Identifier: Apache-2.0
"""Identities of the machine's boot and of the driver's load. Linux."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_BOOT: Final = Path("proc/sys/kernel/random/boot_id")
_MODULE: Final = Path("sys/module/nvidia")


def boot_id(root: Path) -> str:
    """The kernel's boot id, on a host whose root is at ``root``; empty where it cannot be read."""
    try:
        return (root / _BOOT).read_text("ascii", "replace").strip()
    except OSError:
        return ""


def driver_load(root: Path) -> str:
    """Boot id, and the inode of the kernel module's folder: sysfs never uses an inode again."""
    try:
        return f"{boot_id(root)} {(root / _MODULE).stat().st_ino}"
    except OSError:
        return boot_id(root)
