# SPDX-License-Identifier: Apache-2.0
"""What goes over the wire, and what each answer becomes: against a server that says anything."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

from kube.api import LEASES, NODES, Change, Watch
from kube.api_errors import (
    AdmissionRefused,
    ApiError,
    Busy,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotConnected,
    NotFound,
    Unauthorized,
    Unreachable,
)
from kube.client import ApiClient, Patience, Program
from kube.credentials import ServiceAccount
from kube.error_answers import LONGEST_CAUSE
from kube.request_limits import RequestLimits
from tests.agent.agent_process import SOON
from tests.controlplane.pki import Pki
from tests.fakes.scripted import Reply, Request, ScriptedServer, answer, status, stream
from tests.kube.clocks import Clock

PROGRAM = Program(name="gpuscape-agent", version="1.2.3")
NODE = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "7"}}
ADDED = {"type": "ADDED", "object": NODE}
MARK = {"metadata": {"resourceVersion": "9"}}
BOOKMARK = {"type": "BOOKMARK", "object": MARK}
# {"sub": "system:serviceaccount:gpuscape:gpuscape-agent"}, as a token carries it
SECRET = "e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6Z3B1c2NhcGU6Z3B1c2NhcGUtYWdlbnQifQ.c2ln"  # noqa: S105
ACCOUNT = "system:serviceaccount:gpuscape:gpuscape-agent"

DENIED = (
    "nodes \"n\" is forbidden: ValidatingAdmissionPolicy 'gpuscape-agent-node' with binding "
    "'gpuscape-agent-node' denied request: label keys foreign.example/x are not the agent's"
)
OWN_VALIDATION = (
    'Node "n" is invalid: metadata.labels: Invalid value: "no blanks": a valid label must be …'
)


class Bed:
    """A scripted server, and a pod's account folder that leads to it."""

    def __init__(self, folder: Path, pki: Pki) -> None:
        self.replies: list[Reply] = []
        self.folder = folder
        self.clock = Clock()
        self.server = ScriptedServer(self._next, pki.server)
        folder.mkdir()
        self.token(SECRET)
        self.trust(pki)
        environ = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.server.port),
        }
        self.access = ServiceAccount(folder, environ)
        self.client = self.make()

    def make(self, **options: Any) -> ApiClient:
        """A client of this server, whose clock is ours."""
        limits = RequestLimits(per_second=2, burst=5, clock=self.clock, sleep=self.clock.sleep)
        return ApiClient(PROGRAM, self.access, limits=limits, **options)

    def token(self, text: str) -> None:
        """What the kubelet mounts now."""
        (self.folder / "token").write_text(text)

    def trust(self, pki: Pki) -> None:
        """The authority that the kubelet mounts now."""
        (self.folder / "ca.crt").write_bytes(pki.ca_file.read_bytes())

    @property
    def requests(self) -> list[Request]:
        """All that arrived."""
        return self.server.requests

    def query(self, at: int = -1) -> dict[str, str]:
        """Of a request."""
        split = urlsplit(self.requests[at].path)
        return {key: values[0] for key, values in parse_qs(split.query).items()}

    def _next(self, _: Request) -> Reply:
        return self.replies.pop(0) if self.replies else answer(NODE)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """An authority and a server's certificate."""
    return Pki.create(tmp_path_factory.mktemp("pki") / "one")


@pytest.fixture
def bed(tmp_path: Path, pki: Pki) -> Iterator[Bed]:
    """A server and a client of it."""
    bed = Bed(tmp_path / "account", pki)
    with bed.server:
        yield bed
    bed.client.close()


# requests


def test_a_get_says_who_asks(bed: Bed) -> None:
    assert bed.client.get(NODES, "n") == NODE
    (request,) = bed.requests
    assert (request.method, request.path) == ("GET", "/api/v1/nodes/n")
    assert request.headers["User-Agent"] == "gpuscape-agent/1.2.3"
    assert request.headers["Authorization"] == f"Bearer {SECRET}"


def test_a_server_that_is_gone_without_a_word_is_noticed_within_a_minute(bed: Bed) -> None:
    """By the kernel, which asks after 30 s of silence, and three times in 10 s each."""
    bed.client.get(NODES, "n")

    (connection,) = connections_to(bed.server.port)
    with connection:
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        asked = [connection.getsockopt(socket.IPPROTO_TCP, option) for option in options]
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert asked == [30, 10, 3]


def connections_to(port: int) -> list[socket.socket]:
    """Duplicates of this process's connections to a port of this machine."""
    own = psutil.Process().net_connections("tcp4")
    return [socket.socket(fileno=os.dup(each.fd)) for each in own if each.raddr[1:] == (port,)]


def test_a_patch_is_a_merge_patch_of_our_field_manager(bed: Bed) -> None:
    patch = {"metadata": {"labels": {"a": None}}}
    bed.client.patch(NODES, "n", patch)
    (request,) = bed.requests
    assert (request.method, request.path) == (
        "PATCH",
        "/api/v1/nodes/n?fieldManager=gpuscape-agent",
    )
    assert request.headers["Content-Type"] == "application/merge-patch+json"
    assert json.loads(request.body) == patch


def test_a_dry_run_under_another_manager_says_both(bed: Bed) -> None:
    options: dict[str, Any] = {"namespace": "x", "dry_run": True, "manager": "other"}
    bed.client.create(LEASES, {"metadata": {"name": "n"}}, **options)
    bed.client.patch(LEASES, "n", {}, **options)
    path = "/apis/coordination.k8s.io/v1/namespaces/x/leases"
    assert [(each.method, each.path.split("?")[0]) for each in bed.requests] == [
        ("POST", path),
        ("PATCH", f"{path}/n"),
    ]
    assert bed.query(0) == bed.query(1) == {"fieldManager": "other", "dryRun": "All"}


def test_a_create_sends_the_object_as_json(bed: Bed) -> None:
    bed.client.create(NODES, {"metadata": {"name": "n"}})
    (request,) = bed.requests
    assert (request.method, request.path) == ("POST", "/api/v1/nodes?fieldManager=gpuscape-agent")
    assert request.headers["Content-Type"] == request.headers["Accept"] == "application/json"
    assert json.loads(request.body) == {"metadata": {"name": "n"}}


@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (lambda client: client.get(LEASES, "l", namespace="x"), "get Lease x/l"),
        (lambda client: client.patch(LEASES, "l", {}, namespace="x"), "patch Lease x/l"),
        (
            lambda client: client.create(LEASES, {"metadata": {"name": "l"}}, namespace="x"),
            "create Lease x/l",
        ),
        (lambda client: client.create(NODES, {"metadata": {}}), "create Node "),
        (lambda client: client.watch(LEASES, namespace="x"), "watch leases in x"),
        (lambda client: client.watch(NODES), "watch nodes"),
        (lambda client: client.watch(LEASES, namespace="x", name="l"), "watch Lease x/l"),
    ],
)
def test_every_error_names_its_request(
    bed: Bed, ask: Callable[[ApiClient], object], name: str
) -> None:
    bed.replies = [status(400, "no")]
    with pytest.raises(Invalid) as raised:
        ask(bed.client)
    assert str(raised.value) == f"{name}: 400: no"


def test_a_namespace_that_is_missing_or_too_much_is_refused_before_anything_is_sent(
    bed: Bed,
) -> None:
    with pytest.raises(ValueError, match=r"^leases have a namespace$"):
        bed.client.get(LEASES, "l")
    with pytest.raises(ValueError, match=r"^nodes have no namespace, and not 'x'$"):
        bed.client.get(NODES, "n", namespace="x")
    assert bed.requests == []


def test_a_watch_is_narrowed_by_fields_and_name_alone(bed: Bed) -> None:
    bed.replies = [stream(), stream()]
    list(bed.client.watch(NODES))
    assert "fieldSelector" not in bed.requests[-1].path
    list(bed.client.watch(NODES, name="n", fields={"spec.nodeName": "m"}))
    assert bed.query()["fieldSelector"] == "metadata.name=n,spec.nodeName=m"


def test_where_no_start_is_marked_the_same_namespace_and_fields_are_listed(bed: Bed) -> None:
    bed.replies = [NO_MARKS, *pages("a"), stream()]
    list(bed.client.watch(LEASES, namespace="x", fields={"spec.nodeName": "m"}))
    path = "/apis/coordination.k8s.io/v1/namespaces/x/leases"
    assert {urlsplit(request.path).path for request in bed.requests} == {path}
    assert bed.query(1) == {"limit": "500", "fieldSelector": "spec.nodeName=m"}
    assert bed.query(2)["watch"] == "true"


def test_where_no_start_is_marked_a_list_and_a_get_name_what_they_ask_for(bed: Bed) -> None:
    bed.replies = [NO_MARKS, status(400, "no")]
    with pytest.raises(Invalid, match=r"^list leases in x: 400: no$"):
        next(iter(bed.client.watch(LEASES, namespace="x")))
    bed.replies = [stream(), status(400, "no")]
    with pytest.raises(Invalid, match=r"^get Lease x/l: 400: no$"):
        bed.client.watch(LEASES, namespace="x", name="l")


def test_a_name_cannot_lead_elsewhere(bed: Bed) -> None:
    with pytest.raises(Unreachable, match="the answer is not from an API server"):
        bed.client.get(NODES, "../pods/x?y")  # the scripted server has another one
    assert bed.requests[0].path == "/api/v1/nodes/..%2Fpods%2Fx%3Fy"


def test_a_fresh_watch_of_one_object_asks_for_the_start_and_its_end(bed: Bed) -> None:
    bed.replies = [stream(ADDED, BOOKMARK)]
    bed.client = bed.make(uniform=lambda low, high: (low + high) / 2)
    changes = list(bed.client.watch(NODES, name="n"))
    assert [change.type for change in changes] == ["ADDED", "BOOKMARK"]
    assert bed.query() == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "450",
        "fieldSelector": "metadata.name=n",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }


def test_a_watch_that_goes_on_asks_from_its_version(bed: Bed) -> None:
    bed.replies = [stream()]
    assert list(bed.client.watch(NODES, resource_version="7")) == []
    assert bed.query()["resourceVersion"] == "7"
    assert "sendInitialEvents" not in bed.query()


NO_MARKS = status(
    422, "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless …"
)


def kinds(watch: Watch) -> list[str]:
    """What a watch tells, in short."""
    return [change.type for change in watch]


def test_where_no_start_is_marked_a_get_says_whether_the_object_is_there(bed: Bed) -> None:
    bed.replies = [NO_MARKS, stream(ADDED, ADDED), answer(NODE)]
    assert kinds(bed.client.watch(NODES, name="n")) == ["ADDED", "BOOKMARK", "ADDED"]
    bed.replies = [stream(ADDED), status(404, "not found")]
    assert kinds(bed.client.watch(NODES, name="n")) == ["BOOKMARK", "ADDED"]

    asked = ["sendInitialEvents" in request.path for request in bed.requests]
    assert asked == [True, False, False, False, False]


def test_where_no_start_is_marked_and_the_get_fails_there_is_no_watch(bed: Bed) -> None:
    bed.replies = [NO_MARKS, stream(ADDED), status(500, "no")]
    with pytest.raises(Busy):
        bed.client.watch(NODES, name="n")


def test_where_the_get_fails_the_watch_that_was_opened_before_it_is_closed(bed: Bed) -> None:
    """Else the API server would go on to send to it."""
    ended = threading.Event()

    def endless() -> Iterator[bytes]:
        try:
            while True:
                yield json.dumps(ADDED).encode() + b"\n"
        finally:
            ended.set()

    bed.replies = [NO_MARKS, Reply(lines=endless()), status(500, "no")]
    with pytest.raises(Busy) as caught:
        bed.client.watch(NODES, name="n")
    assert ended.wait(SOON)
    assert "500" in str(caught.value)


def test_where_no_start_is_marked_all_objects_are_listed_page_by_page(bed: Bed) -> None:
    first = {"metadata": {"resourceVersion": "8", "continue": "more?"}, "items": [NODE]}
    second = {"metadata": {"resourceVersion": "8"}, "items": [{"metadata": {"name": "m"}}]}
    bed.replies = [NO_MARKS, answer(first), answer(second), stream(ADDED)]

    changes = list(bed.client.watch(NODES))

    bare = {"apiVersion": "v1", "kind": "Node"}
    assert changes == [
        Change(type="ADDED", object={**bare, **NODE}),
        Change(type="ADDED", object={**bare, "metadata": {"name": "m"}}),
        Change(type="BOOKMARK", object={"metadata": {"resourceVersion": "8"}}),
        Change(type="ADDED", object=NODE),
    ]
    assert [bed.query(at).get("continue") for at in (1, 2)] == [None, "more?"]
    assert bed.query()["resourceVersion"] == "8"


def pages(*names: str) -> list[Reply]:
    """The answers of a list, one object on each."""
    last = len(names) - 1
    return [
        answer(
            {
                "metadata": {"resourceVersion": "8"} | ({} if at == last else {"continue": "x"}),
                "items": [{"metadata": {"name": name}}],
            }
        )
        for at, name in enumerate(names)
    ]


def test_a_page_is_asked_for_when_the_one_before_was_told(bed: Bed) -> None:
    """So that a list of any length takes the memory of one page."""
    bed.replies = [NO_MARKS, *pages("a", "b", "c"), stream()]
    changes = iter(bed.client.watch(NODES))
    asked = []
    for _ in range(4):
        next(changes)
        asked.append(len(bed.requests))

    assert asked == [2, 3, 4, 4]
    assert list(changes) == []
    assert len(bed.requests) == 5


@pytest.mark.parametrize("names", ["a", "ab"])
def test_a_list_that_is_closed_amid_its_pages_tells_and_asks_no_more(bed: Bed, names: str) -> None:
    bed.replies = [NO_MARKS, *pages(*names)]
    watch = bed.client.watch(NODES)
    changes = iter(watch)
    next(changes)
    watch.close()

    assert list(changes) == []
    assert len(bed.requests) == 2


def test_a_list_that_is_closed_at_its_end_opens_no_watch_that_stays(bed: Bed) -> None:
    bed.replies = [NO_MARKS, *pages("a"), stream(ADDED)]
    watch = bed.client.watch(NODES)
    changes = iter(watch)
    assert [next(changes).type, next(changes).type] == ["ADDED", "BOOKMARK"]
    watch.close()

    assert list(changes) == []


def test_a_list_whose_next_page_fails_says_so_when_it_is_its_turn(bed: Bed) -> None:
    bed.replies = [NO_MARKS, pages("a", "b")[0], status(410, "token expired")]
    changes = iter(bed.client.watch(NODES))

    assert next(changes).object["metadata"]["name"] == "a"
    with pytest.raises(Expired):
        next(changes)


METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


def test_metadata_alone_is_asked_for_in_watches_and_lists(bed: Bed) -> None:
    bed.replies = [NO_MARKS, *pages("a"), stream()]
    list(bed.client.watch(NODES, metadata_only=True))
    bed.replies = [stream()]
    list(bed.client.watch(NODES, metadata_only=True, resource_version="7"))
    bed.replies = [stream()]
    list(bed.client.watch(NODES, resource_version="7"))

    of_lists = METADATA.replace("Metadata;", "MetadataList;")
    accepted = [request.headers["Accept"] for request in bed.requests]
    assert accepted == [METADATA, of_lists, METADATA, METADATA, "application/json"]


def test_another_refusal_of_a_watch_is_none_of_this(bed: Bed) -> None:
    bed.replies = [status(400, "timeoutSeconds is wrong")]
    with pytest.raises(Invalid):
        bed.client.watch(NODES)
    assert len(bed.requests) == 1


# answers


@pytest.mark.parametrize(
    ("reply", "error", "text"),
    [
        (status(400, "cannot unmarshal"), Invalid, "get Node n: 400: cannot unmarshal"),
        (status(403, "no"), Forbidden, f"get Node n: 403: no (as {ACCOUNT})"),
        (status(403, f"{ACCOUNT} may not"), Forbidden, f"get Node n: 403: {ACCOUNT} may not"),
        (status(404, 'nodes "n" not found'), NotFound, 'get Node n: 404: nodes "n" not found'),
        (status(409, "exists"), Conflict, "get Node n: 409: exists"),
        (status(410, "too old"), Expired, "get Node n: 410: too old"),
        (status(422, OWN_VALIDATION), Invalid, f"get Node n: 422: {OWN_VALIDATION}"),
        (status(500, "etcd\n is\tgone"), Busy, "get Node n: 500: etcd is gone"),
        (status(504, "Timeout"), Busy, "get Node n: 504: Timeout"),
        (
            Reply(status=502, body=b"<html>Bad\n gateway"),
            Busy,
            "get Node n: 502: <html>Bad gateway",
        ),
        (Reply(status=503, body=b""), Busy, "get Node n: 503: no reason given"),
        (Reply(status=503, body=b"caf\xe9"), Busy, "get Node n: 503: caf\N{REPLACEMENT CHARACTER}"),
        (
            Reply(status=503, body=b"[" * 100_000),
            Busy,
            f"get Node n: 503: {'[' * LONGEST_CAUSE}",
        ),
        (
            Reply(status=307, headers={"Location": "https://127.0.0.1:1/"}, body=b""),
            Invalid,
            "get Node n: 307: no reason given",
        ),
        (
            Reply(body=b"<html>Sign in"),
            Unreachable,
            "get Node n: the answer is not from an API server: <html>Sign in",
        ),
        (
            Reply(body=b""),
            Unreachable,
            "get Node n: the answer is not from an API server: nothing",
        ),
        (
            Reply(body=b"[]"),
            Unreachable,
            "get Node n: the answer is not from an API server: []",
        ),
    ],
)
def test_every_answer_becomes_an_error_that_names_request_and_cause(
    bed: Bed, reply: Reply, error: type[ApiError], text: str
) -> None:
    bed.replies = [reply]
    with pytest.raises(ApiError) as raised:
        bed.client.get(NODES, "n")
    assert type(raised.value) is error
    assert str(raised.value) == text
    assert len(bed.requests) == 1


@pytest.mark.parametrize("code", [422, 403])
def test_a_refusal_by_a_policy_names_the_policy(bed: Bed, code: int) -> None:
    bed.replies = [status(code, DENIED, "Invalid")]
    with pytest.raises(AdmissionRefused, match=r"label keys foreign\.example/x") as raised:
        bed.client.patch(NODES, "n", {})
    assert raised.value.policy == "gpuscape-agent-node"


@pytest.mark.parametrize("code", [400, 403, 422, 500])
def test_a_refusal_by_a_webhook_names_the_webhook(bed: Bed, code: int) -> None:
    said = (
        'admission webhook "validate.kyverno.svc-fail" denied the request: label x is not allowed'
    )
    bed.replies = [status(code, said, "Forbidden")]
    with pytest.raises(AdmissionRefused, match="label x is not allowed") as raised:
        bed.client.patch(NODES, "n", {})
    assert raised.value.policy == "validate.kyverno.svc-fail"


def test_of_a_long_refusal_the_text_is_cut_and_the_message_whole(bed: Bed) -> None:
    keys = ", ".join(f"example.com/key-{at}" for at in range(200))
    bed.replies = [status(422, f"{DENIED}, {keys}", "Invalid")]
    with pytest.raises(AdmissionRefused) as raised:
        bed.client.patch(NODES, "n", {})
    assert raised.value.message.endswith("example.com/key-199")
    assert len(str(raised.value)) < 600


def test_an_endless_message_is_cut(bed: Bed) -> None:
    bed.replies = [status(500, "x" * 10_000)]
    with pytest.raises(Busy) as raised:
        bed.client.get(NODES, "n")
    assert len(str(raised.value)) < 600


def test_a_connection_that_ends_before_the_answer_is_unreachable(bed: Bed) -> None:
    bed.replies = [Reply(cut=True)]
    with pytest.raises(Unreachable, match="get Node n: ") as raised:
        bed.client.get(NODES, "n")
    assert not isinstance(raised.value, NotConnected)
    assert len(bed.requests) == 1


@pytest.mark.parametrize("code", [200, 500])
def test_an_answer_that_breaks_off_is_unreachable_whatever_its_status(bed: Bed, code: int) -> None:
    bed.replies = [Reply(status=code, lines=[b'{"metadata": '], cut=True)]
    with pytest.raises(Unreachable, match=r"^get Node n: .+") as raised:
        bed.client.get(NODES, "n")
    assert not isinstance(raised.value, NotConnected)


def test_that_nothing_was_sent_is_known(bed: Bed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    bed.access = ServiceAccount(
        bed.folder,
        {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)},
    )
    client = bed.make()
    with pytest.raises(NotConnected, match=r"get Node n: .*refused"):
        client.get(NODES, "n")


def test_an_answer_that_does_not_come_is_given_up(bed: Bed) -> None:
    client = bed.make(patience=Patience(read_seconds=0.1))
    release = threading.Event()
    bed.server.script = lambda _: (release.wait(20), answer(NODE))[1]
    with pytest.raises(Unreachable, match="timed out"):
        client.get(NODES, "n")
    release.set()


# credentials


def test_a_token_is_read_anew_for_every_request(bed: Bed) -> None:
    bed.client.get(NODES, "n")
    bed.token("second.token")
    bed.client.get(NODES, "n")
    assert [request.headers["Authorization"] for request in bed.requests] == [
        f"Bearer {SECRET}",
        "Bearer second.token",
    ]


def rotating(bed: Bed) -> Callable[[Request], Reply]:
    """A server that takes ``new.token`` only, which is mounted while it thinks."""

    def script(request: Request) -> Reply:
        if request.headers["Authorization"] == "Bearer new.token":
            return answer(NODE)
        bed.token("new.token")
        return status(401, "Unauthorized")

    return script


def test_a_token_that_was_rotated_under_the_request_is_tried_once_more(bed: Bed) -> None:
    bed.server.script = rotating(bed)
    assert bed.client.patch(NODES, "n", {"metadata": {}}) == NODE
    assert len(bed.requests) == 2


def test_the_same_token_is_not_tried_twice(bed: Bed) -> None:
    bed.replies = [status(401, "Unauthorized")]
    with pytest.raises(Unauthorized, match=f"the credentials of {ACCOUNT} are not accepted"):
        bed.client.get(NODES, "n")
    assert len(bed.requests) == 1


def test_two_tokens_that_are_refused_are_the_end_of_it(bed: Bed) -> None:
    def script(_: Request) -> Reply:
        bed.token(f"token.{len(bed.requests)}")
        return status(401, "Unauthorized")

    bed.server.script = script
    with pytest.raises(Unauthorized):
        bed.client.get(NODES, "n")
    assert len(bed.requests) == 2


@pytest.mark.parametrize("text", [None, "", "two\nlines", "ümlaut"])
def test_a_token_file_without_a_token_is_named_and_not_quoted(bed: Bed, text: str | None) -> None:
    (bed.folder / "token").unlink()
    if text is not None:
        bed.token(text)
    with pytest.raises(Unauthorized, match="account/token") as raised:
        bed.client.get(NODES, "n")
    assert not text or text not in str(raised.value)
    assert bed.requests == []


def test_a_new_authority_is_trusted_as_soon_as_it_is_mounted(bed: Bed, tmp_path: Path) -> None:
    bed.client.get(NODES, "n")
    other = Pki.create(tmp_path / "two")
    bed.server.certify(other.server)
    bed.server.cut()
    with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        bed.client.get(NODES, "n")

    bed.trust(other)
    assert bed.client.get(NODES, "n") == NODE


def test_no_log_and_no_error_holds_the_token(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    errors: list[str] = []
    for reply in (status(401, "no"), status(403, "no"), status(500, "no"), Reply(cut=True)):
        bed.replies = [reply]
        with pytest.raises(ApiError) as raised:
            bed.client.get(NODES, "n")
        errors += [str(raised.value), repr(raised.value), repr(raised.value.__cause__)]
    assert SECRET not in caplog.text + "".join(errors)


# limits


def test_requests_beyond_the_burst_wait_for_their_turn(bed: Bed) -> None:
    for _ in range(7):
        bed.client.get(NODES, "n")
    assert bed.clock.slept == [0.5, 0.5]


def test_what_retry_after_asks_for_is_kept_by_all_who_ask(bed: Bed) -> None:
    bed.replies = [status(429, "Too many requests", Retry_After="9")]
    with pytest.raises(Busy) as raised:
        bed.client.get(NODES, "n")
    assert raised.value.retry_after_seconds == 9

    until = bed.clock.now + 9
    for _ in range(10):  # whoever does not listen gains nothing
        with pytest.raises(Busy, match="not sent") as raised:
            bed.client.patch(NODES, "n", {})
        assert raised.value.retry_after_seconds == pytest.approx(until - bed.clock.now)
    with pytest.raises(Busy, match="not sent"):
        bed.client.watch(NODES)
    assert len(bed.requests) == 1

    bed.clock.now = until
    assert bed.client.get(NODES, "n") == NODE


@pytest.mark.parametrize(
    ("reply", "asked"),
    [
        (status(429, "slow", Retry_After="soon"), None),
        (status(503, "down", Retry_After="Wed, 21 Oct 2026 07:28:00 GMT"), None),
        (status(500, "no header"), None),
        (status(429, "slow", Retry_After="0.5"), 0.5),
        (status(429, "slow", Retry_After="-5"), 0),
        (status(429, "slow", Retry_After="301"), 300),
        (status(429, "slow", Retry_After="99999999999"), 300),  # more than a thread can wait
        (status(429, "slow", Retry_After="inf"), 300),
        (answer({"message": "m", "details": {"retryAfterSeconds": 3}}, 429), 3),
        (answer({"message": "m", "details": {"retryAfterSeconds": [3]}}, 429), None),
        (answer({"message": "m", "details": ["retryAfterSeconds"]}, 429), None),
    ],
)
def test_retry_after_is_taken_from_header_or_body_or_not_at_all(
    bed: Bed, reply: Reply, asked: float | None
) -> None:
    bed.replies = [reply]
    with pytest.raises(Busy) as raised:
        bed.client.get(NODES, "n")
    assert raised.value.retry_after_seconds == asked


def test_a_disruption_budget_holds_back_nothing_else(bed: Bed) -> None:
    causes = {"causes": [{"reason": "DisruptionBudget"}], "retryAfterSeconds": 10}
    bed.replies = [answer({"message": "budget", "details": causes}, 429)]
    with pytest.raises(Busy):
        bed.client.get(NODES, "n")
    assert bed.client.get(NODES, "n") == NODE


# watches


def lines(*parts: bytes, cut: bool = False) -> Reply:
    """A watch of these chunks."""
    return Reply(lines=parts, cut=cut)


def test_messages_are_put_together_however_they_arrive(bed: Bed) -> None:
    text = (json.dumps(ADDED) + "\n" + json.dumps(BOOKMARK) + "\n").encode()
    bed.replies = [lines(text[:10], text[10:-30], text[-30:], b"\n", b"\n")]
    assert list(bed.client.watch(NODES)) == [
        Change(type="ADDED", object=NODE),
        Change(type="BOOKMARK", object=MARK),
    ]


@pytest.mark.parametrize(
    ("reply", "error", "text"),
    [
        (stream({"type": "ERROR", "object": {"code": 410, "message": "old"}}), Expired, "410: old"),
        (stream({"type": "ERROR", "object": {"code": 500, "message": "no"}}), Busy, "500: no"),
        (stream({"type": "ERROR", "object": {"message": "no"}}), Busy, "500: no"),
        (lines(b"<html>\n"), Unreachable, "not from an API server: <html>"),
        (stream({"type": "ADDED"}), Unreachable, "without type or object"),
        (stream({"type": "ADDED", "object": {"kind": "Table"}}), Unreachable, "without a version"),
        (lines(json.dumps(BOOKMARK).encode(), cut=True), Unreachable, "watch Node n: "),
        (status(410, "too old resource version"), Expired, "too old resource version"),
        (status(403, "no"), Forbidden, "403: no"),
        (status(429, "slow", Retry_After="3"), Busy, "429: slow"),
    ],
)
def test_a_watch_that_goes_wrong_says_so(
    bed: Bed, reply: Reply, error: type[ApiError], text: str
) -> None:
    bed.replies = [reply]
    with pytest.raises(ApiError, match=text) as raised:
        list(bed.client.watch(NODES, name="n", resource_version="1"))
    assert type(raised.value) is error
    assert str(raised.value).startswith("watch Node n: ")


def test_what_came_before_a_watch_broke_is_told(bed: Bed) -> None:
    bed.replies = [lines(json.dumps(ADDED).encode() + b"\n", b'{"type"', cut=True)]
    watch = iter(bed.client.watch(NODES))
    assert next(watch).type == "ADDED"
    with pytest.raises(Unreachable):
        next(watch)


def test_a_silent_watch_is_given_up(bed: Bed) -> None:
    release = threading.Event()

    def silent() -> Iterator[bytes]:
        yield json.dumps(ADDED).encode() + b"\n"
        release.wait(20)

    bed.replies = [Reply(lines=silent())]
    client = bed.make(patience=Patience(silence_seconds=0.1))
    watch = iter(client.watch(NODES))
    assert next(watch).type == "ADDED"
    with pytest.raises(Unreachable, match="watch nodes: nothing came for too long"):
        next(watch)
    release.set()


def test_a_watch_in_which_nothing_happens_is_closed_from_another_thread(bed: Bed) -> None:
    release, waiting, ended = threading.Event(), threading.Event(), threading.Event()

    def silent() -> Iterator[bytes]:
        yield json.dumps(ADDED).encode() + b"\n"
        release.wait(20)

    bed.replies = [Reply(lines=silent())]
    watch = bed.client.watch(NODES)

    def read() -> None:
        for _ in watch:
            waiting.set()
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    assert waiting.wait(10)
    watch.close()
    assert ended.wait(1)
    release.set()
