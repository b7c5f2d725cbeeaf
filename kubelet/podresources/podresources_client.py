# SPDX-License-Identifier: Apache-2.0
"""Client of the kubelet's pod-resources socket: its devices, and the pods that have them.

Import it only where the kubelet is needed: gRPC and protobuf take memory. Each
request dials anew (1.5 ms instead of 0.9 ms on a kept channel): a restarted kubelet
puts another socket at the path, which a kept channel finds late or never. No
connection and no thread outlives an answer.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # read once; else it writes to standard error
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # its handlers may abort a child before exec

import grpc
from google.protobuf.message import Message

from base.errors import Transient
from kubelet.podresources import podresources_pb2 as wire
from kubelet.podresources.allocation_model import (
    ClaimedDevice,
    ContainerDevices,
    PodDevices,
    ResourceDevices,
)

SOCKET: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
DEADLINE_SECONDS = 5.0
MAX_BYTES = 16 << 20
"""Largest answer of the kubelet; gRPC's own limit of 4 MiB is too small for a dense node."""

_SERVICE = "/v1.PodResourcesLister/"
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_BYTES),
    ("grpc.use_local_subchannel_pool", 1),  # else a question joins the connection of another
    ("grpc.default_authority", "localhost"),  # else the socket's path, which is no host name
)
_TRIAL_SECONDS = 1.0

Reply = TypeVar("Reply", bound=Message)


class PodResources:
    """The kubelet's pod-resources socket. Every failure is Transient, with cause and fix."""

    def __init__(self, path: Path = SOCKET, *, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._path = path
        self._deadline = deadline_seconds

    def list(self) -> tuple[PodDevices, ...]:
        """Every pod of this node with its devices; older kubelets list ended pods too."""
        reply = self._ask(
            "List", wire.ListPodResourcesRequest(), wire.ListPodResourcesResponse.FromString
        )
        return tuple(_pod(pod) for pod in reply.pod_resources)

    def allocatable(self) -> tuple[ResourceDevices, ...]:
        """Every healthy device that device plugins registered, those in use included."""
        reply = self._ask(
            "GetAllocatableResources",
            wire.AllocatableResourcesRequest(),
            wire.AllocatableResourcesResponse.FromString,
        )
        return _resources(reply.devices)

    def _ask(self, method: str, request: Message, parse: Callable[[bytes], Reply]) -> Reply:
        try:
            with grpc.insecure_channel(f"unix:{self._path}", options=_OPTIONS) as channel:
                call: grpc.UnaryUnaryMultiCallable[Message, Reply] = channel.unary_unary(
                    _SERVICE + method,
                    request_serializer=lambda message: message.SerializeToString(),
                    response_deserializer=parse,
                )
                return call(request, timeout=self._deadline)
        except grpc.RpcError as error:
            raise Transient(f"{self._path}: {self._why(error)}") from error

    def _why(self, error: grpc.RpcError) -> str:
        code, details = error.code(), error.details() or "no details"
        match code:
            case grpc.StatusCode.UNAVAILABLE:
                return _unreachable(self._path) or f"the connection broke: {details}"
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return f"the kubelet did not answer within {self._deadline:g} s"
            case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than max" in details:
                return f"the kubelet's answer is larger than {MAX_BYTES} bytes"
            case grpc.StatusCode.UNIMPLEMENTED:
                return "no pod-resources API v1 there: it takes a kubelet of 1.28 or later"
            case grpc.StatusCode.INTERNAL:
                return f"what came back is no pod-resources answer: {details}"
        return f"the kubelet refused: {details} ({code.name})"


def _unreachable(path: Path) -> str | None:
    """Why the socket cannot be connected to; None when it can. gRPC's own words hide the errno."""
    with socket.socket(socket.AF_UNIX) as trial:
        trial.settimeout(_TRIAL_SECONDS)
        try:
            trial.connect(os.fspath(path))
        except FileNotFoundError:
            return "no such socket: the kubelet is down, or its folder is not mounted here"
        except PermissionError:
            return "no right to connect: run as uid 0, whose socket it is"
        except OSError as error:
            return f"nobody answers there: {error.strerror or error}"
    return None


def _pod(pod: wire.PodResources) -> PodDevices:
    return PodDevices(
        namespace=pod.namespace,
        name=pod.name,
        containers=tuple(
            ContainerDevices(
                name=container.name,
                resources=_resources(container.devices),
                claims=_claims(container.dynamic_resources),
            )
            for container in pod.containers
        ),
    )


def _resources(devices: Iterable[wire.ContainerDevices]) -> tuple[ResourceDevices, ...]:
    return tuple(
        ResourceDevices(resource=part.resource_name, ids=tuple(part.device_ids)) for part in devices
    )


def _claims(claims: Iterable[wire.DynamicResource]) -> tuple[ClaimedDevice, ...]:
    return tuple(
        ClaimedDevice(
            claim=claim.claim_name,
            driver=device.driver_name,
            pool=device.pool_name,
            device=device.device_name,
            share=device.share_id,
            cdi=tuple(cdi.name for cdi in device.cdi_devices),
        )
        for claim in claims
        for device in claim.claim_resources
    )
