# SPDX-License-Identifier: Apache-2.0
"""A rendered host tree reads back as the machine it was made from."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import psutil
import pytest

from base.errors import BadInput
from simulator.description.machine_catalog import load_machine, load_models, machine_names
from simulator.host.simulated_host import write_simulated_host


def rendered(name: str, root: Path) -> Path:
    """The host tree of one of our machines."""
    write_simulated_host(load_machine(name), load_models(), root)
    return root


def text(root: Path, path: str) -> str:
    """A file's text without its newline."""
    return (root / path).read_text().removesuffix("\n")


def content(path: Path) -> bytes:
    """A file's bytes, a link's target."""
    return bytes(path.readlink()) if path.is_symlink() else path.read_bytes()


def contents(root: Path) -> dict[str, bytes]:
    """Every file and link below a root."""
    return {
        str(path.relative_to(root)): content(path)
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def no_space(link: Path, target: str) -> None:
    """A link on a full disk."""
    raise OSError(errno.ENOSPC, "No space left on device", f"{link} -> {target}")


def capabilities(config: bytes) -> dict[int, int]:
    """Capability ids of a configuration space and where they are."""
    found, at = {}, config[0x34]
    while at:
        found[config[at]] = at
        at = config[at + 1]
    return found


IN_SYSFS = [name for name in machine_names() if load_machine(name).host.gpus_in_sysfs]


@pytest.mark.parametrize("name", IN_SYSFS)
def test_every_link_stays_in_the_tree_and_leads_somewhere(name: str, tmp_path: Path) -> None:
    root = rendered(name, tmp_path / "host")

    links = [path for path in root.rglob("*") if path.is_symlink()]
    assert links
    assert all(not link.readlink().is_absolute() for link in links)
    assert all(link.resolve(strict=True).is_relative_to(root.resolve()) for link in links)


@pytest.mark.parametrize("name", IN_SYSFS)
def test_every_gpu_is_on_the_bus_with_its_class_ids_and_node(name: str, tmp_path: Path) -> None:
    root = rendered(name, tmp_path / "host")

    for gpu in load_machine(name).gpus:
        model, at = load_models()[gpu.model], f"sys/bus/pci/devices/{gpu.bus_id}"
        assert text(root, f"{at}/vendor") == "0x10de"
        assert text(root, f"{at}/device") == f"0x{model.device_id >> 16:04x}"
        assert text(root, f"{at}/class") == f"0x{model.pci_class:06x}"
        assert text(root, f"{at}/numa_node") == str(gpu.numa_node)


def test_a_function_hangs_below_its_root_and_bridges(tmp_path: Path) -> None:
    root = rendered("dgx1-v100", tmp_path)

    gpu = (root / "sys/bus/pci/devices/0000:06:00.0").resolve()
    assert gpu == root / (
        "sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0/0000:04:0c.0/0000:06:00.0"
    )
    assert (gpu / "class").read_text() == "0x030200\n"
    assert (gpu.parent / "class").read_text() == "0x060400\n"
    assert (root / "sys/bus/pci/devices/0000:04:0c.0").resolve() == gpu.parent


def test_nvswitches_are_on_the_bus_and_are_no_gpus(tmp_path: Path) -> None:
    at = rendered("dgx-a100", tmp_path) / "sys/bus/pci/devices"

    classes = [
        (function / "class").read_text().strip()
        for function in at.iterdir()
        if (function / "vendor").read_text() == "0x10de\n"
    ]
    assert sorted(classes) == ["0x030200"] * 8 + ["0x068000"] * 6


def test_a_machine_without_gpus_still_has_a_pci_bus(tmp_path: Path) -> None:
    at = rendered("empty", tmp_path) / "sys/bus/pci/devices"

    vendors = {(function / "vendor").read_text().strip() for function in at.iterdir()}
    assert vendors
    assert "0x10de" not in vendors


def test_affinity_is_that_of_the_numa_node_as_list_and_mask(tmp_path: Path) -> None:
    at = rendered("dgx-a100", tmp_path) / "sys/bus/pci/devices/0000:07:00.0"

    assert (at / "local_cpulist").read_text() == "48-63,176-191\n"
    assert (at / "local_cpus").read_text() == (
        "00000000,00000000,ffff0000,00000000,00000000,00000000,ffff0000,00000000\n"
    )


def test_an_rdma_device_leads_from_its_class_to_its_function(tmp_path: Path) -> None:
    root = rendered("hgx-h100-rdma", tmp_path)

    entry = root / "sys/class/infiniband/mlx5_3"
    assert (entry / "device").resolve().name == "0000:40:00.0"
    assert (entry / "device/class").read_text() == "0x020700\n"
    assert (entry / "device/vendor").read_text() == "0x15b3\n"
    assert len(list(entry.parent.iterdir())) == 12


def test_configuration_space_repeats_ids_and_class(tmp_path: Path) -> None:
    root = rendered("t4", tmp_path)

    config = (root / "sys/bus/pci/devices/0000:3b:00.0/config").read_bytes()
    assert len(config) == 256
    assert struct.unpack_from("<HH", config) == (0x10DE, 0x1EB8)
    assert config[0x09:0x0C] == bytes((0x00, 0x02, 0x03))
    assert struct.unpack_from("<HH", config, 0x2C) == (0x10DE, 0x12A2)


def test_a_vgpu_names_its_hosts_driver_in_configuration_space(tmp_path: Path) -> None:
    """Walked by hand: status, capability list, vendor-specific one, its records."""
    root = rendered("vgpu-guest", tmp_path)

    config = (root / "sys/bus/pci/devices/0000:02:00.0/config").read_bytes()
    at = capabilities(config)[0x09]
    records = at + 5
    first_length = config[records + 1]
    record = config[records + first_length :]
    assert config[0x06] & 0x10
    assert config[at + 3 : at + 5] == b"VF"
    assert (config[records], record[0]) == (1, 0)
    assert record[2:22] == b"535.216.01" + b"r535_00\0\0\0"
    assert config[at + 2] == 5 + first_length + record[1]


def test_a_whole_gpu_has_no_vgpu_capability(tmp_path: Path) -> None:
    root = rendered("t4", tmp_path)

    config = (root / "sys/bus/pci/devices/0000:3b:00.0/config").read_bytes()
    assert set(capabilities(config)) == {0x01, 0x10}


def test_numa_nodes_hold_their_cpus_and_coherent_gpus_add_empty_ones(tmp_path: Path) -> None:
    root = rendered("gb200", tmp_path) / "sys/devices/system"

    assert (root / "node/online").read_text() == "0-2,10,18,26\n"
    assert (root / "node/node1/cpulist").read_text() == "72-143\n"
    assert (root / "node/node10/cpulist").read_text() == "\n"
    assert (root / "cpu/online").read_text() == "0-143\n"


def test_psutil_reads_the_simulated_cpus_and_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = rendered("dgx-a100", tmp_path)

    monkeypatch.setattr(psutil, "PROCFS_PATH", str(root / "proc"))
    assert psutil.virtual_memory().total == 1 << 40
    assert len(psutil.cpu_times(percpu=True)) == 256


def test_the_machine_type_is_where_the_firmware_puts_it(tmp_path: Path) -> None:
    assert text(rendered("gb10", tmp_path), "sys/class/dmi/id/product_name") == "NVIDIA_DGX_Spark"


def test_a_loaded_driver_has_its_version_and_device_nodes(tmp_path: Path) -> None:
    root = rendered("t4", tmp_path)

    assert "550.54.15" in text(root, "proc/driver/nvidia/version")
    assert (root / "sys/bus/pci/devices/0000:3b:00.0/driver").resolve().name == "nvidia"
    assert sorted(node.name for node in (root / "dev").iterdir()) == [
        "nvidia-uvm", "nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl",
    ]  # fmt: skip


def test_without_a_driver_the_gpus_are_on_the_bus_and_nothing_else_is_there(
    tmp_path: Path,
) -> None:
    root = rendered("no-driver", tmp_path)

    assert (root / "sys/bus/pci/devices/0000:3b:00.0").exists()
    assert not (root / "sys/bus/pci/devices/0000:3b:00.0/driver").exists()
    assert not (root / "proc/driver").exists()
    assert not (root / "dev").exists()


def test_the_boot_id_is_fixed_for_a_machine_and_differs_between_machines(tmp_path: Path) -> None:
    boot_ids = [
        text(rendered(name, tmp_path / str(at)), "proc/sys/kernel/random/boot_id")
        for at, name in enumerate(("t4", "t4", "l40s"))
    ]

    assert boot_ids[0] == boot_ids[1] != boot_ids[2]


def test_rendering_again_changes_nothing(tmp_path: Path) -> None:
    before = contents(rendered("hgx-h100-rdma", tmp_path))
    written = (tmp_path / "proc/meminfo").stat().st_mtime_ns

    assert contents(rendered("hgx-h100-rdma", tmp_path)) == before
    assert (tmp_path / "proc/meminfo").stat().st_mtime_ns == written


def test_another_machine_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    rendered("hgx-h100-rdma", tmp_path / "used")

    assert contents(rendered("t4", tmp_path / "used")) == contents(rendered("t4", tmp_path / "new"))


def test_a_tree_that_was_written_half_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as disk:
        disk.setattr(Path, "symlink_to", no_space)
        with pytest.raises(OSError, match="No space left"):
            rendered("t4", tmp_path / "half")

    assert contents(rendered("t4", tmp_path / "half")) == contents(rendered("t4", tmp_path / "new"))


def test_a_directory_with_anything_else_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/mine").write_text("kept")

    with pytest.raises(BadInput, match="is not empty and not a simulated host"):
        rendered("t4", tmp_path)

    assert contents(tmp_path) == {"proc/mine": b"kept"}


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "host").write_text("kept")

    with pytest.raises(BadInput, match=r"cannot write a simulated host to .*: File exists"):
        rendered("t4", tmp_path / "host")
