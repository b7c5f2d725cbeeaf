# SPDX-License-Identifier: Apache-2.0
"""What each account may ask for: one list, from which its roles and its floor are made.

RBAC cannot narrow ``create`` by name, nor Nodes to one; the floor is what still holds
when somebody binds the account to a wider role.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from api import names
from kube import api
from tools.access import cel
from tools.access.policy import EVERYTHING, Object, Policy, Rule

RBAC_GROUP = "rbac.authorization.k8s.io"
OPERATIONS = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE"}
"""Verb to what admission calls it; reading verbs never reach admission."""


class Where(StrEnum):
    """A scope of a grant: the cluster, or a namespace."""

    CLUSTER = "in the whole cluster"
    HOME = "in the namespace of the installation"
    EVENTS = "in the namespace of Events about Nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Verbs on one resource, a subresource as ``pods/eviction``."""

    where: Where
    resource: str
    verbs: tuple[str, ...]
    group: str = ""
    names: tuple[str, ...] = ()
    """Names of the only objects that it covers; empty: all, as verbs such as create need."""

    @property
    def operations(self) -> tuple[str, ...]:
        """What the floor lets through, in the form of the variable ``asked``."""
        resource, _, part = self.resource.partition("/")
        target = ".".join(filter(None, (resource, self.group))) + ("/" + part if part else "")
        operations = {OPERATIONS[verb]: None for verb in self.verbs if verb in OPERATIONS}
        return tuple(f"{operation} {target}" for operation in operations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A service account and all it may do."""

    name: str
    grants: tuple[Grant, ...]


def _events(*places: Where) -> tuple[Grant, ...]:
    """Events by their own API alone.

    The core group reaches the same objects, but bounds no text in them, and lets all of an
    Event be changed later.
    """
    return tuple(
        Grant(where=where, group=api.EVENTS.group, resource="events", verbs=("create", "patch"))
        for where in places
    )


def _written(resource: api.ApiResource, *more_verbs: str) -> Grant:
    """Objects that a program keeps in its own namespace."""
    verbs = ("get", *more_verbs, "create", "update", "patch")
    return Grant(where=Where.HOME, group=resource.group, resource=resource.plural, verbs=verbs)


def _cluster(resource: str, *verbs: str, group: str = "") -> Grant:
    return Grant(where=Where.CLUSTER, group=group, resource=resource, verbs=verbs)


def _read(resource: api.ApiResource, *verbs: str) -> Grant:
    return _cluster(resource.plural, *verbs, group=resource.group)


AGENT = Account(
    name=names.AGENT,
    grants=(
        _cluster("nodes", "get", "watch", "patch"),
        _written(api.LEASES),
        _written(api.NODE_FEATURES),
        Grant(
            where=Where.HOME,
            group=api.DAEMON_SETS.group,
            resource=api.DAEMON_SETS.plural,
            verbs=("get",),
            names=(names.AGENT_DAEMON_SET,),
        ),
        *_events(Where.EVENTS),
    ),
)
COORDINATOR = Account(
    name=names.COORDINATOR,
    grants=(
        _cluster("nodes", "get", "list", "watch", "patch"),
        _cluster("pods", "get", "list", "watch"),
        _cluster("pods/eviction", "create"),
        # what keeps a pod from being evicted, and what its job would lose
        _read(api.POD_DISRUPTION_BUDGETS, "list", "watch"),
        _read(api.JOBS, "get"),
        _read(api.JOB_SETS, "get"),
        _read(api.REPLICA_SETS, "get"),
        _read(api.STATEFUL_SETS, "get"),
        _written(api.LEASES, "list", "watch"),
        Grant(
            where=Where.HOME,
            resource=api.CONFIG_MAPS.plural,
            verbs=("get", "list", "watch"),
            names=(names.MIG_POLICY,),
        ),
        *_events(Where.HOME, Where.EVENTS),
    ),
)
SCHEDULER = Account(
    name=names.SCHEDULER,
    grants=(
        _cluster("nodes", "list", "watch"),
        _cluster("pods", "list", "watch"),
        Grant(
            where=Where.HOME,
            group=api.LEASES.group,
            resource=api.LEASES.plural,
            verbs=("list", "watch"),
        ),
        *_events(Where.CLUSTER),
    ),
)
CERTIFICATES = Account(
    name=names.CERTIFICATES,
    grants=(
        Grant(
            where=Where.HOME,
            resource=api.SECRETS.plural,
            verbs=("get", "patch"),
            names=(names.SCHEDULER_CA, names.SCHEDULER_TLS, names.KUBE_SCHEDULER_TLS),
        ),
    ),
)

SLICES = _cluster(api.RESOURCE_SLICES.plural, "get", "list", "watch", group="resource.k8s.io")
"""Opt-in grant of the agent: it reads which devices the drivers of claims offer."""
PODS = _cluster(api.PODS.plural, "list", "watch")
"""Opt-in grant of the agent: it reads UIDs and labels of the pods that hold GPUs."""


def account_object(account: Account, namespace: str) -> Object:
    """The account. Its token is mounted where the pod's template says so, and nowhere else."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": account.name, "namespace": namespace},
        "automountServiceAccountToken": False,
    }


def role_objects(account: Account, namespace: str) -> tuple[Object, ...]:
    """The account's roles and their bindings: one of each for each place it has grants in."""
    places = {
        Where.CLUSTER: None,
        Where.HOME: namespace,
        Where.EVENTS: names.EVENT_NAMESPACE,
    }
    objects: list[Object] = []
    for where, place in places.items():
        grants = [grant for grant in account.grants if grant.where is where]
        if grants:
            name = names.clusterwide(account.name, namespace)
            if where is Where.HOME:
                name = account.name
            objects += _role(name, account.name, namespace, place, grants)
    return tuple(objects)


def opt_in_objects(name: str, account: Account, grant: Grant, namespace: str) -> tuple[Object, ...]:
    """A cluster role in addition to the account's own, and its binding."""
    return _role(names.clusterwide(name, namespace), account.name, namespace, None, [grant])


def _role(
    name: str, account: str, home: str, place: str | None, grants: Iterable[Grant]
) -> tuple[Object, Object]:
    """A role in ``place``, None for the whole cluster, and its binding to the account."""
    scope = "Cluster" if place is None else ""
    metadata = {"name": name} | ({} if place is None else {"namespace": place})
    rules = [
        {
            "apiGroups": [grant.group],
            "resources": [grant.resource],
            **({"resourceNames": list(grant.names)} if grant.names else {}),
            "verbs": list(grant.verbs),
        }
        for grant in grants
    ]
    role = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": f"{scope}Role",
        "metadata": metadata,
        "rules": rules,
    }
    binding = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": f"{scope}RoleBinding",
        "metadata": dict(metadata),
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": f"{scope}Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": home}],
    }
    return role, binding


def floor(account: Account) -> Policy:
    """What holds whatever roles the account has: its grants, its pod's token, its name."""
    return Policy(
        name=f"{account.name}-floor",
        holder=account.name,
        group="*",
        resources=("*/*",),
        versions=EVERYTHING,
        operations=EVERYTHING,
        rules=(
            Rule(
                name="grants",
                holds=_granted(account.grants),
                message=f"{account.name} may not do this",
                culprits="[variables.asked]",
            ),
            Rule(
                name="token",
                holds=cel.all_of(
                    "variables.nodeClaims.size() == 1", "variables.podClaims.size() == 1"
                ),
                message="only a token mounted into a pod on a node is accepted",
            ),
            Rule(
                name="field-manager",
                holds=f"request.?options.?fieldManager.orValue('') == {cel.quoted(account.name)}",
                message=f"the field manager must be {account.name}",
            ),
        ),
    )


def _granted(grants: Iterable[Grant]) -> str:
    """The request is granted: a line for each place with the operations allowed there."""
    operations_by_place: dict[Where, list[str]] = {}
    for grant in grants:
        if grant.operations:
            operations_by_place.setdefault(grant.where, []).extend(grant.operations)
    condition_by_place = {
        Where.CLUSTER: "",
        Where.HOME: "request.?namespace.orValue('') == variables.home && ",
        Where.EVENTS: f"request.?namespace.orValue('') == {cel.quoted(names.EVENT_NAMESPACE)} && ",
    }
    return cel.any_of(
        *(
            f"{condition_by_place[place]}variables.asked in {cel.listed(operations)}"
            for place, operations in operations_by_place.items()
        )
    )
