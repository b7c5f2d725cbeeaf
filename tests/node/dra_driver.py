# SPDX-License-Identifier: Apache-2.0
"""A node's driver for dynamic resource allocation: ``python -m tests.node.dra_driver KUBECONFIG``.

The kubelet finds it by its registration socket and has it prepare claims; it answers with the
devices that the scheduler chose, and nothing to inject. It stands for NVIDIA's own, which cannot
be had as a Go module, and has that one's name.
Source: k8s.io/kubelet, pkg/apis/dra/v1 and pkg/apis/pluginregistration/v1.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

DRIVER: Final = "gpu.nvidia.com"
FOLDER: Final = Path("/var/lib/kubelet/plugins") / DRIVER
REGISTRY: Final = Path("/var/lib/kubelet/plugins_registry")
VERSION: Final = "v1.DRAPlugin"
ASK_SECONDS: Final = 9.0
REGISTERED: Final = "registered with the kubelet"
"""The driver's only line."""

_TEXT, _FLAG, _MESSAGE = 9, 8, 11
"""Kinds of fields. Source: descriptor.proto."""
_FIELDS: Final[Mapping[str, tuple[tuple[str, int, int, bool, str], ...]]] = {
    "PluginInfo": (
        ("type", 1, _TEXT, False, ""),
        ("name", 2, _TEXT, False, ""),
        ("endpoint", 3, _TEXT, False, ""),
        ("supported_versions", 4, _TEXT, True, ""),
    ),
    "Empty": (),
    "Claim": (
        ("namespace", 1, _TEXT, False, ""),
        ("uid", 2, _TEXT, False, ""),
        ("name", 3, _TEXT, False, ""),
    ),
    "Claims": (("claims", 1, _MESSAGE, True, "Claim"),),
    "Device": (
        ("request_names", 1, _TEXT, True, ""),
        ("pool_name", 2, _TEXT, False, ""),
        ("device_name", 3, _TEXT, False, ""),
        ("cdi_device_ids", 4, _TEXT, True, ""),
    ),
    "Prepared": (("devices", 1, _MESSAGE, True, "Device"), ("error", 2, _TEXT, False, "")),
    # a map is on the wire a list of pairs
    "Entry": (("key", 1, _TEXT, False, ""), ("value", 2, _MESSAGE, False, "Prepared")),
    "Answer": (("claims", 1, _MESSAGE, True, "Entry"),),
}
"""Message to its fields: name, number, kind, whether there are several, type of a message."""


def main(kubeconfig: str) -> None:
    """Serve both sockets until the end of the process."""
    claims = _Claims(json.loads(Path(kubeconfig).read_text(encoding="utf-8")))
    messages = _messages()
    endpoint = FOLDER / "dra.sock"
    FOLDER.mkdir(parents=True, exist_ok=True)
    info = messages["PluginInfo"](
        type="DRAPlugin", name=DRIVER, endpoint=str(endpoint), supported_versions=[VERSION]
    )

    def prepare(request: Any) -> Any:
        return messages["Answer"](
            claims=[
                {"key": it.uid, "value": {"devices": claims.devices(it)}} for it in request.claims
            ]
        )

    def unprepare(request: Any) -> Any:
        return messages["Answer"](claims=[{"key": it.uid, "value": {}} for it in request.claims])

    service = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
    answers = {"NodePrepareResources": prepare, "NodeUnprepareResources": unprepare}
    _serve(endpoint, service, messages["Claims"], answers)

    def registered(_: Any) -> Any:
        sys.stdout.write(f"{REGISTERED}\n")
        sys.stdout.flush()
        return messages["Empty"]()

    registration = {"GetInfo": lambda _: info, "NotifyRegistrationStatus": registered}
    _serve(
        REGISTRY / f"{DRIVER}-reg.sock",
        "pluginregistration.Registration",
        messages["Empty"],
        registration,
    )
    threading.Event().wait()


class _Claims:
    """ResourceClaims, as the node may read them."""

    def __init__(self, kubeconfig: Mapping[str, Any]) -> None:
        (cluster,), (user,) = kubeconfig["clusters"], kubeconfig["users"]
        self._server = cluster["cluster"]["server"]
        authority = cluster["cluster"]["certificate-authority"]
        self._context = ssl.create_default_context(cafile=authority)
        self._context.load_cert_chain(
            user["user"]["client-certificate"], user["user"]["client-key"]
        )

    def devices(self, claim: Any) -> list[dict[str, Any]]:
        """What the scheduler chose for it. Raises OSError."""
        path = f"/apis/resource.k8s.io/v1/namespaces/{claim.namespace}/resourceclaims/{claim.name}"
        host, _, port = self._server.removeprefix("https://").partition(":")
        connection = http.client.HTTPSConnection(
            host, int(port), context=self._context, timeout=ASK_SECONDS
        )
        connection.request("GET", path)
        answer = json.load(connection.getresponse())
        results = answer["status"]["allocation"]["devices"]["results"]
        connection.close()
        return [
            {
                "request_names": [it["request"]],
                "pool_name": it["pool"],
                "device_name": it["device"],
                "cdi_device_ids": [],
            }
            for it in results
            if it["driver"] == DRIVER
        ]


def _messages() -> Mapping[str, Any]:
    """The classes of the messages."""
    file = descriptor_pb2.FileDescriptorProto(name="dra.proto", package="dra", syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind, several, of in fields:
            message.field.add(
                name=field,
                number=number,
                type=kind,
                label=3 if several else 1,
                type_name=f".dra.{of}" if of else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"dra.{name}"))
        for name in _FIELDS
    }


def _serve(
    socket: Path, service: str, request: Any, answers: Mapping[str, Callable[[Any], Any]]
) -> None:
    """Answer the methods of one service on a socket; what is asked is a message of one kind."""
    socket.unlink(missing_ok=True)
    server = grpc.server(ThreadPoolExecutor(2))
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        name: grpc.unary_unary_rpc_method_handler(
            lambda asked, _, answer=answer: answer(asked),
            request_deserializer=request.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        for name, answer in answers.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    _SERVERS.append(server)


_SERVERS: Final[list[grpc.Server]] = []
"""A server ends when nobody refers to it."""


if __name__ == "__main__":
    main(*sys.argv[1:])
