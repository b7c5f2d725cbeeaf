# SPDX-License-Identifier: Apache-2.0
"""A namespace on a real API server with accounts, credentials, objects and policies to try.

Policies hold the accounts of one namespace, so several stages live side by side on one
API server. The one for kubelets is held to the stage's Nodes by a condition of its own.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from api import names
from tests.access import credentials, foreign
from tests.access.ask import APPLY, MERGE, OWN_MANAGER, Ask, Case, Change
from tests.access.baseline import APPLIED, APPLIER, OBJECTS
from tests.access.cases import sentinel
from tests.agent.agent_process import until
from tests.controlplane.own import install_node_features
from tests.controlplane.pki import Credential
from tests.controlplane.plane import Plane
from tests.controlplane.server import Answer, Object
from tools.access.files import POLICIES, parts_of
from tools.access.nodes import NODE_KEYS
from tools.access.policy import EVERYBODY, KUBELETS, Policy

ENFORCED_SECONDS = 30.0
"""The API server looks policies up anew each second; the rest is for a busy machine."""

ACCOUNTS = (names.AGENT, names.COORDINATOR, names.SCHEDULER, names.CERTIFICATES)
ALL_POLICIES = tuple(policy for policies in POLICIES.values() for policy in policies)
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PLACES = {
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/namespaces/{{namespace}}/roles",
    "RoleBinding": f"{_RBAC}/namespaces/{{namespace}}/rolebindings",
    "ValidatingAdmissionPolicy": f"{_ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_ADMISSION}/validatingadmissionpolicybindings",
}
"""Kind to where its objects are created."""


class Roles(StrEnum):
    """What the accounts may do."""

    SHIPPED = "shipped"
    DRIFT = "drift"
    """Somebody bound them to cluster-admin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who asks."""

    manager: str
    token: str | None = None
    certificate: Credential | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


ADMIN = Actor(manager="admin")


class Stage:
    """Two Nodes of one's own and two of similar names, and a namespace with the rest."""

    def __init__(
        self, plane: Plane, roles: Roles, policies: Iterable[Policy] = ALL_POLICIES
    ) -> None:
        self.plane = plane
        self.namespace = plane.namespace("access")
        self.roles = roles
        self._policies = tuple(policies)
        self._actors: dict[str, Actor] = {}
        self._touched: set[str] = {""}  # everything
        own = f"{self.namespace}-own"
        self._words = {
            "$ns": self.namespace,
            "$elsewhere": plane.namespace("access-elsewhere"),
            "$node": own,
            "$other": f"{self.namespace}-other",
            "$fresh": f"{self.namespace}-fresh",
            "$uid": secrets.token_hex(4),
            "$plugin": f"nvidia-device-plugin-{self.namespace}",
            "$system": f"coredns-{self.namespace}",
        }
        if plane.request("GET", "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeatures").status != 200:
            install_node_features(plane)
        self._install(roles)
        self._restore()
        self._populate()

    # trying

    def answer(self, case: Case, *, dry_run: bool = False, as_it_is: bool = False) -> Answer:
        """Send a case's request, to objects as every case finds them, or as the last one left."""
        if not as_it_is:
            self._restore()
        for ask in case.before:
            is_ours = ask.manager == names.COORDINATOR  # nobody else may write permits
            done = self._send(ask, self._actor("coordinator") if is_ours else ADMIN)
            assert not is_ours or done.status == HTTPStatus.OK, done.body
        answer = self._send(case.ask, self._actor(case.actor), dry_run=dry_run)
        if case.ask.method != "GET" and answer.status < 300 and not dry_run:
            self._touched.add(self._filled(case.ask.path))
        self._touched |= {self._filled(ask.path) for ask in case.before}
        return answer

    def is_refusal(self, answer: Answer) -> bool:
        """Whether a policy of this stage refused."""
        said = str(answer.body.get("message", ""))
        own = re.search(rf"ValidatingAdmissionPolicy '[^']+\.{self.namespace}'", said)
        return answer.status == 422 and own is not None

    def is_refusal_to(self, case: Case, answer: Answer) -> bool:
        """Whether a policy that is in force for whoever asks refused.

        For kubelets that may be one of another installation in this cluster, since other
        tests have theirs: they all say the same, and the API server names any of them.
        """
        if case.actor.startswith("kubelet") and not self.is_refusal(answer):
            return f"ValidatingAdmissionPolicy '{NODE_KEYS.name}" in str(answer.body)
        return self.is_refusal(answer)

    def wait_until_enforced(self, *, besides: str = "") -> None:
        """Wait until each policy refuses what it alone refuses, by another rule than ``besides``.

        Raises TimeoutError.
        """
        deadline = time.monotonic() + ENFORCED_SECONDS
        for policy in self._policies:
            case = sentinel(policy.name, besides)
            while case and not self.is_refusal_to(case, self.answer(case, dry_run=True)):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{policy.name} is not enforced")
                time.sleep(0.05)

    def bound_token(self) -> str:
        """The token of the agent's pod on the stage's own Node."""
        return str(self._actor("agent").token)

    @property
    def node(self) -> str:
        """The agent's Node."""
        return self._words["$node"]

    @property
    def other(self) -> str:
        """A Node that is not the agent's."""
        return self._words["$other"]

    def warnings(self, policy: Policy) -> list[Object]:
        """What the controllers say of a policy's expressions, once they have looked at them."""
        name = names.clusterwide(policy.name, self.namespace)
        deadline = time.monotonic() + ENFORCED_SECONDS
        while time.monotonic() < deadline:
            path = f"{PLACES['ValidatingAdmissionPolicy']}/{name}"
            checked = self.plane.demand("GET", path).get("status", {}).get("typeChecking")
            if checked is not None:
                return list(checked.get("expressionWarnings", ()))
            time.sleep(0.05)
        raise TimeoutError(f"{name} was not checked")

    def remove(self, kind: str, name: str) -> None:
        """Delete one of the installed objects, named as in the default namespace."""
        path = f"{PLACES[kind]}/{names.clusterwide(name, self.namespace)}"
        self.plane.demand("DELETE", path)

    def weaken(self, policy: str, **spec: Any) -> None:
        """Have a policy write to the audit log what it refused until now; ``spec``: change its
        binding so instead."""
        binding = names.clusterwide(policy, self.namespace)
        path = f"{PLACES['ValidatingAdmissionPolicyBinding']}/{binding}"
        patch = {"spec": spec or {"validationActions": ["Audit"]}}
        self.plane.demand("PATCH", path, patch, content_type=MERGE)

    def close(self) -> None:
        """Take the policies away: each costs every request of the API server a little."""
        self.uninstall(self._policies)

    def install(self, policies: Iterable[Policy], *, namespace: str = "") -> None:
        """Bring policies into force, of this installation or of one in another ``namespace``; those
        of no account of ours for the stage's Nodes alone."""
        for policy in policies:
            made, binding = policy.objects(namespace or self.namespace)
            if policy.holder in (KUBELETS, EVERYBODY):
                nodes = f"object.metadata.name.startsWith('{self.namespace}')"
                made["spec"]["matchConditions"].append({"name": "stage", "expression": nodes})
            self._create(made)
            self._create(binding)

    def uninstall(self, policies: Iterable[Policy], *, namespace: str = "") -> None:
        """Take these away again, as far as they are there."""
        for policy in policies:
            for it in policy.objects(namespace or self.namespace):
                name = it["metadata"]["name"]
                self.plane.request("DELETE", f"{PLACES[it['kind']]}/{name}")

    # sending

    def _send(self, ask: Ask, actor: Actor, *, dry_run: bool = False) -> Answer:
        words = {
            "$new": f"new-{secrets.token_hex(4)}",
            "$digits": str(secrets.randbelow(10**9)),
            "$digest": secrets.token_hex(8),
        }
        path = self._filled(ask.path)
        if isinstance(ask.body, Change) or "$version" in str(ask.body):
            words["$version"] = self._present(path)["metadata"]["resourceVersion"]
        body = self._filled(ask.body, words)
        if isinstance(ask.body, Change):
            body = merged(self._present(path), self._filled(ask.body.patch, words))
        manager = actor.manager if ask.manager == OWN_MANAGER else ask.manager
        query = [f"fieldManager={manager}"] if manager else []
        query += ["dryRun=All"] if dry_run else []
        query += [ask.query] if ask.query else []
        separator = "&" if "?" in path else "?"
        return self.plane.request(
            ask.method,
            f"{path}{separator}{'&'.join(query)}",
            body,
            token=actor.token,
            certificate=actor.certificate,
            content_type=ask.content_type,
            headers=actor.headers,
        )

    def _present(self, path: str) -> Object:
        """The object at a path; an empty one where there is none."""
        answer = self.plane.request("GET", path)
        return answer.body if answer.status == 200 else {"metadata": {"resourceVersion": "1"}}

    def _filled(self, part: Any, more: Mapping[str, str] | None = None) -> Any:
        """The same with every ``$word`` replaced."""
        if isinstance(part, Mapping):
            return {self._filled(k, more): self._filled(v, more) for k, v in part.items()}
        if isinstance(part, list):
            return [self._filled(item, more) for item in part]
        if isinstance(part, str) and "$" in part:
            known = self._words | dict(more or {})
            for word in sorted(known, key=len, reverse=True):
                part = part.replace(word, known[word])
        return part

    # actors

    def _actor(self, name: str) -> Actor:
        if name not in self._actors:
            self._actors[name] = self._made(name)
        return self._actors[name]

    def _made(self, name: str) -> Actor:
        """The actor of that name: ``ACCOUNT``, ``ACCOUNT-KIND``, ``kubelet``, ``foreign`` or
        ``person``, a cluster admin."""
        who, _, kind = name.partition("-")
        if who == "person":
            return Actor(manager="kubectl-annotate")
        if who == "kubelet":
            node = self._words["$fresh" if kind else "$node"]
            return Actor(manager="kubelet", certificate=self.plane.kubelet(node))
        account = foreign.ACCOUNT if who == "foreign" else f"gpuscape-{who}"
        if kind == "certificate":
            username = names.username(account, self.namespace)
            return Actor(manager=account, certificate=self.plane.client(username))
        headers = {}
        if kind == "as-admin":
            headers = {"Impersonate-User": "somebody", "Impersonate-Group": "system:masters"}
        return Actor(manager=account, token=self._token(account, kind), headers=headers)

    def _token(self, account: str, kind: str) -> str:
        plane, namespace, node = self.plane, self.namespace, self._words["$node"]
        match kind:
            case "unbound":
                return credentials.token(plane, namespace, account)
            case "of-node":
                bound = {"kind": "Node", **plane.demand("GET", f"/api/v1/nodes/{node}")}
                return credentials.token(plane, namespace, account, bound=bound)
            case "legacy":
                return str(self._words["$legacy"])
            case "elsewhere":
                namespace = self._words["$elsewhere"]
                plane.account(namespace, account)
        on = None if kind == "homeless" else node
        audience = "somebody-else" if kind == "audience" else ""
        made = self._pod(account, on, namespace)
        return credentials.token(plane, namespace, account, bound=made, audience=audience)

    def _pod(self, account: str, node: str | None, namespace: str, name: str = "") -> Object:
        name = name or f"{account}-{secrets.token_hex(4)}"
        return {"kind": "Pod", **credentials.pod(self.plane, namespace, name, account, node)}

    # arranging

    def _install(self, roles: Roles) -> None:
        """Accounts, roles and policies, as deploy/ has them for this namespace."""
        for it in (it for part in parts_of(self.namespace).values() for it in part):
            if not it["kind"].startswith("ValidatingAdmissionPolicy"):
                self._create(it)
        elsewhere = self._words["$elsewhere"]
        self.plane.account(elsewhere, names.COORDINATOR)
        for it in foreign.objects(self.namespace, elsewhere):
            self._create(it)
        self.install(self._policies)
        if roles is Roles.DRIFT:
            self._create(self._drift())

    def _drift(self) -> Object:
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
        return {
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{self.namespace}-drift"},
            "roleRef": {**role, "name": "cluster-admin"},
            "subjects": [
                {"kind": "ServiceAccount", "name": account, "namespace": self.namespace}
                for account in ACCOUNTS
            ],
        }

    def _create(self, it: Object) -> None:
        namespace = it["metadata"].get("namespace", "")
        self.plane.demand("POST", PLACES[it["kind"]].format(namespace=namespace), it)

    def _populate(self) -> None:
        """Pods and the Secret, and the words for what the API server named."""
        node = self.plane.demand("GET", f"/api/v1/nodes/{self._words['$node']}")
        self._words["$uid"] = node["metadata"]["uid"]
        pod = self._pod(names.AGENT, self._words["$node"], self.namespace)
        self._words["$pod"], self._words["$poduid"] = (
            pod["metadata"][key] for key in ("name", "uid")
        )
        token = credentials.token(self.plane, self.namespace, names.AGENT, bound=pod)
        self._actors["agent"] = Actor(manager=names.AGENT, token=token)
        self.plane.account(self.namespace, "workload")
        workload = self._pod("workload", self._words["$other"], self.namespace, "workload")
        self._pod("workload", None, self.namespace, "pending")
        self._words["$workloaduid"] = workload["metadata"]["uid"]
        self._populate_others()
        self._words["$legacy"] = credentials.legacy_token(
            self.plane, self.namespace, names.AGENT, "legacy"
        )
        self._words["$csr"] = credentials.signing_request()

    def _populate_others(self) -> None:
        """A pod of users, and two of the cluster: a device plugin's and another."""
        elsewhere, system = self._words["$elsewhere"], "kube-system"
        other = self._words["$other"]
        for namespace in (elsewhere, system):
            self.plane.account(namespace, "workload")
        self._words["$guestuid"] = self._pod("workload", other, elsewhere, "guest")["metadata"][
            "uid"
        ]
        for word in ("$plugin", "$system"):
            made = self._pod("workload", other, system, self._words[word])
            self._words[f"{word}uid"] = made["metadata"]["uid"]

    def _restore(self) -> None:
        """Put the touched objects back to how every case finds them."""
        touched = {path.replace("/apis/events.k8s.io/v1", "/api/v1") for path in self._touched}
        self._touched = set()
        for place, it in OBJECTS:
            path = self._filled(f"{place}/{it['metadata']['name']}")
            if any(_overlap(path, each.partition("?")[0]) for each in touched):
                self._put_back(self._filled(place), path, self._filled(it))

    def _put_back(self, place: str, path: str, it: Object) -> None:
        until(lambda: self._is_put_back(place, path, it))
        if path == self._filled("/api/v1/nodes/$node"):
            query = f"fieldManager={APPLIER}&force=true"
            self.plane.demand("PATCH", f"{path}?{query}", APPLIED, content_type=APPLY)

    def _is_put_back(self, place: str, path: str, it: Object) -> bool:
        """Not where a controller has changed it meanwhile."""
        present = self.plane.request("GET", path)
        if present.status != HTTPStatus.OK:
            self.plane.demand("POST", f"{place}?fieldManager=admin", it)
            return True
        version = present.body["metadata"]["resourceVersion"]
        metadata = {**it["metadata"], "resourceVersion": version, "managedFields": [{}]}
        put = self.plane.request("PUT", f"{path}?fieldManager=admin", {**it, "metadata": metadata})
        assert put.status in (HTTPStatus.OK, HTTPStatus.CONFLICT), put.body
        return put.status == HTTPStatus.OK


def _overlap(one: str, other: str) -> bool:
    """Whether a path lies below the other, either way."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/") or not other


def merged(present: Any, patch: Any) -> Any:
    """A JSON merge patch applied. Source: RFC 7396."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(present) if isinstance(present, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
