# SPDX-License-Identifier: Apache-2.0
"""An API server in memory, behind the same verbs as the real one, refusing what that refuses.

:class:`Server` holds the objects; :class:`FakeApi` is one program's client of it. Two
programs, or a person at kubectl, are two clients of one server. The contract suite in
``tests/kube/test_contract.py`` runs on this and on the real thing alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kube.api import PODS, ApiResource, Change, Object, ServerInfo
from kube.api_errors import AdmissionRefused, ApiError, Unreachable
from tests.fakes import evictions, reviews
from tests.fakes.json_values import copied
from tests.fakes.server import Happened, Server

__all__ = ["Call", "FakeApi", "FakeWatch", "Server"]

INITIAL_END = "k8s.io/initial-events-end"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, as the server saw it."""

    verb: str
    """get, create, patch, delete, evict or watch."""
    resource: ApiResource
    name: str | None
    namespace: str | None = None
    body: Mapping[str, Any] | None = None
    dry_run: bool = False
    manager: str | None = None
    fields: Mapping[str, str] | None = None
    """Of a watch; so are the next two."""
    metadata_only: bool = False
    resource_version: str | None = None


Hook = Callable[[Call], None]
"""Runs at a call; what it raises is what the caller gets."""


@dataclass(slots=True, kw_only=True)
class _Planned:
    verb: str
    resource: ApiResource | None
    left: int | None
    hook: Hook
    after: bool

    def meets(self, call: Call, *, after: bool) -> bool:
        fits = self.verb in (call.verb, "*") and self.resource in (call.resource, None)
        return fits and self.after == after and self.left != 0


@dataclass
class FakeApi:
    """One program's client. Faults planned here meet only its own calls, oldest plan first."""

    server: Server = field(default_factory=Server)
    manager: str = "gpuscape-agent"
    user: str = "system:serviceaccount:gpuscape:gpuscape-agent"
    """Who the server takes us for."""
    calls: list[Call] = field(default_factory=list)
    """Every request, also those that were refused."""
    _plans: list[_Planned] = field(default_factory=list)
    _watches: list[FakeWatch] = field(default_factory=list)

    # faults

    def before(
        self,
        verb: str,
        hook: Hook,
        *,
        times: int | None = None,
        resource: ApiResource | None = None,
    ) -> None:
        """Run ``hook`` before calls of a verb (``*`` for all); it may raise, block or take time."""
        self._plan(verb, hook, times, resource, after=False)

    def after(
        self,
        verb: str,
        hook: Hook,
        *,
        times: int | None = None,
        resource: ApiResource | None = None,
    ) -> None:
        """The same once the server has done it."""
        self._plan(verb, hook, times, resource, after=True)

    def fail(
        self,
        verb: str,
        error: ApiError,
        *,
        times: int | None = 1,
        resource: ApiResource | None = None,
    ) -> None:
        """The next calls of a verb do nothing and raise ``error``; with times=None all of them."""
        self.before(verb, _raising(error), times=times, resource=resource)

    def lose_reply(self, verb: str, *, times: int = 1, resource: ApiResource | None = None) -> None:
        """The next calls of a verb are done, but their answer is lost."""
        lost = Unreachable(f"{verb}: connection reset before the answer")
        self.after(verb, _raising(lost), times=times, resource=resource)

    def refuse(self, policy: str, when: Callable[[Call], bool]) -> None:
        """An admission policy: writes for which ``when`` holds raise Refused, dry runs too."""

        def judge(call: Call) -> None:
            if call.verb in ("create", "patch") and when(call):
                raise AdmissionRefused(
                    f"ValidatingAdmissionPolicy '{policy}' denied request", policy=policy
                )

        self.before("*", judge)

    def heal(self) -> None:
        """Drop all planned faults."""
        self._plans.clear()

    def end_watches(self) -> None:
        """The server ends every open watch, as when its time is up."""
        for watch in list(self._watches):
            watch.end(None)

    def break_watches(self, error: ApiError, *, keep: int | None = None) -> None:
        """Every open watch breaks: whoever iterates gets ``error``; ``keep`` as in the watch."""
        for watch in list(self._watches):
            watch.end(error, keep=keep)

    def bookmark(self) -> None:
        """Every open watch gets a bookmark at the newest version."""
        for watch in list(self._watches):
            watch.bookmark()

    def evictions(self) -> list[tuple[str, str]]:
        """Namespace and name of all evictions asked for so far, dry runs left out."""
        return [
            (str(call.namespace), str(call.name))
            for call in list(self.calls)
            if call.verb == "evict" and not call.dry_run
        ]

    def writes(self, resource: ApiResource | None = None) -> list[Call]:
        """The creates, patches and deletions so far, dry runs left out."""
        return [
            call
            for call in list(self.calls)
            if call.verb in ("create", "patch", "delete")
            and not call.dry_run
            and resource in (call.resource, None)
        ]

    # the verbs of kube.api.Api

    def get(self, resource: ApiResource, name: str, *, namespace: str | None = None) -> Object:
        """See :class:`kube.api.Api`."""
        call = Call(verb="get", resource=resource, name=name, namespace=namespace)
        return self._run(call, lambda: self.server.get(resource, name, namespace))

    def create(
        self,
        resource: ApiResource,
        body: Object,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        manager: str | None = None,
    ) -> Object:
        """See :class:`kube.api.Api`."""
        writer = manager or self.manager
        call = Call(
            verb="create",
            resource=resource,
            name=body.get("metadata", {}).get("name"),
            namespace=namespace,
            body=copied(body),
            dry_run=dry_run,
            manager=writer,
        )
        if resource in reviews.KINDS:
            return self._run(call, lambda: reviews.answered(self.server, resource, body, self.user))
        return self._run(
            call,
            lambda: self.server.create(resource, body, namespace, manager=writer, dry_run=dry_run),
        )

    def patch(
        self,
        resource: ApiResource,
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        manager: str | None = None,
    ) -> Object:
        """See :class:`kube.api.Api`."""
        writer = manager or self.manager
        call = Call(
            verb="patch",
            resource=resource,
            name=name,
            namespace=namespace,
            body=copied(dict(patch)),
            dry_run=dry_run,
            manager=writer,
        )
        return self._run(
            call,
            lambda: self.server.patch(
                resource, name, patch, namespace, manager=writer, dry_run=dry_run
            ),
        )

    def delete(
        self,
        resource: ApiResource,
        name: str,
        *,
        uid: str,
        namespace: str | None = None,
        dry_run: bool = False,
    ) -> None:
        """See :class:`kube.api.DeletingApi`."""
        call = Call(
            verb="delete",
            resource=resource,
            name=name,
            namespace=namespace,
            body={"uid": uid},
            dry_run=dry_run,
            manager=self.manager,
        )
        self._run(
            call, lambda: self.server.delete(resource, name, namespace, uid=uid, dry_run=dry_run)
        )

    def evict(self, name: str, *, namespace: str, uid: str, dry_run: bool = False) -> None:
        """See :class:`kube.api.EvictingApi`."""
        call = Call(
            verb="evict",
            resource=PODS,
            name=name,
            namespace=namespace,
            body={"uid": uid},
            dry_run=dry_run,
            manager=self.manager,
        )
        self._run(call, lambda: evictions.evict(self.server, name, namespace, uid, dry_run=dry_run))

    def server_info(self) -> ServerInfo:
        """See :class:`kube.api.InspectedApi`."""
        call = Call(verb="get", resource=reviews.VERSION, name="version")
        return self._run(call, lambda: self.server.info())

    def watch(
        self,
        resource: ApiResource,
        *,
        namespace: str | None = None,
        name: str | None = None,
        fields: Mapping[str, str] | None = None,
        metadata_only: bool = False,
        resource_version: str | None = None,
    ) -> FakeWatch:
        """See :class:`kube.api.Api`; a version that is too old raises Expired when iterated."""
        call = Call(
            verb="watch",
            resource=resource,
            name=name,
            namespace=namespace,
            fields=fields,
            metadata_only=metadata_only,
            resource_version=resource_version,
        )
        return self._run(call, lambda: self._opened(call))

    def _opened(self, call: Call) -> FakeWatch:
        self.server.require(call.resource)
        watch = FakeWatch(self.server, call, self._watches.remove)
        if not watch.over:
            self._watches.append(watch)
        return watch

    def _run(self, call: Call, act: Callable[[], T]) -> T:
        self.calls.append(call)
        self._meet(call, after=False)
        answer = act()
        self._meet(call, after=True)
        return answer

    def _meet(self, call: Call, *, after: bool) -> None:
        for plan in list(self._plans):
            with self.server.changed:
                if not plan.meets(call, after=after):
                    continue
                plan.left = None if plan.left is None else plan.left - 1
            plan.hook(call)  # outside the lock: it may block

    def _plan(
        self, verb: str, hook: Hook, times: int | None, resource: ApiResource | None, *, after: bool
    ) -> None:
        plan = _Planned(verb=verb, resource=resource, left=times, hook=hook, after=after)
        self._plans.append(plan)


def _raising(error: ApiError) -> Hook:
    def hook(_: Call) -> None:
        raise error

    return hook


class FakeWatch:
    """One open watch: first what there is, with a bookmark behind it, then what happens."""

    def __init__(self, server: Server, call: Call, ended: Callable[[FakeWatch], None]) -> None:
        self._server = server
        self._call = call
        self._ended = ended
        self._ready: deque[Change] = deque()
        self._error: ApiError | None = None
        self.over = False
        """Nothing more will come."""
        with server.changed:
            if call.resource_version in (None, "0"):
                self._ready.extend(self._initial())
                self._from = int(server.version)
            else:
                self._from = int(call.resource_version or 0)
                if too_old := server.too_old(self._from):
                    self.over, self._error = True, too_old

    def __iter__(self) -> Iterator[Change]:
        """Blocks for the next change; ends when the server, or close, ends it."""
        while (change := self._next()) is not None:
            yield change

    def close(self) -> None:
        """End it from any thread; what has not been read is lost."""
        with self._server.changed:
            self._ready.clear()
        self.end(None)

    def end(self, error: ApiError | None, *, keep: int | None = None) -> None:
        """The server's side: what was sent before is still read, then it ends or raises.

        ``keep``: only so many of these messages arrive.
        """
        with self._server.changed:
            if not self.over:
                self._collect()
                while keep is not None and len(self._ready) > keep:
                    self._ready.pop()
                self.over = True
                self._error = error
                self._ended(self)
            self._server.changed.notify_all()

    def bookmark(self) -> None:
        """Send a bookmark at the newest version."""
        with self._server.changed:
            self._collect()
            self._ready.append(self._bookmark({}))
            self._server.changed.notify_all()

    def _next(self) -> Change | None:
        with self._server.changed:
            while True:
                if not self.over:
                    self._collect()
                if self._ready:
                    return self._ready.popleft()
                if self._error is not None:
                    raise self._error
                if self.over:
                    return None
                self._server.changed.wait()

    def _collect(self) -> None:
        for happened in self._server.since(self._from):
            self._from = happened.version
            kind = self._type(happened) if self._wanted(happened) else None
            if kind is not None:
                self._ready.append(Change(type=kind, object=self._told(happened.object)))

    def _type(self, happened: Happened) -> str | None:
        """An object that comes to have the fields is ADDED, one that has them no more DELETED."""
        fields = self._call.fields or {}
        had = happened.before is not None and _has(happened.before, fields)
        has = happened.type != "DELETED" and _has(happened.object, fields)
        return {
            (False, True): "ADDED",
            (True, True): "MODIFIED",
            (True, False): "DELETED",
        }.get((had, has))

    def _told(self, thing: Object) -> Object:
        if not self._call.metadata_only:
            return copied(thing)
        meta = copied(thing["metadata"])
        return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": meta}

    def _wanted(self, happened: Happened) -> bool:
        resource, namespace, name = happened.key
        call = self._call
        return (
            resource == call.resource
            and call.namespace in (namespace, None)
            and call.name in (name, None)
        )

    def _initial(self) -> Iterator[Change]:
        def wanted(there: Object) -> bool:
            meta = there["metadata"]
            fits = self._call.name in (meta["name"], None)
            fits = fits and self._call.namespace in (meta.get("namespace"), None)
            return fits and _has(there, self._call.fields or {})

        for there in self._server.objects(self._call.resource, wanted):
            yield Change(type="ADDED", object=self._told(there))
        yield self._bookmark({"annotations": {INITIAL_END: "true"}})

    def _bookmark(self, meta: Mapping[str, Any]) -> Change:
        resource = self._call.resource
        bare = {"apiVersion": resource.api_version, "kind": resource.kind}
        version = {"resourceVersion": self._server.version}
        return Change(type="BOOKMARK", object={**bare, "metadata": {**meta, **version}})


def _has(thing: Object, fields: Mapping[str, str]) -> bool:
    """Whether each dotted field has its value, and one with ``!`` any other."""

    def value(field: str) -> object:
        found: Any = thing
        for part in field.removesuffix("!").split("."):
            found = (found or {}).get(part)
        return found or ""

    return all((value(field) != wanted) == field.endswith("!") for field, wanted in fields.items())
