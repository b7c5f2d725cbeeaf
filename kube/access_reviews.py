# SPDX-License-Identifier: Apache-2.0
"""The account that an API server sees in our requests, and the rights of this or another account.

Nothing is stored by these requests. Source: Kubernetes documentation, "Authorization", checking API
access, and "Authenticating", API access to authentication information for a client.
"""

from __future__ import annotations

from dataclasses import dataclass

from kube.api import ACCESS_REVIEWS, SELF_ACCESS_REVIEWS, SELF_REVIEWS, Api, ApiResource, Object

_GROUPS = ("system:serviceaccounts", "system:authenticated")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRight:
    """The right to a verb on a kind of object."""

    verb: str
    resource: ApiResource
    namespace: str = ""
    """Empty: all namespaces, or a kind of object without namespace."""
    name: str = ""
    """Empty: any object."""

    def __str__(self) -> str:
        """The right as arguments of ``kubectl auth can-i``."""
        group = f".{self.resource.group}" if self.resource.group else ""
        named = f"/{self.name}" if self.name else ""
        place = f" -n {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource.plural}{group}{named}{place}"


def own_account(api: Api) -> str:
    """Name of the account that our requests are made by. Raises ApiError."""
    answer = api.create(SELF_REVIEWS, _body(SELF_REVIEWS))
    user = (answer.get("status") or {}).get("userInfo") or {}
    return str(user.get("username") or "")


def may(api: Api, right: AccessRight, *, account: str | None = None) -> bool:
    """Whether we have the right, or the service account with this user name. Raises ApiError."""
    attributes = {
        "verb": right.verb,
        "group": right.resource.group,
        "resource": right.resource.plural,
        "namespace": right.namespace,
        "name": right.name,
    }
    resource, spec = SELF_ACCESS_REVIEWS, Object(resourceAttributes=attributes)
    if account is not None:
        namespace = account.split(":")[2]
        groups = [*_GROUPS, f"system:serviceaccounts:{namespace}"]
        resource, spec = ACCESS_REVIEWS, {**spec, "user": account, "groups": groups}
    answer = api.create(resource, {**_body(resource), "spec": spec})
    return bool((answer.get("status") or {}).get("allowed"))


def _body(resource: ApiResource) -> Object:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}}
