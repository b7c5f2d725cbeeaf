# SPDX-License-Identifier: Apache-2.0
"""Which requests a route of the extender takes, and what the others are answered."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from scheduler.extender.extender_messages import MOST_BYTES
from scheduler.extender.extender_metrics import Verb
from scheduler.extender.routes import Route
from web.messages import HttpRequest, Refusal


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
