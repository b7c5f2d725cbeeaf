# SPDX-License-Identifier: Apache-2.0
"""Turns requests from the socket into changes in a worker process."""

from __future__ import annotations

import msgspec

from actuator.change import ChangeResult
from actuator.service.actuator_settings import ActuatorSettings
from actuator.service.transactions import ActuatorTask, RunChange, layout_of
from actuator.supervisor import run_change
from actuator.worker_messages import ChangeRequest, Order
from api.actuator.actuator_messages import ApplyRequest, RestoreRequest
from api.mig_mode_change import ModeChange, ResetFallback
from discovery.reader.protocol import Start


def supervised(source: Start, settings: ActuatorSettings) -> RunChange:
    """Carries changes out, each in a process of its own; raises as :func:`run_change`."""
    order = Order(
        start=source,
        journal=str(settings.journal.absolute()),
        owner=True,
        pod_uid=settings.pod_uid,
        sentinel=settings.sentinel,
        deadline_seconds=settings.change_deadline_seconds,
    )

    def run(request: ActuatorTask) -> ChangeResult:
        match request:
            case ApplyRequest():
                change = change_request(request, settings.fallback)
                task = msgspec.structs.replace(order, request=change, users=request.pods)
            case RestoreRequest(change=change_id, pods=pods, give_up=gpus):
                task = msgspec.structs.replace(order, change=change_id, users=pods, give_up=gpus)
            case None:
                task = order
        return run_change(task)

    return run


def change_request(request: ApplyRequest, fallback: ResetFallback) -> ChangeRequest:
    """The worker's form of a request from the socket."""
    return ChangeRequest(
        change=request.change,
        desired={uuid: layout_of(layout) for uuid, layout in request.desired.items()},
        origin=request.origin,
        strategy=request.strategy,
        mode_change=ModeChange(request.mode_change or ModeChange.OFF),
        fallback=fallback,
    )
