# SPDX-License-Identifier: Apache-2.0
"""A fleet of agents that start, in virtual time: the agents' own code, and a model of the server.

What makes requests is what runs on a node: :class:`StartupSpread`, :class:`Cluster` with its ticks,
the client's limits. The model answers, writes down when it was asked for what, and may be slow, or
refuse what is over its rate with 429. Each agent has a clock of its own, so that one that waits for
an answer holds nobody up; ticks that make no request (causes of a release, Events of which there
are none) are left out."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.cluster.gpus_before import GpusBefore
from agent.cluster.join import BURST, REQUESTS_PER_SECOND
from agent.cluster.membership import Cluster, Member
from agent.cluster.startup_spread import StartupSpread
from agent.publish import NodeDecision
from api import keys, names
from base.backoff import Backoff
from base.runtime import Tick
from discovery.known_node_gpus import KnownGpus
from kube.api import DAEMON_SETS, LEASES, ApiResource, Object, Watch
from kube.api_errors import AdmissionRefused, ApiError, Busy, NotFound
from kube.informer import ObjectSeen
from kube.request_limits import RequestLimits
from labelers.decision import Value

LABEL = "nvidia.com/gpu.count"
READ_SECONDS = 1.5
"""From the start of the process until the GPUs are read."""
_POLICIES = {
    "nodes": {False: names.AGENT_NODE, True: names.AGENT_FLOOR},
    "leases": {False: names.AGENT_LEASE, True: names.AGENT_LEASE},
    "events": {False: names.AGENT_EVENT, True: names.AGENT_EVENT},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request that reached the server."""

    at: float
    what: str
    """Verb and resource, ``dry run`` for all of those."""
    agent: int
    refused: bool


@dataclass(kw_only=True)
class ModelServer:
    """The API server, as far as starting agents use it."""

    agents: int
    """What the DaemonSet's status has."""
    counted_at: float = 0.0
    """When it has it; before that none, as where the DaemonSet has just been made."""
    answer_seconds: float = 0.02
    most_per_second: float = float("inf")
    """Requests beyond that are answered with 429 and Retry-After: 1."""
    error: Callable[[float, str], ApiError | None] = lambda _now, _what: None
    requests: list[Request] = field(default_factory=list)
    _second: Counter[int] = field(default_factory=Counter)

    def take(self, at: float, what: str, agent: int) -> None:
        """Write it down; raises what it is answered with where that is no success."""
        self._second[int(at)] += 1
        over = self._second[int(at)] > self.most_per_second
        error = self.error(at, what)
        if over:
            error = Busy("too many requests", retry_after_seconds=1.0)
        request = Request(at=at, what=what, agent=agent, refused=error is not None)
        self.requests.append(request)
        if error is not None:
            raise error

    def most(self, *, dry_runs: bool, seconds: float = 1.0) -> float:
        """The most requests a second in any window of so many seconds."""
        times = sorted(it.at for it in self.requests if dry_runs or it.what != "dry run")
        first, most = 0, 0
        for last, at in enumerate(times):
            while times[first] <= at - seconds:
                first += 1
            most = max(most, last - first + 1)
        return most / seconds


class AgentApi:
    """One agent's client: its own limits, its own clock, its own Node and Lease."""

    def __init__(self, agent: StartingAgent, server: ModelServer) -> None:
        self._agent = agent
        self._server = server
        self._versions = itertools.count(100)
        self._limits = RequestLimits(
            per_second=REQUESTS_PER_SECOND, burst=BURST, clock=agent.clock, sleep=agent.sleep
        )
        self.node: Object = {
            "metadata": {"name": agent.name, "uid": agent.name, "resourceVersion": "1"}
        }
        self.lease: Object | None = None

    def ask(self, what: str) -> None:
        """Send one request; raises where it is answered with an error."""
        self._limits.wait()
        if (left := self._limits.closed_seconds()) > 0:
            raise Busy("not sent", retry_after_seconds=left)
        try:
            self._server.take(self._agent.now, what, self._agent.number)
        except Busy as error:
            if error.retry_after_seconds:
                self._limits.close(error.retry_after_seconds)
            raise
        finally:
            self._agent.sleep(self._server.answer_seconds)

    def get(self, resource: ApiResource, name: str, *, namespace: str | None = None) -> Object:
        """See :class:`kube.api.Api`."""
        self.ask(f"get {resource.plural}")
        if resource is DAEMON_SETS:
            assert (name, namespace) == ("gpuscape-agent", "gpuscape")
            counted = self._agent.now >= self._server.counted_at
            return {"status": {"desiredNumberScheduled": self._server.agents if counted else 0}}
        assert resource is LEASES
        if self.lease is None:
            raise NotFound(name)
        return self.lease

    def create(
        self,
        resource: ApiResource,
        body: Object,
        *,
        namespace: str | None = None,  # noqa: ARG002
        dry_run: bool = False,
        manager: str | None = None,
    ) -> Object:
        """See :class:`kube.api.Api`."""
        if dry_run:
            return self._dry_run(resource, manager)
        self.ask(f"create {resource.plural}")
        assert resource is LEASES
        self.lease = self._next({**body, "metadata": dict(body["metadata"])})
        return self.lease

    def patch(
        self,
        resource: ApiResource,
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,  # noqa: ARG002
        dry_run: bool = False,
        manager: str | None = None,
    ) -> Object:
        """See :class:`kube.api.Api`."""
        if dry_run:
            return self._dry_run(resource, manager)
        self.ask(f"patch {resource.plural}")
        if resource is LEASES:
            assert self.lease is not None, name
            self.lease = self._next(_merged(self.lease, patch))
            return self.lease
        self.node = self._next(_merged(self.node, patch))
        self._agent.observe()
        return self.node

    def watch(self, resource: ApiResource, **_more: Any) -> Watch:
        """See :class:`kube.api.Api`; the model opens them itself."""
        raise NotImplementedError(resource.plural)

    def _dry_run(self, resource: ApiResource, manager: str | None) -> Object:
        self.ask("dry run")
        policy = _POLICIES[resource.plural][manager is not None]
        raise AdmissionRefused("denied", policy=policy)

    def _next(self, changed: Object) -> Object:
        changed["metadata"]["resourceVersion"] = str(next(self._versions))
        return changed


class StartingAgent:
    """One agent's side of the cluster, from the start of its process on."""

    def __init__(self, fleet: StartingFleet, number: int, start: float, *, known: bool) -> None:
        """``known``: an agent was there before, so that Node and Lease show its work."""
        self.number = number
        self.name = f"node-{number}"
        self.started = self.now = start
        self.labelled: float | None = None
        self.renewed: float | None = None
        """When its Lease was written first."""
        self._fleet = fleet
        self.api = AgentApi(self, fleet.server)
        uniform = random.Random(number).uniform  # noqa: S311  # spreads requests, no secret
        self._backoff = Backoff(uniform=uniform)
        self.turn = StartupSpread(
            self.api, namespace="gpuscape", spread_seconds=None, clock=self.clock, uniform=uniform
        )
        self._cluster = Cluster(
            self.api,
            Member(node=self.name, namespace="gpuscape", pod=self.name, identity=self.name),
            sink="node",
            allow_unconfined=False,
            turn=self.turn,
            driver_ready_file=Path("none"),
            update_metrics=lambda _change: None,
            hold=lambda _causes: None,
            clear_xids=lambda _wish: False,
            trigger=self.trigger,
            before=GpusBefore(KnownGpus(), boot=""),
            clock=self.clock,
            uniform=uniform,
        )
        if known:
            before = {LABEL: "8"}, {keys.TOPOLOGY: "{}"}
            self.api.node["metadata"] |= dict(zip(("labels", "annotations"), before, strict=True))
            self.api.lease = {
                "metadata": {"name": names.agent_lease(self.name), "resourceVersion": "1"},
                "spec": {"holderIdentity": self.name, "leaseDurationSeconds": 180},
            }
        ticks = self._cluster.ticks
        self._ticks: dict[str, Tick] = {
            **{name: ticks[name] for name in ("turn", "confine", "lease", "node")},
            "watch": self._watch,
            "publish": self._publish,
        }
        self._due = dict.fromkeys(self._ticks, start)
        self._due["publish"] = start + READ_SECONDS
        for name, at in self._due.items():
            fleet.plan(at, self, name)

    def clock(self) -> float:
        """Monotonic seconds of this agent."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """One of its threads waits."""
        self.now += seconds

    def trigger(self, name: str) -> None:
        """Run a tick soon."""
        if name in self._ticks:
            self._plan(name, self.now)

    def run(self, name: str, at: float) -> None:
        """Run a tick that is due; one that was hastened or put off since is not."""
        if self._due[name] != at:
            return
        self._due[name] = float("inf")
        self.now = at
        wait = self._ticks[name](at)
        if (
            self.renewed is None
            and self.api.lease is not None
            and "renewTime" in (self.api.lease["spec"])
        ):
            self.renewed = self.now
        if self._due[name] == float("inf"):
            self._plan(name, self.now + wait)

    def observe(self) -> None:
        """The watch shows the Node."""
        if self.labelled is None and LABEL in (self.api.node["metadata"].get("labels") or {}):
            self.labelled = self.now
        self._cluster.on_watch_event(ObjectSeen(object=self.api.node))

    def _plan(self, name: str, at: float) -> None:
        self._due[name] = at
        self._fleet.plan(at, self, name)

    def _watch(self, _now: float) -> float:
        """What the informer's thread does: a watch, and again where it fails."""
        if (wait := self.turn.until_watch()) > 0:
            return wait
        try:
            self.api.ask("watch nodes")
        except ApiError as error:
            return self._backoff.failed(error.retry_after_seconds)
        self.observe()
        return 450.0

    def _publish(self, _now: float) -> float:
        """The GPUs are read and labels decided."""
        annotations = {keys.TOPOLOGY: Value(text="{}")}
        self._cluster.set_desired(
            NodeDecision(labels={LABEL: Value(text="8")}, annotations=annotations)
        )
        return 3600.0


class StartingFleet:
    """Agents that start at given times, run until an end."""

    def __init__(self, server: ModelServer, starts: list[float], *, known: bool = False) -> None:
        self.server = server
        self._planned: list[tuple[float, int, StartingAgent, str]] = []
        self._order = itertools.count()
        self.agents = [
            StartingAgent(self, number, start, known=known) for number, start in enumerate(starts)
        ]

    def plan(self, at: float, agent: StartingAgent, name: str) -> None:
        """Run a tick of an agent at this time."""
        heapq.heappush(self._planned, (at, next(self._order), agent, name))

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._planned and self._planned[0][0] <= until:
            at, _, agent, name = heapq.heappop(self._planned)
            agent.run(name, at)

    @property
    def slowest(self) -> float:
        """Seconds from an agent's start to its label, of the last one; all must have it."""
        return max(
            (float("inf") if it.labelled is None else it.labelled) - it.started
            for it in self.agents
        )


def spread_over(agents: int, seconds: float, seed: int = 1) -> list[float]:
    """Starts at random within this time."""
    draw = random.Random(seed)  # noqa: S311  # starts of a model, no secret
    return [draw.uniform(0.0, seconds) for _ in range(agents)]


def _merged(thing: Object, patch: Mapping[str, Any]) -> Object:
    """As the server applies a merge patch to objects and texts."""
    made = dict(thing)
    for key, value in patch.items():
        if isinstance(value, Mapping):
            made[key] = _merged(made.get(key) or {}, value)
        elif value is None:
            made.pop(key, None)
        else:
            made[key] = value
    return made
