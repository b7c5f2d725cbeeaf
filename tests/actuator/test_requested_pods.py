# SPDX-License-Identifier: Apache-2.0
"""What a request from the socket has reaches the worker and its planner."""

from __future__ import annotations

from pathlib import Path

import pytest

from actuator.change import ChangeResult
from actuator.service import supervised_changes
from actuator.service.actuator_settings import ActuatorSettings
from actuator.worker_messages import Order, by_part
from api.actuator.actuator_messages import (
    ApplyRequest,
    PodOnGpu,
    RequestedLayout,
    RestoreRequest,
    decode_request,
    encode_message,
)
from api.mig_outcome import Outcome
from discovery.reader.protocol import Start
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


def test_a_worker_gets_all_that_a_request_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of the socket, and none where the actuator goes on by itself."""
    orders: list[Order] = []

    def run(order: Order) -> ChangeResult:
        orders.append(order)
        return ChangeResult(outcome=Outcome.APPLIED)

    monkeypatch.setattr(supervised_changes, "run_change", run)
    settings = ActuatorSettings(journal=tmp_path, change_deadline_seconds=71.0, pod_uid="uid-1")
    carry_out = supervised_changes.supervised(Start(), settings)
    pods = (PodOnGpu(gpu=GPU, instance=1, kind="pod", name="ns/a"),)
    layouts = {GPU: RequestedLayout(mig=True)}

    carry_out(ApplyRequest(change="12345678", origin="a test", desired=layouts, pods=pods))
    carry_out(RestoreRequest(change="87654321", pods=pods, give_up=(GPU,)))
    carry_out(None)

    applied, restored, resumed = orders
    assert {order.pod_uid for order in orders} == {"uid-1"}
    assert applied.request is not None
    assert (applied.request.change, applied.users, applied.give_up) == ("12345678", pods, ())
    assert restored.request is None
    assert (restored.change, restored.users, restored.give_up) == ("87654321", pods, (GPU,))
    assert (resumed.request, resumed.change, resumed.users) == (None, "", ())
    assert {(it.owner, it.journal, it.deadline_seconds) for it in orders} == {
        (True, str(tmp_path), 71.0)
    }
