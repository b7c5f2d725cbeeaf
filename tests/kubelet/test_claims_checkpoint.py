# SPDX-License-Identifier: Apache-2.0
"""Who has which GPU by a ResourceClaim: what is not written down is not taken for nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from base.errors import BadInput
from kubelet.claims_checkpoint import CLAIMS, NOT_KNOWN
from kubelet.devices_checkpoint import NO_KUBELET, KubeletDevices, read_kubelet_devices
from tests.kubelet_nodes.checkpoint_file import write_checkpoint, write_claims

GPU = "gpu-0"


def found(root: Path) -> KubeletDevices:
    """Of a host."""
    return read_kubelet_devices(root, 0.0)


def test_a_claimed_device_has_the_names_of_the_pods_that_use_it(tmp_path: Path) -> None:
    """Next to what device plugins have handed out, which may be nothing."""
    write_claims(tmp_path, {"a": [GPU, "gpu-1"], "b": [GPU]})
    assert found(tmp_path).claimed == {GPU: {"default/a", "default/b"}, "gpu-1": {"default/a"}}

    write_checkpoint(tmp_path, {"c": ["GPU-3"]})
    assert found(tmp_path).held == {"GPU-3": {"default/c"}}
    assert found(tmp_path).claimed[GPU] == {"default/a", "default/b"}


def test_devices_of_other_drivers_are_none_of_ours(tmp_path: Path) -> None:
    write_claims(tmp_path, {"a": ["nic-0"]}, driver="dra.example.com")

    assert found(tmp_path) == NO_KUBELET


def test_a_claim_that_is_being_prepared_has_a_device_that_is_not_known(tmp_path: Path) -> None:
    """The kubelet writes down the claim first, and its devices when the driver has answered."""
    write_claims(tmp_path, {"a": []})

    assert found(tmp_path).claimed == {NOT_KNOWN: {"default/a"}}


def test_a_device_without_a_name_has_that_for_the_runtime(tmp_path: Path) -> None:
    """And one that has neither is not known."""
    file = write_claims(tmp_path, {"a": [GPU, "gpu-1"]})
    outer = json.loads(file.read_text())
    data = json.loads(outer["Data"])
    first, second = data["ClaimInfoStateList"][0]["DriverState"]["gpu.nvidia.com"]["Devices"]
    first["DeviceName"] = second["DeviceName"] = ""
    second["CDIDeviceIDs"] = None
    file.write_text(json.dumps(outer | {"Data": json.dumps(data)}))

    assert found(tmp_path).claimed == {GPU: {"default/a"}, NOT_KNOWN: {"default/a"}}


def test_a_claim_that_no_pod_uses_any_more_still_has_its_device(tmp_path: Path) -> None:
    file = write_claims(tmp_path, {"a": [GPU]})
    file.write_text(file.read_text().replace("uid-of-a", "").replace('{\\"\\": {}}', "null"))

    assert found(tmp_path).claimed == {GPU: {"default/claim-of-a (claim)"}}


@pytest.mark.parametrize("content", [b"", b"{}", b'{"Data": 1}', b'{"Data": "{}"}', b"\xff"])
def test_a_checkpoint_that_makes_no_sense_is_no_empty_one(tmp_path: Path, content: bytes) -> None:
    write_claims(tmp_path, {"a": [GPU]}).write_bytes(content)

    with pytest.raises(BadInput, match="dra_manager_state"):
        found(tmp_path)


def test_a_file_that_cannot_be_opened_is_no_missing_one(tmp_path: Path) -> None:
    (tmp_path / CLAIMS).mkdir(parents=True)

    with pytest.raises(BadInput, match="dra_manager_state"):
        found(tmp_path)
