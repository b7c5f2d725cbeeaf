# SPDX-License-Identifier: Apache-2.0
"""One rollout drawn by a seed, on a real control plane, judged from its audit log.

Half of the nodes have pods, on GPUs that change and on others: some end by themselves, some leave
when they are evicted, some may not be disturbed. Two coordinators run; who leads is killed once.
"""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from api import keys, names
from fleet.rollout_settings import RolloutSettings
from tests.agent.agent_process import until
from tests.cluster.agents import Site
from tests.cluster.logged_requests import logged
from tests.cluster.mig_nodes import (
    SETTLE_SECONDS,
    SLACK_SECONDS,
    SLOTS,
    NodeModel,
    coordinator_process,
    install_coordinator,
    leader,
    modelled_nodes,
    slots_in_use,
    working,
)
from tests.controlplane.plane import Plane
from tests.fleet.random_fleet import CHANGE_SECONDS
from tests.fleet.rollout_judge import KnownFleet, KnownPod, RolloutJudge

CANARY_SECONDS = 1.0
TAKE_OVER_SECONDS = 30.0
"""For which a new leader waits."""
LAST_END_SECONDS = 40.0
"""By then all pods have ended that do so by themselves."""


class PodFate(StrEnum):
    """What becomes of a pod."""

    ENDS = "ends"
    """By itself, some time."""
    LEAVES = "leaves"
    """When it is evicted."""
    STAYS = "stays"
    """Nobody may disturb it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFigures:
    """What came of one rollout."""

    nodes: int
    seconds: float
    """Until each node that nothing blocks had its layout."""
    bound_seconds: float
    """By which that must be, by docs/mig.md."""
    blocked: int
    """Nodes with a pod on a changing GPU that does not go by itself and may not be evicted."""
    changes: int
    evictions: int
    most_in_change: int
    faults: tuple[str, ...]
    """Rules that were broken."""
    deleted: int
    """Pods that an account of ours deleted."""
    refused: int
    """Requests of the coordinator that roles or policies refused."""


@dataclass(slots=True, kw_only=True)
class _Fleet:
    models: list[NodeModel]
    known: KnownFleet
    fates: dict[str, PodFate] = field(default_factory=dict)
    ends_at: dict[str, float] = field(default_factory=dict)
    """By pod, on the monotonic clock."""

    def is_blocked(self, model: NodeModel) -> bool:
        """While its pods are there."""
        evicts = model.name in self.known.drains
        there = [self.fates[it] for it in model.holders]
        if evicts and PodFate.STAYS not in there:
            return False
        return any(it is not PodFate.ENDS for it in there)

    def end_pods(self, now: float) -> None:
        """Those whose time has come."""
        for name in [it for it, at in self.ends_at.items() if at <= now]:
            del self.ends_at[name]
            self._end(name)

    def release(self) -> None:
        """All that are in the way."""
        for model in self.models:
            for name in list(model.holders):
                self._end(name)

    def _end(self, name: str) -> None:
        node = self.known.pods[name].node
        model = next(it for it in self.models if it.name == node)
        with contextlib.suppress(AssertionError):  # it was evicted
            model.end_pod(name)


def play(folder: Path, seed: int, nodes: int) -> RolloutFigures:
    """One rollout on a plane of its own, from the first request to the last slot."""
    draw = random.Random(seed)  # noqa: S311  # a test's choice
    with (
        Plane.start(folder / "plane", controller_manager=False) as plane,
        contextlib.ExitStack() as running,
    ):
        site = Site.create(plane, "gpuscape")
        install_coordinator(site)
        fleet = _drawn(site, modelled_nodes(site, nodes), draw)
        blocked = [it for it in fleet.models if fleet.is_blocked(it)]
        mark, begun = plane.mark(), time.monotonic()
        running.enter_context(working(fleet.models))
        replicas = {
            name: running.enter_context(coordinator_process(site, name, folder))[0]
            for name in ("first", "second")
        }
        kill_at = begun + draw.uniform(5.0, 30.0)
        bound = _bound_seconds(nodes)
        free = [it for it in fleet.models if it not in blocked]
        while not all(it.is_done for it in free):
            fleet.end_pods(now := time.monotonic())
            if now >= kill_at and (led_by := replicas.pop(leader(site), None)) is not None:
                led_by.kill()
                kill_at = float("inf")
            assert now - begun < bound, [it.name for it in free if not it.is_done]
            time.sleep(0.2)
        took = time.monotonic() - begun
        assert not [it.name for it in blocked if it.is_done]
        fleet.release()
        until(lambda: all(it.is_done for it in fleet.models), bound)
        until(lambda: not slots_in_use(site) and not _left(site, fleet.models))
        judge = RolloutJudge(fleet.known)
        account = names.username(names.COORDINATOR, site.namespace)
        judge.take_all(logged(plane.audit(since=mark), account))
        events = plane.audit(since=mark, user=account)
        return RolloutFigures(
            nodes=nodes,
            seconds=took,
            bound_seconds=bound,
            blocked=len(blocked),
            changes=judge.permitted,
            evictions=len(judge.evicted),
            most_in_change=judge.most_in_change,
            faults=tuple(judge.faults),
            deleted=sum(it["verb"] in ("delete", "deletecollection") for it in events),
            refused=sum(it["responseStatus"]["code"] in (403, 422) for it in events),
        )


def _drawn(site: Site, models: list[NodeModel], draw: random.Random) -> _Fleet:
    """Pods on half of the nodes."""
    terms = RolloutSettings(
        slots=SLOTS, canary_seconds=CANARY_SECONDS, settle_seconds=SETTLE_SECONDS
    )
    fleet = _Fleet(
        models=models, known=KnownFleet(terms=terms, slack=SLACK_SECONDS, replicas_are_known=False)
    )
    for model in models:
        plugin = KnownPod(node=model.name, is_plugin=True, grace=False)
        fleet.known.pods[f"plugin-{model.name}"] = plugin
    for model in draw.sample(models, len(models) // 2):
        if draw.random() < 0.6:
            fleet.known.drains[model.name] = "evict"
            site.edit(model.name, annotations={keys.DRAIN: "evict"})
        for number in range(draw.randint(1, 3)):
            _add_pod(fleet, model, f"pod-{model.name}-{number}", draw)
    return fleet


def _add_pod(fleet: _Fleet, model: NodeModel, name: str, draw: random.Random) -> None:
    affected = draw.random() < 0.6
    fate = draw.choice((PodFate.ENDS, PodFate.LEAVES, PodFate.LEAVES, PodFate.STAYS))
    model.hold(name, affected=affected, stays=fate is PodFate.STAYS)
    fleet.fates[name] = fate
    fleet.known.pods[name] = KnownPod(
        node=model.name, affected=affected, can_go=fate is not PodFate.STAYS, grace=False
    )
    if fate is PodFate.ENDS:
        fleet.ends_at[name] = time.monotonic() + draw.uniform(5.0, LAST_END_SECONDS)


def _bound_seconds(nodes: int) -> float:
    """As docs/mig.md has it: nodes that nothing blocks, a few at a time, and one new leader."""
    groups = 1 + (nodes - 1) / SLOTS
    return LAST_END_SECONDS + TAKE_OVER_SECONDS + CANARY_SECONDS + groups * CHANGE_SECONDS


def _left(site: Site, models: list[NodeModel]) -> list[str]:
    return [
        it.name
        for it in models
        if keys.MIG_PERMIT in site.annotations(it.name)
        or site.node(it.name)["spec"].get("unschedulable")
    ]
