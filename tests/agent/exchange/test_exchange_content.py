# SPDX-License-Identifier: Apache-2.0
"""What the file for ``gpuscape devices`` says of a snapshot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.exchange.exchange_content import ExchangedDevices, best_sets, exchanged_devices
from discovery.model import Driver, Gap, GpuSnapshot, GpuState, Mode, Nic, Reason, Xid
from tests import build


def of(*gpus: GpuSnapshot) -> ExchangedDevices:
    devices = exchanged_devices(build.node(gpus), {})
    assert devices is not None
    return devices


def split(at: int = 0, *xids: Xid) -> GpuSnapshot:
    """A GPU with two MIG devices."""
    devices = (build.mig_device(gi=1), build.mig_device(gi=2))
    return build.gpu(at, mig=build.SPLIT, mig_devices=devices, xids=xids)


def reasons(devices: ExchangedDevices) -> dict[str, list[str]]:
    """Each device with its own causes."""
    whole = {gpu.uuid: gpu.verdicts for gpu in devices.gpus}
    parts = {device.uuid: device.verdicts for gpu in devices.gpus for device in gpu.mig_devices}
    return {
        uuid: [f"{verdict.health} {verdict.reason}" for verdict in verdicts]
        for uuid, verdicts in {**whole, **parts}.items()
    }


def test_gpus_stand_in_the_order_of_their_places_with_their_identity() -> None:
    gpus = of(build.gpu(0, numa_node=1), build.gpu(1)).gpus
    assert [(gpu.index, gpu.minor, gpu.bus_id, gpu.numa) for gpu in gpus] == [
        (0, 0, "0000:10:00.0", 1),
        (1, 1, "0000:11:00.0", None),
    ]
    assert gpus[0].uuid == build.gpu(0).uuid
    assert (gpus[0].product, gpus[0].mig_enabled) == ("MOCKMODEL", False)


def test_mig_devices_have_the_minors_of_both_their_nodes() -> None:
    capabilities = {"gpu0/gi1/access": 12, "gpu0/gi1/ci0/access": 13, "gpu0/gi2/access": 21}
    devices = exchanged_devices(build.node([split()]), capabilities)
    assert devices is not None
    first, second = devices.gpus[0].mig_devices
    assert (first.gpu_instance, first.compute_instance) == (1, 0)
    assert first.capability_minors == (12, 13)
    assert second.capability_minors is None


@pytest.mark.parametrize(
    ("mig", "gap", "enabled"),
    [
        (build.SPLIT, None, True),
        (build.WHOLE, None, False),
        (Mode(current=False, pending=True), None, False),
        (None, Reason.UNSUPPORTED, False),
        (None, Reason.LOST, None),
        (None, None, None),
    ],
)
def test_mig_is_on_off_or_unknown(
    mig: Mode | None, gap: Reason | None, enabled: bool | None
) -> None:
    gaps = () if gap is None else (Gap(what="mig", reason=gap, source="nvml"),)
    (gpu,) = of(build.gpu(mig=mig, gaps=gaps)).gpus
    assert gpu.mig_enabled is enabled


def test_a_lost_gpu_stays_in_the_file_with_its_cause() -> None:
    lost = build.gpu(1, state=GpuState.LOST)
    found = reasons(of(build.gpu(0), lost))
    assert found[build.gpu(0).uuid or ""] == []
    assert found[lost.uuid or ""] == ["unhealthy gpu-lost"]


def test_an_error_within_an_instance_is_of_that_device_alone() -> None:
    first, second = split().mig_devices
    found = reasons(of(split(0, Xid(code=94, count=1, gpu_instance_id=2))))
    assert found[build.gpu(0).uuid or ""] == found[first.uuid] == []
    assert [text.split()[1] for text in found[second.uuid]] == ["xid-94"]


def test_an_error_of_the_whole_gpu_stands_once_with_the_gpu() -> None:
    found = reasons(of(split(0, Xid(code=79, count=3))))
    assert found.pop(build.gpu(0).uuid or "") == ["unhealthy xid-79"]
    assert not any(found.values())


def test_an_error_that_is_over_is_no_cause() -> None:
    assert not any(reasons(of(split(0, Xid(code=79, count=3, over=True)))).values())


def test_a_gpu_without_a_form_is_left_out_and_the_others_stay() -> None:
    odd = build.gpu(1, uuid="GPU-/dev/mem")
    devices = of(build.gpu(0), odd, build.gpu(2, uuid=None), build.gpu(3, minor=254))
    assert [gpu.index for gpu in devices.gpus] == [0]
    assert [text[:16] for text in devices.left_out] == [
        f"GPU {build.gpu(at).bus_id}" for at in (1, 2, 3)
    ]


def test_a_name_with_other_characters_loses_them() -> None:
    (gpu,) = of(build.gpu(model="A/B\u202e <c>")).gpus
    assert gpu.product == "AB c"


def test_nothing_is_said_without_a_driver_or_while_a_first_answer_is_due() -> None:
    driverless = build.node([build.silent(0)], driver=Driver())
    assert exchanged_devices(driverless, {}) is None
    waiting = build.node([build.gpu(0, state=GpuState.INITIALISING), build.gpu(1)])
    assert exchanged_devices(waiting, {}) is None


def test_links_name_no_device() -> None:
    plain = build.node([build.gpu(0), build.gpu(1)])
    near = replace(plain.topology, nics=("mlx5_0",), pcie=((0, 5, 1), (5, 0, 5), (1, 5, 0)))
    host = replace(plain.host, nics=(Nic(name="mlx5_0", bus_id="0000:18:00.0"),))
    devices = exchanged_devices(replace(plain, host=host, topology=near), {})
    assert devices is not None
    links = devices.links
    assert links is not None
    assert (links.n, links.ids, links.bus, links.nic) == (2, ("", ""), ("", ""), ())


def test_links_are_left_out_where_places_and_rows_differ() -> None:
    assert of(build.gpu(0, index=1), build.gpu(1, index=0)).links is None


def test_the_table_has_the_linked_pair_first() -> None:
    gpus = [build.gpu(at) for at in range(3)]
    plain = build.node(gpus)
    linked = replace(plain.topology, nvlinks=((0, 0, 0), (0, 0, 4), (0, 4, 0)))
    devices = exchanged_devices(replace(plain, topology=linked), {})
    assert devices is not None
    assert devices.links is not None
    table = best_sets(devices.links)
    assert len(table) == 2 * 3 * 8
    pair_of_all = 2 * (8 + 0b111)
    assert int(table[pair_of_all : pair_of_all + 2], 16) == 0b110


@pytest.mark.parametrize(
    "facts",
    [
        {"mig": build.SPLIT, "mig_devices": (build.mig_device(), build.mig_device("1g.10gb"))},
        {
            "mig": build.SPLIT,
            "mig_devices": (
                build.mig_device(),
                build.mig_device(uuid=f"MIG-{'0' * 8}{'-0000' * 3}-{'9' * 12}"),
            ),
        },
        {"mig": build.WHOLE, "mig_devices": (build.mig_device(),)},
        {"mig": None, "mig_devices": (build.mig_device(),)},
    ],
)
def test_a_gpu_that_contradicts_itself_is_left_out_alone(facts: dict[str, object]) -> None:
    """The others' health is still reported."""
    devices = of(build.gpu(0), build.gpu(1, **facts))
    assert [gpu.index for gpu in devices.gpus] == [0]
    (why,) = devices.left_out
    assert why.startswith(f"GPU {build.gpu(1).bus_id}: ")
