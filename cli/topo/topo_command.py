# SPDX-License-Identifier: Apache-2.0
"""``gpuscape topo``: the link matrix people know from ``nvidia-smi topo -m``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from agent.single_reading import take_snapshot
from base.errors import BadInput
from base.files import read_stdin, read_text
from cli import options, terminal
from cli.missing_gpus import end_without_gpus
from cli.options import Load
from cli.terminal import Cell, Styled, TextTable
from cli.topo.matrix_comparison import MatrixComparison, OwnMatrix, compare_matrices
from cli.topo.smi_matrix import SmiMatrix, parse_smi_matrix
from discovery.model import GpuSnapshot, Nic, NodeSnapshot
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
"""Link classes of two devices and their meanings, near to far. Source: NVML's topology levels."""

DIFFERENT = 1
STDIN = "-"

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
  nvidia-smi topo -m | gpuscape topo --compare -

\b
Rows are GPUs in PCI bus order, then NICs by name, as nvidia-smi numbers them; GPU numbers are
NVML's. json and yaml hold the devices, both matrices (nvlinks as each GPU sees them, pcie
levels 0 to 5) and the classes shown here.

\b
--compare takes the matrix as it is pasted into an issue: with the NIC legend or without, with a
terminal's underlines, tabs or blanks, wrapped lines, cut rows and columns. NICs are matched by
the legend's names.

\b
Exit codes:
  0  done; with --compare: no cell and no device differs
  1  with --compare: there are differences
  2  bad input: options, a text without a matrix, a row that does not fit its header
  3  no driver answers"""
)
@click.option(
    "--compare",
    "file",
    metavar="FILE",
    help="Show the cells that differ from this output of nvidia-smi topo -m, - for standard input.",
)
@options.output("table", "json", "yaml")
@options.settings(*options.READING)
def command(load: Load, output: str, file: str | None) -> None:
    """Show how GPUs and RDMA NICs are linked: NVLink, PCIe, NUMA nodes."""
    smi = None if file is None else _smi_matrix(file)
    snapshot = take_snapshot(load())
    if smi is not None:
        comparison = compare_matrices(smi, _own_matrix(snapshot))
        _show_comparison(comparison, output)
        raise click.exceptions.Exit(0 if comparison.same else DIFFERENT)
    if output != "table":
        terminal.print_data(matrix_document(snapshot), output)
        end_without_gpus(snapshot)
        return
    end_without_gpus(snapshot)
    if not snapshot.gpus:
        terminal.note("This machine has no NVIDIA GPU.")
        return
    terminal.show_table(link_matrix(snapshot))
    terminal.note("")
    terminal.show_table(matrix_legend(snapshot))


def link_matrix(snapshot: NodeSnapshot) -> TextTable:
    """Link classes between all devices, then each device's CPUs and NUMA nodes."""
    names = _names(snapshot)
    near = [(gpu.cpu_affinity, gpu.numa_node, gpu.own_numa_node) for gpu in snapshot.gpus]
    near += [(nic.cpu_affinity, nic.numa_node, None) for nic in _nics(snapshot)]
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


def matrix_legend(snapshot: NodeSnapshot) -> TextTable:
    """The classes of this matrix and the names of its NICs."""
    shown = {_family(word) for row in _classes(snapshot) for word in row}
    classes = [(_link(word), words) for word, words in LEGEND if _family(word) in shown]
    return TextTable(header=("Legend", ""), rows=(*classes, *_nic_names(snapshot).items()))


def matrix_document(snapshot: NodeSnapshot) -> dict[str, Any]:
    """The matrix as plain data."""
    topology = snapshot.topology
    rows = _rows(snapshot)
    return {
        "kind": topology.kind,
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "bus_id": gpu.bus_id,
                "numa_node": gpu.numa_node,
                "cpu_affinity": gpu.cpu_affinity,
                "gpu_numa_id": gpu.own_numa_node,
            }
            for gpu in snapshot.gpus
        ],
        "nics": _nics(snapshot),
        "nvlinks": topology.nvlinks,
        "pcie": [[topology.pcie[i][j] for j in rows] for i in rows],
        "classes": _classes(snapshot),
    }


def _smi_matrix(file: str) -> SmiMatrix:
    if file != STDIN:
        return parse_smi_matrix(read_text(Path(file), "matrix"), file)
    try:
        return parse_smi_matrix(read_stdin().decode(), "standard input")
    except UnicodeDecodeError as error:
        raise BadInput("cannot read standard input: it is not UTF-8 text") from error


def _own_matrix(snapshot: NodeSnapshot) -> OwnMatrix:
    return OwnMatrix(
        names=tuple(_names(snapshot)),
        nic_names=_nic_names(snapshot),
        classes=_classes(snapshot),
    )


def _show_comparison(comparison: MatrixComparison, output: str) -> None:
    if output != "table":
        terminal.print_data(comparison, output)
        return
    if comparison.different:
        terminal.show_table(
            TextTable(
                header=("ROW", "COLUMN", "FILE", "HERE"),
                rows=tuple(
                    (cell.row, cell.column, _link(cell.file), _link(cell.here))
                    for cell in comparison.different
                ),
            )
        )
        terminal.note("")
    _note_devices("only in the file", comparison.only_file)
    _note_devices("only on this machine", comparison.only_here)
    terminal.note(f"{len(comparison.different)} of {comparison.compared} pairs differ")


def _note_devices(where: str, devices: Sequence[str]) -> None:
    if devices:
        terminal.note(f"{where}: {', '.join(devices)}")


def _classes(snapshot: NodeSnapshot) -> list[list[str]]:
    rows = _rows(snapshot)
    return [[link_class(snapshot.topology, i, j) for j in rows] for i in rows]


def _rows(snapshot: NodeSnapshot) -> list[int]:
    """Rows of the topology in the order shown here."""
    gpus = len(snapshot.gpus)
    return [*range(gpus), *(gpus + place for place in _nic_order(snapshot.host.nics))]


def _nics(snapshot: NodeSnapshot) -> list[Nic]:
    return [snapshot.host.nics[place] for place in _nic_order(snapshot.host.nics)]


def _nic_order(nics: Sequence[Nic]) -> list[int]:
    """Places of NICs in the order of nvidia-smi's legend: by name, numbers in it as numbers.

    Source: legends in which names and bus ids are in different order, NVIDIA/k8s-launch-kit
    pull 50 among them; older drivers use the names themselves, in no order.
    """
    return sorted(range(len(nics)), key=lambda place: _name_parts(nics[place].name))


def _name_parts(name: str) -> list[tuple[int, int, str]]:
    """A key that has mlx5_2 before mlx5_10, and numbers before letters; case does not count."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.findall(r"[0-9]+|[^0-9]+", name.lower())
    ]


def _names(snapshot: NodeSnapshot) -> list[str]:
    return [*(_gpu_name(gpu) for gpu in snapshot.gpus), *_nic_names(snapshot)]


def _nic_names(snapshot: NodeSnapshot) -> dict[str, str]:
    """NIC number to RDMA device."""
    return {f"NIC{number}": nic.name for number, nic in enumerate(_nics(snapshot))}


def _gpu_name(gpu: GpuSnapshot) -> str:
    return gpu.bus_id if gpu.index is None else f"GPU{gpu.index}"


def _family(word: str) -> str:
    return "NV" if word.startswith("NV") else word


def _link(word: str) -> Cell:
    return Styled(word, _STYLES[_family(word)])
