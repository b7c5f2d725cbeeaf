# SPDX-License-Identifier: Apache-2.0
"""Cells that differ between a matrix of nvidia-smi's and that of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cli.topo.smi_matrix import SmiMatrix


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMatrix:
    """The matrix of this machine, as ``gpuscape topo`` shows it."""

    names: tuple[str, ...]
    """GPU0, … then NIC0, …; the order of rows and columns of ``classes``."""
    nic_names: dict[str, str]
    """NIC number to RDMA device."""
    classes: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferentCell:
    """A pair of devices and its two words. Devices have the names of the file."""

    row: str
    column: str
    file: str
    here: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixComparison:
    """The outcome; a pair that the file has in both directions counts once if they agree."""

    compared: int
    """Pairs that both matrices have."""
    different: tuple[DifferentCell, ...]
    only_file: tuple[str, ...]
    """Devices, by the file's names."""
    only_here: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether no cell and no device differs."""
        return not (self.different or self.only_file or self.only_here)


def compare_matrices(smi: SmiMatrix, own: OwnMatrix) -> MatrixComparison:
    """Compare the cells of the pairs that both matrices have.

    NICs are matched by the names of the file's legend, or by the name in its header, and where it
    has neither by number. Cells that the file lacks, cut off or not pasted, are not compared.
    """
    by_rdma_name = {rdma: number for number, rdma in own.nic_names.items()}

    def here(device: str) -> str | None:
        rdma = smi.nic_names.get(device)
        number = device if rdma is None else by_rdma_name.get(rdma)
        number = by_rdma_name.get(device, number)
        return number if number in own.names else None

    matched = {device: name for device in smi.devices if (name := here(device)) is not None}
    places = {device: own.names.index(name) for device, name in matched.items()}
    order = {device: place for place, device in enumerate(smi.devices)}
    pairs: set[tuple[str, str]] = set()
    different: dict[tuple[str, str, str], DifferentCell] = {}
    for (row, column), word in smi.cells.items():
        if row not in places or column not in places:
            continue
        a, b = sorted((row, column), key=order.__getitem__)
        pairs.add((a, b))
        ours = own.classes[places[a]][places[b]]
        if ours != word:
            different[a, b, word] = DifferentCell(row=a, column=b, file=word, here=ours)
    return MatrixComparison(
        compared=len(pairs),
        different=tuple(different.values()),
        only_file=tuple(
            _named(device, smi.nic_names) for device in smi.devices if device not in matched
        ),
        only_here=tuple(
            _named(name, own.nic_names) for name in own.names if name not in matched.values()
        ),
    )


def _named(device: str, nic_names: dict[str, str]) -> str:
    """The device, with its RDMA name where it has one."""
    rdma = nic_names.get(device)
    return device if rdma is None else f"{device} ({rdma})"
