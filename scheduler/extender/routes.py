# SPDX-License-Identifier: Apache-2.0
"""Paths of the extender's server, and which clients may use them. For any thread."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

from base.errors import BadInput
from scheduler.extender import extender_messages, extender_metrics, openapi
from scheduler.extender.extender import Extender
from scheduler.extender.extender_metrics import ExtenderMetrics, Neutral, Verb
from scheduler.extender.server_tls import ServerTls, has_name
from scheduler.node_ranking import OutcomeUnknown
from web import messages
from web.messages import NO_ROOM, Body, HttpRequest, Refusal, Response
from web.refusals import ClientRefusals, RefusalReason

log = logging.getLogger(__name__)

_QUICK_BYTES: Final = 128 << 10
"""Size of a body that is read and answered in a few milliseconds, as 5,000 names are."""
_HELD_BYTES: Final = 4 * extender_messages.MOST_BYTES
"""Size of all larger bodies together that may be in memory."""
_STUCK_SECONDS: Final = 30.0
"""A request for scores that takes so long counts as hanging."""

_FORBIDDEN: Final = messages.text_response(
    "A client certificate with one of the names set is needed.", HTTPStatus.FORBIDDEN
)
_PUBLIC: Final = frozenset({"/livez", "/readyz", "/metrics", "/openapi.json"})
"""Served without a certificate, to kubelets, Prometheus and people."""
SHORT_VERBS: Final = (Verb.PROBE, Verb.METRICS)
"""Requests that are answered even under overload: they are cheap, and operators need them then."""
_NODES: Final = "/debug/nodes/"
Content = bytes | bytearray
"""A request's body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTerms:
    """Conditions for clients: TLS, certificates, names, and the time for an answer."""

    tls: ServerTls | None = None
    """TLS of the server; None: plain HTTP."""
    needs_certificate: bool = False
    client_names: tuple[str, ...] = ()
    """Names of which a client's certificate has to carry one; empty: any name will do."""
    budget_seconds: float = 0.05
    """Time for scores, from a request's last byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A path's method, and how it is answered."""

    verb: Verb
    answer: Callable[[Content], Response]
    """Makes the response from a request's body."""
    posts: bool = False
    """Whether it takes POST with a body; else GET and HEAD without one."""

    def check(self, request: HttpRequest) -> None:
        """Raises Refusal for another method, and for a body that is not taken."""
        methods = ("POST",) if self.posts else ("GET", "HEAD")
        if request.method not in methods:
            served = ", ".join(methods)
            reason = f"Only {served} is served here."
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, reason, allow=served)
        max_bytes = extender_messages.MOST_BYTES if self.posts else 0
        if request.length > max_bytes:
            reason = f"The body is larger than {max_bytes} bytes."
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
        if request.encoding not in ("", "identity"):
            raise Refusal(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Bodies are taken as they are: no encoding."
            )


class ClientRefused(Refusal):
    """A client that is refused for what it is or for when it came, whatever it asks."""

    def __init__(self, reason: RefusalReason, response: Response) -> None:
        super().__init__(response.status, str(reason))
        self.reason = reason
        self.response = response


class Routes:
    """All paths of the extender, and which clients may use them."""

    def __init__(self, terms: ClientTerms, extender: Extender, measured: ExtenderMetrics) -> None:
        self._terms = terms
        self._extender = extender
        self._metrics = measured
        self.refusals = ClientRefusals(measured.refused)
        """Counts and logs refused connections and requests."""
        if terms.tls is not None:
            measured.ask_certificates(terms.tls.ends)
        self._scores = concurrent.futures.ThreadPoolExecutor(1, "scores")
        self._held_bytes = 0
        self._lock = threading.Lock()
        self._busy_since: float | None = None
        prioritize = Route(verb=Verb.PRIORITIZE, answer=self._prioritize, posts=True)
        explain = Route(verb=Verb.EXPLAIN, answer=self._explain, posts=True)
        self._routes: Mapping[str, Route] = {
            "/v1/prioritize": prioritize,
            "/prioritize": prioritize,
            "/v1/explain": explain,
            "/explain": explain,
            "/livez": Route(verb=Verb.PROBE, answer=self._livez),
            "/readyz": Route(verb=Verb.PROBE, answer=self._readyz),
            "/metrics": Route(verb=Verb.METRICS, answer=self._render),
            "/openapi.json": Route(
                verb=Verb.OTHER, answer=lambda _: _json(openapi.openapi_document())
            ),
        }

    def close(self) -> None:
        """End the threads that compute scores, without waiting."""
        self._scores.shutdown(wait=False, cancel_futures=True)

    def admits(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a client may make all requests; others only those that everybody may make.

        ``certificate`` is the client's, as :meth:`ssl.SSLSocket.getpeercert` returns it.
        """
        return not self._terms.needs_certificate or has_name(certificate, self._terms.client_names)

    def route(
        self, request: HttpRequest, certificate: Mapping[str, Any] | None, *, is_admitted: bool
    ) -> Route:
        """The route for a request. Raises Refusal for a client without access, and an unknown path.

        ``is_admitted`` is what :meth:`admits` returns for the certificate.
        """
        if request.path not in _PUBLIC:
            if not is_admitted:
                reason = RefusalReason.NAME if certificate else RefusalReason.NO_CERTIFICATE
                raise ClientRefused(reason, _FORBIDDEN)
            if self._terms.needs_certificate and certificate and self._terms.tls is not None:
                self._terms.tls.admitted(certificate)
        matched = self._routes.get(request.path)
        if matched is None and request.path.startswith(_NODES):
            name = unquote(request.path.removeprefix(_NODES))
            matched = Route(verb=Verb.DEBUG, answer=partial(self._node, name))
        if matched is None:
            raise Refusal(
                HTTPStatus.NOT_FOUND, "No such path; /openapi.json lists those there are."
            )
        return matched

    def room_for(self, length: int) -> contextlib.AbstractContextManager[None]:
        """A place in memory for a body of so many bytes, until it is answered.

        Raises Refusal where there is none: the client is to come again.
        """
        return self._held(length) if length > _QUICK_BYTES else contextlib.nullcontext()

    @contextlib.contextmanager
    def _held(self, length: int) -> Iterator[None]:
        with self._lock:
            if self._held_bytes + length > _HELD_BYTES:
                raise ClientRefused(RefusalReason.OVERLOAD, NO_ROOM)
            self._held_bytes += length
        try:
            yield
        finally:
            with self._lock:
                self._held_bytes -= length

    def answer(self, route: Route, body: Content) -> Response:
        """The route's response, or one with its error; an error ends nothing else."""
        try:
            return route.answer(body)
        except extender_messages.TooLarge as error:
            return messages.text_response(str(error), HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        except BadInput as error:
            return messages.text_response(str(error), HTTPStatus.BAD_REQUEST)
        except Exception:  # the client gets an answer, and others go on
            log.exception("request failed", extra={"verb": route.verb})
            return messages.text_response(
                "No answer could be made; the log says why.", HTTPStatus.INTERNAL_SERVER_ERROR
            )

    def answered(self, verb: Verb, response: Response, seconds: float) -> None:
        """Count an answer, and the time since all of its request was there."""
        self._metrics.answered(verb, response.status, seconds)

    def is_outdated(self, context: ssl.SSLContext | None) -> bool:
        """Whether a connection was made under other certificates: the client is to come anew."""
        return self._terms.tls is not None and context is not self._terms.tls.current

    # requests

    def _prioritize(self, body: Content) -> Response:
        """Scores, or none where they are not there in time: a pod never waits for us."""
        try:
            if len(body) <= _QUICK_BYTES:
                with contextlib.suppress(OutcomeUnknown):
                    return _json(self._extender.prioritize(body, only_known=True))
            return _json(self._worked_out(body))
        except BadInput:
            raise
        except Exception:  # whatever it is, the pod is scheduled without us
            log.exception("scoring failed")
            self._metrics.neutral(Neutral.FAULT)
        return _json(extender_messages.NEUTRAL)

    def _worked_out(self, body: Content) -> bytes:
        """Scores from the thread that works out requests one by one: at once all would be late."""
        job = self._scores.submit(self._timed, body)
        try:
            return job.result(self._terms.budget_seconds)
        except concurrent.futures.TimeoutError:
            job.cancel()
            self._metrics.neutral(Neutral.BUDGET)
            return extender_messages.NEUTRAL

    def _timed(self, body: Content) -> bytes:
        self._busy_since = time.monotonic()
        try:
            return self._extender.prioritize(body)
        finally:
            self._busy_since = None

    def _explain(self, body: Content) -> Response:
        return _json(self._extender.explain(body))

    def _node(self, name: str, _: Content) -> Response:
        detail = self._extender.node(name)
        if detail is None:
            return messages.text_response("This node is unknown.", HTTPStatus.NOT_FOUND)
        return _json(detail)

    def _render(self, _: Content) -> Response:
        return Response(
            body=Body(self._metrics.render()), content_type=extender_metrics.CONTENT_TYPE
        )

    def _livez(self, _: Content) -> Response:
        busy_since = self._busy_since
        is_stuck = busy_since is not None and time.monotonic() - busy_since > _STUCK_SECONDS
        return _probe("A request for scores does not end." if is_stuck else "")

    def _readyz(self, _: Content) -> Response:
        return _probe("" if self._extender.is_ready else "The cluster is being read.")


def _probe(fault: str) -> Response:
    """The answer to a probe, with the sentence about a fault; empty: there is none."""
    status = HTTPStatus.SERVICE_UNAVAILABLE if fault else HTTPStatus.OK
    return messages.text_response(fault or "ok", status)


def _json(body: bytes) -> Response:
    """A JSON response, not compressed: a scheduler would have to wait for that too."""
    return Response(body=Body(body), content_type="application/json", compress=False)
