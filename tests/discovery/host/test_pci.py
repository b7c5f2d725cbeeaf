# SPDX-License-Identifier: Apache-2.0
"""PCI functions read from a fake sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from discovery.host.pci import DEVICES, PciGpus, pci_facts, pci_gpus
from discovery.model import Gap, Reason
from tests.discovery import fake_sys

GPU = "0000:3b:00.0"


def test_gpus_are_nvidia_display_and_3d_controllers_in_pci_bus_order(tmp_path: Path) -> None:
    """By number: domain 0x10000 comes after 0xffff though its text sorts first."""
    for bus_id, vendor, pci_class in (
        ("10000:01:00.0", "0x10de", "0x030200"),
        ("0002:00:00.0", "0x10de", "0x030000"),
        ("ffff:01:00.0", "0x10de", "0x030200"),
        ("0000:3b:00.1", "0x10de", "0x040300"),  # its audio function
        ("0000:05:00.0", "0x10de", "0x068000"),  # an NVSwitch
        ("0000:06:00.0", "0x1a03", "0x030000"),  # the BMC's screen
    ):
        function = fake_sys.function(tmp_path, bus_id, files={"vendor": vendor, "class": pci_class})
        fake_sys.bind(tmp_path, function, "nvidia")

    assert pci_gpus(tmp_path).ours == ("0002:00:00.0", "ffff:01:00.0", "10000:01:00.0")


@pytest.mark.parametrize("driver", ["vfio-pci", "nvgrace_gpu_vfio_pci", "pci-stub", "nouveau"])
def test_a_gpu_bound_to_another_driver_is_not_the_nvidia_drivers(
    tmp_path: Path, driver: str
) -> None:
    gpu = fake_sys.function(tmp_path, GPU, files=fake_sys.NVIDIA_GPU)
    own = fake_sys.function(tmp_path, "0000:5e:00.0", files=fake_sys.NVIDIA_GPU)
    fake_sys.bind(tmp_path, gpu, driver)
    fake_sys.bind(tmp_path, own, "nvidia")

    assert pci_gpus(tmp_path) == PciGpus(ours=("0000:5e:00.0",), elsewhere=(GPU,))


def test_a_gpu_without_a_driver_is_nobodys(tmp_path: Path) -> None:
    fake_sys.function(tmp_path, GPU, files=fake_sys.NVIDIA_GPU)

    assert pci_gpus(tmp_path) == PciGpus()


def test_a_drivers_folder_need_not_be_below_the_root(tmp_path: Path) -> None:
    """As in a container that has the host's /sys/devices alone."""
    gpu = fake_sys.function(tmp_path, GPU, files=fake_sys.NVIDIA_GPU)
    (gpu / "driver").symlink_to("../../../bus/pci/drivers/nvidia")

    assert pci_gpus(tmp_path).ours == (GPU,)


def test_virtual_functions_of_a_vgpu_host_are_not_gpus_of_their_own(tmp_path: Path) -> None:
    physical = fake_sys.function(tmp_path, GPU, files=fake_sys.NVIDIA_GPU)
    virtual = fake_sys.function(tmp_path, "0000:3b:00.4", files=fake_sys.NVIDIA_GPU)
    fake_sys.link(virtual / "physfn", physical)
    fake_sys.bind(tmp_path, physical, "nvidia")
    fake_sys.bind(tmp_path, virtual, "vfio-pci")

    assert pci_gpus(tmp_path) == PciGpus(ours=(GPU,))


def test_a_function_with_garbage_for_a_vendor_or_class_is_passed_over(tmp_path: Path) -> None:
    gpu = fake_sys.function(tmp_path, GPU, files=fake_sys.NVIDIA_GPU)
    fake_sys.bind(tmp_path, gpu, "nvidia")
    fake_sys.function(tmp_path, "0000:01:00.0", files={"vendor": b"\xff\xff", "class": "0x030200"})
    fake_sys.function(tmp_path, "0000:02:00.0", files={"vendor": "0x10de", "class": "?"})
    fake_sys.function(tmp_path, "0000:03:00.0")

    assert pci_gpus(tmp_path).ours == (GPU,)


def test_no_pci_in_sysfs_gives_no_gpus_and_says_that_nothing_is_shown(tmp_path: Path) -> None:
    assert pci_gpus(tmp_path) == PciGpus(shown=False)
    (tmp_path / DEVICES).mkdir(parents=True)
    assert pci_gpus(tmp_path) == PciGpus(shown=False)


def test_facts_hold_class_affinity_and_the_way_down_from_the_root_port(tmp_path: Path) -> None:
    bridges = ("0000:3a:00.0", "0000:3b:00.0", "0000:3c:08.0")
    files = {
        **fake_sys.NVIDIA_GPU,
        "numa_node": "1\n",
        "local_cpulist": "8-15,24-31\n",
    }
    fake_sys.function(tmp_path, "0000:3d:00.0", *bridges, bus="pci0000:3a", files=files)

    facts = pci_facts(tmp_path, "0000:3d:00.0")

    assert (facts.pci_class, facts.numa_node, facts.cpu_affinity) == (0x030200, 1, "8-15,24-31")
    assert (facts.root, facts.bridges) == ("pci0000:3a", bridges)
    assert facts.gaps == ()


def test_below_a_vmd_the_inner_root_bus_counts(tmp_path: Path) -> None:
    fake_sys.function(tmp_path, "10000:01:00.0", "0000:00:0e.0", "pci10000:00", "10000:00:02.0")

    facts = pci_facts(tmp_path, "10000:01:00.0")

    assert (facts.root, facts.bridges) == ("pci10000:00", ("10000:00:02.0",))


def test_the_root_bus_is_found_below_platform_and_hypervisor_folders(tmp_path: Path) -> None:
    fake_sys.function(tmp_path, "0001:00:00.0", bus="LNXSYSTM:00/VMBUS:00/4750/pci0001:00")

    assert pci_facts(tmp_path, "0001:00:00.0").root == "pci0001:00"


def test_minus_one_for_a_numa_node_is_unknown_and_says_so(tmp_path: Path) -> None:
    files = {**fake_sys.NVIDIA_GPU, "numa_node": "-1", "local_cpulist": "0"}
    fake_sys.function(tmp_path, GPU, files=files)

    facts = pci_facts(tmp_path, GPU)

    assert facts.numa_node is None
    assert [(gap.what, gap.reason) for gap in facts.gaps] == [("numa_node", Reason.UNSUPPORTED)]


def test_an_unknown_function_is_all_gaps(tmp_path: Path) -> None:
    facts = pci_facts(tmp_path, GPU)

    assert (facts.root, facts.bridges) == (None, ())
    assert {gap.what for gap in facts.gaps if gap.reason is Reason.ABSENT} == {
        "ancestors",
        "pci_class",
        "numa_node",
        "cpu_affinity",
    }


def test_garbage_in_one_file_leaves_the_other_facts(tmp_path: Path) -> None:
    files = {"class": "gpu", "numa_node": "0", "local_cpulist": "0-x"}
    fake_sys.function(tmp_path, GPU, files=files)

    facts = pci_facts(tmp_path, GPU)

    assert (facts.numa_node, facts.root) == (0, "pci0000:00")
    assert {gap.what: gap.reason for gap in facts.gaps} == {
        "pci_class": Reason.GARBAGE,
        "cpu_affinity": Reason.GARBAGE,
    }


def test_a_flat_tree_without_links_gives_no_place_but_all_else(tmp_path: Path) -> None:
    fake_sys.write(tmp_path / "sys/bus/pci/devices" / GPU / "numa_node", "1")

    facts = pci_facts(tmp_path, GPU)

    assert (facts.numa_node, facts.root) == (1, None)
    assert ("ancestors", Reason.UNSUPPORTED) in [(gap.what, gap.reason) for gap in facts.gaps]


def test_ids_are_in_one_number_as_nvml_has_them(tmp_path: Path) -> None:
    """The device in the upper half, its vendor in the lower: an A100 of 40 GB is 0x20B010DE."""
    ids = {
        "vendor": "0x10de\n",
        "device": "0x20b0\n",
        "subsystem_vendor": "0x1458\n",
        "subsystem_device": "0x134f\n",
    }
    fake_sys.function(tmp_path, GPU, files=ids)
    facts = pci_facts(tmp_path, GPU)
    assert (facts.device_id, facts.subsystem_id) == (0x20B010DE, 0x134F1458)


@pytest.mark.parametrize("missing", ["vendor", "device"])
def test_half_an_id_is_none(tmp_path: Path, missing: str) -> None:
    ids = {"vendor": "0x10de", "device": "0x20b0"}
    del ids[missing]
    fake_sys.function(tmp_path, GPU, files=ids)
    assert pci_facts(tmp_path, GPU).device_id is None


def test_gaps_name_the_file_and_what_is_wrong_with_it(tmp_path: Path) -> None:
    fake_sys.function(tmp_path, GPU, files={"class": "0x030200", "numa_node": "-1"})
    at = f"sys/bus/pci/devices/{GPU}"
    assert pci_facts(tmp_path, GPU).gaps == (
        Gap(
            what="numa_node",
            reason=Reason.UNSUPPORTED,
            source=f"{at}/numa_node",
            detail="the kernel names no NUMA node (-1)",
        ),
        Gap(
            what="cpu_affinity",
            reason=Reason.ABSENT,
            source=f"{at}/local_cpulist",
            detail="No such file or directory",
        ),
    )
