# SPDX-License-Identifier: Apache-2.0
"""The server of a device plugin for one resource: on a socket of its own, in one event loop."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # read once; else it writes to standard error
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # its handlers may abort a child before exec

import grpc
import grpc.aio

from kubelet.device_plugin import deviceplugin_pb2 as wire
from kubelet.device_plugin.plugin_model import ContainerAccess, ListedDevice, ResourceAnswers

SERVICE: Final = "v1beta1.DevicePlugin"
_GRACE_SECONDS: Final = 0.2

log = logging.getLogger(__name__)


class CannotServe(Exception):  # no error of the program: the next try may succeed
    """The socket cannot be made: the text says why."""


class ResourceServer:
    """Serves one resource. Belongs to one event loop.

    ``watched`` is set from the kubelet's first ListAndWatch on, ``lost`` when that ends.
    """

    def __init__(self, resource: str, answers: ResourceAnswers) -> None:
        self._resource = resource
        self._answers = answers
        self._server: grpc.aio.Server | None = None
        self._devices: tuple[ListedDevice, ...] = ()
        self._changed = asyncio.Event()
        self.watched = asyncio.Event()
        self.lost = asyncio.Event()

    async def start(self, socket: Path) -> None:
        """Serve on this socket, whose file must not be there yet. Raises CannotServe."""
        self._server = server = grpc.aio.server()
        server.add_generic_rpc_handlers((self._handlers(),))
        try:
            server.add_insecure_port(f"unix:{socket}")
            await server.start()
        except (RuntimeError, OSError) as error:
            raise CannotServe(f"{socket}: {error}") from error
        if not socket.is_socket():  # gRPC does not report each failure
            await self.stop()
            raise CannotServe(f"{socket}: no socket was made")

    async def stop(self) -> None:
        """End the streams and the server."""
        if self._server is not None:
            await self._server.stop(_GRACE_SECONDS)
            self._server = None

    def publish(self, devices: Iterable[ListedDevice]) -> None:
        """List these devices from now on; nothing is sent where the list stays as it is.

        The kubelet writes its checkpoint for each list that it gets.
        """
        new = tuple(devices)
        if new != self._devices:
            self._devices = new
            self._changed.set()
            self._changed = asyncio.Event()

    def _handlers(self) -> grpc.GenericRpcHandler:
        def unary(method: Any, request: Any) -> grpc.RpcMethodHandler[Any, Any]:
            return grpc.unary_unary_rpc_method_handler(
                method, request.FromString, lambda answer: answer.SerializeToString()
            )

        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "GetDevicePluginOptions": unary(self._options, wire.Empty),
                "GetPreferredAllocation": unary(self._preferred, wire.PreferredAllocationRequest),
                "Allocate": unary(self._allocate, wire.AllocateRequest),
                "PreStartContainer": unary(self._pre_start, wire.PreStartContainerRequest),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self._list_and_watch,
                    wire.Empty.FromString,
                    lambda answer: answer.SerializeToString(),
                ),
            },
        )

    async def _options(self, _request: wire.Empty, _context: object) -> wire.DevicePluginOptions:
        return wire.DevicePluginOptions(get_preferred_allocation_available=True)

    async def _list_and_watch(
        self, _request: wire.Empty, _context: object
    ) -> AsyncIterator[wire.ListAndWatchResponse]:
        self.watched.set()
        try:
            while True:
                changed = self._changed
                yield _list_message(self._devices)
                await changed.wait()
        finally:
            self.lost.set()

    async def _preferred(
        self, request: wire.PreferredAllocationRequest, _context: object
    ) -> wire.PreferredAllocationResponse:
        return wire.PreferredAllocationResponse(
            container_responses=[
                wire.ContainerPreferredAllocationResponse(
                    deviceIDs=await self._answers.preferred(
                        list(part.available_deviceIDs),
                        list(part.must_include_deviceIDs),
                        part.allocation_size,
                    )
                )
                for part in request.container_requests
            ]
        )

    async def _allocate(
        self, request: wire.AllocateRequest, _context: object
    ) -> wire.AllocateResponse:
        return wire.AllocateResponse(
            container_responses=[
                _access_message(self._answers.access(list(part.devices_ids)))
                for part in request.container_requests
            ]
        )

    async def _pre_start(
        self, _request: wire.PreStartContainerRequest, _context: object
    ) -> wire.PreStartContainerResponse:
        return wire.PreStartContainerResponse()


async def register(kubelet_socket: Path, endpoint: str, resource: str, seconds: float) -> str:
    """Register a socket with the kubelet; why it was refused, empty where it was not.

    ``endpoint``: name of the plugin's socket in the kubelet's folder. The kubelet calls the plugin
    back before it answers, so that the server has to be there already.
    """
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.default_authority", "localhost"))
    request = wire.RegisterRequest(
        version="v1beta1",
        endpoint=endpoint,
        resource_name=resource,
        options=wire.DevicePluginOptions(get_preferred_allocation_available=True),
    )
    async with grpc.aio.insecure_channel(f"unix:{kubelet_socket}", options=options) as channel:
        call: Any = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=wire.Empty.FromString,
        )
        try:
            await call(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            return f"{error.details() or 'no details'} ({error.code().name})"
    return ""


def _list_message(devices: Sequence[ListedDevice]) -> wire.ListAndWatchResponse:
    return wire.ListAndWatchResponse(
        devices=[
            wire.Device(
                ID=device.id,
                health="Healthy" if device.healthy else "Unhealthy",
                topology=None
                if device.numa_node is None
                else wire.TopologyInfo(nodes=[wire.NUMANode(ID=device.numa_node)]),
            )
            for device in devices
        ]
    )


def _access_message(access: ContainerAccess) -> wire.ContainerAllocateResponse:
    return wire.ContainerAllocateResponse(
        envs=access.environment,
        mounts=[
            wire.Mount(
                container_path=mount.container_path, host_path=mount.host_path, read_only=True
            )
            for mount in access.mounts
        ],
        devices=[
            wire.DeviceSpec(
                container_path=device.container_path,
                host_path=device.host_path,
                permissions=device.permissions,
            )
            for device in access.devices
        ],
        annotations=access.annotations,
        cdi_devices=[wire.CDIDevice(name=name) for name in access.cdi],
    )
