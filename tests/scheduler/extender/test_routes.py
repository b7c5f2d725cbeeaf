# SPDX-License-Identifier: Apache-2.0
"""Which requests a route of the extender takes, and what the others are answered."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from base.errors import BadInput
from scheduler.cluster.pod_gpu_request import Rules
from scheduler.extender.extender import Extender
from scheduler.extender.extender_messages import MOST_BYTES, TooLarge
from scheduler.extender.extender_metrics import ExtenderMetrics, Verb
from scheduler.extender.routes import ClientRefused, ClientTerms, Content, Route, Routes
from tests.scheduler.extenders import cache
from web.messages import NO_ROOM, HttpRequest, Refusal, Response
from web.refusals import RefusalReason


def route(posts: bool) -> Route:
    """One that is asked by POST, or by GET and HEAD."""
    return Route(verb=Verb.DEBUG, posts=posts, answer=lambda *_: pytest.fail("not asked here"))


@pytest.mark.parametrize(
    ("posts", "request_", "status", "sentence"),
    [
        (
            True,
            HttpRequest(method="GET", path="/"),
            HTTPStatus.METHOD_NOT_ALLOWED,
            "Only POST is served here.",
        ),
        (
            False,
            HttpRequest(method="POST", path="/"),
            HTTPStatus.METHOD_NOT_ALLOWED,
            "Only GET, HEAD is served here.",
        ),
        (
            True,
            HttpRequest(method="POST", path="/", length=MOST_BYTES + 1),
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The body is larger than {MOST_BYTES} bytes.",
        ),
        (
            False,
            HttpRequest(method="GET", path="/", length=1),
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "The body is larger than 0 bytes.",
        ),
        (
            True,
            HttpRequest(method="POST", path="/", encoding="gzip"),
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "Bodies are taken as they are: no encoding.",
        ),
    ],
)
def test_what_a_route_does_not_take_is_refused_with_the_reason(
    posts: bool, request_: HttpRequest, status: HTTPStatus, sentence: str
) -> None:
    with pytest.raises(Refusal) as refusal:
        route(posts).check(request_)

    assert (refusal.value.response.status, str(refusal.value)) == (status, sentence)
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        assert refusal.value.response.allow == ("POST" if posts else "GET, HEAD")


@pytest.fixture
def routes() -> Iterator[Routes]:
    """Those of an extender with a node."""
    fleet, tables = cache(a={})
    metrics = ExtenderMetrics("1.0")
    found = Routes(ClientTerms(), Extender(fleet, tables, Rules(), metrics), metrics)
    yield found
    found.close()


def raising(error: Exception) -> Route:
    """One whose answer is this error."""

    def answer(_: Content) -> Response:
        raise error

    return Route(verb=Verb.DEBUG, answer=answer)


def said(response: Response) -> tuple[int, str]:
    return response.status, response.body.plain.decode()


def test_what_cannot_be_answered_is_500_and_logged_with_the_verb(
    routes: Routes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = routes.answer(raising(LookupError("nothing here")), b"")
    (line,) = caplog.records
    assert said(answer) == (500, "No answer could be made; the log says why.\n")
    assert (line.levelname, line.message, vars(line)["verb"]) == (
        "ERROR",
        "request failed",
        "debug",
    )
    assert "nothing here" in caplog.text


class Broken(Extender):
    """One that cannot score."""

    def prioritize(self, body: Content, *, only_known: bool = False) -> bytes:
        """See :class:`Extender`."""
        raise LookupError(f"no table for {body!r}, {only_known}")


def test_scores_that_cannot_be_made_are_none_and_logged_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = ExtenderMetrics("1.0")
    fleet, tables = cache(a={})
    routes = Routes(ClientTerms(), Broken(fleet, tables, Rules(), metrics), metrics)
    prioritize = routes.route(
        HttpRequest(method="POST", path="/prioritize"), None, is_admitted=True
    )
    assert said(routes.answer(prioritize, b"{}")) == (200, "[]")
    routes.close()
    (line,) = caplog.records
    assert (line.levelname, line.message) == ("ERROR", "scoring failed")
    assert "no table for b'{}', True" in caplog.text
    fault = b'gpuscape_scheduler_neutral_answers_total{cause="fault"} 1.0'
    assert fault in metrics.render().splitlines()


@pytest.mark.parametrize(
    ("error", "status"), [(BadInput("a key"), 400), (TooLarge("many Nodes"), 413)]
)
def test_what_is_wrong_with_a_request_is_answered_and_not_logged(
    routes: Routes, error: BadInput, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert said(routes.answer(raising(error), b"")) == (status, f"{error}\n")
    assert caplog.records == []


@pytest.mark.parametrize(
    ("path", "verb"),
    [
        *(("/prioritize", "prioritize"), ("/v1/prioritize", "prioritize")),
        *(("/explain", "explain"), ("/v1/explain", "explain"), ("/debug/nodes/a", "debug")),
        *(("/livez", "probe"), ("/readyz", "probe"), ("/metrics", "metrics")),
        ("/openapi.json", "other"),
    ],
)
def test_each_path_counts_as_its_verb(routes: Routes, path: str, verb: str) -> None:
    found = routes.route(HttpRequest(method="GET", path=path), None, is_admitted=True)
    assert (found.verb, found.posts) == (verb, verb in ("prioritize", "explain"))


@pytest.mark.parametrize("path", ["/", "/debug/nodes", "/v2/prioritize"])
def test_a_path_that_is_not_there_is_404(routes: Routes, path: str) -> None:
    with pytest.raises(Refusal) as refusal:
        routes.route(HttpRequest(method="GET", path=path), None, is_admitted=True)
    assert said(refusal.value.response) == (
        404,
        "No such path; /openapi.json lists those there are.\n",
    )


def test_a_node_s_name_may_be_quoted_and_an_unknown_one_is_404(routes: Routes) -> None:
    for path, expected in (("/debug/nodes/%61", 200), ("/debug/nodes/b", 404)):
        route_ = routes.route(HttpRequest(method="GET", path=path), None, is_admitted=True)
        answer = routes.answer(route_, b"")
        assert answer.status == expected
    assert said(answer) == (404, "This node is unknown.\n")


@pytest.mark.parametrize(
    ("certificate", "reason"), [(None, "no_certificate"), ({"subject": ()}, "name")]
)
def test_who_is_not_admitted_gets_what_everybody_may_have(
    routes: Routes, certificate: dict[str, object] | None, reason: str
) -> None:
    for public in ("/livez", "/readyz", "/metrics", "/openapi.json"):
        routes.route(HttpRequest(method="GET", path=public), certificate, is_admitted=False)
    for path in ("/prioritize", "/explain", "/debug/nodes/a", "/nowhere"):
        with pytest.raises(ClientRefused) as refusal:
            routes.route(HttpRequest(method="GET", path=path), certificate, is_admitted=False)
        assert refusal.value.reason == reason
        assert refusal.value.response.status == HTTPStatus.FORBIDDEN


def test_large_bodies_are_held_up_to_32_mib_and_small_ones_do_not_count(routes: Routes) -> None:
    small, large = 128 << 10, 8 << 20
    with contextlib.ExitStack() as held:
        for _ in range(4):
            held.enter_context(routes.room_for(large))
        held.enter_context(routes.room_for(small))
        with pytest.raises(ClientRefused) as refusal, routes.room_for(small + 1):
            pass
        assert (refusal.value.reason, refusal.value.response) == (RefusalReason.OVERLOAD, NO_ROOM)
    with routes.room_for(large):
        pass


@pytest.mark.parametrize(
    ("posts", "request_"),
    [
        (True, HttpRequest(method="POST", path="/", length=MOST_BYTES, encoding="identity")),
        (False, HttpRequest(method="GET", path="/")),
        (False, HttpRequest(method="HEAD", path="/")),
    ],
)
def test_what_a_route_takes_is_not_refused(posts: bool, request_: HttpRequest) -> None:
    route(posts).check(request_)
