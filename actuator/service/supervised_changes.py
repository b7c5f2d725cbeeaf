# SPDX-License-Identifier: Apache-2.0
"""Turns requests from the socket into changes in a worker process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from actuator.boots.reboot_sentinel import RebootSentinel
from actuator.change import ChangeResult
from actuator.service.transactions import RunChange, layout_of
from actuator.supervisor import run_change
from actuator.worker_messages import ChangeRequest, UserOnGpu
from api.actuator.actuator_messages import ApplyRequest, PodOnGpu, PodsOnGpus, RestoreRequest
from api.mig_mode_change import ModeChange, ResetFallback
from discovery.reader.protocol import Start
from mig.users.device_users import UserKind


def supervised(
    source: Start,
    journal: Path,
    deadline_seconds: float,
    fallback: ResetFallback,
    sentinel: RebootSentinel | None = None,
) -> RunChange:
    """Carries changes out, each in a process of its own; raises as :func:`run_change`.

    ``fallback``: what may follow where the driver makes no reset that a mode needs; ``sentinel``:
    the file that asks for a boot, None where no boot may be asked for.
    """

    def run(request: ApplyRequest | RestoreRequest | None, pods: PodsOnGpus) -> ChangeResult:
        return run_change(
            change_request(request, fallback) if isinstance(request, ApplyRequest) else None,
            source=source,
            journal=journal,
            deadline_seconds=deadline_seconds,
            users=tuple(_device_users(pods)),
            change="" if request is None else request.change,
            give_up=request.give_up if isinstance(request, RestoreRequest) else (),
            owner=True,
            sentinel=sentinel,
        )

    return run


def change_request(request: ApplyRequest, fallback: ResetFallback) -> ChangeRequest:
    """The worker's form of a request from the socket."""
    return ChangeRequest(
        change=request.change,
        desired={uuid: layout_of(layout) for uuid, layout in request.desired.items()},
        origin=request.origin,
        strategy=request.strategy,
        users=tuple(_device_users(request.pods)),
        mode_change=ModeChange(request.mode_change or ModeChange.OFF),
        fallback=fallback,
    )


def _device_users(pods: Iterable[PodOnGpu]) -> Iterable[UserOnGpu]:
    for pod in pods:
        yield UserOnGpu(
            gpu=pod.gpu,
            instance=pod.instance,
            compute=pod.compute,
            kind=UserKind(pod.kind),
            name=pod.name,
        )
