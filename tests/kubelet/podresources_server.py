# SPDX-License-Identifier: Apache-2.0
"""A pod-resources server on a Unix socket that answers what a test tells it to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

from kubelet.podresources import podresources_pb2 as wire

Answer = Callable[[], bytes]
"""The reply's bytes, or Aborted."""


class Aborted(Exception):
    """The kubelet answers with this code and text."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def message(answer: wire.ListPodResourcesResponse | wire.AllocatableResourcesResponse) -> Answer:
    """Give this message."""
    return answer.SerializeToString


@contextmanager
def serving(path: Path, answers: dict[str, Answer]) -> Iterator[None]:
    """Serve the methods named, until the block ends; the socket goes with it."""

    def handler(answer: Answer) -> grpc.RpcMethodHandler[bytes, bytes]:
        def act(_request: bytes, context: grpc.ServicerContext) -> bytes:
            try:
                return answer()
            except Aborted as error:
                context.abort(error.code, str(error))

        return grpc.unary_unary_rpc_method_handler(act)

    path.unlink(missing_ok=True)
    handlers = {name: handler(answer) for name, answer in answers.items()}
    options = (("grpc.max_send_message_length", -1),)
    server = grpc.server(ThreadPoolExecutor(2), options=options)
    service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers)
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(grace=None).wait()
