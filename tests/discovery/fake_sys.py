# SPDX-License-Identifier: Apache-2.0
"""A small /sys and /proc below a temporary folder: real symbolic links, only the files named."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

NVIDIA_GPU = {"vendor": "0x10de\n", "class": "0x030200\n"}


def write(file: Path, content: str | bytes) -> None:
    """A file with its folders."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def link(at: Path, to: Path) -> None:
    """A relative symbolic link, as sysfs makes them, so that the tree can be mounted anywhere."""
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(os.path.relpath(to, at.parent))


def function(
    root: Path,
    bus_id: str,
    *bridges: str,
    bus: str = "pci0000:00",
    files: Mapping[str, str | bytes] = MappingProxyType({}),
) -> Path:
    """A PCI function below these bridges; gives its folder."""
    folder = root.joinpath("sys/devices", bus, *bridges, bus_id)
    folder.mkdir(parents=True)
    link(root / "sys/bus/pci/devices" / bus_id, folder)
    for name, content in files.items():
        write(folder / name, content)
    return folder


def bind(root: Path, function: Path, driver: str) -> None:
    """Bind a PCI function to a driver."""
    folder = root / "sys/bus/pci/drivers" / driver
    folder.mkdir(parents=True, exist_ok=True)
    link(function / "driver", folder)


def rdma(root: Path, name: str, of: Path) -> None:
    """An RDMA device of a PCI function."""
    folder = of / "infiniband" / name
    folder.mkdir(parents=True)
    link(folder / "device", of)
    link(root / "sys/class/infiniband" / name, folder)
