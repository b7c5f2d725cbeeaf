# SPDX-License-Identifier: Apache-2.0
"""Prepares the host so that programs can open new instances: device nodes, CDI, kubelet."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from base.errors import BadInput
from base.files import read_text
from kubelet.device_access.cdi_specs import MigInstances, stale_entries
from kubelet.device_access.device_nodes import make_nodes, read_minors
from kubelet.device_access.kubelet_list import stale_list
from kubelet.devices_checkpoint import read_kubelet_devices

log = logging.getLogger(__name__)

_CDI: Final = ("etc/cdi", "run/cdi", "var/run/cdi")
"""Folders where runtimes look for specifications; the last is mostly a link to the second."""
_ENDINGS: Final = (".json", ".yaml", ".yml")
_MOST_SPECS: Final = 256
_MOST_SPEC_BYTES: Final = 4 << 20
"""Sixteen GPUs with seven instances each take 300 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceAccess:
    """The device nodes that were made, and the problems that somebody else must solve."""

    created: tuple[str, ...] = ()
    """Capabilities whose device node was made, such as ``gpu0/gi1/access``."""
    problems: tuple[str, ...] = ()
    """Problems, each in one sentence."""


def open_access(
    root: Path, devices: Mapping[str, bool] | None, *, stand_ins: bool = False
) -> InstanceAccess:
    """Make the device nodes of all instances; report stale CDI specifications and kubelet devices.

    For the end of each change and of each restoring, before a device plugin starts. ``root``:
    where the host's root is mounted. ``devices``: see :func:`stale_devices`; None if they are not
    known. ``stand_ins``: see :func:`make_nodes`. Logs nodes and problems; raises nothing.
    """
    nodes = make_nodes(root, stand_ins=stand_ins)
    if nodes.created:
        log.info("MIG device nodes made", extra={"instances": len(nodes.created)})
    for problem in nodes.problems:
        log.warning("MIG device node missing", extra={"why": problem})
    stale = tuple(stale_specs(root, devices))
    for problem in stale:
        log.warning("CDI specification stale", extra={"why": problem})
    old = () if devices is None else tuple(stale_devices(root, devices))
    for problem in old:
        log.warning("device plugin's list stale", extra={"why": problem})
    return InstanceAccess(created=nodes.created, problems=(*nodes.problems, *stale, *old))


def stale_devices(root: Path, devices: Mapping[str, bool]) -> Iterator[str]:
    """A sentence for each problem of the kubelet's list of devices; one if it cannot be read.

    ``devices``: UUID of each current MIG device, to whether it takes all of its GPU instance.
    """
    try:
        kubelet = read_kubelet_devices(root, time.time())
    except BadInput as error:
        yield str(error)
    else:
        yield from stale_list(kubelet, devices)


def stale_specs(root: Path, uuids: Collection[str] | None) -> Iterator[str]:
    """A sentence for each CDI specification of a host that names destroyed instances.

    An unreadable file is reported if its name has ``nvidia``. Nothing is repaired: the files belong
    to the programs that wrote them.
    """
    minors = read_minors(root)
    present = MigInstances(
        uuids=None if uuids is None else frozenset(uuids),
        used_minors=minors.used,
        possible_minors=minors.possible,
    )
    for file in _spec_files(root):
        name = f"/{file.relative_to(root)}"
        try:
            problem = stale_entries(name, _content(file, name), present)
        except BadInput as error:
            problem = str(error) if "nvidia" in file.name else None
        if problem is not None:
            yield problem


def _spec_files(root: Path) -> Iterator[Path]:
    for folder in _CDI:
        place = root / folder
        if not place.parent.is_symlink() and not place.is_symlink():  # a link leads out of root
            files = (file for file in place.glob("*") if file.suffix in _ENDINGS)
            yield from sorted(files)[:_MOST_SPECS]


def _content(file: Path, name: str) -> object:
    """A file's content. Raises BadInput if it is not a regular file, not readable or not YAML."""
    if file.is_symlink() or not file.is_file():  # a pipe would never end, a link lead out of root
        raise BadInput(f"{name}: no regular file: it is not checked")
    from base.yaml_places import CoreLoader, read_yaml  # takes memory, and is seldom needed

    text = read_text(file, most_bytes=_MOST_SPEC_BYTES)
    return read_yaml(text, name, loader=CoreLoader, most_bytes=_MOST_SPEC_BYTES).content()
