# SPDX-License-Identifier: Apache-2.0
"""The two clusters that the contract suite runs on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kube.api import NODES, PODS, Api, ApiResource, Object
from kube.client import ApiClient, Program
from kube.kubeconfig import Kubeconfig
from tests.fakes.api import FakeApi

if TYPE_CHECKING:
    from tests.controlplane.plane import Plane


_ACCOUNT = "watched"


class Cluster(Protocol):
    """An API server with our client, and what people do to it beside us."""

    api: Api
    other: Api
    """A second program, whose field manager is ``kubectl``."""

    def delete(self, resource: ApiResource, name: str, namespace: str | None = None) -> None: ...
    def apply(self, node: str, body: Object, manager: str) -> None: ...
    def make_pod(self, name: str, namespace: str) -> None: ...
    def bind(self, pod: str, namespace: str, node: str) -> None: ...


@dataclass
class InMemory:
    """The fake."""

    api: FakeApi
    other: FakeApi

    def delete(self, resource: ApiResource, name: str, namespace: str | None = None) -> None:
        """As an admin."""
        self.api.server.delete(resource, name, namespace)

    def apply(self, node: str, body: Object, manager: str) -> None:
        """As another applier, by force."""
        self.api.server.apply(NODES, node, body, manager=manager)

    def make_pod(self, name: str, namespace: str) -> None:
        """One that waits for a node."""
        self.api.server.create(PODS, _pod(name), namespace)

    def bind(self, pod: str, namespace: str, node: str) -> None:
        """As a scheduler."""
        self.api.server.patch(PODS, pod, {"spec": {"nodeName": node}}, namespace)


@dataclass
class Real:
    """A kube-apiserver."""

    plane: Plane
    api: ApiClient
    other: ApiClient

    def delete(self, resource: ApiResource, name: str, namespace: str | None = None) -> None:
        """As an admin."""
        root = f"/apis/{resource.group}" if resource.group else "/api"
        place = f"/namespaces/{namespace}" if namespace else ""
        self._asked("DELETE", f"{root}/{resource.version}{place}/{resource.plural}/{name}", None)

    def apply(self, node: str, body: Object, manager: str) -> None:
        """As another applier, by force."""
        whole = {"apiVersion": "v1", "kind": "Node", **body}
        path = f"/api/v1/nodes/{node}?fieldManager={manager}&force=true"
        self._asked("PATCH", path, whole, "application/apply-patch+yaml")

    def make_pod(self, name: str, namespace: str) -> None:
        """One that waits for a node, and that no garbage collector takes for lost."""
        self.plane.account(namespace, _ACCOUNT)
        self._asked("POST", f"/api/v1/namespaces/{namespace}/pods", _pod(name), status=201)

    def bind(self, pod: str, namespace: str, node: str) -> None:
        """As a scheduler."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/binding"
        self._asked("POST", path, {"metadata": {"name": pod}, "target": target}, status=201)

    def _asked(
        self, method: str, path: str, body: Object | None, kind: str = "", *, status: int = 200
    ) -> None:
        answer = self.plane.request(method, path, body, content_type=kind or "application/json")
        assert answer.status == status, answer.body


def _pod(name: str) -> Object:
    container = {"name": "c", "image": "i"}
    return {
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "nobody",
            "serviceAccountName": _ACCOUNT,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def client(name: str, kubeconfig: Path, *, port: int | None = None, **options: Any) -> ApiClient:
    """Our client as the program ``name``, in no hurry to wait; ``port`` leads through a relay."""
    if port is not None:
        kubeconfig = _redirected(kubeconfig, port)
    program = Program(name=name, version="test", requests_per_second=1000, burst=1000)
    return ApiClient(program, Kubeconfig(str(kubeconfig)), **options)


def _redirected(kubeconfig: Path, port: int) -> Path:
    content = json.loads(kubeconfig.read_text())
    content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    other = kubeconfig.with_suffix(f".{port}")
    other.write_text(json.dumps(content))
    return other
