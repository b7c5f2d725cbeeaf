# SPDX-License-Identifier: Apache-2.0
"""What is named after a change: a plugin's list that is old, and pods without device."""

from __future__ import annotations

import pytest

from actuator.device_access.kubelet_list import stale_list
from discovery.host.kubelet_devices import KubeletDevices

ONE, TWO, THREE = "MIG-1", "MIG-2", "MIG-3"


def kubelet(*offered: str, **held: str) -> KubeletDevices:
    """``held``: a pod's name to its device."""
    return KubeletDevices(
        held={device: frozenset({f"default/{pod}"}) for pod, device in held.items()},
        offered=frozenset(offered),
    )


@pytest.mark.parametrize(
    ("offered", "words"),
    [
        ((ONE, TWO), ""),
        ((f"{ONE}::0", f"{ONE}::1", TWO, "GPU-0", "eth0"), ""),
        ((ONE,), "(1 too few)"),
        ((ONE, TWO, THREE), "(1 too many)"),
        ((THREE, "MIG-4"), "(2 too many, 2 too few)"),
        (("GPU-0",), "(2 too few)"),
        (("eth0",), ""),
        ((), ""),
    ],
)
def test_a_list_that_is_not_what_is_there_is_old(offered: tuple[str, ...], words: str) -> None:
    found = list(stale_list(kubelet(*offered), {ONE, TWO}))

    assert len(found) == bool(words)
    assert all(words in one and "restart its pod" in one for one in found)


def test_a_pod_whose_device_is_gone_is_named() -> None:
    """Others are not, nor those with a name of which it is not known what it stands for."""
    found = list(stale_list(kubelet(a=ONE, b=f"{TWO}::1", c="MIG-GPU-0/1/0", d="GPU-9"), {ONE}))

    assert [one.partition(":")[0] for one in found] == [f"pod default/b holds {TWO}, which is gone"]
