# SPDX-License-Identifier: Apache-2.0
"""One snapshot from the host's and the devices' facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from discovery.assemble import assemble
from discovery.model import Driver, Gap, Host, Nic, PciFacts, Reason
from tests import build

HOST = Host(name="node-a", nics=(Nic(name="mlx5_0", bus_id="0000:18:00.0"),))
DRIVER = Driver(version="550.54.15")


def facts(bus_id: str, gaps: tuple[Gap, ...] = ()) -> PciFacts:
    """A GPU's place on NUMA node 1, below one root port of its own."""
    return PciFacts(
        bus_id=bus_id,
        pci_class=0x030200,
        numa_node=1,
        cpu_affinity="8-15",
        root="pci0000:00",
        bridges=(f"port of {bus_id}",),
        gaps=gaps,
    )


def test_gpus_come_in_the_order_given_with_the_hosts_facts() -> None:
    own = Gap(what="ecc", reason=Reason.UNSUPPORTED, source="nvmlDeviceGetEccMode")
    gap = Gap(what="numa_node", reason=Reason.UNSUPPORTED, source="sys")
    late = build.gpu(1, bus_id="10000:01:00.0")
    early = build.gpu(0, bus_id="2000:01:00.0", gaps=(own,))
    pci = {late.bus_id: facts(late.bus_id), early.bus_id: facts(early.bus_id, gaps=(gap,))}

    seen = assemble(HOST, DRIVER, [late, early], pci)

    assert [gpu.bus_id for gpu in seen.gpus] == [late.bus_id, early.bus_id]
    assert seen.topology.gpus == (late.bus_id, early.bus_id)
    assert {(g.pci_class, g.numa_node, g.cpu_affinity) for g in seen.gpus} == {
        (0x030200, 1, "8-15")
    }
    assert [gpu.gaps for gpu in seen.gpus] == [(), (own, gap)]
    assert (seen.host, seen.driver) == (HOST, DRIVER)


def test_nics_are_placed_among_the_gpus() -> None:
    gpu = build.gpu(0)
    nic = facts("0000:18:00.0")

    seen = assemble(HOST, DRIVER, [gpu], {gpu.bus_id: facts(gpu.bus_id), nic.bus_id: nic})

    assert (seen.topology.nics, seen.topology.pcie) == (("mlx5_0",), ((0, 3), (3, 0)))


def test_a_gpu_that_the_host_does_not_show_keeps_all_else_and_says_what_is_missing() -> None:
    own = Gap(what="memory_bytes", reason=Reason.FAILED, source="nvmlDeviceGetMemoryInfo")
    gpu = build.gpu(0, pci_class=None, gaps=(own,))

    (seen,) = assemble(HOST, DRIVER, [gpu], {}).gpus

    assert (seen.uuid, seen.gaps[0]) == (gpu.uuid, own)
    assert [(gap.what, gap.reason) for gap in seen.gaps[1:]] == [
        ("pci_class", Reason.ABSENT),
        ("numa_node", Reason.ABSENT),
        ("cpu_affinity", Reason.ABSENT),
    ]


def test_a_node_without_gpus_is_a_snapshot_too() -> None:
    seen = assemble(HOST, DRIVER, [], {})

    assert (seen.gpus, seen.topology.nics) == ((), ("mlx5_0",))


def test_class_and_place_are_the_hosts_and_ids_are_its_only_where_nvml_gives_none() -> None:
    known = build.gpu(0, pci_device_id=0x20B010DE, pci_subsystem_id=0x134710DE)
    silent = build.silent(1)
    on_host = {
        gpu.bus_id: replace(
            facts(gpu.bus_id), pci_class=0x030000, device_id=0x233010DE, subsystem_id=0x16C110DE
        )
        for gpu in (known, silent)
    }

    seen = assemble(HOST, DRIVER, [known, silent], on_host).gpus

    assert [gpu.pci_class for gpu in seen] == [0x030000, 0x030000]
    assert [gpu.pci_device_id for gpu in seen] == [0x20B010DE, 0x233010DE]
    assert [gpu.pci_subsystem_id for gpu in seen] == [0x134710DE, 0x16C110DE]


def test_the_gap_of_a_gpu_that_the_host_does_not_show_names_where_it_would_be() -> None:
    gpu = build.gpu(0, gaps=())
    (seen,) = assemble(HOST, DRIVER, [gpu], {}).gpus
    assert seen.gaps[0] == Gap(
        what="pci_class",
        reason=Reason.ABSENT,
        source=f"sys/bus/pci/devices/{gpu.bus_id}",
        detail="the host does not show it",
    )


@pytest.mark.parametrize("model", ["DGX Display", "NVIDIA DGX Display"])
def test_a_display_adapter_is_no_gpu_of_the_node(model: str) -> None:
    """Source: NVIDIA/go-nvlib, which passes over it by this name."""
    display, gpu = build.gpu(0, model=model), build.gpu(1)
    pci = {it.bus_id: facts(it.bus_id) for it in (display, gpu)}
    seen = assemble(HOST, DRIVER, [display, gpu], pci)
    assert [it.bus_id for it in seen.gpus] == [gpu.bus_id]
    assert seen.topology.gpus == (gpu.bus_id,)
