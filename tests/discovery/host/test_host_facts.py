# SPDX-License-Identifier: Apache-2.0
"""Host facts read from a fake root."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from discovery.host.host_facts import read_host
from discovery.model import Gap, Nic, NumaNode, Reason, Vgpu
from tests.discovery import fake_sys

MEMINFO = """\
MemTotal:       1056480 kB
MemFree:         500000 kB
MemAvailable:    800000 kB
Buffers:           1000 kB
Cached:            2000 kB
Active:            3000 kB
Inactive:          4000 kB
Shmem:             5000 kB
"""
CONFIG = bytes(256)


def gaps(found: tuple[Gap, ...]) -> dict[str, Reason]:
    """What is missing, and why."""
    return {gap.what: gap.reason for gap in found}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine of two NUMA nodes with nothing in its PCI slots."""
    sys = tmp_path / "sys"
    fake_sys.write(sys / "class/dmi/id/product_name", "DGX A100 920-23687-2530-000\n")
    fake_sys.write(sys / "devices/system/cpu/online", "0-3,8-11,15\n")
    fake_sys.write(sys / "devices/system/node/node10/cpulist", "\n")
    fake_sys.write(sys / "devices/system/node/node0/cpulist", "0-3,8\n")
    fake_sys.write(sys / "devices/system/node/node2/cpulist", "9-11,15\n")
    fake_sys.write(sys / "devices/system/node/online", "0,2,10\n")
    (sys / "bus/pci/devices").mkdir(parents=True)
    fake_sys.write(tmp_path / "proc/meminfo", MEMINFO)
    return tmp_path


def test_a_machine_shows_its_type_cpus_memory_and_numa_nodes(root: Path) -> None:
    host = read_host(root, "node-a")

    assert host.name == "node-a"
    assert host.machine_type == "DGX A100 920-23687-2530-000"
    assert host.cpus == 9
    assert host.memory_bytes == 1056480 * 1024
    assert host.numa_nodes == (
        NumaNode(node=0, cpus="0-3,8"),
        NumaNode(node=2, cpus="9-11,15"),
        NumaNode(node=10, cpus=""),
    )
    assert host.vgpu == Vgpu(present=False)
    assert (host.nics, host.gaps) == ((), ())


def test_psutil_looks_at_the_real_machine_again_afterwards(root: Path) -> None:
    before = psutil.PROCFS_PATH

    read_host(root, "node-a")
    read_host(root / "nowhere", "node-a")

    assert before == psutil.PROCFS_PATH


def test_an_empty_root_gives_a_host_of_gaps(tmp_path: Path) -> None:
    """RDMA devices excepted: without the folder there are none."""
    host = read_host(tmp_path, "node-a")

    assert (host.machine_type, host.cpus, host.memory_bytes, host.vgpu) == (None,) * 4
    assert gaps(host.gaps) == dict.fromkeys(
        ("machine_type", "cpus", "memory_bytes", "numa_nodes", "vgpu"), Reason.ABSENT
    )


def test_an_empty_machine_type_is_a_fact_and_no_gap(root: Path) -> None:
    fake_sys.write(root / "sys/class/dmi/id/product_name", "\n")

    host = read_host(root, "node-a")

    assert (host.machine_type, host.gaps) == ("", ())


def test_the_machine_type_can_come_from_another_file_below_the_root(root: Path) -> None:
    fake_sys.write(root / "etc/machine-type", b"p5.48xlarge \xff\n")

    assert read_host(root, "node-a", "/etc/machine-type").machine_type == "p5.48xlarge \ufffd"


def test_no_machine_type_file_wanted_is_a_gap(root: Path) -> None:
    host = read_host(root, "node-a", machine_type_file="")

    assert (host.machine_type, gaps(host.gaps)) == (None, {"machine_type": Reason.FAILED})


@pytest.mark.parametrize("meminfo", ["", "MemTotal: lots kB\n"])
def test_garbage_for_memory_is_a_gap(root: Path, meminfo: str) -> None:
    fake_sys.write(root / "proc/meminfo", meminfo)

    host = read_host(root, "node-a")

    assert (host.memory_bytes, gaps(host.gaps)) == (None, {"memory_bytes": Reason.GARBAGE})


def test_nics_come_in_pci_bus_order_with_their_affinity(root: Path) -> None:
    near = {"numa_node": "1", "local_cpulist": "9-11"}
    far = {"numa_node": "-1", "local_cpulist": "0-3"}
    fake_sys.rdma(root, "mlx5_0", fake_sys.function(root, "0000:cc:00.0", files=near))
    fake_sys.rdma(root, "mlx5_1", fake_sys.function(root, "0000:18:00.0", files=far))

    host = read_host(root, "node-a")

    assert host.nics == (
        Nic(name="mlx5_1", bus_id="0000:18:00.0", numa_node=None, cpu_affinity="0-3"),
        Nic(name="mlx5_0", bus_id="0000:cc:00.0", numa_node=1, cpu_affinity="9-11"),
    )
    assert gaps(host.gaps) == {"nics.mlx5_1.numa_node": Reason.UNSUPPORTED}


def test_virtual_functions_stand_in_only_where_their_nic_is_not_there(root: Path) -> None:
    """One physical NIC with an RDMA device, one whose own driver offers none."""
    for physical, virtual in (("0000:18:00.0", "0000:18:00.2"), ("0000:cc:00.0", "0000:cc:00.2")):
        fake_sys.function(root, physical)
        folder = fake_sys.function(root, virtual)
        fake_sys.link(folder / "physfn", root / "sys/devices/pci0000:00" / physical)
        fake_sys.rdma(root, f"vf_{physical[5:7]}", folder)
    fake_sys.rdma(root, "pf_18", root / "sys/devices/pci0000:00/0000:18:00.0")

    assert [nic.name for nic in read_host(root, "node-a").nics] == ["pf_18", "vf_cc"]


def test_rdma_devices_that_are_no_pci_function_are_no_nics(root: Path) -> None:
    """Soft RoCE has no device; a scalable function's device is a child of its NIC."""
    (root / "sys/devices/virtual/infiniband/rxe0").mkdir(parents=True)
    fake_sys.link(root / "sys/class/infiniband/rxe0", root / "sys/devices/virtual/infiniband/rxe0")
    nic = fake_sys.function(root, "0000:18:00.0")
    fake_sys.rdma(root, "mlx5_2", nic / "mlx5_core.sf.4")

    assert read_host(root, "node-a").nics == ()


def vgpu_config(record: bytes) -> bytes:
    """A configuration space with NVIDIA's vGPU capability."""
    space = bytearray(CONFIG)
    space[0x06], space[0x34] = 0x10, 0x40
    content = bytes([0x09, 0, 5 + len(record)]) + b"VF" + record
    space[0x40 : 0x40 + len(content)] = content
    return bytes(space)


RECORD = bytes([0, 22]) + b"550.54.15\0" + b"r550_00\0\0\0"


def test_the_last_vgpu_tells_the_hosts_driver(root: Path) -> None:
    """Functions of other makers are not asked."""
    older = RECORD.replace(b"550", b"535")
    fake_sys.function(root, "0000:01:00.0", files={"vendor": "0x10de", "config": CONFIG})
    fake_sys.function(
        root, "0000:02:00.0", files={"vendor": "0x10de", "config": vgpu_config(older)}
    )
    fake_sys.function(
        root, "0000:03:00.0", files={"vendor": "0x10de", "config": vgpu_config(RECORD)}
    )
    fake_sys.function(root, "0000:04:00.0", files={"vendor": "0x8086"})

    host = read_host(root, "node-a")

    assert host.vgpu == Vgpu(
        present=True, host_driver_version="550.54.15", host_driver_branch="r550_00"
    )
    assert host.gaps == ()


def test_a_vgpu_without_a_driver_record_is_present_with_a_gap(root: Path) -> None:
    config = vgpu_config(b"")
    fake_sys.function(root, "0000:01:00.0", files={"vendor": "0x10de", "config": config})

    host = read_host(root, "node-a")

    assert host.vgpu == Vgpu(present=True)
    assert gaps(host.gaps) == {"vgpu.host_driver_version": Reason.ABSENT}


def test_a_configuration_space_cut_short_hides_all_vgpu_facts_and_names_the_fix(
    root: Path,
) -> None:
    for bus_id, config in (("0000:01:00.0", vgpu_config(RECORD)), ("0000:02:00.0", CONFIG[:64])):
        fake_sys.function(root, bus_id, files={"vendor": "0x10de", "config": config})

    host = read_host(root, "node-a")

    assert host.vgpu is None
    assert gaps(host.gaps) == {"vgpu": Reason.FORBIDDEN}
    assert "64 of 256 bytes" in host.gaps[0].detail
    assert "CAP_SYS_ADMIN" in host.gaps[0].detail


def test_gaps_name_the_file_and_what_the_kernel_or_the_text_says(root: Path) -> None:
    (root / "sys/class/dmi/id/product_name").unlink()
    fake_sys.write(root / "sys/devices/system/cpu/online", "all of them\n")
    fake_sys.write(root / "sys/devices/system/node/node2/cpulist", "9-\n")
    fake_sys.write(root / "proc/meminfo", "")

    host = read_host(root, "node-a")

    assert [(gap.what, gap.source) for gap in host.gaps] == [
        ("machine_type", "sys/class/dmi/id/product_name"),
        ("cpus", "sys/devices/system/cpu/online"),
        ("memory_bytes", "proc/meminfo"),
        ("numa_nodes", "sys/devices/system/node/node2/cpulist"),
    ]
    assert [gap.detail for gap in host.gaps][:2] == [
        "No such file or directory",
        "not a CPU list: 'all of them'",
    ]
    assert "MemTotal" in host.gaps[2].detail
    assert [node.node for node in host.numa_nodes] == [0, 10]


def test_gaps_of_a_vgpu_name_the_file_with_its_configuration(root: Path) -> None:
    config = vgpu_config(b"")
    fake_sys.function(root, "0000:01:00.0", files={"vendor": "0x10de", "config": config})
    fake_sys.function(root, "0000:02:00.0", files={"vendor": "0x10de", "config": CONFIG})

    host = read_host(root, "node-a")

    assert host.vgpu == Vgpu(present=True)  # a function that is none does not hide it
    assert [(gap.source, gap.detail) for gap in host.gaps] == [
        (
            "sys/bus/pci/devices/0000:01:00.0/config",
            "the vGPU does not name its host's driver",
        )
    ]


def test_a_configuration_space_that_may_not_be_opened_names_the_fix_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests may run as root, for whom every file opens: so it is opened without the right."""
    folder = fake_sys.function(root, "0000:01:00.0", files={"vendor": "0x10de", "config": CONFIG})
    opened = Path.open

    def refuse(file: Path, *args: Any, **more: Any) -> Any:
        if file.resolve() == folder / "config":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(file, *args, **more)

    monkeypatch.setattr(Path, "open", refuse)
    host = read_host(root, "node-a")

    assert host.vgpu is None
    (gap,) = host.gaps
    assert (gap.what, gap.reason) == ("vgpu", Reason.FORBIDDEN)
    assert "needs CAP_SYS_ADMIN" in gap.detail
