# SPDX-License-Identifier: Apache-2.0
"""A pasted matrix has the published cells, whatever the way to the paste did to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import BadInput
from cli.topo.smi_matrix import parse_smi_matrix
from tests.cli.topo.pastes import paste
from tests.discovery.published_matrices import WORDS, Published, published

SMALL = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV4\tPIX\t0-15\t0\t\tN/A
GPU1\tNV4\t X \tSYS\t16-31\t1\t\tN/A
NIC0\tPIX\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing the interconnect between NUMA nodes (e.g., QPI/UPI)

NIC Legend:

  NIC0: mlx5_3
"""
CELLS = {
    ("GPU0", "GPU1"): "NV4",
    ("GPU0", "NIC0"): "PIX",
    ("GPU1", "GPU0"): "NV4",
    ("GPU1", "NIC0"): "SYS",
    ("NIC0", "GPU0"): "PIX",
    ("NIC0", "GPU1"): "SYS",
}


def cells_of(of: Published) -> dict[tuple[str, str], str]:
    """The published cells in both directions, by device names."""
    names = [*(f"GPU{at}" for at in range(of.gpus))]
    names += [f"NIC{at}" for at in range(of.devices - of.gpus)]
    words = {pair: WORDS.get(letter, "NV18") for pair, letter in of.cells.items()}
    known = [(i, j, word) for (i, j), word in words.items()]
    return {(names[a], names[b]): word for i, j, word in known for a, b in ((i, j), (j, i))}


WHOLE = [of for of in published() if len(of.cells) == of.devices * (of.devices - 1) // 2]


@given(st.sampled_from(WHOLE), st.data())
def test_every_way_of_pasting_keeps_the_published_cells(of: Published, data: st.DataObject) -> None:
    text = paste(of, data.draw)
    assert parse_smi_matrix(text, "paste").cells == cells_of(of)


def test_columns_legend_and_cells_are_read() -> None:
    found = parse_smi_matrix(SMALL, "paste")
    assert found.devices == ("GPU0", "GPU1", "NIC0")
    assert found.nic_names == {"NIC0": "mlx5_3"}
    assert found.cells == CELLS


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("$ nvidia-smi topo -m\n" + SMALL, id="a prompt before it"),
        pytest.param(
            SMALL.replace("\tGPU0\tGPU1\tNIC0\tCPU", "GPU0GPU1NIC0CPU"), id="merged header"
        ),
        pytest.param(SMALL.replace("NV4\t X \tSYS", "NV4\t X SYS"), id="a lost tab"),
        pytest.param(SMALL.replace("NV4\tPIX", "NV4PIX"), id="merged cells"),
        pytest.param(SMALL.replace("\tGPU0\tGPU1", "\t[4mGPU0\tGPU1[0m"), id="escapes without ESC"),
        pytest.param(SMALL.replace("SYS\t16", "SOC\t16"), id="the old word for SYS"),
        pytest.param(SMALL + "\n" + SMALL.replace("NV4", "NV2"), id="the first of two counts"),
    ],
)
def test_what_pasting_leaves_around_a_matrix_is_passed_over(text: str) -> None:
    assert parse_smi_matrix(text, "paste").cells == CELLS


def test_names_of_nics_in_the_header_of_older_drivers_are_devices() -> None:
    found = parse_smi_matrix(
        "        GPU0    mlx5_0  mlx5_bond_1 CPU Affinity\n"
        "GPU0     X      PIX     SYS     0-9\n"
        "mlx5_0  PIX      X      SYS\n",
        "paste",
    )
    assert found.devices == ("GPU0", "mlx5_0", "mlx5_bond_1")
    assert found.cells["mlx5_0", "mlx5_bond_1"] == "SYS"


def test_rows_and_columns_that_were_cut_are_missing() -> None:
    found = parse_smi_matrix("GPU0 GPU1 NIC0\nGPU0 X NV4\n", "paste")
    assert found.cells == {("GPU0", "GPU1"): "NV4"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "paste: no matrix in it"),
        ("GPU0 GPU1 CPU Affinity\n", "paste line 1: a header without rows"),
        ("GPU0 GPU1 GPU1\nGPU0 X PIX PIX", "paste line 1: column GPU1 stands there twice"),
        ("\nGPU0 GPU1\nGPU0 X FOO", "paste line 3: 'FOO' is no word"),
        ("GPU0 GPU1\nGPU0 X PIX SYS", "paste line 2: row GPU0 has 3 cells, the header 2 devices"),
        ("GPU0 GPU1\nGPU0 X PIX\nGPU1 X PIX", "paste line 3: row GPU1 has its X in column GPU0"),
        ("GPU0 GPU1\nGPU0 PIX PIX", "paste line 2: row GPU0 has its X in no column"),
    ],
)
def test_a_text_that_is_no_matrix_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_smi_matrix(text, "paste")
    assert str(refused.value).startswith(message)
