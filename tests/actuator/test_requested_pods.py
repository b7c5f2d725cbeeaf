# SPDX-License-Identifier: Apache-2.0
"""Pods of a request reach the planner with the part of the GPU that they use."""

from __future__ import annotations

from actuator.worker_messages import by_part
from api.actuator.actuator_messages import (
    ApplyRequest,
    PodOnGpu,
    RequestedLayout,
    decode_request,
    encode_message,
)
from mig.users.device_users import DeviceUser, MigPart, UserKind

GPU = "GPU-00000000-0000-0000-0000-000000000000"


def test_a_pod_uses_the_compute_instance_that_is_named_else_all_of_the_instance() -> None:
    """Over the socket, and into the worker and its planner."""
    pods = tuple(
        PodOnGpu(gpu=GPU, instance=instance, compute=compute, kind="pod", name=f"ns/{name}")
        for instance, compute, name in ((1, 2, "a"), (1, None, "b"), (None, None, "c"))
    )
    request = ApplyRequest(
        change="12345678", origin="a test", desired={GPU: RequestedLayout(mig=True)}, pods=pods
    )

    received = decode_request(encode_message(request))

    assert isinstance(received, ApplyRequest)
    users = by_part(received.pods)
    assert users == {
        MigPart(GPU, 1, 2): frozenset({DeviceUser(UserKind.POD, "ns/a")}),
        MigPart(GPU, 1): frozenset({DeviceUser(UserKind.POD, "ns/b")}),
        MigPart(GPU, None): frozenset({DeviceUser(UserKind.POD, "ns/c")}),
    }
