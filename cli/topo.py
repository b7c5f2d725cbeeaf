# SPDX-License-Identifier: Apache-2.0
"""``gpuscape topo``: the link matrix people know from ``nvidia-smi topo -m``."""

from __future__ import annotations

from typing import Any

import click

from cli import options, terminal
from cli.observe import take_snapshot
from cli.options import Load
from cli.terminal import Cell, Styled, TextTable
from discovery.model import GpuSnapshot, NodeSnapshot
from discovery.topology import UNKNOWN_CLASS, link_class

LEGEND = (
    ("X", "the device itself"),
    ("NV#", "# NVLinks that both ends see, direct or through NVSwitch"),
    ("PIX", "at most one PCIe switch"),
    ("PXB", "several PCIe switches, no host bridge"),
    ("PHB", "a PCIe host bridge, as a rule the CPU"),
    ("NODE", "several host bridges of one NUMA node"),
    ("SYS", "the link between NUMA nodes"),
    (UNKNOWN_CLASS, "not known"),
)
"""What lies between two devices, from near to far. Source: NVML's topology levels."""

_STYLES = {
    "X": "dim",
    "NV": "bold green",
    "PIX": "green",
    "PXB": "cyan",
    "PHB": "yellow",
    "NODE": "magenta",
    "SYS": "red",
    UNKNOWN_CLASS: "bold yellow",
}


@click.command(
    epilog="""\b
Examples:
  gpuscape topo
  gpuscape topo --simulate dgx1-v100
  gpuscape topo -o json | jq '.nvlinks'

\b
Rows are in PCI bus order; GPU numbers are NVML's. json and yaml hold the devices, both
matrices (nvlinks as each GPU sees them, pcie levels 0 to 5) and the classes shown here."""
)
@options.output("table", "json", "yaml")
@options.settings(*options.READING)
def command(load: Load, output: str) -> None:
    """Show how GPUs and RDMA NICs are linked: NVLink, PCIe, NUMA nodes."""
    snapshot = take_snapshot(load())
    if output != "table":
        terminal.data(document(snapshot), output)
        return
    if not snapshot.gpus:
        terminal.note("This machine has no NVIDIA GPU.")
        return
    terminal.show(matrix(snapshot))
    terminal.note("")
    terminal.show(legend(snapshot))


def matrix(snapshot: NodeSnapshot) -> TextTable:
    """Link classes between all devices, then each device's CPUs and NUMA nodes."""
    names = _names(snapshot)
    near = [(gpu.cpu_affinity, gpu.numa_node, gpu.own_numa_node) for gpu in snapshot.gpus]
    near += [(nic.cpu_affinity, nic.numa_node, None) for nic in snapshot.host.nics]
    return TextTable(
        header=("", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"),
        rows=tuple(
            (
                Styled(name, "bold"),
                *(_link(word) for word in classes),
                *(UNKNOWN_CLASS if fact in (None, "") else str(fact) for fact in facts),
            )
            for name, classes, facts in zip(names, _classes(snapshot), near, strict=True)
        ),
    )


def legend(snapshot: NodeSnapshot) -> TextTable:
    """The classes of this matrix and the names of its NICs."""
    shown = {_family(word) for row in _classes(snapshot) for word in row}
    classes = [(_link(word), words) for word, words in LEGEND if _family(word) in shown]
    nics = [(f"NIC{i}", nic.name) for i, nic in enumerate(snapshot.host.nics)]
    return TextTable(header=("Legend", ""), rows=(*classes, *nics))


def document(snapshot: NodeSnapshot) -> dict[str, Any]:
    """The same as plain data."""
    topology = snapshot.topology
    return {
        "kind": topology.kind,
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "bus_id": gpu.bus_id,
                "numa_node": gpu.numa_node,
                "cpu_affinity": gpu.cpu_affinity,
            }
            for gpu in snapshot.gpus
        ],
        "nics": snapshot.host.nics,
        "nvlinks": topology.nvlinks,
        "pcie": topology.pcie,
        "classes": _classes(snapshot),
    }


def _classes(snapshot: NodeSnapshot) -> list[list[str]]:
    places = range(len(snapshot.gpus) + len(snapshot.host.nics))
    return [[link_class(snapshot.topology, i, j) for j in places] for i in places]


def _names(snapshot: NodeSnapshot) -> list[str]:
    gpus = [_gpu_name(gpu) for gpu in snapshot.gpus]
    return gpus + [f"NIC{i}" for i in range(len(snapshot.host.nics))]


def _gpu_name(gpu: GpuSnapshot) -> str:
    return gpu.bus_id if gpu.index is None else f"GPU{gpu.index}"


def _family(word: str) -> str:
    return "NV" if word.startswith("NV") else word


def _link(word: str) -> Cell:
    return Styled(word, _STYLES[_family(word)])
