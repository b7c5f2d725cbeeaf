# SPDX-License-Identifier: Apache-2.0
"""A kubelet that device plugins register with: it refuses what the real one refuses.

Within Register it calls the plugin back, as the real one does, then follows its list.
Source: Kubernetes 1.37.1, pkg/kubelet/cm/devicemanager: manager.go and, in plugin/v1beta1,
server.go, handler.go and client.go.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from kubelet.device_plugin import deviceplugin_pb2 as wire

_EXTENDED = re.compile(r"[a-z0-9.-]+\.[a-z0-9.-]+/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
DIAL_SECONDS = 2.0


class PlayedKubelet:
    """The kubelet's end in a folder. Belongs to one event loop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lists: dict[str, list[dict[str, bool]]] = {}
        """Resource to every list that came: id to whether it is healthy."""
        self.numa: dict[str, int] = {}
        self.endpoints: dict[str, list[str]] = {}
        """Resource to the socket names that were registered, oldest first."""
        self.refuse = ""
        """While this is not empty, each registration is refused with it."""
        self.refuse_naming = ""
        """As ``refuse``, with ``{}`` where the plugin's socket is named."""
        self.refused = 0
        self.hang = False
        self._server: grpc.aio.Server | None = None
        self._connected: dict[str, tuple[grpc.aio.Channel, asyncio.Task[None]]] = {}

    async def start(self) -> None:
        """Empty the folder, as the real one does, and serve."""
        for path in self.folder.glob("*.sock"):
            path.unlink()
        self._server = grpc.aio.server()
        handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(
            self._register,
            wire.RegisterRequest.FromString,
            lambda answer: answer.SerializeToString(),
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": handler}),)
        )
        self._server.add_insecure_port(f"unix:{self.folder / 'kubelet.sock'}")
        await self._server.start()

    async def stop(self) -> None:
        """End without a trace but its socket, as a killed one."""
        for endpoint in list(self._connected):
            await self.drop(endpoint)
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def drop(self, endpoint: str) -> None:
        """End the stream of a plugin."""
        channel, task = self._connected.pop(endpoint)
        await channel.close()  # that ends the call; to cancel its reader may wait for ever
        await task

    def current(self, resource: str) -> dict[str, bool]:
        """The last list of a resource; empty where none came."""
        return self.lists.get(resource, [{}])[-1]

    async def prefer(
        self, resource: str, available: Sequence[str], size: int, required: Sequence[str] = ()
    ) -> list[str]:
        """The plugin's preference."""
        part = wire.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
        )
        answer: Any = await self._call(
            resource,
            "GetPreferredAllocation",
            wire.PreferredAllocationRequest(container_requests=[part]),
            wire.PreferredAllocationResponse,
        )
        return list(answer.container_responses[0].deviceIDs)

    async def allocate(self, resource: str, ids: Sequence[str]) -> wire.ContainerAllocateResponse:
        """The plugin's answer for one container."""
        part = wire.ContainerAllocateRequest(devices_ids=ids)
        answer: Any = await self._call(
            resource, "Allocate", wire.AllocateRequest(container_requests=[part]),
            wire.AllocateResponse,
        )  # fmt: skip
        container: wire.ContainerAllocateResponse = answer.container_responses[0]
        return container

    async def _call(self, resource: str, method: str, request: Any, answer: Any) -> Any:
        channel, _ = self._connected[self.endpoints[resource][-1]]
        return await _call(channel, method, request, answer)

    async def _register(self, request: wire.RegisterRequest, context: Any) -> wire.Empty:
        why = await self._refused(request)
        if why:
            self.refused += 1
            await context.abort(grpc.StatusCode.UNKNOWN, why)
        return wire.Empty()

    async def _refused(self, request: wire.RegisterRequest) -> str:
        if self.hang:
            await asyncio.sleep(60)
        if self.refuse:
            return self.refuse
        if self.refuse_naming:
            return self.refuse_naming.format(self.folder / request.endpoint)
        if request.version != "v1beta1":
            return f"the requested API version {request.version!r} is not supported by kubelet"
        if not _EXTENDED.fullmatch(request.resource_name):
            return f"the ResourceName {request.resource_name!r} is invalid"
        if request.endpoint in self._connected:
            return f"device plugin already connected: {request.endpoint}"
        path = self.folder / request.endpoint
        channel = grpc.aio.insecure_channel(
            f"unix:{path}",
            options=(
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.default_authority", "localhost"),
            ),
        )
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                options: Any = await _call(
                    channel, "GetDevicePluginOptions", wire.Empty(), wire.DevicePluginOptions
                )
        except (TimeoutError, grpc.aio.AioRpcError):
            await channel.close()
            return f"failed to dial device plugin {path}"
        assert options.get_preferred_allocation_available
        self.endpoints.setdefault(request.resource_name, []).append(request.endpoint)
        task = asyncio.create_task(self._follow(request.resource_name, channel))
        self._connected[request.endpoint] = (channel, task)
        return ""

    async def _follow(self, resource: str, channel: grpc.aio.Channel) -> None:
        call: Any = channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=wire.ListAndWatchResponse.FromString,
        )
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            async for answer in call(wire.Empty()):
                listed = {device.ID: device.health == "Healthy" for device in answer.devices}
                assert len(listed) == len(answer.devices), "each once"
                self.lists.setdefault(resource, []).append(listed)
                for device in answer.devices:
                    for node in device.topology.nodes:
                        self.numa[device.ID] = node.ID


async def _call(channel: grpc.aio.Channel, method: str, request: Any, answer: Any) -> Any:
    call: Any = channel.unary_unary(
        f"/v1beta1.DevicePlugin/{method}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=answer.FromString,
    )
    return await call(request)
