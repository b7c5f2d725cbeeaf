# SPDX-License-Identifier: Apache-2.0
"""A server that answers with success and gives nothing: no watch of it counts as connected."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.metrics.source_reports import WatchReport
from base.backoff import Backoff
from exporters.gpuscape.agent_metrics import AgentMetrics
from kube.api import LEASES, NODES
from kube.api_errors import ApiError, NotFound, Unreachable
from kube.client import ApiClient, Program
from kube.informer import CacheSynced, Informer, WatchConnected, WatchEvent, WatchLost
from kube.kubeconfig import Kubeconfig
from tests.fakes.scripted import Reply, Request, ScriptedServer, answer, status, stream
from tests.kube.clocks import none

NODE = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "7"}}
GONE = {"kind": "Status", "code": 410, "message": "too old resource version"}
PAGE = b"<html><body>Log in</body></html>"
NOTHING = "it without a message"

EMPTY_SUCCESSES = {
    "a page": (Reply(body=PAGE + b"\n"), "not from an API server: <html>"),
    "a page without an end of line": (Reply(body=PAGE), "not from an API server: <html>"),
    "an empty object": (Reply(body=b"{}"), "without type or object"),
    "an empty answer": (Reply(body=b""), NOTHING),
    "204": (Reply(status=204, body=b""), NOTHING),
    "an empty stream": (stream(), NOTHING),
    "410 in the stream": (stream({"type": "ERROR", "object": GONE}), "too old resource version"),
    "an unknown type": (stream({"type": "HELLO", "object": NODE}), "unknown type HELLO"),
    "no metadata": (stream({"type": "ADDED", "object": {"metadata": []}}), "without a version"),
    "an end amid the objects": (stream({"type": "ADDED", "object": NODE}), "before all objects"),
}


@contextmanager
def client_of(folder: Path, server: ScriptedServer) -> Iterator[ApiClient]:
    """Our client of this server, in no hurry to wait."""
    content = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {}}],
    }
    (folder / "config").write_text(json.dumps(content))
    program = Program(name="gpuscape", version="0", requests_per_second=1000, burst=1000)
    client = ApiClient(program, Kubeconfig(str(folder / "config")))
    with server:
        yield client
    client.close()


def followed(folder: Path, script: Callable[[Request], Reply]) -> list[WatchEvent]:
    """What a watch of all Nodes reports until the server has answered six requests."""
    events: list[WatchEvent] = []

    def counted(request: Request) -> Reply:
        if len(server.requests) == 7:
            informer.close()
        return script(request)

    server = ScriptedServer(counted)
    with client_of(folder, server) as client:
        take, backoff = events.append, Backoff(uniform=none)
        informer = Informer(client, NODES, take, backoff=backoff, uniform=none)
        informer.run()
    return events


@pytest.mark.parametrize("kind", EMPTY_SUCCESSES)
def test_a_watch_without_any_message_of_use_is_lost_each_time(kind: str, tmp_path: Path) -> None:
    reply, why = EMPTY_SUCCESSES[kind]
    events = followed(tmp_path, lambda _: reply)

    lost = [event for event in events if isinstance(event, WatchLost)]
    assert [why in str(event.error) for event in lost] == [True] * 6
    assert not any(isinstance(event, CacheSynced) for event in events)
    if kind != "an end amid the objects":
        assert events == lost


@pytest.mark.parametrize("kind", EMPTY_SUCCESSES)
def test_a_list_instead_of_a_watch_proves_no_more(kind: str, tmp_path: Path) -> None:
    """Servers that mark no start of a watch are listed."""
    reply, _ = EMPTY_SUCCESSES[kind]

    def script(request: Request) -> Reply:
        if "sendInitialEvents" in request.path:
            return status(422, "sendInitialEvents is forbidden for watch")
        return reply

    events = followed(tmp_path, script)

    assert events
    assert all(isinstance(event, WatchLost) for event in events)


@pytest.mark.parametrize("kind", [kind for kind in EMPTY_SUCCESSES if "amid" not in kind])
def test_the_source_counts_as_down_all_the_time(kind: str, tmp_path: Path) -> None:
    reply, _ = EMPTY_SUCCESSES[kind]
    own = AgentMetrics("0", lambda: 0.0)
    shown: set[bytes] = set()
    report = WatchReport(lambda change: change(own), "kubernetes", lambda: 0.0)

    for event in followed(tmp_path, lambda _: reply):
        match event:
            case WatchConnected():
                report.connected()
            case WatchLost(error=error):
                report.lost(str(error))
        lines = own.render().splitlines()
        shown.update(line for line in lines if line.startswith(b"gpuscape_source_up{"))

    assert shown == {b'gpuscape_source_up{source="kubernetes"} 0.0'}


@pytest.mark.parametrize(
    "reply",
    [Reply(body=PAGE), Reply(body=b"{}"), Reply(status=204, body=b""), answer({"metadata": [1]})],
)
@pytest.mark.parametrize("verb", ["get", "create", "patch"])
def test_an_answer_that_is_not_the_object_is_no_success(
    verb: str, reply: Reply, tmp_path: Path
) -> None:
    with client_of(tmp_path, ScriptedServer(lambda _: reply)) as client:
        calls = {
            "get": lambda: client.get(LEASES, "n", namespace="x"),
            "create": lambda: client.create(LEASES, {"metadata": {"name": "n"}}, namespace="x"),
            "patch": lambda: client.patch(LEASES, "n", {}, namespace="x"),
        }
        with pytest.raises(Unreachable, match=f"{verb} Lease x/n: the answer is not from an API"):
            calls[verb]()


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(status=404, body=PAGE), Unreachable),
        (Reply(status=404, body=b""), Unreachable),
        (Reply(status=404, body=b"404 page not found\n"), NotFound),  # a kind that is not served
        (status(404, 'nodes "n" not found'), NotFound),
    ],
)
def test_only_an_api_server_proves_that_an_object_is_not_there(
    reply: Reply, error: type[ApiError], tmp_path: Path
) -> None:
    with (
        client_of(tmp_path, ScriptedServer(lambda _: reply)) as client,
        pytest.raises(ApiError) as raised,
    ):
        client.get(NODES, "n")
    assert type(raised.value) is error
