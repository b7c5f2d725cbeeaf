# SPDX-License-Identifier: Apache-2.0
"""What is named after a change: a plugin's list that is old, and pods without device."""

from __future__ import annotations

import pytest

from kubelet.device_access.kubelet_list import stale_list
from kubelet.devices_checkpoint import KubeletDevices

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
        ((ONE,), "does not offer 1 of 2 MIG devices: restart its pod"),
        ((ONE, TWO, THREE), "offers 1 MIG devices that are gone: restart its pod"),
        ((THREE, "MIG-4"), "offers 2 MIG devices that are gone, and not 2 that are there: restart"),
        (("GPU-0",), "With its strategy none it offers none"),
        (("eth0",), ""),
        ((), ""),
    ],
)
def test_a_list_that_is_not_what_is_there_is_old(offered: tuple[str, ...], words: str) -> None:
    found = list(stale_list(kubelet(*offered), {ONE: True, TWO: True}))

    assert len(found) == bool(words)
    assert all(words in one and "restart its pod" in one for one in found)
    assert not any("part of" in one for one in found)


def test_parts_that_a_plugin_leaves_out_are_named_as_the_likely_cause() -> None:
    """A restart brings them, or it does not; a whole device that is missing has another cause."""
    devices = {ONE: True, TWO: False, THREE: False}

    [parts] = stale_list(kubelet(ONE), devices)
    [whole] = stale_list(kubelet(TWO, THREE), {"MIG-4": True, ONE: True, TWO: False, THREE: False})

    assert parts.endswith("those that are a part of their GPU instance")
    assert "does not offer 2 of 4" in whole
    assert "a part of" not in whole


def test_a_pod_whose_device_is_gone_is_named() -> None:
    """Others are not, nor those with a name of which it is not known what it stands for."""
    found = list(
        stale_list(kubelet(a=ONE, b=f"{TWO}::1", c="MIG-GPU-0/1/0", d="GPU-9"), {ONE: True})
    )

    assert [one.partition(":")[0] for one in found] == [f"pod default/b holds {TWO}, which is gone"]
