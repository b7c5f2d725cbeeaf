# SPDX-License-Identifier: Apache-2.0
"""A watch of a kind whose version depends on the age of the API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from kube.api import NODE_FEATURES, RESOURCE_SLICES, ApiResource, Object
from kube.api_errors import ApiError, Busy, NotFound, Unreachable
from kube.client import ApiClient
from tests.fakes.scripted import Reply, Request, ScriptedServer, answer, status, stream
from tests.kube.objects.slice_forms import FORMS
from tests.kube.test_hostile_answers import client_of

GROUP = "/apis/resource.k8s.io"
NO_SUCH_PATH = Reply(status=404, body=b"404 page not found\n")
BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
NO_MARKS = status(422, "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch")


class AgedServer:
    """Serves ResourceSlices in these versions alone, or other answers to a discovery."""

    def __init__(self, *versions: str) -> None:
        self.versions = versions
        self.marks_start = True
        self.discovery: Reply | None = None
        self.scripted = ScriptedServer(self._reply)

    @property
    def paths(self) -> list[str]:
        """All that was requested, below the group."""
        paths = (urlsplit(request.path).path for request in self.scripted.requests)
        return [path.removeprefix(GROUP) for path in paths]

    def _reply(self, request: Request) -> Reply:
        path = urlsplit(request.path).path
        if path == GROUP:
            return self.discovery or self._group()
        version = path.removeprefix(f"{GROUP}/").removesuffix("/resourceslices")
        return self._slices(version, request) if version in self.versions else NO_SUCH_PATH

    def _group(self) -> Reply:
        if not self.versions:
            return NO_SUCH_PATH
        versions: list[Object] = [
            {"groupVersion": f"resource.k8s.io/{version}", "version": version}
            for version in self.versions
        ]
        group = {"kind": "APIGroup", "apiVersion": "v1", "name": "resource.k8s.io"}
        return answer(group | {"versions": versions, "preferredVersion": versions[0]})

    def _slices(self, version: str, request: Request) -> Reply:
        query = parse_qs(urlsplit(request.path).query)
        if "watch" not in query:
            item = {key: part for key, part in FORMS[version].items() if key in _CONTENT}
            return answer({"metadata": {"resourceVersion": "8"}, "items": [item]})
        if "sendInitialEvents" in query and not self.marks_start:
            return NO_MARKS
        return stream({"type": "ADDED", "object": FORMS[version]}, BOOKMARK)


_CONTENT = ("metadata", "spec")
"""Keys of an object in a list."""


@pytest.fixture
def server() -> AgedServer:
    """Kubernetes 1.32 with the beta API on."""
    return AgedServer("v1beta1")


@pytest.fixture
def api(server: AgedServer, tmp_path: Path) -> Iterator[ApiClient]:
    with client_of(tmp_path, server.scripted) as client:
        yield client


def versions_of(api: ApiClient, resource: ApiResource = RESOURCE_SLICES) -> list[str]:
    """apiVersions of the objects that a watch begins with."""
    watch = api.watch(resource, fields={"spec.nodeName": "node-a"})
    return [it.object["apiVersion"] for it in watch if it.type == "ADDED"]


@pytest.mark.parametrize(
    ("served", "read"),
    [
        (("v1beta1",), "v1beta1"),
        (("v1beta1", "v1alpha3"), "v1beta1"),
        (("v1beta1", "v1beta2"), "v1beta2"),
        (("v1beta2",), "v1beta2"),
    ],
)
def test_the_newest_served_version_is_read_and_asked_for_once(
    served: tuple[str, ...], read: str, server: AgedServer, api: ApiClient
) -> None:
    server.versions = served
    assert versions_of(api) == [f"resource.k8s.io/{read}"]
    slices = f"/{read}/resourceslices"
    assert server.paths == ["/v1/resourceslices", "", slices]
    assert versions_of(api) == [f"resource.k8s.io/{read}"]
    assert server.paths[3:] == [slices]


def test_the_fields_are_selected_in_the_older_version_too(
    server: AgedServer, api: ApiClient
) -> None:
    versions_of(api)
    query = parse_qs(urlsplit(server.scripted.requests[-1].path).query)
    assert query["fieldSelector"] == ["spec.nodeName=node-a"]


@pytest.mark.parametrize("older", [(), ("v1beta2", "v1beta1")])
def test_a_server_with_the_newest_version_is_not_asked_which_it_serves(
    older: tuple[str, ...], server: AgedServer, api: ApiClient
) -> None:
    server.versions = ("v1", *older)
    assert versions_of(api) == ["resource.k8s.io/v1"]
    assert server.paths == ["/v1/resourceslices"]


def test_objects_of_a_list_carry_the_version_that_they_were_read_in(
    server: AgedServer, api: ApiClient
) -> None:
    server.marks_start = False
    assert versions_of(api)[0] == "resource.k8s.io/v1beta1"


@pytest.mark.parametrize("later", ["v1", "v1beta2"])
def test_an_upgrade_that_takes_the_version_away_is_followed(
    later: str, server: AgedServer, api: ApiClient
) -> None:
    versions_of(api)
    server.versions = (later,)
    assert versions_of(api) == [f"resource.k8s.io/{later}"]
    server.versions = ("v1beta1",)
    assert versions_of(api) == ["resource.k8s.io/v1beta1"]


@pytest.mark.parametrize(
    ("served", "discovery"),
    [
        ((), None),
        (("v1alpha3",), None),
        # a discovery from a server of the next release, and the watch from one of the last
        (("v1alpha3",), {"kind": "APIGroup", "versions": [{"version": "v1"}]}),
        (("v1alpha3",), {"kind": "APIGroup", "versions": [None, {"version": ["v1beta1"]}]}),
    ],
)
def test_without_any_of_the_versions_the_refusal_is_that_of_the_watch(
    served: tuple[str, ...], discovery: Object | None, server: AgedServer, api: ApiClient
) -> None:
    server.versions = served
    server.discovery = None if discovery is None else answer(discovery)
    with pytest.raises(NotFound, match=r"^watch resourceslices: 404: 404 page not found$"):
        versions_of(api)
    assert server.paths == ["/v1/resourceslices", ""]


def test_an_account_that_may_not_discover_gets_the_refusal_of_the_watch(
    server: AgedServer, api: ApiClient
) -> None:
    server.discovery = status(403, 'forbidden: User "x" cannot get path "/apis/resource.k8s.io"')
    with pytest.raises(NotFound, match=r"^watch resourceslices: 404: "):
        versions_of(api)


@pytest.mark.parametrize(
    ("discovery", "error"),
    [
        (Reply(body=b"<html>Log in</html>"), Unreachable),
        (answer({"kind": "APIGroup", "versions": 7}), Unreachable),
        (answer({"versions": [{"version": "v1beta1"}]}), Unreachable),
        (status(503, "starting"), Busy),
    ],
)
def test_what_answers_no_discovery_is_tried_again_later(
    discovery: Reply, error: type[ApiError], server: AgedServer, api: ApiClient
) -> None:
    server.discovery = discovery
    with pytest.raises(error, match=r"^get the versions of resource\.k8s\.io: "):
        versions_of(api)
    server.discovery = None
    assert versions_of(api) == ["resource.k8s.io/v1beta1"]


def test_a_kind_of_one_version_is_not_discovered(server: AgedServer, api: ApiClient) -> None:
    with pytest.raises(NotFound):
        api.watch(NODE_FEATURES, namespace="gpuscape")
    assert len(server.paths) == 1
