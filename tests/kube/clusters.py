"""The two clusters that the contract suite runs on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kube.access import Kubeconfig
from kube.api import NODES, Api, Object, Resource
from kube.client import Client, Program
from tests.fakes.api import FakeApi

if TYPE_CHECKING:
    from tests.controlplane.plane import Plane


class Cluster(Protocol):
    """An API server with our client, and what people do to it beside us."""

    api: Api
    other: Api
    """A second program, whose field manager is ``kubectl``."""

    def delete(self, resource: Resource, name: str, namespace: str | None = None) -> None: ...
    def apply(self, node: str, body: Object, manager: str) -> None: ...


@dataclass
class InMemory:
    """The fake."""

    api: FakeApi
    other: FakeApi

    def delete(self, resource: Resource, name: str, namespace: str | None = None) -> None:
        """As an admin."""
        self.api.server.delete(resource, name, namespace)

    def apply(self, node: str, body: Object, manager: str) -> None:
        """As another applier, by force."""
        self.api.server.apply(NODES, node, body, manager=manager)


@dataclass
class Real:
    """A kube-apiserver."""

    plane: Plane
    api: Client
    other: Client

    def delete(self, resource: Resource, name: str, namespace: str | None = None) -> None:
        """As an admin."""
        root = f"/apis/{resource.group}" if resource.group else "/api"
        place = f"/namespaces/{namespace}" if namespace else ""
        self._asked("DELETE", f"{root}/{resource.version}{place}/{resource.plural}/{name}", None)

    def apply(self, node: str, body: Object, manager: str) -> None:
        """As another applier, by force."""
        whole = {"apiVersion": "v1", "kind": "Node", **body}
        path = f"/api/v1/nodes/{node}?fieldManager={manager}&force=true"
        self._asked("PATCH", path, whole, "application/apply-patch+yaml")

    def _asked(self, method: str, path: str, body: Object | None, kind: str = "") -> None:
        answer = self.plane.request(method, path, body, content_type=kind or "application/json")
        assert answer.status == 200, answer.body


def client(name: str, kubeconfig: Path, *, port: int | None = None, **options: Any) -> Client:
    """Our client as the program ``name``, in no hurry to wait; ``port`` leads through a relay."""
    if port is not None:
        kubeconfig = _redirected(kubeconfig, port)
    program = Program(name=name, version="test", requests_per_second=1000, burst=1000)
    return Client(program, Kubeconfig(str(kubeconfig)), **options)


def _redirected(kubeconfig: Path, port: int) -> Path:
    content = json.loads(kubeconfig.read_text())
    content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    other = kubeconfig.with_suffix(f".{port}")
    other.write_text(json.dumps(content))
    return other
