# SPDX-License-Identifier: Apache-2.0
"""Many agents' cluster sides in one process, in real time, among many more Nodes."""

from __future__ import annotations

import contextlib
import heapq
import http.client
import json
import logging
import random
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from api import names
from base.runtime import Tick
from kube.api import NODES
from kube.informer import Informer
from tests.cluster.agents import Site
from tests.cluster.publishers import MACHINE, Publisher
from tests.controlplane.plane import ADMIN, Plane
from tests.observed import observed

log = logging.getLogger(__name__)

WORKERS = 16
CREATORS = 4


class SharedRuntime:
    """Runs the ticks of all publishers in one small pool of threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, str, Tick]] = []
        self._stopping = False
        self._pool = ThreadPoolExecutor(WORKERS)
        self._busy: set[tuple[int, str]] = set()

    def plan(self, owner: int, name: str, tick: Tick, seconds: float) -> None:
        """Run a tick after so many seconds, beside what is planned already."""
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, owner, name, tick))
            self._changed.notify()

    def run(self) -> None:
        """Until :meth:`stop`."""
        while (found := self._next()) is not None:
            self._pool.submit(self._do, *found)

    def stop(self) -> None:
        """Start nothing more, and wait for what runs."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._pool.shutdown()

    def _next(self) -> tuple[int, str, Tick] | None:
        with self._changed:
            while not self._stopping:
                if self._due and (wait := self._due[0][0] - time.monotonic()) <= 0:
                    return heapq.heappop(self._due)[1:]
                self._changed.wait(wait if self._due else None)
        return None

    def _do(self, owner: int, name: str, tick: Tick) -> None:
        with self._changed:
            if (owner, name) in self._busy:  # never beside itself: soon again
                heapq.heappush(self._due, (time.monotonic() + 0.05, owner, name, _once(tick)))
                return
            self._busy.add((owner, name))
        try:
            seconds = tick(time.monotonic())
        except Exception:  # the pool keeps it to itself
            log.exception("%s of publisher %d will not run any more", name, owner)
            raise
        finally:
            with self._changed:
                self._busy.discard((owner, name))
        if seconds >= 0:
            self.plan(owner, name, tick, seconds)


def _once(tick: Tick) -> Tick:
    """A hastened run: the next one is planned already."""

    def run(now: float) -> float:
        tick(now)
        return -1.0

    return run


@contextlib.contextmanager
def publishing(
    site: Site, nodes: Sequence[str], *, within_seconds: float, spread_seconds: float | None
) -> Iterator[list[Publisher]]:
    """Publishers of these nodes, each started at a random time within the first seconds."""
    observed(MACHINE)  # before the threads need it: a process simulates one machine at a time
    with ThreadPoolExecutor(CREATORS) as pool:
        tokens = list(
            pool.map(lambda node: site.plane.bound_token(site.namespace, names.AGENT, node), nodes)
        )
    runtime = SharedRuntime()
    publishers: list[Publisher] = []
    informers: list[Informer] = []
    draw = random.Random(1)  # noqa: S311  # spreads starts, no secret

    def start(number: int, _now: float) -> float:
        publisher = Publisher(
            site,
            nodes[number],
            token=tokens[number],
            clock=time.monotonic,
            sleep=time.sleep,
            trigger=lambda name: runtime.plan(number, name, _once(ticks[name]), 0),
            start_spread_seconds=spread_seconds,
            seed=number,
        )
        publishers.append(publisher)
        ticks = publisher.ticks
        for name, tick in ticks.items():
            runtime.plan(number, name, tick, 0)
        informer = Informer(
            publisher.client, NODES, publisher.cluster.on_watch_event, name=nodes[number]
        )
        informers.append(informer)
        run = partial(informer.run, publisher.turn.until_watch)
        threading.Thread(target=run, daemon=True).start()
        return -1.0

    for number in range(len(nodes)):
        runtime.plan(number, "start", partial(start, number), draw.uniform(0, within_seconds))
    thread = threading.Thread(target=runtime.run, daemon=True)
    thread.start()
    try:
        yield publishers
    finally:
        runtime.stop()
        for informer in informers:
            informer.close()


def add_nodes(plane: Plane, count: int) -> list[str]:
    """Make so many Nodes, over a few connections that are kept."""
    with ThreadPoolExecutor(CREATORS) as pool:
        shares = [range(at, count, CREATORS) for at in range(CREATORS)]
        return [name for made in pool.map(partial(_add, plane), shares) for name in made]


def _add(plane: Plane, numbers: range) -> list[str]:
    credential = plane.client(ADMIN)
    context = ssl.create_default_context(cafile=plane.ca_file)
    context.load_cert_chain(credential.certificate_file, credential.key_file)
    made = []
    connection = http.client.HTTPSConnection("127.0.0.1", plane.port, context=context)
    with contextlib.closing(connection):
        for number in numbers:
            name = f"fleet-{number}"
            body = json.dumps({"metadata": {"name": name}})
            connection.request("POST", "/api/v1/nodes", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == http.client.CREATED, answer.status
            made.append(name)
    return made
