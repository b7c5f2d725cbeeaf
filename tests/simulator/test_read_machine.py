# SPDX-License-Identifier: Apache-2.0
"""A person's own machine file is read as it was meant, or refused with line, key and fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from base.errors import BadInput
from simulator.description.machine_catalog import read_machine_file

PLAIN = """\
summary: two bridged cards
sources: [composed]
host: {machine_type: Some Machine, memory_gib: 64, numa: ["0-3", "4-7"]}
driver: {version: "550.54.15", nvml: "12.550.54.15", cuda: 12040}
gpus:
  - {model: a100-pcie-40gb, bus_id: 0000:17:00.0, root: 0000:16, path: [0000:16:01.0], numa_node: 0}
  - {model: a100-pcie-40gb, bus_id: 0000:b1:00.0, root: 0000:b0, path: [0000:b0:01.0], numa_node: 1}
nics:
  - {name: mlx5_0, bus_id: 0000:31:00.0, root: 0000:30, path: [0000:30:01.0], numa_node: 0}
direct:
  - {a: 0, b: 1, links: 12}
"""


def written(folder: Path, *edits: tuple[str, str]) -> Path:
    """A machine file with these pieces of PLAIN replaced."""
    text = PLAIN
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    file = folder / "mine.yaml"
    file.write_text(text)
    return file


def split(first: str, *, profile: str = "3g.20gb", start: int = 4) -> tuple[str, str]:
    """An edit that cuts the first GPU: one instance, then what ``first`` adds."""
    instances = f"{{profile: {profile}, start: {start}, id: 2}}{first}"
    old = "numa_node: 0}\n  - {model"
    return old, f"numa_node: 0, mig: true, instances: [{instances}]}}\n  - {{model"


def test_a_persons_own_file_needs_no_quotes_around_bus_ids(tmp_path: Path) -> None:
    """YAML 1.1 would read 0000:17:00.0 as a number."""
    machine = read_machine_file(written(tmp_path))

    assert [gpu.bus_id for gpu in machine.gpus] == ["0000:17:00.0", "0000:b1:00.0"]
    assert machine.gpus[0].root == "0000:16"


SECOND = "model: a100-pcie-40gb, bus_id: 0000:b1:00.0"


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        (
            [("model: a100-pcie-40gb, bus_id: 0000:b1", "model: a100-pcie, bus_id: 0000:b1")],
            r":7: gpus\[1\]\.model: there is no model 'a100-pcie'.*mean 'a100-pcie-40gb'\?$",
        ),
        ([("b1:00.0", "17:00.0")], r":7: gpus\[1\]\.bus_id: two devices are at '0000:17:00.0'"),
        ([("31:00.0", "b1:00.0")], r":9: nics\[0\]\.bus_id: two devices are at '0000:b1:00.0'"),
        (
            [("0000:b1:00.0", "b1:00.0")],
            r":7: gpus\[1\]\.bus_id: 'b1:00.0' is not written like",
        ),
        (
            [("root: 0000:b0", "root: b0")],
            r":7: gpus\[1\]\.root: 'b0' is not written like '0000:3a",
        ),
        (
            [("path: [0000:b0:01.0]", "path: [0000:b0:01.0, 0000:17:00.0]")],
            r"gpus\[1\]\.path\[1\]: '0000:17:00.0' is a device, it cannot be a bridge",
        ),
        (
            [("path: [0000:b0:01.0]", "path: [0000:b0:01.0, 0000:16:01.0]")],
            r"gpus\[1\]\.path\[1\]: the bridge '0000:16:01.0' hangs elsewhere",
        ),
        (
            [("numa_node: 1", "numa_node: 2")],
            r"gpus\[1\]\.numa_node: there is no NUMA node 2; the host",
        ),
        ([("numa_node: 1", "numa_node: 1, minor: 0")], r"gpus: two GPUs have the minor number 0"),
        (
            [
                ("numa_node: 0}", "numa_node: 0, uuid: u}"),
                ("numa_node: 1", "numa_node: 1, uuid: u"),
            ],
            r"gpus: two GPUs have the UUID 'u'",
        ),
        ([("numa_node: 1", "numa_node: 1, cpus: 4-x")], r"gpus\[1\]\.cpus: not a CPU list: '4-x'"),
        (
            [("numa_node: 1", "numa_node: 1, numa_id: 1")],
            r"gpus\[1\]\.numa_id: NUMA node 1 is one of",
        ),
        ([("numa_node: 1", "numa_node: 1, virtualization: 5")], r"gpus\[1\]\.virtualization: NVML"),
        (
            [("numa_node: 1", "numa_node: 1, fabric: {cluster_uuid: '0', clique_id: 0}")],
            r"gpus\[1\]\.fabric: 'a100-pcie-40gb' has no fabric",
        ),
        ([('"4-7"', '"3-7"')], r":3: host\.numa: CPU 3 is in two NUMA nodes"),
        ([('"4-7"', '"7-4"')], r":3: host\.numa\[1\]: a range in the CPU list '7-4' falls"),
        ([('numa: ["0-3", "4-7"]', "numa: []")], r":3: host\.numa: a host has CPUs"),
        (
            [("memory_gib: 64", "memory_gib: 64, vgpu_host_driver: ['460.16', r460_00]")],
            r"host\.vgpu_host_driver: no GPU is a vGPU; give one 'virtualization: 2'",
        ),
        (
            [("memory_gib: 64", "memory_gib: 64, vgpu_host_driver: ['460.16.0000', r460_00]")],
            r"host\.vgpu_host_driver: '460.16.0000' is longer than 10 bytes",
        ),
        ([("b: 1", "b: 2")], r":11: direct\[0\]\.b: there is no GPU 2; the last one is 1"),
        ([("b: 1", "b: 0")], r"direct\[0\]: GPU 0 cannot be linked to itself"),
        ([("links: 12", "links: 0")], r"direct\[0\]\.links: a pair has at least one link"),
        (
            [("links: 12", "links: 13")],
            r"direct: GPU 0 has 13 links here, but 'a100-pcie-40gb' has 12",
        ),
        (
            [("links: 12}", "links: 6}\n  - {a: 1, b: 0, links: 6}")],
            r"direct: GPUs 0 and 1 are listed twice",
        ),
        (
            [("direct:", "switched: true\ndirect:")],
            r"direct: with 'switched: true' every link ends at",
        ),
        (
            [
                (
                    "numa_node: 0}\ndirect",
                    "numa_node: 0}\n  - {name: mlx5_0, bus_id: 0000:32:00.0}\ndirect",
                )
            ],
            r"nics: two NICs have the name 'mlx5_0'",
        ),
        (
            [split("", profile="3g.40gb")],
            r"instances\[0\]\.profile: no profile '3g.40gb'; 'a100-pcie-40gb' has 1g.5gb,.*0gb$",
        ),
        ([split("", start=2)], r"instances\[0\]\.start: a 3g.20gb may start at 0, 4, not at 2"),
        (
            [split(", {profile: 1g.5gb, start: 6, id: 13}")],
            r":6: gpus\[0\]\.instances\[1\]: overlaps instance 0 of this GPU",
        ),
        (
            [split(", {profile: 3g.20gb, start: 0, id: 2}")],
            r"instances: two instances have the id 2",
        ),
        (
            [
                split(
                    ", {profile: 1g.5gb+me, start: 0, id: 7}, {profile: 1g.5gb+me, start: 1, id: 8}"
                )
            ],
            r"instances: 2 instances of 1g.5gb\+me, at most 1 fit",
        ),
        (
            [split(", {profile: 2g.10gb, start: 0, id: 3, compute: [1, 2]}")],
            r"instances\[1\]\.compute: compute instances of 1 or more slices, 2 in all, fit",
        ),
        (
            [(SECOND, "instances: [{profile: 7g.40gb, start: 0, id: 0}], " + SECOND)],
            r"gpus\[1\]\.instances: instances need 'mig: true'",
        ),
        (
            [(SECOND, "mig: true, model: t4, bus_id: 0000:b1:00.0")],
            r"has 12 links here, but 't4' has 0",
        ),
        (
            [
                (SECOND, "mig: true, model: t4, bus_id: 0000:b1:00.0"),
                ("direct:\n  - {a: 0, b: 1, links: 12}\n", ""),
            ],
            r"gpus\[1\]\.mig: 't4' is not MIG-capable",
        ),
    ],
)
def test_what_no_machine_can_be_is_refused_with_line_key_and_cause(
    tmp_path: Path, edits: list[tuple[str, str]], told: str
) -> None:
    with pytest.raises(BadInput, match=told) as caught:
        read_machine_file(written(tmp_path, *edits))

    assert str(caught.value).startswith(str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (("model: a100", "modell: a100"), r":6: gpus\[0\]\.modell: unknown key; .*'model'\?"),
        (("summary:", "sumary:"), r":1: sumary: unknown key; did you mean 'summary'\?"),
        (("links: 12", "n: 12"), r":11: direct\[0\]\.n: unknown key; known are a, b, links"),
        (("cuda: 12040", "cuba: 12040"), r":4: driver\.cuba: unknown key; .*'cuda'\?"),
        ((", cuda: 12040", ""), r":4: driver: the key 'cuda' is missing; add it"),
        (
            ("cuda: 12040", "cuda: 12.4"),
            r":4: driver\.cuda: expected a whole number, got a number",
        ),
        (
            ("a: 0, b: 1", "a: 0, a: 1, b: 1"),
            r":11: direct\[0\]\.a: it stands twice",
        ),
        (("gpus:", "gpus: ["), r":6: not valid YAML"),
        ((PLAIN, "- a list\n"), r":1: expected a mapping, got a list"),
        ((PLAIN, ""), r"mine.yaml is empty"),
        ((PLAIN, "&a [*a]\n"), r":1: not valid YAML: \*a contains itself"),
        ((PLAIN, "!!python/name:os.system\n"), r":1: not valid YAML"),
    ],
)
def test_a_file_that_is_no_machine_is_refused_with_line_key_and_fix(
    tmp_path: Path, edit: tuple[str, str], told: str
) -> None:
    with pytest.raises(BadInput, match=told):
        read_machine_file(written(tmp_path, edit))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read the machine file .*none.yaml: No such file"):
        read_machine_file(tmp_path / "none.yaml")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")

    with pytest.raises(BadInput, match="binary: it is not UTF-8 text"):
        read_machine_file(tmp_path / "binary")
