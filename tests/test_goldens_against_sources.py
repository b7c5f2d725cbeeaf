# SPDX-License-Identifier: Apache-2.0
"""The reviewed files of real machines, against what NVIDIA and others publish of them.

The files are written by the program, so here every number is written by hand from its source.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from discovery.snapshot_document import snapshot_document
from simulator.description.machine_catalog import machine_names
from tests.observed import observed

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests/golden"
MACHINES = machine_names()
SMI_LEVELS = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5}
"""Words of nvidia-smi topo -m to NVML_TOPOLOGY_* in tens. Source: nvml.h."""

DGX1_V100 = """
    X    NV1  NV1  NV2  NV2  SYS  SYS  SYS
    NV1  X    NV2  NV1  SYS  NV2  SYS  SYS
    NV1  NV2  X    NV2  SYS  SYS  NV1  SYS
    NV2  NV1  NV2  X    SYS  SYS  SYS  NV1
    NV2  SYS  SYS  SYS  X    NV1  NV1  NV2
    SYS  NV2  SYS  SYS  NV1  X    NV2  NV1
    SYS  SYS  NV1  SYS  NV1  NV2  X    NV2
    SYS  SYS  SYS  NV1  NV2  NV1  NV2  X
"""
"""Source: nvidia-smi topo -m of a DGX-1 with V100, https://github.com/NVIDIA/nccl/issues/671."""
DGX1_NICS = """
    PIX PIX PHB PHB SYS SYS SYS SYS
    PHB PHB PIX PIX SYS SYS SYS SYS
    SYS SYS SYS SYS PIX PIX PHB PHB
    SYS SYS SYS SYS PHB PHB PIX PIX
"""
"""Source: the same of https://gist.github.com/ashwin/e139748bdba15f5af63f0146d01ee4c3."""

LINKS_TO_EVERY_OTHER = {
    "dgx-a100": (8, 12),
    "dgx-a100-80gb": (8, 12),
    "hgx-16": (16, 6),
    "hgx-h100": (8, 18),
    "hgx-h200": (8, 18),
    "hgx-b200": (8, 18),
    "gb200": (4, 18),
    "a30-pair": (2, 4),
}
"""GPUs, and the NVLinks of each pair. Sources: user guides of DGX A100, DGX-2, DGX H100, DGX B200;
datasheets of GB200 NVL72, and of the A30, two of which one bridge joins by four links."""

GIGABYTES_PER_SECOND = {
    "dgx1-v100": 300,
    "hgx-16": 300,
    "dgx-a100": 600,
    "a100-pcie-pairs": 600,
    "a30-pair": 200,
    "hgx-h100": 900,
    "hgx-h200": 900,
    "hgx-b200": 1800,
    "gb200": 1800,
}
"""NVLink bandwidth of one GPU, all links in both directions. Source: NVIDIA's datasheets."""
LINE_OVERHEAD = 1.07
"""Since NVLink 4 the driver reports the line's own rate: 26.562 GB/s where 25 are data."""

CAPABILITIES = {
    "t4": ("7", "5", "turing"),
    "dgx1-v100": ("7", "0", "volta"),
    "dgx-a100": ("8", "0", "ampere"),
    "a30-pair": ("8", "0", "ampere"),
    "l40s": ("8", "9", "ada-lovelace"),
    "hgx-h100": ("9", "0", "hopper"),
    "hgx-h200": ("9", "0", "hopper"),
    "hgx-b200": ("10", "0", "blackwell"),
    "gb200": ("10", "0", "blackwell"),
    "rtx-pro-6000": ("12", "0", "blackwell"),
    "gb10": ("12", "1", "blackwell"),
}
"""Source: https://developer.nvidia.com/cuda-gpus."""


def reviewed(machine: str) -> dict[str, Any]:
    """The topology annotation of a machine."""
    found: dict[str, Any] = json.loads((GOLDEN / machine / "topology.json").read_text())
    return found


def links(machine: str) -> dict[tuple[int, int], int]:
    """NVLinks of each pair of GPUs: ``nv`` as its description in the schema says to read it."""
    found = reviewed(machine)
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    pairs = combinations(range(found["n"]), 2)
    return {pair: digits.index(digit) for pair, digit in zip(pairs, found["nv"], strict=True)}


def words(table: str) -> list[list[str]]:
    """The cells of a published table."""
    return [line.split() for line in table.strip().splitlines()]


@cache
def schema(name: str) -> jsonschema.Draft202012Validator:
    """A published schema."""
    return jsonschema.Draft202012Validator(
        json.loads((ROOT / f"docs/schemas/{name}.schema.json").read_text())
    )


@pytest.mark.parametrize("machine", MACHINES)
def test_annotations_and_snapshots_follow_the_published_schemas(machine: str) -> None:
    """The reviewed snapshot leaves out what is empty, so the whole one is checked."""
    schema("topology").validate(reviewed(machine))
    document = snapshot_document(observed(machine).snapshot)
    schema("snapshot").validate(json.loads(msgspec.json.encode(document)))


def test_the_links_of_a_dgx1_are_those_of_the_published_matrix() -> None:
    published = words(DGX1_V100)
    assert links("dgx1-v100") == {
        (i, j): int(cell.removeprefix("NV")) if (cell := published[i][j]) != "SYS" else 0
        for i, j in combinations(range(8), 2)
    }


def test_every_v100_of_a_dgx1_uses_its_six_links() -> None:
    """Twelve edges of a cube, and the diagonals of two of its faces."""
    found = links("dgx1-v100")
    assert [sum(n for pair, n in found.items() if gpu in pair) for gpu in range(8)] == [6] * 8
    assert sum(n > 0 for n in found.values()) == 12 + 4


def test_the_nics_of_a_dgx1_are_as_far_as_published() -> None:
    levels = [nic[2] for nic in reviewed("dgx1-v100")["nic"]]
    assert levels == ["".join(str(SMI_LEVELS[cell]) for cell in row) for row in words(DGX1_NICS)]


@pytest.mark.parametrize("machine", LINKS_TO_EVERY_OTHER)
def test_pairs_have_the_published_number_of_links(machine: str) -> None:
    gpus, each = LINKS_TO_EVERY_OTHER[machine]
    assert links(machine) == dict.fromkeys(combinations(range(gpus), 2), each)


def test_a_bridge_joins_two_pcie_a100s_by_twelve_links_and_no_others() -> None:
    """Source: A100 PCIe product brief: three bridges of four links join two boards."""
    found = links("a100-pcie-pairs")
    bridged = {pair: n for pair, n in found.items() if n}
    assert set(bridged.values()) == {12}
    assert sorted(gpu for pair in bridged for gpu in pair) == list(range(8))


@pytest.mark.parametrize("machine", GIGABYTES_PER_SECOND)
def test_links_times_rate_is_the_published_bandwidth(machine: str) -> None:
    found, published = reviewed(machine), GIGABYTES_PER_SECOND[machine]
    through_switches = found["fab"] == "switch"
    for gpu in range(found["n"]):
        own = [n for pair, n in links(machine).items() if gpu in pair]
        count = max(own) if through_switches else sum(own)
        rate = found["lbw"][gpu if len(found["lbw"]) > 1 else 0]
        assert published <= 2 * count * rate <= LINE_OVERHEAD * published


@pytest.mark.parametrize("machine", CAPABILITIES)
def test_the_compute_capability_is_the_published_one(machine: str) -> None:
    labels = dict(_labels(machine))
    keys = ("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor", "nvidia.com/gpu.family")
    assert tuple(labels[key] for key in keys) == CAPABILITIES[machine]


def _labels(machine: str) -> Iterator[tuple[str, str]]:
    for line in (GOLDEN / machine / "labels-none.txt").read_text().splitlines():
        key, _, text = line.partition("=")
        yield key, text
