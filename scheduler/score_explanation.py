# SPDX-License-Identifier: Apache-2.0
"""Why each node got its score, as a value for people and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from api.gpu_request import GpuRequest, Link
from placement.best_effort import Odds
from placement.class_tables import ScoreTables
from placement.masks import members
from scheduler.cluster.node_views import NoOutcome, NoView
from scheduler.filters.node_filters import LeftOutNode
from scheduler.node_ranking import RankedNode, unscored
from scheduler.placement_aims import IN_CLIQUE
from scheduler.pod_request import PodRequest
from scheduler.rank_levels import shortfall

_SETS_SHOWN: Final = 8

REASONS: Final[Mapping[NoView | NoOutcome, str]] = MappingProxyType(
    {
        NoView.UNKNOWN_NODE: "no node of this name in the cluster, or not seen yet",
        NoView.NO_TOPOLOGY: "no annotation gpuscape.io/topology: does the agent run there?",
        NoView.BAD_TOPOLOGY: "annotation gpuscape.io/topology is damaged",
        NoView.OTHER_VERSION: "this program does not read annotations of the agent's version",
        NoView.NO_STATE: "the agent's Lease has no annotation gpuscape.io/state",
        NoView.BAD_STATE: "the agent's annotation gpuscape.io/state is damaged",
        NoView.OTHER_GENERATION: "the agent's state is of another topology than the node carries",
        NoView.STALE: "the agent has not renewed its Lease for the Lease's duration",
        NoOutcome.PENDING: "its table is being worked out: it counts from the next request on",
        NoOutcome.TOO_MANY_GPUS: "nodes with so many GPUs have no scores",
        NoOutcome.TOO_MANY_CLASSES: "the fleet has more topology classes than there is room for",
        NoOutcome.TOO_MANY_CONTAINERS: "more containers ask for GPUs than can be foreseen",
        NoOutcome.GIVEN_UP: "its outcome takes too much work: ranked as neither good nor bad",
    }
)
"""Every reason in words."""

SHORT_OF: Final[Mapping[str, str]] = MappingProxyType(
    {
        "taken": "more likely to refuse the pod than",
        "linked": "less likely to meet the pod's link wish than",
        "job": "not where the pod's job runs, unlike",
        "product": "one of the last free nodes of its product, kept for larger pods, unlike",
        "speed": "slower than",
        "slowest": "of a faster product, from which the pod gains nothing, than",
        "nic": "farther from a NIC than",
        "kept": "leaving fewer linked GPUs to other pods than",
    }
)
"""Every aim, in the order of its weight: what it means to fall short of it."""

_PARTLY_SHORT_OF: Final[Mapping[str, str]] = MappingProxyType(
    {
        "job": "outside the NVLink clique of the pod's job, unlike",
        "product": "of a faster product than",
    }
)
"""The same for nodes that have a part of the aim: the product of the job, or, where the slowest
comes first, another product."""


class Chance(msgspec.Struct, frozen=True, kw_only=True):
    """A set of GPUs that the pod may get, with its odds."""

    gpus: tuple[int, ...]
    """Places in the topology annotation; empty where the device plugin fails."""
    odds: float


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Explanation of one node's score. What is not known is None."""

    node: str
    rank: int
    """Score that the scheduler gets, 0 to 10."""
    why: str
    """Reason for the rank, in words."""
    reason: str | None = None
    """Why the node cannot be scored; a value of the metrics' label ``reason``."""
    gen: str | None = None
    """Topology class."""
    free: tuple[int, ...] = ()
    """GPUs believed free, those that bound pods will have taken out."""
    sure: bool = False
    """Whether the agent's state agrees with what bound pods ask for."""
    sets: tuple[Chance, ...] = ()
    """Likeliest first, at most 8."""
    gbps: float | None = None
    """Expected speed of the ring through the GPUs that will be handed out."""
    ideal_gbps: float | None = None
    """The best that nodes of this class have when all is free."""
    kept: float | None = None
    """Expected worth of what is left for others, in GPUs."""
    clique: str | None = None
    """NVLink clique across nodes."""
    in_job_clique: bool = False
    """The node can take the pod, and most of the job's nodes are in this clique."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a request with their scores and reasons, best first."""

    pod: str
    """Namespace and name."""
    containers: tuple[int, ...]
    """GPUs of each container, in the kubelet's order."""
    link: str
    nic: bool
    job: str | None
    nodes: tuple[NodeAnswer, ...]
    """The candidates of one call; a rank is by comparison with all of them."""
    filtered: bool = False
    """Whether the scheduler's filters were applied; else the candidates are what was asked for."""
    left_out: tuple[LeftOutNode, ...] = ()
    """Nodes that a filter leaves out, by name: the scheduler asks for no rank of them."""
    notes: tuple[str, ...] = ()
    """Sentences about other things that decide about the candidates."""


def explain_ranks(
    ask: PodRequest, verdicts: Sequence[RankedNode], tables: ScoreTables
) -> Explanation:
    """Explanation of the ranks of one call; nodes by rank, then score, then name."""
    by_name = sorted(verdicts, key=lambda verdict: verdict.node)
    ordered = sorted(by_name, key=lambda verdict: (verdict.rank, verdict.aims or ()), reverse=True)
    best = max(ordered, key=lambda verdict: verdict.aims or (), default=None)
    return Explanation(
        pod=f"{ask.namespace}/{ask.name}",
        containers=tuple(step.gpus for step in ask.wish.steps),
        link=ask.wish.link,
        nic=ask.wish.nic,
        job=ask.job,
        nodes=tuple(_answer(verdict, best, tables, ask.wish) for verdict in ordered if best),
    )


def nothing_requested(pod: str) -> Explanation:
    """The explanation for a pod that asks for no whole GPU: no containers, no nodes."""
    return Explanation(pod=pod, containers=(), link=Link.ANY, nic=False, job=None, nodes=())


def _answer(
    verdict: RankedNode, best: RankedNode, tables: ScoreTables, wish: GpuRequest
) -> NodeAnswer:
    view, outcome = verdict.view, verdict.outcome
    reason = unscored(view, outcome, wish, tables)
    why = _why(verdict, best, tables, wish) if reason is None else REASONS[reason]
    answer = NodeAnswer(node=verdict.node, rank=verdict.rank, why=why, reason=reason)
    if isinstance(view, NoView):
        return answer
    answer = msgspec.structs.replace(
        answer,
        gen=view.gen,
        free=members(view.free),
        sure=view.sure,
        clique=view.clique,
        in_job_clique=verdict.aims is not None and verdict.aims.job == IN_CLIQUE,
    )
    if outcome is None:
        return answer
    return msgspec.structs.replace(
        answer,
        sets=chances(outcome.sets)[:_SETS_SHOWN],
        gbps=outcome.gbps,
        ideal_gbps=_best_gbps(verdict, tables, wish),
        kept=outcome.kept,
    )


def _why(verdict: RankedNode, best: RankedNode, tables: ScoreTables, wish: GpuRequest) -> str:
    """Why the node ranks below the best one: the first aim in which it falls short has decided."""
    view, outcome = verdict.view, verdict.outcome
    if isinstance(view, NoView) or outcome is None:
        raise ValueError(verdict.node)  # it has a reason, and no score
    if not outcome.sets:
        return f"{view.free.bit_count()} GPUs are free, the pod asks for {wish.gpus}"
    if verdict.aims is None or best.aims is None:
        return "the kubelet would refuse the pod, or the device plugin fail"
    unsure = "" if view.sure else "; unsure: state and pods do not agree, so one rank less"
    if verdict.aims == best.aims:
        return f"the best{unsure}"
    short = shortfall(verdict.aims, best.aims)
    if short == "speed":
        return f"{_slower(verdict, best, tables, wish)}{unsure}"
    words = SHORT_OF[short]
    if getattr(verdict.aims, short):
        words = _PARTLY_SHORT_OF.get(short, words)
    return f"{words} {best.node}{unsure}"


def _slower(verdict: RankedNode, best: RankedNode, tables: ScoreTables, wish: GpuRequest) -> str:
    """Speed of the rings through both nodes' GPUs, such as ``its GPUs reach 10 of 50 GB/s; dgx1-b
    reaches 50``; with the other node's own best where its class has another one."""
    own_best, other_best = (_best_gbps(ranked, tables, wish) or 0 for ranked in (verdict, best))
    own, other = (
        0.0 if ranked.outcome is None else ranked.outcome.gbps for ranked in (verdict, best)
    )
    bound = "" if own_best == other_best else f" of {_shown(other_best)}"
    return (
        f"its GPUs reach {_shown(own)} of {_shown(own_best)} GB/s;"
        f" {best.node} reaches {_shown(other)}{bound}"
    )


def _shown(gbps: float) -> str:
    return f"{round(gbps, 1):g}"


def _best_gbps(verdict: RankedNode, tables: ScoreTables, wish: GpuRequest) -> float | None:
    """Best speed of the node's class, in GB/s; None where the class is not known."""
    table = None if isinstance(verdict.view, NoView) else tables.find(verdict.view.gen)
    return None if table is None else table.ideal(wish)


def chances(sets: Odds) -> tuple[Chance, ...]:
    """Sets with their odds, likeliest first; of equals that with the lowest GPUs."""
    likeliest = sorted(sets.items(), key=lambda set_odds: (-set_odds[1], set_odds[0]))
    return tuple(Chance(gpus=members(mask), odds=float(odds)) for mask, odds in likeliest)
