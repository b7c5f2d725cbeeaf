# SPDX-License-Identifier: Apache-2.0
"""The two clusters that the contract suite runs on."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kube.access_reviews import AccessRight
from kube.api import (
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    Api,
    ApiResource,
    DeletingApi,
    EvictingApi,
    InspectedApi,
    Object,
)
from kube.client import ApiClient, Program
from kube.kubeconfig import Kubeconfig
from tests.fakes.api import FakeApi

if TYPE_CHECKING:
    from tests.controlplane.plane import Plane


_ACCOUNT = "watched"
MERGE_PATCH = "application/merge-patch+json"


class FullApi(EvictingApi, DeletingApi, InspectedApi, Protocol):
    """All verbs of all our programs."""


class Cluster(Protocol):
    """An API server with our client, and what people do to it beside us."""

    api: FullApi
    other: Api
    """A second program, whose field manager is ``kubectl``."""

    @property
    def account(self) -> str: ...
    def deny(self, account: str, right: AccessRight) -> None: ...
    def delete(self, resource: ApiResource, name: str, namespace: str | None = None) -> None: ...
    def apply(self, node: str, body: Object, manager: str) -> None: ...
    def make_pod(self, name: str, namespace: str) -> None: ...
    def bind(self, pod: str, namespace: str, node: str) -> None: ...
    def run(self, pod: str, namespace: str, node: str, labels: Object, grace: int) -> str: ...
    def budget(self, name: str, namespace: str, labels: Object, allowed: int) -> None: ...
    def namespace(self) -> str: ...
    def terminate(self, namespace: str) -> None: ...


@dataclass
class InMemory:
    """The fake."""

    api: FakeApi
    other: FakeApi

    @property
    def account(self) -> str:
        """Who the server takes our client for."""
        return self.api.user

    def deny(self, account: str, right: AccessRight) -> None:
        """The account has no such right."""
        self.api.server.denied.add((account, right.verb, right.resource.plural))

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

    def run(self, pod: str, namespace: str, node: str, labels: Object, grace: int) -> str:
        """Have a pod that runs and is ready; its UID."""
        server = self.api.server
        made = server.create(PODS, _running(pod, labels, node, grace), namespace)
        server.patch(PODS, pod, {"status": _READY}, namespace, status=True)
        return str(made["metadata"]["uid"])

    def budget(self, name: str, namespace: str, labels: Object, allowed: int) -> None:
        """Have a PodDisruptionBudget whose status says that so many may go."""
        self.api.server.create(POD_DISRUPTION_BUDGETS, _budget(name, labels), namespace)
        status = {"status": _status(allowed)}
        self.api.server.patch(POD_DISRUPTION_BUDGETS, name, status, namespace, status=True)

    def namespace(self) -> str:
        """A namespace of the test's own."""
        name = f"contract-{secrets.token_hex(4)}"
        self.api.server.add_namespace(name)
        return name

    def terminate(self, namespace: str) -> None:
        """Delete it; what is in it is not gone yet."""
        self.api.server.terminate_namespace(namespace)


@dataclass
class Real:
    """A kube-apiserver."""

    plane: Plane
    api: ApiClient
    other: ApiClient

    @property
    def account(self) -> str:
        """Who the server takes our client for."""
        from tests.controlplane.server import ADMIN

        return ADMIN

    def deny(self, account: str, right: AccessRight) -> None:
        """Nobody has given it any."""

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

    def run(self, pod: str, namespace: str, node: str, labels: Object, grace: int) -> str:
        """Have a pod that runs and is ready, as its kubelet says; its UID."""
        self.plane.account(namespace, _ACCOUNT)
        path = f"/api/v1/namespaces/{namespace}/pods"
        body = _running(pod, labels, node, grace)
        uid = str(self.plane.demand("POST", path, body)["metadata"]["uid"])
        self._asked("PATCH", f"{path}/{pod}/status", {"status": _READY}, MERGE_PATCH)
        return uid

    def budget(self, name: str, namespace: str, labels: Object, allowed: int) -> None:
        """Have a PodDisruptionBudget whose status says that so many may go.

        Where its controller runs, that reads the same from the pods: as many as are ready, but one.
        """
        path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        self._asked("POST", path, _budget(name, labels), status=201)
        status = {"status": _status(allowed)}
        self._asked("PATCH", f"{path}/{name}/status", status, MERGE_PATCH)

    def namespace(self) -> str:
        """A namespace of the test's own."""
        return self.plane.namespace("contract")

    def terminate(self, namespace: str) -> None:
        """Delete it; what is in it is not gone yet, as no kubelet ends its pods."""
        self._asked("DELETE", f"/api/v1/namespaces/{namespace}", None)

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


_READY: Object = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def _running(name: str, labels: Object, node: str, grace: int) -> Object:
    pod = _pod(name)
    pod["metadata"]["labels"] = dict(labels)
    pod["spec"] |= {"nodeName": node, "terminationGracePeriodSeconds": grace}
    return pod


def _budget(name: str, labels: Object) -> Object:
    spec = {"minAvailable": 1, "selector": {"matchLabels": dict(labels)}}
    return {"metadata": {"name": name}, "spec": spec}


def _status(allowed: int) -> Object:
    """Of a budget that wants one to stay."""
    return {
        "observedGeneration": 1,
        "disruptionsAllowed": allowed,
        "currentHealthy": allowed + 1,
        "desiredHealthy": 1,
        "expectedPods": allowed + 1,
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
