# SPDX-License-Identifier: Apache-2.0
"""The part of a host's /sys and /proc that belongs into a recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from discovery.host.pci import DEVICES, is_function, nvidia_functions
from discovery.host.vgpu import CONFIG_BYTES
from simulator.recording_file import HostFiles

_INFINIBAND = "sys/class/infiniband"
_FACTS = (
    "class",
    "vendor",
    "device",
    "subsystem_vendor",
    "subsystem_device",
    "numa_node",
    "local_cpulist",
)
_LINKS = ("driver", "physfn")
_PLAIN = (
    "sys/class/dmi/id/product_name",
    "sys/devices/system/cpu/online",
    "sys/devices/system/node/online",
    "proc/meminfo",
    "proc/driver/nvidia/version",
)
_NODES = "sys/devices/system/node/node*/cpulist"


def read_host_files(root: Path) -> HostFiles:
    """NVIDIA's PCI functions, RDMA devices, the bridges above them, NUMA nodes, machine type.

    What is missing, may not be read or leads out of ``root`` is left out. None of
    these files holds the host's name or an address or serial number.
    """
    base = root.resolve()
    links = dict(_links(base))
    functions = {base / target for target in links.values() if is_function(Path(target).name)}
    texts = [function / name for function in functions for name in _FACTS]
    texts += [*map(base.joinpath, _PLAIN), *base.glob(_NODES)]
    configs = [function / "config" for function in functions if _is_nvidia(function)]
    return HostFiles(
        texts={_from(base, path): content.decode() for path, content in _heads(texts, None)},
        configs={
            _from(base, path): content.hex() for path, content in _heads(configs, CONFIG_BYTES)
        },
        links=links,
    )


def _links(base: Path) -> Iterator[tuple[str, str]]:
    """Path and target of every link that leads to or from the recorded functions."""
    rdma = {path: (path / "device").resolve() for path in _entries(base / _INFINIBAND)}
    for path, function in rdma.items():
        if is_function(function.name):
            device = path.resolve()
            yield from _link(base, path, device)
            yield from _link(base, device / "device", function)
    functions = [path.resolve() for path in _nvidia(base)] + list(rdma.values())
    if not functions:  # one of any kind shows at least that there is PCI
        functions = [path.resolve() for path in _entries(base / DEVICES)[:1]]
    for function in functions:
        for place in (function, *function.parents):
            if is_function(place.name):
                yield from _link(base, base / DEVICES / place.name, place)
        for path in (function / name for name in _LINKS):
            if path.is_symlink():
                yield from _link(base, path, path.resolve())


def _link(base: Path, path: Path, target: Path) -> Iterator[tuple[str, str]]:
    if path.is_relative_to(base) and target.is_relative_to(base):
        yield _from(base, path), _from(base, target)


def _nvidia(base: Path) -> list[Path]:
    try:
        return nvidia_functions(base / DEVICES)
    except OSError:
        return []


def _is_nvidia(function: Path) -> bool:
    return any(content.strip() == b"0x10de" for _, content in _heads([function / "vendor"], None))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _heads(paths: Iterable[Path], size: int | None) -> Iterator[tuple[Path, bytes]]:
    """Readable files with their content, or the first bytes of it."""
    for path in sorted(paths):
        try:
            with path.open("rb", buffering=0) as stream:
                yield path, stream.read(-1 if size is None else size) or b""
        except OSError:
            continue


def _from(base: Path, path: Path) -> str:
    return path.relative_to(base).as_posix()
