# SPDX-License-Identifier: Apache-2.0
"""ResourceSlices in the form of each version; the official client says that these are its forms."""

from __future__ import annotations

import json

import pytest
from kubernetes.client import ApiClient

from kube.objects.resource_slice import ResourceSlice
from tests.kube.objects.slice_forms import FORMS


@pytest.mark.parametrize("version", FORMS)
def test_driver_pool_and_devices_are_read_in_each_form(version: str) -> None:
    read = ResourceSlice.from_object(FORMS[version])
    assert read.metadata.name == "node-a-gpu.nvidia.com-xyz"
    assert (read.spec.driver, read.spec.pool.name) == ("gpu.nvidia.com", "node-a")
    uuids = [(device.name, device.text("uuid")) for device in read.spec.devices]
    assert uuids == [("gpu-0", "GPU-a"), ("gpu-1", "GPU-b"), ("gpu-2", "")]
    assert read.spec.devices[0].text("productName") == "NVIDIA H100"


@pytest.mark.parametrize("version", FORMS)
def test_what_is_no_text_is_read_as_none(version: str) -> None:
    first = ResourceSlice.from_object(FORMS[version]).spec.devices[0]
    assert [first.text(name) for name in ("index", "driverVersion", "absent")] == ["", "", ""]


@pytest.mark.parametrize("version", FORMS)
def test_the_official_client_reads_the_same_of_these_forms(version: str) -> None:
    text, kind = json.dumps(FORMS[version]), f"{version.capitalize()}ResourceSlice"
    theirs = ApiClient().deserialize(text, kind, "application/json")
    assert theirs.api_version == f"resource.k8s.io/{version}"
    parts = [it.basic if version == "v1beta1" else it for it in theirs.spec.devices]
    uuids = [part.attributes["uuid"].string if part.attributes else "" for part in parts]
    assert uuids == ["GPU-a", "GPU-b", ""]
    assert parts[0].capacity["memory"].value == "80Gi"
