# SPDX-License-Identifier: Apache-2.0
"""Matrices that people published: the machine that follows from the text, and what it judges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from discovery.model import GpuSnapshot, Nic, PciFacts, Topology
from discovery.topology import link_class, node_topology
from tests import build

FILE = Path(__file__).with_name("published_matrices.yaml")
WORDS = {"I": "PIX", "B": "PXB", "H": "PHB", "N": "NODE", "S": "SYS"}
_LEVELS = {"I": 1, "B": 2, "H": 3, "N": 4, "S": 5}
_ONE_BRIDGE = "IBH"

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One matrix; devices are the GPUs followed by the NICs."""

    source: str
    nodes: tuple[int | None, ...]
    """Of each device, as published."""
    nics: tuple[str, ...]
    """Names of the NIC legend; empty where the text has none."""
    nic_bus: tuple[str, ...]
    gpus: int
    devices: int
    cells: dict[Pair, str]
    """Letter of each pair (i, j) that is legible, i < j."""

    @property
    def gpu_levels_published(self) -> bool:
        """The text has PCIe words between GPUs, not NVLink."""
        return any(j < self.gpus and letter in WORDS for (_, j), letter in self.cells.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What follows from a matrix, and the cells that are left to judge."""

    published: Published
    roots: tuple[int, ...]
    nodes: tuple[int | None, ...]
    ancestors: dict[Pair, int]
    """What NVML answers for two GPUs."""
    judged: tuple[Pair, ...]

    def topology(self, *, with_nvml: bool = True) -> Topology:
        """Our matrix of it; without NVML's answers, what sysfs alone gives."""
        bus = [f"0000:{0x10 + at:02x}:00.0" for at in range(self.published.devices)]
        facts = {
            bus[at]: PciFacts(
                bus_id=bus[at],
                root=f"pci0000:{self.roots[at]:02x}",
                bridges=(f"0000:{self.roots[at]:02x}:{at:02x}.0",),
                numa_node=self.nodes[at],
            )
            for at in range(self.published.devices)
        }
        gpus = [self._gpu(at, bus, with_nvml) for at in range(self.published.gpus)]
        nics = [Nic(name=f"nic{at}", bus_id=bus[at]) for at in self.published_nics]
        return node_topology(gpus, nics, facts)

    @property
    def published_nics(self) -> range:
        """Places of the NICs."""
        return range(self.published.gpus, self.published.devices)

    def _gpu(self, at: int, bus: list[str], with_nvml: bool) -> GpuSnapshot:
        seen = tuple((bus[j], level) for (i, j), level in self.ancestors.items() if i == at)
        return build.changed(build.gpu(at), bus_id=bus[at], ancestors=seen if with_nvml else ())

    def wrong(self, *, with_nvml: bool = True) -> list[tuple[Pair, str, str]]:
        """Judged cells that differ: the pair, the published word, ours."""
        ours = self.topology(with_nvml=with_nvml)
        words = [(pair, WORDS[self.published.cells[pair]]) for pair in self.judged]
        pairs = [(pair, word, link_class(ours, *pair)) for pair, word in words]
        return [(pair, word, own) for pair, word, own in pairs if word != own]


@cache
def published() -> tuple[Published, ...]:
    """The whole corpus."""
    return tuple(_published(entry) for entry in yaml.safe_load(FILE.read_text()))


def _published(entry: dict[str, Any]) -> Published:
    rows = {name: row.replace(" ", "") for name, row in entry["rows"].items()}
    devices = len(next(iter(rows.values())))
    gpus = len(entry["nodes"])
    cells: dict[Pair, str] = {}
    for name, row in rows.items():
        at = int(name[3:]) + (gpus if name.startswith("NIC") else 0)
        assert len(row) == devices, f"{entry['source']}: {name}"
        assert row[at] == "X", f"{entry['source']}: {name}"
        for other, letter in enumerate(row):
            pair = (min(at, other), max(at, other))
            if letter not in "X.":
                assert cells.setdefault(pair, letter) == letter, f"{entry['source']}: {pair}"
    return Published(
        source=entry["source"],
        nodes=(*entry["nodes"], *entry.get("nic_nodes", [None] * (devices - gpus))),
        nics=tuple(entry.get("nics", ())),
        nic_bus=tuple(entry.get("nic_bus", ())),
        gpus=gpus,
        devices=devices,
        cells=cells,
    )


def machine(of: Published) -> Machine:
    """The machine behind a matrix.

    One host bridge: devices that PIX, PXB or PHB join. A NIC's NUMA node is the published one, else
    that of a device on its host bridge, else that of the first device it has NODE with: that cell
    places it and judges nothing. Between GPUs of one node, NVML answers the published word;
    where that is NVLink, the first cell across host bridges of a node stands for it and judges
    nothing. All other cells of NICs across host bridges are judged, where both nodes are known.
    """
    roots = _roots(of)
    nodes = list(of.nodes)
    used: set[Pair] = set()
    for at in range(of.gpus, of.devices):
        if nodes[at] is None:
            nodes[at] = next(
                (
                    nodes[i]
                    for i in range(of.devices)
                    if roots[i] == roots[at] and nodes[i] is not None
                ),
                None,
            )
        if nodes[at] is None:
            near = next((i for i in range(of.gpus) if of.cells.get((i, at)) == "N"), None)
            if near is not None:
                nodes[at] = nodes[near]
                used.add((near, at))
    across = [
        pair
        for pair in sorted(of.cells)
        if pair[1] >= of.gpus
        and roots[pair[0]] != roots[pair[1]]
        and nodes[pair[0]] is not None
        and nodes[pair[1]] is not None
        and pair not in used
    ]
    hidden = next((pair for pair in across if nodes[pair[0]] == nodes[pair[1]]), None)
    ancestors = dict(_ancestors(of, roots, nodes, None if hidden is None else of.cells[hidden]))
    if not of.gpu_levels_published and hidden is not None:
        used.add(hidden)
    return Machine(
        published=of,
        roots=tuple(roots),
        nodes=tuple(nodes),
        ancestors=ancestors,
        judged=tuple(pair for pair in across if pair not in used),
    )


def _roots(of: Published) -> list[int]:
    roots = list(range(of.devices))
    for (i, j), letter in of.cells.items():
        if letter in _ONE_BRIDGE and roots[i] != roots[j]:
            old, new = roots[j], roots[i]
            roots = [new if root == old else root for root in roots]
    return roots


def _ancestors(
    of: Published, roots: list[int], nodes: list[int | None], hidden: str | None
) -> Iterator[tuple[Pair, int]]:
    for i in range(of.gpus):
        for j in range(i + 1, of.gpus):
            letter = of.cells.get((i, j))
            if letter in _LEVELS:
                yield (i, j), _LEVELS[letter]
            elif roots[i] != roots[j] and nodes[i] is not None and nodes[i] == nodes[j] and hidden:
                yield (i, j), _LEVELS[hidden]
