# SPDX-License-Identifier: Apache-2.0
"""Every form of device id leads to its device, and nothing else leads anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.gpu_part import GpuPart
from kubelet.device_resolution import DeviceNames
from kubelet.podresources.allocation_model import ClaimedDevice
from tests import build

WHOLE = build.gpu(0)
CUT = build.gpu(
    1,
    minor=7,
    mig=build.SPLIT,
    mig_devices=(
        build.mig_device("3g.20gb", gi=2, placement=(0, 4)),
        build.mig_device("1c.3g.20gb", gi=1, ci=0, placement=(4, 4)),
        build.mig_device("2c.3g.20gb", gi=1, ci=1, placement=(4, 4)),
    ),
)
NODE = build.node([WHOLE, CUT])
UID = "6d2f5f0c-7c2a-4a3e-9d0e-2f3b8f1c9a77"

ALL_OF_WHOLE = GpuPart(bus_id=WHOLE.bus_id)
ALL_OF_CUT = GpuPart(bus_id=CUT.bus_id)
ONE = GpuPart(bus_id=CUT.bus_id, gpu_instance_id=1)
TWO = GpuPart(bus_id=CUT.bus_id, gpu_instance_id=2)


@pytest.mark.parametrize(
    ("device_id", "part", "share"),
    [
        # NVIDIA's device plugin
        (WHOLE.uuid, ALL_OF_WHOLE, None),
        (f"{WHOLE.uuid}::0", ALL_OF_WHOLE, "0"),
        (f"{WHOLE.uuid}::15", ALL_OF_WHOLE, "15"),
        (CUT.uuid, ALL_OF_CUT, None),
        (CUT.mig_devices[0].uuid, TWO, None),
        (CUT.mig_devices[1].uuid, ONE, None),
        (CUT.mig_devices[2].uuid, ONE, None),
        (f"{CUT.mig_devices[2].uuid}::3", ONE, "3"),
        # the same before driver 470
        (f"MIG-{CUT.uuid}/1/0", ONE, None),
        (f"MIG-{CUT.uuid}/2/0::1", TWO, "1"),
        # GKE's, by minor number
        ("nvidia0", ALL_OF_WHOLE, None),
        ("nvidia7", ALL_OF_CUT, None),
        ("nvidia0/vgpu2", ALL_OF_WHOLE, "2"),
        ("nvidia7/gi1", ONE, None),
        ("nvidia7/gi2/vgpu0", TWO, "0"),
    ],
)
def test_a_device_plugins_id_is_its_device_and_share(
    device_id: str, part: GpuPart, share: str | None
) -> None:
    """In all forms."""
    assert DeviceNames(NODE).of_plugin(device_id) == (part, share)


@pytest.mark.parametrize(
    "device_id",
    [
        "",
        "all",  # on WSL
        "0",
        "GPU-00000000-0000-0000-0000-000000000099",
        "MIG-99999999-0000-0000-0000-000000000000",
        f"MIG-{CUT.uuid}/3/0",  # no such instance
        f"MIG-{CUT.uuid}/1",
        f"MIG-{WHOLE.uuid}/1/0",
        "MIG-GPU-99999999/1/0",
        "nvidia1",  # its index; the minor is 7
        "nvidia0/gi1",  # of a GPU without MIG
        "nvidia7/gi3",
        "nvidia7/gi1/ci0",
        "nvidia",
        "nvidia\N{ARABIC-INDIC DIGIT SEVEN}",
        "nvidia" + "9" * 5000,
        f" {WHOLE.uuid}",
        f"{WHOLE.uuid}:0",
    ],
)
def test_any_other_id_is_no_device(device_id: str) -> None:
    """However near to one it comes."""
    part, _ = DeviceNames(NODE).of_plugin(device_id)

    assert part is None


def claimed(device: str = "", **facts: object) -> ClaimedDevice:
    """One device of a claim, as today's kubelet tells it of NVIDIA's driver."""
    plain: dict[str, object] = {"claim": "c", "driver": "gpu.nvidia.com", "pool": "node-a"}
    return ClaimedDevice(**{**plain, "device": device, **facts})  # type: ignore[arg-type]  # the caller knows the fields


@pytest.mark.parametrize(
    ("device", "part"),
    [
        ("gpu-0", ALL_OF_WHOLE),
        ("gpu-7", ALL_OF_CUT),
        # profile, its number, start; from 25.12 on
        ("gpu-7-mig-3g20gb-9-0", TWO),
        ("gpu-7-mig-3g20gb-9-4", ONE),
        ("gpu-7-mig-1c3g20gb-9-4", ONE),
        ("gpu-7-mig-1g5gb-me-20-4", ONE),
        # profile's number, start, size; before
        ("gpu-7-mig-9-0-4", TWO),
        ("gpu-7-mig-9-4-4", ONE),
        # not of this node
        ("gpu-1", None),
        ("gpu-vfio-0", None),
        ("gpu-0-mig-3g20gb-9-0", None),
        ("gpu-7-mig-3g20gb-9-2", None),
        ("gpu-7-mig-9-2-4", None),
        ("gpu-7-mig-3g20gb-9", None),
        ("GPU-0", None),
        ("gpu-0\n", None),
    ],
)
def test_a_claims_device_is_known_by_its_name(device: str, part: GpuPart | None) -> None:
    """As NVIDIA's driver makes it from minor number and placement."""
    assert DeviceNames(NODE).of_claim(claimed(device)) == (part,)


def test_another_drivers_device_is_none_of_ours() -> None:
    """Not even an unknown one."""
    imex = claimed("channel-0", driver="compute-domain.nvidia.com")

    assert DeviceNames(NODE).of_claim(imex) == ()


@pytest.mark.parametrize(("pool", "part"), [("node-a", ALL_OF_WHOLE), ("node-b", None)])
def test_a_name_counts_in_its_own_pool_only(pool: str, part: GpuPart | None) -> None:
    """The driver's names are unique within a pool, and a node's pool has the node's name."""
    names = DeviceNames(NODE, pool="node-a")

    assert names.of_claim(claimed("gpu-0", pool=pool)) == (part,)


@pytest.mark.parametrize(
    ("uuid", "part"),
    [
        (WHOLE.uuid, ALL_OF_WHOLE),
        (CUT.mig_devices[0].uuid, TWO),
        ("GPU-of-another-node", None),
        (None, ALL_OF_CUT),  # no slice has it: what the name says
    ],
)
def test_a_resource_slice_goes_before_the_name(uuid: str | None, part: GpuPart | None) -> None:
    """It is asked with what is unique in the cluster."""
    slices = {("gpu.nvidia.com", "node-a", "gpu-7"): uuid}
    names = DeviceNames(NODE, resolve=lambda *device: slices[device])

    assert names.of_claim(claimed("gpu-7")) == (part,)


@pytest.mark.parametrize(
    ("cdi", "parts"),
    [
        (["k8s.gpu.nvidia.com/device=gpu-0"], {ALL_OF_WHOLE}),
        ([f"k8s.gpu.nvidia.com/claim={UID}-gpu-7-mig-9-0-4"], {TWO}),
        (
            ["k8s.gpu.nvidia.com/device=gpu-0", f"k8s.gpu.nvidia.com/claim={UID}-gpu-0"],
            {ALL_OF_WHOLE},
        ),
        (
            ["k8s.gpu.nvidia.com/device=gpu-0", "k8s.gpu.nvidia.com/device=gpu-7"],
            {ALL_OF_WHOLE, ALL_OF_CUT},
        ),
        (["k8s.gpu.nvidia.com/device=gpu-9"], {None}),
        (["acme.com/device=gpu-0"], set()),
        ([], set()),
    ],
)
def test_an_older_kubelets_claim_is_known_by_its_cdi_names(
    cdi: list[str], parts: set[GpuPart | None]
) -> None:
    """It tells neither driver nor device, and all devices of a claim at once."""
    old = ClaimedDevice(claim="c", cdi=tuple(cdi))

    found = DeviceNames(NODE).of_claim(old)

    assert (set(found), len(found)) == (parts, len(parts))


def test_a_gpu_that_tells_less_is_known_by_what_it_tells() -> None:
    """No minor number and no placement, say; two such GPUs are not mixed up."""
    mute = [build.silent(0), build.silent(1)]
    names = DeviceNames(build.node([*mute, build.gpu(2, minor=None)]))

    assert [names.of_plugin(name)[0] for name in ("nvidia0", "None", "nvidia2")] == [None] * 3
    assert names.of_plugin(build.gpu(2).uuid or "")[0] == GpuPart(bus_id=build.gpu(2).bus_id)


@given(st.text() | st.from_regex(r"(nvidia|gpu-|MIG-|GPU-)[0-9a-z/:-]*", fullmatch=True))
def test_no_text_is_too_odd(text: str) -> None:
    """It stands for a device of the node, or for none."""
    names = DeviceNames(NODE)

    found = {names.of_plugin(text)[0], *names.of_claim(claimed(text))}

    assert found <= {ALL_OF_WHOLE, ALL_OF_CUT, ONE, TWO, None}
