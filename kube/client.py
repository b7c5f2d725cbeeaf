# SPDX-License-Identifier: Apache-2.0
"""The client of all programs: few verbs, plain JSON, each failure one of :mod:`kube.api_errors`."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from kube.api import PODS, ApiResource, Change, Object, ServerInfo, Watch
from kube.api_errors import ApiError, Forbidden, Invalid, NotFound
from kube.api_server import ApiServer
from kube.credentials import find
from kube.error_answers import checked, decoded, listed, request_name, served_versions
from kube.request_limits import RequestLimits
from kube.transport import JSON, ApiRequest, Transport, body
from kube.watch import SILENCE_SECONDS, ListedWatch, OpenWatch, Page, StartedWatch, mark

WATCH_SECONDS = (300, 600)
"""Duration that is requested for a watch: spread, so that a fleet's watches do not end together."""
PAGE = 500
"""Objects in one answer to a list request."""
MERGE_PATCH = "application/merge-patch+json"

_MARKED_START = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
_METADATA = "application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Name and request budget of one program."""

    name: str
    """Field manager of the program, and the first part of its User-Agent."""
    version: str
    requests_per_second: float = 2.0
    burst: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds without an answer after which a connection counts as broken."""

    connect_seconds: float = 5.0
    read_seconds: float = 30.0
    silence_seconds: float = SILENCE_SECONDS
    """Silence of a watch after which it counts as broken."""


class ApiClient:
    """A program's connection to its API server. Thread-safe."""

    def __init__(
        self,
        program: Program,
        access: ApiServer,
        *,
        limits: RequestLimits | None = None,
        patience: Patience | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._manager = program.name
        self._patience = patience or Patience()
        self._uniform = uniform
        self._marks_start = True  # until the server says that it cannot
        self._older: dict[ApiResource, ApiResource] = {}
        self._transport = Transport(
            access,
            limits or RequestLimits(per_second=program.requests_per_second, burst=program.burst),
            user_agent=f"{program.name}/{program.version}",
            connect_seconds=self._patience.connect_seconds,
        )

    def get(self, resource: ApiResource, name: str, *, namespace: str | None = None) -> Object:
        """See :class:`kube.api.Api`."""
        action = request_name("get", resource, namespace, name)
        return checked(action, self._ask(action, "GET", _path(resource, namespace, name)), name)

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
        name = body["metadata"].get("name", "")
        action = request_name("create", resource, namespace, name)
        path = _path(resource, namespace) + self._write(dry_run, manager)
        return checked(action, self._ask(action, "POST", path, body, JSON), name)

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
        action = request_name("patch", resource, namespace, name)
        path = _path(resource, namespace, name) + self._write(dry_run, manager)
        return checked(action, self._ask(action, "PATCH", path, dict(patch), MERGE_PATCH), name)

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
        action = request_name("delete", resource, namespace, name)
        # a server that gets options in the body ignores those of the address
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            **({"dryRun": ["All"]} if dry_run else {}),
        }
        self._ask(action, "DELETE", _path(resource, namespace, name), options, JSON)

    def evict(self, name: str, *, namespace: str, uid: str, dry_run: bool = False) -> None:
        """See :class:`kube.api.EvictingApi`."""
        action = request_name("evict", PODS, namespace, name)
        path = _path(PODS, namespace, name) + "/eviction" + self._write(dry_run, None)
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        self._ask(action, "POST", path, eviction, JSON)

    def watch(
        self,
        resource: ApiResource,
        *,
        namespace: str | None = None,
        name: str | None = None,
        fields: Mapping[str, str] | None = None,
        metadata_only: bool = False,
        resource_version: str | None = None,
    ) -> Watch:
        """See :class:`kube.api.Api`.

        Without a resourceVersion the request is for a bookmark behind the last
        object that exists (sendInitialEvents). A server without that feature, off by default in
        1.31 and 1.33, refuses the parameter; from then on the start is put together from
        more requests: a get behind the watch of one object, a list before the watch of all,
        whose pages are requested one by one while its objects are used.

        A server without the version is asked for the versions that it serves, and the one found is
        kept until the server has it no more, as after an upgrade.
        """
        served = self._older.get(resource, resource)
        options = namespace, name, fields or {}, metadata_only, resource_version
        try:
            return self._watch(served, *options)
        except NotFound:
            older = self._served(resource)
            if older is None or older == served:
                raise
        self._older[resource] = older
        return self._watch(older, *options)

    def _served(self, resource: ApiResource) -> ApiResource | None:
        """The kind in the newest of its versions that the server serves; None without one."""
        if not resource.older_versions:
            return None
        action = f"get the versions of {resource.group}"
        try:
            served = served_versions(action, self._ask(action, "GET", f"/apis/{resource.group}"))
        except (Forbidden, NotFound):  # the refusal of the watch itself says more
            return None
        versions = (resource.version, *resource.older_versions)
        found = next((version for version in versions if version in served), None)
        return None if found is None else replace(resource, version=found)

    def _watch(
        self,
        resource: ApiResource,
        namespace: str | None,
        name: str | None,
        fields: Mapping[str, str],
        metadata_only: bool,
        resource_version: str | None,
    ) -> Watch:
        action = request_name("watch", resource, namespace, name)
        path = _path(resource, namespace, everywhere=True)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(self._uniform(*WATCH_SECONDS))),
            **_selected(name, fields),
        }
        accept = _METADATA.format(list="") if metadata_only else JSON
        if resource_version:
            return self._open(action, path, query | {"resourceVersion": resource_version}, accept)
        if self._marks_start:
            try:
                return self._open(action, path, query | _MARKED_START, accept)
            except Invalid as refusal:
                if "sendInitialEvents" not in str(refusal):
                    raise
                # remembered: otherwise every further watch would begin with a refused request
                self._marks_start = False
        if name is None:
            pages = self._pages(resource, namespace, _selected(name, fields), metadata_only)
            # the first page now: a refusal is raised by this call, as by the other ways
            return ListedWatch(
                itertools.chain([next(pages)], pages),
                lambda version: self._open(
                    action, path, query | {"resourceVersion": version}, accept
                ),
            )
        # the watch first: what changes between the two requests comes through it
        watch = self._open(action, path, query, accept)
        if self._exists(watch, resource, namespace, name):
            return StartedWatch(watch, behind_first=mark(None))
        return StartedWatch(watch, head=[mark(None)])

    def server_info(self) -> ServerInfo:
        """See :class:`kube.api.InspectedApi`."""
        action = "get the server's version"
        request = ApiRequest(
            action=action, method="GET", path="/version", read_seconds=self._patience.read_seconds
        )
        answer = self._transport.send(request)
        version = decoded(action, body(request, answer)).get("gitVersion")
        return ServerInfo(
            version=str(version or ""), unix_seconds=_unix(answer.headers.get("Date"))
        )

    def close(self) -> None:
        """Give back idle connections; open watches are closed on their own."""
        self._transport.close()

    def _open(self, action: str, path: str, query: Mapping[str, str], accept: str) -> OpenWatch:
        request = ApiRequest(
            action=action,
            method="GET",
            path=f"{path}?{urlencode(query)}",
            accept=accept,
            read_seconds=self._patience.silence_seconds,
        )
        return OpenWatch(action, self._transport.send(request))

    def _exists(
        self, watch: Watch, resource: ApiResource, namespace: str | None, name: str
    ) -> bool:
        """Whether the object exists, so that ``watch``, which is open already, will send it."""
        try:
            self.get(resource, name, namespace=namespace)
        except NotFound:
            return False
        except ApiError:
            watch.close()
            raise
        return True

    def _pages(
        self,
        resource: ApiResource,
        namespace: str | None,
        selected: Mapping[str, str],
        metadata_only: bool,
    ) -> Iterator[Page]:
        """All objects in pages, each with the version to watch from: that of the whole list."""
        action = request_name("list", resource, namespace, None)
        path = _path(resource, namespace, everywhere=True)
        accept = _METADATA.format(list="List") if metadata_only else JSON
        # objects of a list have no kind of their own
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        query = {"limit": str(PAGE), **selected}
        while True:
            page = self._ask(action, "GET", f"{path}?{urlencode(query)}", accept=accept)
            objects, meta = listed(action, page)
            changes = [Change(type="ADDED", object=kind | content) for content in objects]
            yield Page(changes=changes, version=meta["resourceVersion"])
            if not meta.get("continue"):
                return
            query["continue"] = meta["continue"]

    def _ask(
        self,
        action: str,
        method: str,
        path: str,
        content: Object | None = None,
        content_type: str | None = None,
        *,
        accept: str = JSON,
    ) -> Object:
        request = ApiRequest(
            action=action,
            method=method,
            path=path,
            accept=accept,
            body=content,
            content_type=content_type,
            read_seconds=self._patience.read_seconds,
        )
        return decoded(action, body(request, self._transport.send(request)))

    def _write(self, dry_run: bool, manager: str | None) -> str:
        query = {"fieldManager": manager or self._manager}
        return f"?{urlencode(query | ({'dryRun': 'All'} if dry_run else {}))}"


def connect(
    program: Program,
    *,
    kubeconfig: Path | None = None,
    context: str | None = None,
    patience: Patience | None = None,
) -> ApiClient:
    """A client for the cluster that :func:`kube.credentials.find` finds; sends no request yet."""
    access = find(None if kubeconfig is None else str(kubeconfig), context)
    return ApiClient(program, access, patience=patience)


def _unix(date: str | None) -> float | None:
    """An HTTP date in Unix seconds; None without a date, and for text that is no date."""
    try:
        return None if date is None else parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None


def _selected(name: str | None, fields: Mapping[str, str]) -> dict[str, str]:
    """The query parameter that selects objects by name and fields; empty without both."""
    selected = {**({} if name is None else {"metadata.name": name}), **fields}
    text = ",".join(f"{field}={value}" for field, value in selected.items())
    return {"fieldSelector": text} if text else {}


def _path(
    resource: ApiResource,
    namespace: str | None,
    name: str | None = None,
    *,
    everywhere: bool = False,
) -> str:
    """The path of a request; with ``everywhere`` it may be for all namespaces at once."""
    if namespace is None and resource.namespaced and not everywhere:
        raise ValueError(f"{resource.plural} have a namespace")
    if namespace is not None and not resource.namespaced:
        raise ValueError(f"{resource.plural} have no namespace, and not {namespace!r}")
    root = f"/apis/{resource.group}" if resource.group else "/api"
    place = f"/namespaces/{quote(namespace, safe='')}" if namespace is not None else ""
    leaf = f"/{quote(name, safe='')}" if name is not None else ""
    return f"{root}/{resource.version}{place}/{resource.plural}{leaf}"
