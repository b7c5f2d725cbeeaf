# SPDX-License-Identifier: Apache-2.0
"""Pods without a node, from a file: the resources that they request count as in use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from actuator.worker_messages import UserOnGpu
from api.mig_resources import MigStrategy
from base.errors import BadInput
from base.files import read_bytes, read_stdin
from kube.amounts.gpu_amounts import gpu_requests
from kube.objects.pod import Pod
from kube.objects.typed_object import TypedObject
from mig.users.device_users import DeviceUsers

MOST_BYTES: Final = 64 << 20
"""Largest file of pods; a pod takes a few KiB."""
STDIN: Final = "-"

RequestedResources = Mapping[str, frozenset[str]]
"""Pod, as ``namespace/name``, to the GPU resources that it requests."""


class _PodList(TypedObject, frozen=True):
    items: tuple[Pod, ...]


def unplaced_pods_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--unplaced-pods``; the command gets ``unplaced_pods``, a file's name or None."""
    return click.option(
        "--unplaced-pods",
        metavar="FILE",
        help="Pending pods, as printed by `kubectl get pods -A --field-selector spec.nodeName= -o"
        " json`; - for standard input. Every device of a resource that one of them requests counts"
        " as in use. Needs --strategy.",
    )(function)


def read_unplaced_pods(file: str | None, strategy: MigStrategy | None) -> RequestedResources:
    """Read the GPU resources that the pods of a file request; none without a file.

    Pods that have a node, or have ended, are left out. Raises BadInput where the file is no list
    of pods, and without a strategy.
    """
    if file is None:
        return {}
    if strategy is None:
        raise BadInput("--unplaced-pods needs --strategy, which decides the devices of a resource")
    try:
        pods = _PodList.from_json(_content(file)).items
    except BadInput as error:
        raise BadInput(
            f"{file}: no list of pods, as kubectl get pods -o json prints it: {error}"
        ) from error
    if not all(pod.metadata.name and pod.spec.containers for pod in pods):
        raise BadInput(f"{file}: no list of pods: an item has no name or no containers")
    return {
        pod.metadata.full_name: resources
        for pod in pods
        if not pod.is_bound and not pod.is_finished
        if (resources := _gpu_resources(pod, file))
    }


def users_on_gpus(users: DeviceUsers) -> tuple[UserOnGpu, ...]:
    """Device users as the request to a worker process names them."""
    return tuple(
        UserOnGpu(
            gpu=part.gpu,
            instance=part.instance,
            compute=part.compute,
            kind=user.kind,
            name=user.name,
        )
        for part, part_users in users.items()
        for user in sorted(part_users)
    )


def _content(file: str) -> bytes:
    if file != STDIN:
        return read_bytes(Path(file), "list of pods", most_bytes=MOST_BYTES)
    return read_stdin(most_bytes=MOST_BYTES)


def _gpu_resources(pod: Pod, file: str) -> frozenset[str]:
    """GPU resources that a pod requests. Raises BadInput that names the pod."""
    try:
        return frozenset(gpu_requests(pod.spec))
    except BadInput as error:
        raise BadInput(f"{file}: pod {pod.metadata.full_name}: {error}") from error
