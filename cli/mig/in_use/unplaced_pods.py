# SPDX-License-Identifier: Apache-2.0
"""Pods without a node, from a file: the resources that they request count as in use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from actuator.worker_messages import NamedHolder
from api.mig_resources import MigStrategy
from base.errors import BadInput
from base.files import read_bytes, read_stdin
from kube.amounts.gpu_amounts import gpu_amounts
from kube.amounts.pod_requests import RequestingContainer, RequestingSpec, pod_requests
from mig.holders import MigHolders

MOST_BYTES: Final = 64 << 20
"""Largest file of pods; a pod takes a few KiB."""
STDIN: Final = "-"
_ENDED: Final = ("Succeeded", "Failed")

RequestedResources = Mapping[str, frozenset[str]]
"""Pod, as ``namespace/name``, to the GPU resources that it requests."""


class _Json(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the structs: keys without a field are ignored."""


class _Spec(RequestingSpec, frozen=True, rename="camel"):
    containers: list[RequestingContainer]
    node_name: str = ""


class _Metadata(_Json, frozen=True):
    name: str
    namespace: str


class _Status(_Json, frozen=True):
    phase: str = ""


class _Pod(_Json, frozen=True):
    metadata: _Metadata
    spec: _Spec
    status: _Status = _Status()

    @property
    def full_name(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


class _Pods(_Json, frozen=True):
    items: list[_Pod]


def unplaced_pods_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--unplaced-pods``; the command gets ``unplaced_pods``, a file's name or None."""
    return click.option(
        "--unplaced-pods",
        metavar="FILE",
        help="Pods that wait for a node, as `kubectl get pods -A --field-selector spec.nodeName="
        " -o json` prints them, - for standard input: every device of a resource that one of them"
        " asks for counts as in use. Needs --strategy.",
    )(function)


def read_unplaced_pods(file: str | None, strategy: MigStrategy | None) -> RequestedResources:
    """Read the GPU resources that the pods of a file request; none without a file.

    Pods that have a node, or have ended, are left out. Raises BadInput where the file is no list
    of pods, and without a strategy.
    """
    if file is None:
        return {}
    if strategy is None:
        raise BadInput("--unplaced-pods needs --strategy: it says which devices a resource has")
    try:
        pods = msgspec.json.decode(_content(file), type=_Pods).items
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise BadInput(
            f"{file}: no list of pods, as kubectl get pods -o json prints it: {error}"
        ) from error
    return {
        pod.full_name: resources
        for pod in pods
        if not pod.spec.node_name and pod.status.phase not in _ENDED
        if (resources := _gpu_resources(pod, file))
    }


def named_holders(holders: MigHolders) -> tuple[NamedHolder, ...]:
    """Holders as the request to a worker process names them."""
    return tuple(
        NamedHolder(gpu=part.gpu, instance=part.instance, kind=holder.kind, name=holder.name)
        for part, part_holders in holders.items()
        for holder in sorted(part_holders)
    )


def _content(file: str) -> bytes:
    if file != STDIN:
        return read_bytes(Path(file), "list of pods", most_bytes=MOST_BYTES)
    return read_stdin(most_bytes=MOST_BYTES)


def _gpu_resources(pod: _Pod, file: str) -> frozenset[str]:
    """GPU resources that a pod requests. Raises BadInput that names the pod."""
    try:
        return frozenset(gpu_amounts(pod_requests(pod.spec)))
    except BadInput as error:
        raise BadInput(f"{file}: pod {pod.full_name}: {error}") from error
