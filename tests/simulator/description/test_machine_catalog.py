# SPDX-License-Identifier: Apache-2.0
"""The machines that come with gpuscape are what their sources say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations, pairwise

import pytest

from base.errors import BadInput
from simulator.description.machine_catalog import load_machine, load_models, machine_names
from simulator.description.machine_checks import problems
from simulator.description.machine_schema import (
    Gpu,
    GpuInstanceProfile,
    MachineDescription,
    Model,
    SimulatedNic,
)

LISTED = {
    "dgx1-v100", "dgx-a100", "dgx-a100-80gb", "hgx-h100", "hgx-h200", "hgx-b200", "gb200",
    "a30-pair", "a100-pcie-pairs", "l40s", "t4", "rtx-pro-6000", "hgx-16", "mixed",
    "hgx-h100-rdma", "empty", "no-driver", "dgx-a100-mig-single", "dgx-a100-mig-mixed",
    "hgx-h100-mig-mixed", "vgpu-guest", "gb10", "wsl2",
}  # fmt: skip


def link_matrix(machine: MachineDescription) -> list[str]:
    """Direct links in the notation of the published matrices."""
    links = {frozenset((link.a, link.b)): str(link.links) for link in machine.direct}
    count = range(len(machine.gpus))
    return [
        "".join("X" if i == j else links.get(frozenset((i, j)), ".") for j in count) for i in count
    ]


def pcie_words(machine: MachineDescription) -> Mapping[tuple[str, str], str]:
    """What `nvidia-smi topo -m` says of each pair of devices, NVLink aside, from their paths."""
    devices: list[tuple[str, Gpu | SimulatedNic]] = [
        (f"GPU{n}", gpu) for n, gpu in enumerate(machine.gpus)
    ]
    devices += [(nic.name, nic) for nic in machine.nics]
    return {(a, b): pcie_word(one, two) for (a, one), (b, two) in combinations(devices, 2)}


def pcie_word(one: Gpu | SimulatedNic, two: Gpu | SimulatedNic) -> str:
    """PIX below one switch, PXB below several, PHB at one host bridge, NODE, SYS."""
    if one.root != two.root:
        return "NODE" if one.numa_node == two.numa_node else "SYS"
    shared = len(set(one.path) & set(two.path))
    if not shared:
        return "PHB"
    return "PIX" if max(len(one.path), len(two.path)) - shared <= 1 else "PXB"


def formula_name(profile: GpuInstanceProfile, total_mib: int) -> str:
    """A profile's name by go-nvlib's rule: eighths of memory, and attributes by enum."""
    eighths = math.ceil(profile.memory_mib * 8 / total_mib) / 8
    gigabytes = math.floor(eighths * math.ceil(total_mib / 1024) + 0.5)
    attributes = {7: "+me", 8: "+me", 15: "+me.all", 16: "+me.all", 13: "-me", 14: "-me"}
    attributes |= dict.fromkeys((10, 11, 12), "+gfx")
    return f"{profile.slices}g.{gigabytes}gb{attributes.get(profile.enum, '')}"


def units(model: Model) -> int:
    """Memory units of a MIG-capable GPU."""
    return max(start + profile.size for profile in model.mig for start in profile.starts)


def test_the_catalog_has_the_machines_of_the_design_and_no_other() -> None:
    assert set(machine_names()) == LISTED


@pytest.mark.parametrize("name", sorted(LISTED))
def test_every_machine_is_sound_and_names_its_sources(name: str) -> None:
    machine = load_machine(name)

    assert list(problems(machine, load_models())) == []
    assert all(machine.sources)


@pytest.mark.parametrize("name", sorted(LISTED))
def test_gpus_and_nics_are_listed_in_pci_bus_order(name: str) -> None:
    machine = load_machine(name)

    for devices in (machine.gpus, machine.nics):
        order = [device.bus_id for device in devices]
        assert order == sorted(order)


@pytest.mark.parametrize("name", sorted(LISTED))
def test_every_link_of_a_switched_gpu_is_there_to_be_switched(name: str) -> None:
    machine = load_machine(name)

    links = {load_models()[gpu.model].nvlink_links for gpu in machine.gpus}
    assert not machine.switched or 0 not in links


def test_a_dgx1_is_the_published_hybrid_cube_mesh() -> None:
    assert link_matrix(load_machine("dgx1-v100")) == [
        "X1122...", "1X21.2..", "12X2..1.", "212X...1",
        "2...X112", ".2..1X21", "..1.12X2", "...1212X",
    ]  # fmt: skip


def test_a_dgx1_pairs_gpus_and_a_nic_on_each_pcie_switch() -> None:
    words = pcie_words(load_machine("dgx1-v100"))

    assert [words["GPU0", f"GPU{n}"] for n in range(1, 8)] == ["PIX", *["PHB"] * 2, *["SYS"] * 4]
    assert [words["GPU0", f"mlx5_{n}"] for n in range(4)] == ["PIX", "PHB", "SYS", "SYS"]
    assert [words["GPU7", f"mlx5_{n}"] for n in range(4)] == ["SYS", "SYS", "PHB", "PIX"]


def test_a_dgx_a100_has_its_gpu_pairs_on_the_published_numa_nodes() -> None:
    machine = load_machine("dgx-a100")

    assert [gpu.numa_node for gpu in machine.gpus] == [3, 3, 1, 1, 7, 7, 5, 5]
    assert [machine.host.numa[node] for node in (3, 1, 7)] == [
        "48-63,176-191",
        "16-31,144-159",
        "112-127,240-255",
    ]


def test_a_dgx_a100_reaches_both_nics_of_a_pair_over_several_switches() -> None:
    words = pcie_words(load_machine("dgx-a100-80gb"))

    names = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_6", "mlx5_7", "mlx5_8", "mlx5_9")
    for gpu in range(8):
        near = [name for name in names if words[f"GPU{gpu}", name] == "PXB"]
        far = {words[f"GPU{gpu}", name] for name in names} - {"PXB"}
        assert near == list(names[gpu // 2 * 2 :][:2])
        assert far == {"SYS"}


def test_a_dgx2_has_the_published_levels_between_gpus_and_nics() -> None:
    words = pcie_words(load_machine("hgx-16"))

    names = [f"mlx5_{n}" for n in (0, 1, 2, 3, 6, 7, 8, 9)]
    assert [words["GPU0", name] for name in names] == ["PIX", "PXB", "NODE", "NODE", *["SYS"] * 4]
    assert [words["GPU3", name] for name in names] == ["PXB", "PIX", "NODE", "NODE", *["SYS"] * 4]
    assert [words["GPU4", name] for name in names] == ["NODE", "NODE", "PIX", "PXB", *["SYS"] * 4]


def test_each_gpu_of_the_rdma_machine_shares_a_switch_with_one_nic() -> None:
    words = pcie_words(load_machine("hgx-h100-rdma"))

    near = [pair for pair, word in words.items() if word == "PXB"]
    assert near == [
        (f"GPU{gpu}", f"mlx5_{nic}") for gpu, nic in enumerate((0, 3, 4, 5, 6, 9, 10, 11))
    ]
    assert words["mlx5_1", "mlx5_2"] == words["mlx5_7", "mlx5_8"] == "PIX"
    assert words["GPU0", "mlx5_3"] == "NODE"
    assert words["GPU0", "mlx5_6"] == "SYS"


def test_bridged_pcie_pairs_are_switches_apart_in_a_socket() -> None:
    machine = load_machine("a100-pcie-pairs")
    words = pcie_words(machine)

    assert [(link.a, link.b, link.links) for link in machine.direct] == [
        (at, at + 1, 12) for at in (0, 2, 4, 6)
    ]
    assert [words["GPU0", f"GPU{n}"] for n in (2, 3, 4, 7)] == ["PXB", "PXB", "SYS", "SYS"]


def test_all_gpus_of_a_gb200_tray_are_in_one_clique() -> None:
    gpus = load_machine("gb200").gpus

    fabrics = {(gpu.fabric.cluster_uuid, gpu.fabric.clique_id) for gpu in gpus if gpu.fabric}
    assert len(gpus) == 4
    assert all(gpu.fabric is not None and gpu.fabric.state == 3 for gpu in gpus)
    assert len(fabrics) == 1
    assert [(gpu.numa_node, gpu.numa_id) for gpu in gpus] == [(0, 2), (0, 10), (1, 18), (1, 26)]


def test_single_hgx_boards_are_registered_without_a_cluster() -> None:
    fabrics = [gpu.fabric for gpu in load_machine("hgx-h100").gpus]

    assert all(
        f is not None and f.state == 3 and set(f.cluster_uuid) == {"0", "-"} for f in fabrics
    )


def test_the_vgpu_guest_has_one_licensed_vgpu_without_sensors() -> None:
    machine = load_machine("vgpu-guest")
    model = load_models()[machine.gpus[0].model]

    assert [(gpu.virtualization, gpu.vgpu_licensed) for gpu in machine.gpus] == [(2, True)]
    assert machine.host.vgpu_host_driver == ("535.216.01", "r535_00")
    assert (model.sensors, model.mig) == (False, ())


def test_a_gb10_gives_no_memory_and_is_a_display_controller() -> None:
    model = load_models()["gb10"]

    assert (model.memory_mib, model.ecc, model.pci_class) == (None, None, 0x030000)


def test_the_driverless_and_the_gpuless_machine_differ_in_just_that() -> None:
    assert load_machine("no-driver").driver is None
    assert load_machine("no-driver").gpus
    assert load_machine("empty").driver is not None
    assert not load_machine("empty").gpus


MIG_MODELS = sorted(name for name, model in load_models().items() if model.mig)


@pytest.mark.parametrize("name", MIG_MODELS)
def test_every_mig_profile_is_named_as_the_naming_formula_has_it(name: str) -> None:
    model = load_models()[name]
    assert model.memory_mib is not None

    expected = [formula_name(profile, model.memory_mib) for profile in model.mig]
    assert [profile.name for profile in model.mig] == expected


@pytest.mark.parametrize("name", MIG_MODELS)
def test_every_mig_profile_fits_its_grid_as_often_as_it_says(name: str) -> None:
    """Without the scarce engines, a profile fits as often as its starts do not overlap."""
    model = load_models()[name]

    for profile in model.mig:
        assert max(profile.starts) + profile.size <= units(model)
        assert all(b - a >= profile.size for a, b in pairwise(profile.starts))
        scarce = profile.name.endswith(("+me", "+me.all"))
        assert profile.max == (1 if scarce else len(profile.starts))


@pytest.mark.parametrize("name", MIG_MODELS)
def test_no_two_mig_profiles_share_a_name_an_id_or_an_enum(name: str) -> None:
    mig = load_models()[name].mig

    for values in ([p.name for p in mig], [p.id for p in mig], [p.enum for p in mig]):
        assert len(set(values)) == len(values)


@pytest.mark.parametrize("name", sorted(LISTED))
def test_instance_ids_are_those_of_the_drivers_tree(name: str) -> None:
    for gpu in load_machine(name).gpus:
        model = load_models()[gpu.model]
        sizes = {profile.name: profile.size for profile in model.mig}
        for instance in gpu.instances:
            size = sizes[instance.profile]
            assert instance.id == units(model) // size - 1 + instance.start // size


def test_the_single_layout_is_seven_small_instances_on_every_gpu() -> None:
    gpus = load_machine("dgx-a100-mig-single").gpus

    layouts = [[(i.profile, i.start) for i in gpu.instances] for gpu in gpus]
    assert layouts == [[("1g.5gb", start) for start in range(7)]] * 8


def test_the_mixed_layout_has_whole_cut_and_empty_gpus() -> None:
    gpus = load_machine("dgx-a100-mig-mixed").gpus

    assert [gpu.mig for gpu in gpus] == [False] * 4 + [True] * 4
    assert [len(gpu.instances) for gpu in gpus] == [0, 0, 0, 0, 4, 1, 0, 3]


def test_an_unknown_machine_name_gets_the_nearest_one() -> None:
    with pytest.raises(BadInput, match="no machine 'dgx-a1000'; did you mean 'dgx-a100'"):
        load_machine("dgx-a1000")


def test_a_name_like_no_other_gets_them_all() -> None:
    with pytest.raises(BadInput, match=r"no machine 'x'; known are a100-pcie-pairs, .*vgpu-guest"):
        load_machine("x")
