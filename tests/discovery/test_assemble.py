# SPDX-License-Identifier: Apache-2.0
"""One snapshot from the host's and the devices' facts."""

from __future__ import annotations

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
