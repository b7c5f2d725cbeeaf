"""The extender's HTTPS server: connections, limits, deadlines; what is answered is made elsewhere.

One thread for all connections and one for scores: probes are answered whatever a request costs,
and requests are judged one after the other. Answers carry Content-Length: chunked ones cost the
scheduler twice the time (measured with 1.36).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from discovery.errors import BadInput
from exporters.address import Address, listening
from scheduler.extender import metrics, openapi, wire
from scheduler.extender.answers import Extender
from scheduler.extender.metrics import Metrics, Neutral, Verb
from scheduler.extender.tls import Tls, has_name

log = logging.getLogger(__name__)

_START: Final = web.RequestKey("start", float)
"""When the time that counts began, on the monotonic clock."""
_VERB: Final = web.RequestKey("verb", Verb)

Answer = TypeVar("Answer")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MOST_CONNECTIONS: Final = 64
"""A scheduler keeps one or two. For one more, the one that is silent for longest is closed."""
_BODIES_AT_ONCE: Final = 4
BODY_SECONDS: Final = 2.0
"""For all of a request's body to come: more than any scheduler should be told to wait."""
_IDLE_SECONDS: Final = 120.0
"""Longer than the 90 s of Go's clients, so that none writes while we close."""
_HANDSHAKE_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 2.0
"""Between two looks at the certificates."""
_STUCK_SECONDS: Final = 30.0
"""One request for scores that takes so long will not end any more."""
_GRACE_SECONDS: Final = 1.0
"""For answers under way when the server stops."""

_PUBLIC: Final = frozenset({"/livez", "/readyz", "/metrics", "/openapi.json"})
"""Served without a certificate, to kubelets, Prometheus and people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On what terms clients are served."""

    tls: Tls | None = None
    """None: plain HTTP."""
    needs_certificate: bool = False
    client_names: tuple[str, ...] = ()
    """Of which a client's certificate needs one; none: any."""
    budget_seconds: float = 0.05
    """For scores, from a request's last byte."""


class Server:
    """Serves one extender in a thread of its own."""

    def __init__(
        self, address: Address, terms: Terms, extender: Extender, measured: Metrics
    ) -> None:
        """Listen. Raises Permanent where that cannot be."""
        self._listener = listening(address)
        self._tls = terms.tls
        self._site = _Site(terms, extender, measured)
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"https-{self.port}", daemon=True)

    @property
    def port(self) -> int:
        """The one that was free, where the address said 0."""
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Serve."""
        self._thread.start()

    def stop(self) -> None:
        """End after the answers under way, which have a second."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(4 * _GRACE_SECONDS)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._site.close()
            self._loop.close()

    async def _serve(self) -> None:
        quiet = logging.getLogger("aiohttp.server")
        quiet.setLevel(logging.CRITICAL)  # it tells of every broken request with a trace
        runner = web.AppRunner(
            self._site.application(),
            access_log=None,
            auto_decompress=False,  # few bytes could become many
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=BODY_SECONDS,  # for the rest of a body that is refused
            shutdown_timeout=_GRACE_SECONDS,
            logger=quiet,
        )
        await runner.setup()
        listening = await self._loop.create_server(
            functools.partial(self._admit, runner),
            sock=self._listener,
            **({} if self._tls is None else _secured(self._tls)),
        )
        looking = asyncio.ensure_future(self._look_at_certificates())
        await self._stopping.wait()
        looking.cancel()
        # close() leaks what was accepted in the same turn (CPython 3.11): let it have that turn
        self._loop.remove_reader(self._listener)
        await asyncio.sleep(0)
        listening.close()
        await runner.cleanup()
        # aiohttp forgets those that read on for a client which has gone
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)  # and transports close their sockets one turn later

    def _admit(self, runner: web.AppRunner) -> RequestHandler:
        """What attends to a new connection; the one silent for longest makes room."""
        server = runner.server
        if server is None:
            raise RuntimeError("a connection came to a server that has ended")
        there = server.connections
        heard = self._site.heard
        for gone in heard.keys() - there:
            del heard[gone]
        if len(there) >= MOST_CONNECTIONS:
            min(there, key=lambda each: heard.get(each, 0.0)).force_close()
        handler = server()
        heard[handler] = time.monotonic()
        return handler

    async def _look_at_certificates(self) -> None:
        while self._tls is not None:
            await asyncio.sleep(_LOOK_SECONDS)
            self._tls.look()


class _Site:
    """The paths, and who may ask for them."""

    def __init__(self, terms: Terms, extender: Extender, measured: Metrics) -> None:
        self._terms = terms
        self._extender = extender
        self._metrics = measured
        self._scores = concurrent.futures.ThreadPoolExecutor(1, "scores")
        self._others = concurrent.futures.ThreadPoolExecutor(1, "others")
        self._bodies = asyncio.Semaphore(_BODIES_AT_ONCE)
        self._busy_since: float | None = None
        self.heard: dict[object, float] = {}
        """Connections, and when each last asked."""

    def close(self) -> None:
        """Wait for nothing."""
        self._scores.shutdown(wait=False, cancel_futures=True)
        self._others.shutdown(wait=False, cancel_futures=True)

    def application(self) -> web.Application:
        """For aiohttp."""
        application = web.Application(client_max_size=wire.MOST_BYTES, middlewares=[self._attend])
        for prefix in ("", "/v1"):
            application.router.add_post(f"{prefix}/prioritize", self._prioritize)
            application.router.add_post(f"{prefix}/explain", self._explain)
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._serve_metrics)
        application.router.add_get("/openapi.json", self._openapi)
        application.router.add_get("/debug/nodes/{name}", self._node)
        return application

    # what is asked

    async def _prioritize(self, request: web.Request) -> web.Response:
        request[_VERB] = Verb.PRIORITIZE
        async with self._bodies:
            body = await _body(request)
            request[_START] = time.monotonic()
            return _json(await self._ranked(body))

    async def _ranked(self, body: bytes) -> bytes:
        """Scores, or none where they are not there in time: a pod never waits for us."""
        job = asyncio.get_running_loop().run_in_executor(self._scores, self._timed, body)
        try:
            async with asyncio.timeout(self._terms.budget_seconds):
                return await job
        except TimeoutError:
            self._metrics.neutral(Neutral.BUDGET)
        except BadInput:
            raise
        except Exception:  # whatever it is, the pod is scheduled without us
            log.exception("no scores")
            self._metrics.neutral(Neutral.FAULT)
        return wire.NEUTRAL

    def _timed(self, body: bytes) -> bytes:
        self._busy_since = time.monotonic()
        try:
            return self._extender.prioritize(body)
        finally:
            self._busy_since = None

    async def _explain(self, request: web.Request) -> web.Response:
        request[_VERB] = Verb.EXPLAIN
        async with self._bodies:
            body = await _body(request)
        request[_START] = time.monotonic()
        return _json(await self._aside(self._extender.explain, body))

    async def _node(self, request: web.Request) -> web.Response:
        request[_VERB] = Verb.DEBUG
        found = await self._aside(self._extender.node, request.match_info["name"])
        if found is None:
            return _text("This node was never heard of.", HTTPStatus.NOT_FOUND)
        return _json(found)

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        request[_VERB] = Verb.METRICS
        body = await self._aside(self._metrics.render)
        return web.Response(body=body, headers={"Content-Type": metrics.CONTENT_TYPE})

    async def _openapi(self, _request: web.Request) -> web.Response:
        return _json(openapi.document())

    async def _livez(self, request: web.Request) -> web.Response:
        request[_VERB] = Verb.PROBE
        busy_since = self._busy_since
        if busy_since is not None and time.monotonic() - busy_since > _STUCK_SECONDS:
            return _text("A request for scores does not end.", HTTPStatus.SERVICE_UNAVAILABLE)
        return _text("ok")

    async def _readyz(self, request: web.Request) -> web.Response:
        request[_VERB] = Verb.PROBE
        if not self._extender.is_ready:
            return _text("The cluster is being read.", HTTPStatus.SERVICE_UNAVAILABLE)
        return _text("ok")

    async def _aside(self, make: Callable[..., Answer], *arguments: object) -> Answer:
        """Off the loop, and out of the way of scores."""
        return await asyncio.get_running_loop().run_in_executor(self._others, make, *arguments)

    # who asks

    @web.middleware
    async def _attend(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Serve whoever may be served; every answer is counted."""
        self.heard[request.protocol] = request[_START] = time.monotonic()
        request[_VERB] = Verb.OTHER
        response = await self._answered(request, handler)
        response.headers["Server"] = "gpuscape"
        response.headers["X-Content-Type-Options"] = "nosniff"
        if self._is_outdated(request):
            response.force_close()  # made under other certificates: the client is to come anew
        seconds = time.monotonic() - request[_START]
        self._metrics.answered(request[_VERB], response.status, seconds)
        return response

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._admits(request):
            return _text(
                "A client certificate with one of the names set is needed.", HTTPStatus.FORBIDDEN
            )
        try:
            return await handler(request)
        except wire.TooLarge as error:
            return _text(str(error), HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        except BadInput as error:
            return _text(str(error), HTTPStatus.BAD_REQUEST)
        except web.HTTPException as refusal:
            response = _text(refusal.text or refusal.reason, HTTPStatus(refusal.status))
            if "Allow" in refusal.headers:
                response.headers["Allow"] = refusal.headers["Allow"]
            return response
        except Exception:  # whoever asked gets an answer, and others go on
            log.exception("no answer", extra={"path": request.path})
            return _text(
                "No answer could be made; the log says why.", HTTPStatus.INTERNAL_SERVER_ERROR
            )

    def _admits(self, request: web.Request) -> bool:
        if not self._terms.needs_certificate or request.path in _PUBLIC:
            return True
        transport = request.transport
        certificate = None if transport is None else transport.get_extra_info("peercert")
        return has_name(certificate, self._terms.client_names)

    def _is_outdated(self, request: web.Request) -> bool:
        if self._terms.tls is None or request.transport is None:
            return False
        connection = request.transport.get_extra_info("ssl_object")
        return connection is not None and connection.context is not self._terms.tls.current


async def _body(request: web.Request) -> bytes:
    """All of it. Raises the answers to bodies that are too large, too slow or not plain."""
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise web.HTTPUnsupportedMediaType(text="Bodies are taken as they are: no encoding.")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="The body took too long.") from None
    except web.HTTPRequestEntityTooLarge:
        raise wire.TooLarge(f"The body is larger than {wire.MOST_BYTES} bytes.") from None
    except (web.RequestPayloadError, ConnectionError):
        raise BadInput("the body ended before its end") from None


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _text(sentence: str, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    return web.Response(text=f"{sentence}\n", status=status)


def _secured(tls: Tls) -> dict[str, Any]:
    return {
        "ssl": tls.outer,
        "ssl_handshake_timeout": _HANDSHAKE_SECONDS,
        "ssl_shutdown_timeout": _GRACE_SECONDS,
    }
