# SPDX-License-Identifier: Apache-2.0
"""A real control plane as a test sees it: objects to test with, and the audit log.

The plane of a run is shared, so every test makes Nodes and namespaces of its own. One that
faults are tried on is started for the test alone: :meth:`Plane.start`.
"""

from __future__ import annotations

import http.client
import secrets
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.controlplane import audit as log
from tests.controlplane.families import CONTROLLER_MANAGER_MINOR
from tests.controlplane.programs import Programs
from tests.controlplane.server import ADMIN, MERGE_PATCH, Answer, Object, Server

if TYPE_CHECKING:
    from tests.controlplane.own import OwnPlane

__all__ = ["ADMIN", "MERGE_PATCH", "Answer", "Object", "Plane"]

FENCE_SECONDS = 180.0
_FROM_KUBELET = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
"""Every kubelet annotates its Node with it; nfd-master cannot patch a Node without annotations."""
_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the Pod Security level "restricted" asks of a container."""


@dataclass(kw_only=True)
class Plane(Server):
    """A control plane that runs."""

    def namespace(self, prefix: str = "test", *, labels: Mapping[str, str] | None = None) -> str:
        """Make a namespace of a random name, with its default account."""
        name = _random(prefix)
        self._ensure_namespace(name, labels or {})
        return name

    def account(self, namespace: str, name: str) -> None:
        """Have a service account, and its namespace, where they are not there yet."""
        self._ensure_namespace(namespace, {})
        self._ensure(f"/api/v1/namespaces/{namespace}/serviceaccounts", name)

    def cluster_account(self, namespace: str, name: str, rules: Sequence[Object]) -> None:
        """Have a service account with these rights in the whole cluster, by a role of its name."""
        self.account(namespace, name)
        group = "rbac.authorization.k8s.io"
        subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
        role = {"apiGroup": group, "kind": "ClusterRole", "name": name}
        for kind, body in (
            ("clusterroles", {"rules": list(rules)}),
            ("clusterrolebindings", {"subjects": [subject], "roleRef": role}),
        ):
            self.demand("POST", f"/apis/{group}/v1/{kind}", {"metadata": {"name": name}, **body})

    def make_node(
        self,
        name: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        capacity: Mapping[str, str] | None = None,
        ready: bool = True,
    ) -> str:
        """Make a Node that pods can be scheduled to; its name, random unless given.

        ``ready=False`` leaves it as a kubelet's first request does: unknown and tainted.
        """
        name = name or _random("node")
        metadata = {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": {**_FROM_KUBELET, **(annotations or {})},
        }
        self.demand("POST", "/api/v1/nodes", {"metadata": metadata})
        room = {"cpu": "64", "memory": "512Gi", "pods": "110", **(capacity or {})}
        status: Object = {"capacity": room, "allocatable": room}
        if ready:
            status["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        path = f"/api/v1/nodes/{name}"
        self.demand("PATCH", f"{path}/status", {"status": status}, content_type=MERGE_PATCH)
        if ready:  # admission gives every new Node the not-ready taint
            self.demand("PATCH", path, {"spec": {"taints": None}}, content_type=MERGE_PATCH)
        return name

    def bound_pod(self, namespace: str, account: str, node: str) -> Object:
        """Make a pod of that account on that node, as the strictest Pod Security allows it."""
        self.account(namespace, account)
        pod = {
            "metadata": {"name": _random(account)},
            "spec": {
                "nodeName": node,
                "serviceAccountName": account,
                "containers": [{"name": "main", "image": "none", "securityContext": _RESTRICTED}],
            },
        }
        return self.demand("POST", f"/api/v1/namespaces/{namespace}/pods", pod)

    def token(self, namespace: str, account: str, *, pod: Object | None = None) -> str:
        """Ask for a token of the account, bound to a pod where one is given; good for an hour."""
        spec: Object = {"expirationSeconds": 3600}
        if pod:
            named = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", **named}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        token: str = self.demand("POST", path, request)["status"]["token"]
        return token

    def bound_token(self, namespace: str, account: str, node: str) -> str:
        """The token of a new pod of that account on that node, which proves the node's name."""
        return self.token(namespace, account, pod=self.bound_pod(namespace, account, node))

    def events_about(self, name: str, *, namespace: str = "default") -> list[Object]:
        """Events whose object is called that; other tests leave some that are about nobody."""
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        found: list[Object] = self.demand("GET", path)["items"]
        return [it for it in found if it.get("regarding", {}).get("name") == name]

    def mark(self) -> int:
        """The present end of the audit log, to read on from."""
        return log.size(self._audit_log)

    def audit(self, *, since: int = 0, **filters: Any) -> list[log.Event]:
        """Events from ``since`` on that pass the filters of ``matches`` in audit.py, newest last.

        Every request that was answered before this call is among them: the log is written
        after the answer, so a request of our own is sent and waited for first.
        """
        fence = str(uuid.uuid4())
        self.request("GET", "/version", headers={"Audit-ID": fence})
        deadline = time.monotonic() + FENCE_SECONDS
        while True:
            events = list(log.read(self._audit_log, since=since))
            if any(event["auditID"] == fence for event in events):
                return [event for event in events if log.matches(event, **filters)]
            if time.monotonic() > deadline:
                raise AssertionError(f"{self._audit_log} does not show our own request")
            time.sleep(0.02)

    @staticmethod
    @contextmanager
    def start(
        directory: Path,
        *,
        minor: str = CONTROLLER_MANAGER_MINOR,
        controller_manager: bool = True,
        node_lifecycle: bool = False,
        scheduler: Mapping[str, Any] | bool = False,
        kwok: bool = False,
        apiserver_flags: Sequence[str] = (),
    ) -> Iterator[OwnPlane]:
        """Run a control plane of one's own while the block lasts.

        ``scheduler`` may be its configuration, without kind, client and leader election.
        ``node_lifecycle``: taint Nodes whose Lease is not renewed. Raises NotPreparedError
        and ProgramError.
        """
        from tests.controlplane import own  # which builds on this module

        with Programs(directory / "logs") as programs:
            plane = own.OwnPlane.launch(directory, programs, minor, apiserver_flags)
            if controller_manager:
                own.start_controller_manager(plane, programs, node_lifecycle=node_lifecycle)
            if scheduler is not False:
                own.start_scheduler(plane, programs, {} if scheduler is True else scheduler)
            if kwok:
                own.start_kwok(plane, programs)
            yield plane

    def _ensure_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        self._ensure("/api/v1/namespaces", name, labels)
        # admission wants it for every pod, and the controller that makes it may not run
        self._ensure(f"/api/v1/namespaces/{name}/serviceaccounts", "default")

    def _ensure(self, path: str, name: str, labels: Mapping[str, str] | None = None) -> None:
        wanted = {"metadata": {"name": name, "labels": dict(labels or {})}}
        answer = self.request("POST", path, wanted)
        if answer.status not in (http.client.CREATED, http.client.CONFLICT):
            raise AssertionError(f"{path}: {answer.status} {answer.body.get('message')}")

    @property
    def _audit_log(self) -> Path:
        return self.folder / "audit.log"


def _random(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(4)}"
