# SPDX-License-Identifier: Apache-2.0
"""Whether the host is a guest of a kind that shows its GPUs in another way than on a PCI bus."""

from __future__ import annotations

from pathlib import Path

_DXG = "dev/dxg"
_KERNEL = "proc/sys/kernel/osrelease"


def is_wsl(root: Path) -> bool:
    """WSL2: its driver is Windows', behind one device node, and no GPU is a PCI function.

    By the device node, or by the kernel's release, such as 5.15.153.1-microsoft-standard-WSL2:
    a container may have neither device node nor library. Source: microsoft/WSL2-Linux-Kernel.
    """
    if (root / _DXG).exists():
        return True
    try:
        return "microsoft" in (root / _KERNEL).read_text("ascii", "replace").lower()
    except OSError:
        return False
