# SPDX-License-Identifier: Apache-2.0
"""The link matrix is the one people know, as text, in colour and as data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from discovery.model import Nic, NodeSnapshot
from tests import build
from tests.cli import nodes
from tests.cli.conftest import Run
from tests.discovery.published_matrices import published

MATRIX = """\
      GPU0  GPU1  GPU2  NIC0  CPU Affinity  NUMA Affinity  GPU NUMA ID
GPU0  X     NV4   SYS   PXB   0-15          0              N/A
GPU1  NV4   X     SYS   PHB   0-15          0              N/A
GPU2  SYS   SYS   X     N/A   N/A           N/A            N/A
NIC0  PXB   PHB   N/A   X     N/A           0              N/A

Legend
X       the device itself
NV#     # NVLinks that both ends see, direct or through NVSwitch
PXB     several PCIe switches, no host bridge
PHB     a PCIe host bridge, as a rule the CPU
SYS     the link between NUMA nodes
N/A     not known
NIC0    mlx5_0
"""


def test_the_matrix_has_devices_affinity_and_a_legend_of_what_it_shows(run: Run) -> None:
    result = run("topo", sees=nodes.bridged())
    assert (result.exit_code, result.output) == (0, MATRIX)


def test_link_classes_are_coloured_when_colour_is_forced(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    output = run("topo", sees=nodes.bridged()).output
    assert "\x1b[1;32mNV4 " in output
    assert "\x1b[31mSYS " in output


def test_no_color_leaves_no_colour_even_where_a_terminal_is_forced(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in run("topo", sees=nodes.bridged()).output


def test_json_holds_devices_both_matrices_and_the_classes_shown(run: Run) -> None:
    data = json.loads(run("topo", "-o", "json", sees=nodes.bridged()).output)
    assert data["kind"] == "bridge"
    assert [gpu["index"] for gpu in data["gpus"]] == [0, 1, 2]
    assert data["nics"][0]["name"] == "mlx5_0"
    assert data["nvlinks"][1] == [4, 0, 2]
    assert data["pcie"][3] == [2, 3, None, 0]
    assert data["classes"][0] == ["X", "NV4", "SYS", "PXB"]


def test_yaml_is_the_same_data(run: Run) -> None:
    from_json = json.loads(run("topo", "-o", "json", sees=nodes.bridged()).output)
    assert yaml.safe_load(run("topo", "-o", "yaml", sees=nodes.bridged()).output) == from_json


def test_a_gpu_without_an_index_is_named_by_its_bus_id(run: Run) -> None:
    node = build.node([build.gpu(0, index=None)])
    assert run("topo", sees=node).output.splitlines()[1].startswith("0000:10:00.0  X")


def test_a_machine_without_a_gpu_is_an_answer(run: Run) -> None:
    result = run("topo", sees=build.node())
    assert (result.exit_code, result.output) == (0, "This machine has no NVIDIA GPU.\n")


def with_nics(nics: Sequence[Nic]) -> NodeSnapshot:
    """GPU 0, and NICs whose level to it is their place from 1 on, at most 5."""
    node = build.node([build.gpu(0)])
    size = 1 + len(nics)
    pcie = [[0] * size for _ in range(size)]
    for place in range(1, size):
        pcie[0][place] = pcie[place][0] = min(place, 5)
    topology = replace(
        node.topology, nics=tuple(nic.name for nic in nics), pcie=tuple(map(tuple, pcie))
    )
    return replace(node, host=replace(node.host, nics=tuple(nics)), topology=topology)


LEGENDS = {of.source: of.nics for of in published() if of.nics}


@pytest.mark.parametrize("legend", LEGENDS.values(), ids=LEGENDS)
def test_nics_have_the_numbers_of_published_legends(run: Run, legend: tuple[str, ...]) -> None:
    """Whatever their order on the bus; here the reverse."""
    nics = [Nic(name=name, bus_id=f"0000:{at:02x}:00.0") for at, name in enumerate(legend[::-1])]

    data = json.loads(run("topo", "-o", "json", sees=with_nics(nics)).output)

    assert tuple(nic["name"] for nic in data["nics"]) == legend


def test_rows_columns_and_legend_go_with_the_numbers_of_nics(run: Run) -> None:
    names = ("mlx5_10", "mlx5_2", "mlx5_bond_0")
    node = with_nics(
        [Nic(name=name, bus_id=f"0000:{at}0:00.0") for at, name in enumerate(names, 1)]
    )

    data = json.loads(run("topo", "-o", "json", sees=node).output)
    output = run("topo", sees=node).output

    assert [nic["name"] for nic in data["nics"]] == ["mlx5_2", "mlx5_10", "mlx5_bond_0"]
    assert data["pcie"][0] == [0, 2, 1, 3]
    assert data["classes"][0] == ["X", "PXB", "PIX", "PHB"]
    assert "NIC0    mlx5_2\nNIC1    mlx5_10\n" in output


def test_json_has_the_numa_node_of_a_gpus_own_memory(run: Run) -> None:
    node = build.node([build.gpu(0, own_numa_node=2), build.gpu(1)])
    gpus = json.loads(run("topo", "-o", "json", sees=node).output)["gpus"]
    assert [gpu["gpu_numa_id"] for gpu in gpus] == [2, None]


# --compare

PASTE = """\
        GPU0  GPU1  GPU2  NIC0  CPU Affinity  NUMA Affinity  GPU NUMA ID
GPU0    X     NV4   SYS   PXB   0-15          0              N/A
GPU1    NV4   X     SYS   PHB   0-15          0              N/A
GPU2    SYS   SYS   X     N/A   N/A           N/A            N/A

NIC Legend:
  NIC0: mlx5_0
"""


def compared(run: Run, tmp_path: Path, paste: str, *options: str) -> tuple[int, str]:
    """Exit code and output of a comparison with the bridged node."""
    file = tmp_path / "paste.txt"
    file.write_text(paste)
    result = run("topo", "--compare", str(file), *options, sees=nodes.bridged())
    return result.exit_code, result.output


def test_a_matrix_that_is_the_same_ends_with_0(run: Run, tmp_path: Path) -> None:
    assert compared(run, tmp_path, PASTE) == (0, "0 of 5 pairs differ\n")


def test_cells_that_differ_are_shown_and_end_with_1(run: Run, tmp_path: Path) -> None:
    paste = PASTE.replace("SYS   PHB", "SYS   NODE").replace("X     NV4   SYS", "X     NV3   SYS")
    assert compared(run, tmp_path, paste) == (
        1,
        "ROW   COLUMN  FILE  HERE\n"
        "GPU0  GPU1    NV3   NV4\n"
        "GPU1  NIC0    NODE  PHB\n"
        "\n"
        "2 of 5 pairs differ\n",
    )


def test_devices_that_one_side_lacks_are_named_and_end_with_1(run: Run, tmp_path: Path) -> None:
    """The file's NIC is another one, whatever its number."""
    assert compared(run, tmp_path, PASTE.replace("mlx5_0", "mlx5_7")) == (
        1,
        "only in the file: NIC0 (mlx5_7)\n"
        "only on this machine: NIC0 (mlx5_0)\n"
        "0 of 3 pairs differ\n",
    )


def test_without_a_legend_nics_are_matched_by_number(run: Run, tmp_path: Path) -> None:
    paste = PASTE[: PASTE.index("NIC Legend")]
    assert compared(run, tmp_path, paste) == (0, "0 of 5 pairs differ\n")


def test_json_has_the_cells_the_count_and_the_devices(run: Run, tmp_path: Path) -> None:
    code, output = compared(run, tmp_path, PASTE.replace("PHB", "SYS"), "-o", "json")
    assert (code, json.loads(output)) == (
        1,
        {
            "compared": 5,
            "different": [{"row": "GPU1", "column": "NIC0", "file": "SYS", "here": "PHB"}],
            "only_file": [],
            "only_here": [],
        },
    )


def test_a_file_without_a_matrix_is_bad_input_before_the_machine_is_read(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "paste.txt"
    file.write_text("GPU0 GPU1\nGPU0 X FOO\n")
    result = run("topo", "--compare", str(file))
    assert result.exit_code == 2
    assert f"{file} line 2: 'FOO' is no word" in result.output
