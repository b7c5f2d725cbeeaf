# SPDX-License-Identifier: Apache-2.0
"""Devices of a node by resource, and what containers with them are started with."""

from __future__ import annotations

import pytest

from api.mig_resources import MigStrategy
from devices.container_access import CONTROL_NODES, AccessSettings, container_access
from devices.device_health import CauseSeverity
from devices.offered_devices import OfferedDevice, offered_devices
from kubelet.device_plugin.plugin_model import HostDevice
from tests.devices.exchanges import exchange, gpu, mig, uuid

GPU, SMALL, LARGE = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.5gb.me"


def offered(*gpus: object, strategy: MigStrategy = MigStrategy.MIXED) -> dict[str, list[str]]:
    devices = offered_devices(exchange(*gpus), strategy)  # type: ignore[arg-type]
    return {resource: [device.id for device in listed] for resource, listed in devices.items()}


def test_gpus_that_are_not_divided_are_gpus() -> None:
    for strategy in (MigStrategy.NONE, MigStrategy.MIXED):
        assert offered(gpu(0), gpu(1), strategy=strategy) == {GPU: [uuid(0), uuid(1)]}


def test_with_none_a_divided_gpu_is_a_gpu() -> None:
    assert offered(gpu(0, [mig(0, 1)]), strategy=MigStrategy.NONE) == {GPU: [uuid(0)]}


def test_with_mixed_each_profile_is_a_resource_and_an_empty_gpu_is_nothing() -> None:
    assert offered(gpu(0), gpu(1, [mig(1, 3), mig(1, 2), mig(1, 4, "1g.5gb+me")]), gpu(2, [])) == {
        GPU: [uuid(0)],
        SMALL: [uuid(12, "MIG"), uuid(13, "MIG")],
        LARGE: [uuid(14, "MIG")],
    }


def test_instances_that_share_a_gpu_instance_have_no_resource() -> None:
    assert offered(gpu(0, [mig(0, 1, "1c.2g.10gb"), mig(0, 2)])) == {SMALL: [uuid(2, "MIG")]}


@pytest.mark.parametrize(
    ("causes", "ignored", "severity"),
    [
        ((), (), CauseSeverity.NONE),
        ((("degraded", "nvlink-inactive"),), (), CauseSeverity.NONE),
        ((("unknown", "gpu-forbidden"),), (), CauseSeverity.UNKNOWN),
        ((("unhealthy", "gpu-unreadable"),), (), CauseSeverity.SOFT),
        ((("unhealthy", "gpu-unreadable"), ("unhealthy", "xid-79")), (), CauseSeverity.FATAL),
        ((("unhealthy", "xid-79"),), ("79",), CauseSeverity.NONE),
        ((("unhealthy", "xid-79"),), ("7", "xid-"), CauseSeverity.FATAL),
        ((("unhealthy", "gpu-lost"),), ("all",), CauseSeverity.NONE),
        ((("unhealthy", "gpu-lost"),), ("xids",), CauseSeverity.NONE),
    ],
)
def test_a_cause_counts_by_the_table(
    causes: tuple[tuple[str, str], ...], ignored: tuple[str, ...], severity: CauseSeverity
) -> None:
    content = exchange(gpu(0, None, *causes), gpu(1, [mig(1, 1)]))
    devices = offered_devices(content, MigStrategy.MIXED, ignored)
    assert devices[GPU][0].severity is severity
    assert bool(devices[GPU][0].reason) is (severity > CauseSeverity.NONE)
    assert devices[SMALL][0].severity is CauseSeverity.NONE


def test_a_cause_of_the_gpu_counts_for_its_instances() -> None:
    content = exchange(gpu(0, [mig(0, 1)], ("unhealthy", "gpu-lost")))
    assert offered_devices(content, MigStrategy.MIXED)[SMALL][0].reason == "gpu-lost"


KNOWN = {
    device.id: device
    for devices in offered_devices(
        exchange(gpu(0), gpu(1, [mig(1, 2)])), MigStrategy.MIXED
    ).values()
    for device in devices
}
WHOLE, PART = uuid(0), uuid(12, "MIG")


def visible(*ids: str, settings: AccessSettings | None = None) -> str:
    access = container_access(ids, KNOWN, settings or AccessSettings())
    assert (access.mounts, access.annotations, access.cdi) == ((), {}, ())
    assert access.environment.keys() == {"NVIDIA_VISIBLE_DEVICES"}
    return access.environment["NVIDIA_VISIBLE_DEVICES"]


def test_the_environment_names_each_device_once_in_the_order_of_the_request() -> None:
    assert visible(PART, WHOLE, PART) == f"{PART},{WHOLE}"
    assert visible(f"{WHOLE}::1", f"{WHOLE}::0") == WHOLE


def test_a_device_that_is_not_known_is_named_and_what_is_no_device_is_not() -> None:
    assert visible(uuid(9)) == uuid(9)
    assert visible("all", "GPU-0,all", WHOLE, "../../etc") == WHOLE


def test_without_any_device_nothing_is_visible() -> None:
    """An empty value would make the runtime show what the image asks for."""
    assert visible() == visible("all") == "void"


def nodes(*ids: str, dev_root: str = "/", present: tuple[str, ...] = CONTROL_NODES) -> list[str]:
    settings = AccessSettings(device_specs=True, dev_root=dev_root, control_nodes=present)
    specs = container_access(ids, KNOWN, settings).devices
    prefix = dev_root.rstrip("/")
    for spec in specs:
        assert spec == HostDevice(
            container_path=spec.container_path,
            host_path=prefix + spec.container_path,
            permissions="rw",
        )
    return [spec.container_path for spec in specs]


def test_device_nodes_are_those_of_the_driver_and_of_each_device() -> None:
    control = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"]
    assert nodes(WHOLE, f"{WHOLE}::3") == [*control, "/dev/nvidia7"]
    assert nodes(PART, dev_root="/run/driver/") == [
        *control,
        "/dev/nvidia6",
        "/dev/nvidia-caps/nvidia-cap124",
        "/dev/nvidia-caps/nvidia-cap125",
    ]


def test_device_nodes_that_the_host_lacks_are_left_out() -> None:
    assert nodes(WHOLE, present=("/dev/nvidiactl",)) == ["/dev/nvidiactl", "/dev/nvidia7"]


def test_device_nodes_are_given_where_they_are_asked_for_alone() -> None:
    assert container_access([WHOLE], KNOWN, AccessSettings()).devices == ()


def test_no_node_is_known_of_an_unknown_device() -> None:
    known = {"x": OfferedDevice(id="x", gpu=0)}
    assert container_access([uuid(9)], known, AccessSettings(device_specs=True)).devices == tuple(
        HostDevice(container_path=node, host_path=node) for node in CONTROL_NODES
    )
