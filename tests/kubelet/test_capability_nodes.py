# SPDX-License-Identifier: Apache-2.0
"""The device nodes of MIG instances are those that the driver's texts ask for, and no others."""

from __future__ import annotations

import pytest

from kubelet.device_access.capability_nodes import CapabilityNode, instance_minors, required_nodes

DEVICES = """\
Character devices:
  1 mem
195 nvidia
195 nvidiactl
235 nvidia-caps
236 nvidia-caps-imex-channels

Block devices:
  7 nvidia-caps
"""
"""As a real machine has it, and one line that no real one has."""
MINORS = """\
config 1
monitor 2
gpu0/gi0/access 3
gpu0/gi0/ci0/access 4
gpu0/gi7/access 66
gpu1/gi0/access 138
"""
ACCESS = "DeviceFileMinor: 66\nDeviceFileMode: 256\nDeviceFileModify: 1\n"
"""The example of the MIG User Guide."""
PATH = "gpu0/mig/gi7/access"


def text(**facts: int) -> str:
    """A capability file with these parameters."""
    return "".join(f"{name}: {value}\n" for name, value in facts.items())


def test_an_instance_has_the_node_that_the_driver_says() -> None:
    """Number and mode are the driver's; the major number is that of character devices."""
    found = required_nodes(DEVICES, MINORS, {PATH: ACCESS})

    [node] = found.nodes
    assert node == CapabilityNode(
        capability="gpu0/gi7/access", major=235, minor=66, mode=0o400, uid=0, gid=0
    )
    assert (node.name, found.problems) == ("nvidia-cap66", ())


def test_nodes_come_by_number() -> None:
    """Compute instances have their own."""
    files = {
        PATH: ACCESS,
        "gpu0/mig/gi0/ci0/access": text(DeviceFileMinor=4, DeviceFileMode=292),
        "gpu0/mig/gi0/access": text(DeviceFileMinor=3, DeviceFileMode=292),
        "gpu0/mig/gi14/access": text(DeviceFileMinor=129, DeviceFileMode=292),
    }

    found = required_nodes(DEVICES, MINORS + "gpu0/gi14/access 129\n", files)

    assert [(one.capability, one.minor, one.mode) for one in found.nodes] == [
        ("gpu0/gi0/access", 3, 0o444),
        ("gpu0/gi0/ci0/access", 4, 0o444),
        ("gpu0/gi7/access", 66, 0o400),
        ("gpu0/gi14/access", 129, 0o444),
    ]


def test_owner_and_group_are_the_driver_s() -> None:
    """Root's, where it does not say."""
    owned = text(DeviceFileMinor=66, DeviceFileUID=7, DeviceFileGID=44, DeviceFileMode=416)

    [node] = required_nodes(DEVICES, MINORS, {PATH: owned}).nodes

    assert (node.uid, node.gid, node.mode) == (7, 44, 0o640)


def test_where_nobody_may_make_nodes_none_is_made() -> None:
    """A setting of the kernel module; an admin makes them by other means."""
    closed = ACCESS.replace("Modify: 1", "Modify: 0")

    found = required_nodes(DEVICES, MINORS, {PATH: closed})

    assert (found.nodes, found.problems) == ((), ())


@pytest.mark.parametrize(
    ("devices", "minors", "access", "problem"),
    [
        (DEVICES, MINORS.replace("66", "67"), ACCESS, "its number is 66, and 67 in mig-minors"),
        (DEVICES, "", ACCESS, "its number 66 is not in mig-minors"),
        (DEVICES, MINORS, "", "the driver does not say the number and the mode"),
        (DEVICES, MINORS, text(DeviceFileMinor=66), "the driver does not say the number and the"),
        (DEVICES, MINORS, ACCESS.replace("66", "-66"), "the driver does not say the number and"),
        (DEVICES, MINORS, ACCESS.replace("256", "2048"), "no device node can have"),
        (DEVICES, MINORS, ACCESS.replace("66", "1048576"), "no device node can have"),
        ("", MINORS, ACCESS, "/proc/devices has no nvidia-caps"),
        (DEVICES.replace("235 nvidia-caps\n", ""), MINORS, ACCESS, "/proc/devices has no nvidia-c"),
    ],
)
def test_nothing_is_guessed(devices: str, minors: str, access: str, problem: str) -> None:
    """One instance that is not understood leaves the others."""
    found = required_nodes(devices, minors, {PATH: access})

    assert found.nodes == ()
    [said] = found.problems
    assert problem in said


def test_one_instance_that_is_not_understood_leaves_the_others() -> None:
    """Its own problem names it."""
    good = text(DeviceFileMinor=138, DeviceFileMode=256)

    found = required_nodes(DEVICES, MINORS, {PATH: "", "gpu1/mig/gi0/access": good})

    assert [one.minor for one in found.nodes] == [138]
    assert [one.partition(":")[0] for one in found.problems] == ["gpu0/gi7/access"]


def test_without_instances_nothing_is_wanted() -> None:
    """A machine without the driver has no number either, and that is no problem."""
    found = required_nodes("", "", {})

    assert (found.nodes, found.problems) == ((), ())


def test_control_nodes_are_no_instances() -> None:
    """Nor is what the list does not explain."""
    assert instance_minors(MINORS + "nonsense\nfabric-mgmt 1000\n") == {
        3: "gpu0/gi0/access",
        4: "gpu0/gi0/ci0/access",
        66: "gpu0/gi7/access",
        138: "gpu1/gi0/access",
    }
