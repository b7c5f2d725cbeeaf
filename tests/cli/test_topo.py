# SPDX-License-Identifier: Apache-2.0
"""The link matrix is the one people know, as text, in colour and as data."""

from __future__ import annotations

import json

import pytest
import yaml

from tests import build
from tests.cli import nodes
from tests.cli.conftest import Run

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
