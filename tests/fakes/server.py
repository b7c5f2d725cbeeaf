# SPDX-License-Identifier: Apache-2.0
"""The objects of an API server in memory; the verbs are in :mod:`tests.fakes.api`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kube.api import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    CONFIG_MAPS,
    DAEMON_SETS,
    EVENTS,
    JOB_SETS,
    JOBS,
    LEASES,
    NODE_FEATURES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    RESOURCE_SLICES,
    SECRETS,
    STATEFUL_SETS,
    ApiResource,
    Object,
    ServerInfo,
)
from kube.api_errors import Conflict, Expired, Invalid, NamespaceTerminating, NotFound
from tests.fakes import ownership, validation
from tests.fakes.json_values import copied

SERVED = (
    NODES,
    PODS,
    DAEMON_SETS,
    LEASES,
    EVENTS,
    CONFIG_MAPS,
    SECRETS,
    NODE_FEATURES,
    RESOURCE_SLICES,
    POD_DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    JOBS,
    JOB_SETS,
    REPLICA_SETS,
    STATEFUL_SETS,
    ADMISSION_POLICIES,
    ADMISSION_BINDINGS,
)
_FIRST_VERSION = 100
_KEPT = ("name", "namespace", "uid", "creationTimestamp", "managedFields", "generateName")

Key = tuple[ApiResource, str | None, str]
"""Resource, namespace, name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    version: int
    key: Key
    type: str
    object: Object
    before: Object | None = None
    """What it was before; None where it was not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    version: int
    objects: Mapping[Key, Object]


class Server:
    """Objects, their versions and what happened to them. Thread-safe; time stands still."""

    def __init__(self) -> None:
        """The namespaces of any cluster are there, and ours; more by :meth:`add_namespace`."""
        self.changed = threading.Condition(threading.RLock())
        self.now = "2026-11-20T08:00:00Z"
        """What creationTimestamp and managedFields carry."""
        self._objects: dict[Key, Object] = {}
        self._history: list[Happened] = []
        self._version = _FIRST_VERSION
        self._forgotten = self._dropped = self._rolled_back_from = 0
        self._names = 0
        self._namespaces = {"default", "kube-system", "kube-public", "gpuscape"}
        self._terminating: set[str] = set()
        self._served = set(SERVED)
        self.denied: set[tuple[str, str, str]] = set()
        """User, verb and resource of what access reviews answer with no."""
        self.kubernetes = "v1.37.1"
        self.clock: Callable[[], float] = time.time
        """What the answers' dates are by."""

    def info(self) -> ServerInfo:
        """Version, and clock in whole seconds."""
        return ServerInfo(version=self.kubernetes, unix_seconds=float(int(self.clock())))

    @property
    def version(self) -> str:
        """The newest resourceVersion."""
        return str(self._version)

    def add_namespace(self, name: str) -> None:
        """From now on objects can be created in it."""
        self._namespaces.add(name)

    def unserve(self, resource: ApiResource) -> None:
        """From now on this kind is unknown, as where its CustomResourceDefinition is missing."""
        self._served.discard(resource)

    def serve(self, resource: ApiResource) -> None:
        """Take :meth:`unserve` back."""
        self._served.add(resource)

    def objects(
        self, resource: ApiResource, where: Callable[[Object], bool] = lambda _: True
    ) -> list[Object]:
        """All objects of a kind that ``where`` holds for, by namespace and name."""
        with self.changed:
            found = [key for key, it in self._objects.items() if key[0] == resource and where(it)]
            return [copied(self._objects[key]) for key in sorted(found, key=_by_name)]

    def get(self, resource: ApiResource, name: str, namespace: str | None = None) -> Object:
        """One object; raises NotFound."""
        with self.changed:
            return copied(self._current(self._key(resource, namespace, name)))

    def create(
        self,
        resource: ApiResource,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        manager: str = "kubectl-create",
        dry_run: bool = False,
    ) -> Object:
        """Add an object as ``manager``; raises NotFound, Conflict or Invalid."""
        made = copied(dict(body))
        meta = made.setdefault("metadata", {})
        with self.changed:
            name = meta.get("name") or self._generated(meta)
            key = self._key(resource, namespace, name)
            if namespace is not None:
                self.require_namespace(namespace)
            if key in self._objects:
                raise Conflict(f'{resource.plural} "{name}" already exists')
            if meta.get("namespace", namespace) != namespace:
                raise Invalid("the namespace of the object does not match that of the request")
            if meta.pop("resourceVersion", None):
                raise Invalid("resourceVersion should not be set on objects to be created")
            made |= {"apiVersion": resource.api_version, "kind": resource.kind}
            count = max(self._version, self._rolled_back_from) + 1
            uid = f"00000000-0000-4000-8000-{count:012d}"
            meta |= {"name": name, "uid": uid, "creationTimestamp": self.now}
            meta |= {"namespace": namespace} if namespace is not None else {}
            validation.check(resource, made, None)
            meta["managedFields"] = ownership.written({}, made, manager, self.now)
            return made if dry_run else self._store(key, "ADDED", made)

    def patch(
        self,
        resource: ApiResource,
        name: str,
        patch: Mapping[str, Any],
        namespace: str | None = None,
        *,
        manager: str = "kubectl-patch",
        dry_run: bool = False,
        status: bool = False,
    ) -> Object:
        """Apply a merge patch as ``manager``; the status only with ``status``, and then it alone.

        A patch that changes nothing gives no new version, as on the real server.
        Raises NotFound, Conflict or Invalid.
        """
        with self.changed:
            key = self._key(resource, namespace, name)
            old = self._current(key)
            new: Object = merged(old, patch)
            _check_identity(old, new, resource)
            new["metadata"] |= {at: old["metadata"][at] for at in _KEPT if at in old["metadata"]}
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
            _part(old, new, resource, status=status)
            if new == old:
                return new
            validation.check(resource, new, old)
            new["metadata"]["managedFields"] = ownership.written(old, new, manager, self.now)
            return new if dry_run else self._store(key, "MODIFIED", new)

    def apply(
        self, resource: ApiResource, name: str, body: Mapping[str, Any], *, manager: str
    ) -> Object:
        """Server-side apply by force to a cluster-wide object: afterwards ``manager`` owns it all.

        Unlike the real thing it removes nothing that an earlier apply owned.
        """
        with self.changed:
            key = self._key(resource, None, name)
            old = self._current(key)
            new: Object = merged(old, body)
            new["metadata"]["managedFields"] = ownership.applied(old, new, body, manager, self.now)
            return self._store(key, "MODIFIED", new)

    def delete(
        self,
        resource: ApiResource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Remove an object; what it owned stays, as no garbage collector runs here.

        ``uid``: only the one that has it, else Conflict.
        """
        with self.changed:
            key = self._key(resource, namespace, name)
            gone = self._current(key)
            if uid not in (None, gone["metadata"]["uid"]):
                raise Conflict(f"{name}: the UID in the precondition is not the object's")
            return gone if dry_run else self._store(key, "DELETED", copied(gone))

    def mark_deleted(self, resource: ApiResource, name: str, namespace: str | None) -> Object:
        """Delete an object gracefully: it stays until somebody ends it by :meth:`delete`."""
        with self.changed:
            key = self._key(resource, namespace, name)
            leaving = copied(self._current(key))
            leaving["metadata"]["deletionTimestamp"] = self.now
            return self._store(key, "MODIFIED", leaving)

    def terminate_namespace(self, name: str) -> None:
        """Somebody deletes a namespace: nothing is made in it from now on."""
        with self.changed:
            self._terminating.add(name)

    def require_namespace(self, name: str) -> None:
        """Raises NotFound, or NamespaceTerminating."""
        if name not in self._namespaces:
            raise NotFound(f'namespaces "{name}" not found')
        if name in self._terminating:
            raise NamespaceTerminating(f"unable to create in {name}, which is being terminated")

    def forget_history(self) -> None:
        """Compact: no new watch can start from a version before the newest; open ones go on."""
        with self.changed:
            self._forgotten = self._version

    def too_old(self, version: int) -> Expired | None:
        """The error of a watch that would start from ``version``, if it cannot."""
        if version >= self._forgotten:
            return None
        return Expired(f"too old resource version: {version} ({self._forgotten})")

    def since(self, version: int) -> list[Happened]:
        """What happened after ``version``. Hold ``changed``."""
        return self._history[max(0, version - _FIRST_VERSION - self._dropped) :]

    def backup(self) -> Backup:
        """The objects and their versions now, as a snapshot of etcd has them."""
        with self.changed:
            return Backup(version=self._version, objects=dict(self._objects))

    def restore(self, backup: Backup) -> None:
        """Put a backup back: what happened since then never did, and versions count on from there.

        A watch from a later version gets nothing until the new versions have passed it.
        Source: kubernetes/kubernetes issue 107457; tried on kube-apiserver 1.37 with etcd 3.6.
        """
        with self.changed:
            self._rolled_back_from = max(self._rolled_back_from, self._version)
            self._version = backup.version
            self._objects = dict(backup.objects)
            del self._history[max(0, backup.version - _FIRST_VERSION - self._dropped) :]

    def drop_history(self, version: int) -> None:
        """Forget all up to ``version``, which nobody will ask for: long runs have a lot of it."""
        with self.changed:
            dropped = max(0, version - _FIRST_VERSION - self._dropped)
            del self._history[:dropped]
            self._dropped += dropped

    def require(self, resource: ApiResource) -> None:
        """Raises NotFound for a kind that is not served."""
        if resource not in self._served:
            raise NotFound("the server could not find the requested resource")

    def _key(self, resource: ApiResource, namespace: str | None, name: str) -> Key:
        self.require(resource)
        if resource.namespaced != (namespace is not None):
            raise AssertionError(f"namespace {namespace!r} for {resource.plural}")
        return resource, namespace, name

    def _current(self, key: Key) -> Object:
        if key not in self._objects:
            raise NotFound(f'{key[0].plural} "{key[2]}" not found')
        return self._objects[key]

    def _generated(self, meta: Mapping[str, Any]) -> str:
        if not meta.get("generateName"):
            raise Invalid("metadata.name: Required value: name or generateName is required")
        self._names += 1
        return f"{meta['generateName']}{self._names:05d}"

    def _store(self, key: Key, happened: str, new: Object) -> Object:
        self._version += 1
        new["metadata"]["resourceVersion"] = self.version
        before = self._objects.get(key)
        if happened == "DELETED":
            del self._objects[key]
        else:
            self._objects[key] = new
        self._history.append(
            Happened(
                version=self._version,
                key=key,
                type=happened,
                object=copied(new),
                before=before,
            )
        )
        self.changed.notify_all()
        return copied(new)


def merged(target: Any, patch: Any) -> Any:
    """``target`` after the JSON merge patch of RFC 7396; neither is changed."""
    return copied(_merged(target, patch))


def _merged(target: Any, patch: Any) -> Any:
    """The same, with parts of both in it."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _by_name(key: Key) -> tuple[str, str]:
    return key[1] or "", key[2]


def _check_identity(old: Object, new: Object, resource: ApiResource) -> None:
    name, meta = old["metadata"]["name"], new["metadata"]
    if meta.get("name") != name:
        raise Invalid(f"the name of the object ({meta.get('name')}) does not match {name}")
    version = old["metadata"]["resourceVersion"]
    if meta.get("resourceVersion") not in (None, "", version):
        raise Conflict(
            f'Operation cannot be fulfilled on {resource.plural} "{name}": '
            f"version {meta['resourceVersion']} was sent, it is {version}"
        )
    if meta.get("uid") not in (None, "", old["metadata"]["uid"]):
        raise Invalid(f'{resource.kind} "{name}" is invalid: metadata.uid: field is immutable')


def _part(old: Object, new: Object, resource: ApiResource, *, status: bool) -> None:
    """Undo what a write to the main resource, or to the status, leaves alone."""
    if resource not in (NODES, PODS, POD_DISRUPTION_BUDGETS):
        return
    frozen = ("spec",) if status else ("status",)
    for part in frozen:
        new.pop(part, None)
        if part in old:
            new[part] = copied(old[part])
