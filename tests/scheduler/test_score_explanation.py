# SPDX-License-Identifier: Apache-2.0
"""Every node is told why it has its rank, in words that name what decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import msgspec
import pytest

from api.gpu_request import Link
from labelers.annotations import topology_of
from placement.class_tables import ScoreTables
from placement.kubelet_model import Policies, TopologyManager
from placement.score_table import PlacementOutcome
from scheduler.cluster.node_views import NoOutcome, NoView, ScoringView
from scheduler.node_ranking import NodeRanker, RankedNode
from scheduler.placement_aims import Aims
from scheduler.pod_request import PodRequest
from scheduler.score_explanation import (
    REASONS,
    SHORT_OF,
    Chance,
    Explanation,
    NodeAnswer,
    explain_ranks,
    nothing_requested,
)
from tests.observed import observed
from tests.scheduler import fleets, simulated
from tests.scheduler.later import Later

POD = fleets.pod("train", 2)


@dataclass(kw_only=True)
class Fleet:
    """Views by node."""

    seen: Mapping[str, ScoringView | NoView]
    jobs: Mapping[str, Iterable[str]] = field(default_factory=dict)

    def views(self, nodes: Iterable[str]) -> list[ScoringView | NoView]:
        return [self.seen[node] for node in nodes]

    def nodes_of(self, job: str) -> Iterable[str]:
        return self.jobs.get(job, ())


@pytest.fixture
def tables() -> ScoreTables:
    """Of eight GPUs in pairs."""
    made = ScoreTables()
    made.add(simulated.annotation())
    return made


def view(free: int, **more: str | bool | int) -> ScoringView:
    seen = ScoringView(gen=fleets.gen(), free=free, ok=fleets.ALL)
    return msgspec.structs.replace(seen, **more)


def explained(
    tables: ScoreTables,
    ask: PodRequest,
    jobs: Mapping[str, Iterable[str]] | None = None,
    /,
    **views: ScoringView | NoView,
) -> Explanation:
    fleet = Fleet(seen=views, jobs=jobs or {})
    return explain_ranks(ask, NodeRanker(fleet, tables).judge(ask, list(views)), tables)


def scored(node: str, aims: Aims, gen: str = "") -> RankedNode:
    """A verdict on a node that meets these aims; ``gen``: its class, else that of the pairs."""
    sets = {0b11: Fraction(1)}
    outcome = PlacementOutcome(sets=sets, reported=sets, taken=aims.taken)
    seen = view(0b11, gen=gen or fleets.gen())
    return RankedNode(node=node, view=seen, outcome=outcome, aims=aims, rank=1)


def answers(found: Explanation) -> dict[str, NodeAnswer]:
    return {each.node: each for each in found.nodes}


def test_the_pod_is_told_as_it_was_read(tables: ScoreTables) -> None:
    pod = fleets.pod("train", 2, 1, link=Link.NVLINK, nic=True, job="j")
    found = explained(tables, pod)
    assert (found.pod, found.containers) == ("default/train", (2, 1))
    assert (found.link, found.nic, found.job) == ("nvlink", True, "j")


def test_the_best_node_says_so_and_comes_first(tables: ScoreTables) -> None:
    found = explained(tables, POD, slow=view(0b0101), best=view(0b0011))
    first, _ = found.nodes
    assert (first.node, first.rank, first.why) == ("best", 10, "the best")


def test_a_node_says_in_what_it_falls_short_of_the_best(tables: ScoreTables) -> None:
    found = explained(tables, POD, best=view(0b0011), other=view(0b0101))
    assert answers(found)["other"].why == "its GPUs reach 20 of 300 GB/s; best reaches 300"


@pytest.mark.parametrize("aim", [name for name in Aims._fields if name != "speed"])
def test_the_first_aim_in_which_a_node_falls_short_is_the_reason(
    tables: ScoreTables, aim: str
) -> None:
    """It is better in all that weighs less."""
    names = list(Aims._fields)
    less = names[names.index(aim) + 1 :]
    best = Aims(**dict.fromkeys(names, 1) | dict.fromkeys(less, 0))
    other = Aims(**dict.fromkeys(names, 1) | {aim: 0})
    verdicts = [scored("best", best, mesh(tables)), scored("other", other)]
    assert answers(explain_ranks(POD, verdicts, tables))["other"].why == f"{SHORT_OF[aim]} best"


@pytest.mark.parametrize(
    ("best", "other", "why"),
    [
        (Aims(100, job=2), Aims(100, job=1), "outside the NVLink clique of the pod's job, unlike"),
        (Aims(100, job=1), Aims(100), "not where the pod's job runs, unlike"),
        (Aims(100, product=2), Aims(100, product=1), "of a faster product than"),
    ],
)
def test_a_shortfall_that_may_mean_two_things_says_which(
    tables: ScoreTables, best: Aims, other: Aims, why: str
) -> None:
    verdicts = [scored("best", best, mesh(tables)), scored("other", other)]
    assert answers(explain_ranks(POD, verdicts, tables))["other"].why == f"{why} best"


def mesh(tables: ScoreTables, machine: str = "dgx1-v100") -> str:
    """The class of another machine, which has its table now."""
    return tables.add(topology_of(observed(machine).snapshot))


def test_a_node_outside_the_jobs_clique_says_so(tables: ScoreTables) -> None:
    found = explained(
        tables,
        msgspec.structs.replace(POD, job="j"),
        {"j": ["here"]},
        here=view(0b0011, clique="rack-1"),
        there=view(0b0011, clique="rack-2"),
    )
    assert answers(found)["there"].why == "outside the NVLink clique of the pod's job, unlike here"
    assert [answers(found)[node].in_job_clique for node in ("here", "there")] == [True, False]


def test_a_node_with_too_few_gpus_says_how_many_it_has(tables: ScoreTables) -> None:
    found = answers(explained(tables, POD, few=view(0b0001)))["few"]
    assert (found.rank, found.why) == (0, "1 GPUs are free, the pod asks for 2")


def test_a_pod_of_more_containers_than_can_be_foreseen_is_told_so(tables: ScoreTables) -> None:
    many = [0] * 100 + [1]
    found = answers(explained(tables, fleets.pod("p", *many), free=view(0xFF)))["free"]
    assert (found.rank, found.why) == (0, "more containers ask for GPUs than can be foreseen")


def test_a_node_whose_masks_do_not_agree_with_its_pods_says_so(tables: ScoreTables) -> None:
    found = answers(explained(tables, POD, unsure=view(0b0011, sure=False)))["unsure"]
    assert found.rank == 9
    assert found.why == "the best; unsure: state and pods do not agree, so one rank less"


@pytest.mark.parametrize("reason", NoView)
def test_a_node_without_a_view_says_why(tables: ScoreTables, reason: NoView) -> None:
    (found,) = explained(tables, POD, gone=reason).nodes
    assert (found.rank, found.reason, found.why) == (0, reason.value, REASONS[reason])
    assert (found.gbps, found.free) == (None, ())


def test_a_node_whose_outcome_is_not_there_yet_is_told_as_being_worked_out() -> None:
    tables = ScoreTables(Later())
    tables.add(simulated.annotation("hgx-16"))
    large = ScoringView(gen=simulated.annotation("hgx-16").gen, free=0xFFFF, ok=0xFFFF)
    (found,) = explained(tables, POD, large=large).nodes
    assert (found.rank, found.gbps) == (0, None)
    assert found.why == "its table is being worked out: it counts from the next request on"


def test_a_node_with_more_gpus_than_any_table_covers_says_so() -> None:
    (found,) = explained(ScoreTables(), POD, huge=view(0b0011, ok=(1 << 17) - 1)).nodes
    assert (found.rank, found.reason, found.why) == (
        0,
        "too_many_gpus",
        "nodes with so many GPUs have no scores",
    )


def test_a_node_whose_class_has_no_table_says_so() -> None:
    (found,) = explained(ScoreTables(), POD, huge=view(0b0011)).nodes
    assert (found.rank, found.why) == (
        0,
        "the fleet has more topology classes than there is room for",
    )


def test_sets_are_told_with_their_odds_the_likeliest_first(tables: ScoreTables) -> None:
    found = answers(explained(tables, POD, node=view(0b00001111)))["node"]
    assert found.sets == (Chance(gpus=(0, 1), odds=0.5625), Chance(gpus=(2, 3), odds=0.4375))


def test_likelier_sets_come_first(tables: ScoreTables) -> None:
    """Whoever comes first takes any of five GPUs, and the other a pair that is left."""
    found = answers(explained(tables, fleets.pod("p", 1, 2), node=view(0b11111)))["node"]
    odds = [each.odds for each in found.sets]
    assert odds == sorted(odds, reverse=True)
    assert odds[0] > odds[-1]


def test_of_many_sets_eight_are_told(tables: ScoreTables) -> None:
    found = answers(explained(tables, fleets.pod("p", 1, 1), node=view(0xFF)))["node"]
    assert len(found.sets) == 8


def test_a_node_whose_kubelet_would_refuse_the_pod_says_so() -> None:
    """One GPU is free on each NUMA node."""
    aligned = ScoreTables(policies=Policies(tm=TopologyManager.SINGLE_NUMA_NODE))
    aligned.add(simulated.annotation())
    found = answers(explained(aligned, POD, node=view(0b00010001)))["node"]
    assert (found.rank, found.why) == (
        0,
        "the kubelet would refuse the pod, or the device plugin fail",
    )


def test_all_that_is_known_of_a_node_is_in_its_answer(tables: ScoreTables) -> None:
    """GPUs 0 and 1 are a pair, GPU 4 is half of one."""
    table = tables.find(fleets.gen())
    assert table
    asked = msgspec.structs.replace(POD, job="j")
    found = explained(tables, asked, {"j": ["node"]}, node=view(0b10011, clique="c.1"))
    assert found.nodes == (
        NodeAnswer(
            node="node",
            rank=10,
            why="the best",
            reason=None,
            gen=fleets.gen(),
            free=(0, 1, 4),
            sure=True,
            sets=(Chance(gpus=(0, 1), odds=1.0),),
            gbps=table.gbps(0b11),
            ideal_gbps=table.gbps(0b11),
            kept=0.0,
            clique="c.1",
            in_job_clique=True,
        ),
    )


def test_nodes_come_by_rank_then_by_score_then_by_name(tables: ScoreTables) -> None:
    stale, unsure = NoView.STALE, view(0b0011, sure=False)
    found = explained(tables, POD, None, d=stale, c=view(0b0101), b=view(0b0011), a=stale, e=unsure)
    assert [each.node for each in found.nodes] == ["b", "e", "c", "a", "d"]


def test_a_node_with_unsure_gpus_says_so_after_what_it_falls_short_of(
    tables: ScoreTables,
) -> None:
    found = answers(explained(tables, POD, best=view(0b0011), other=view(0b0101, sure=False)))
    assert found["other"].why == (
        "its GPUs reach 20 of 300 GB/s; best reaches 300;"
        " unsure: state and pods do not agree, so one rank less"
    )
    assert not found["other"].sure


def test_of_a_pod_that_asks_for_nothing_there_is_only_the_name() -> None:
    assert nothing_requested("team/web") == Explanation(
        pod="team/web", containers=(), link="any", nic=False, job=None, nodes=()
    )


def test_speed_stands_beside_the_best_of_the_class(tables: ScoreTables) -> None:
    table = tables.find(fleets.gen())
    assert table
    found = answers(explained(tables, POD, broken=view(0b0101)))["broken"]
    assert (found.gbps, found.ideal_gbps) == (table.gbps(0b0101), table.gbps(0b0011))
    assert table.gbps(0b0101) < table.gbps(0b0011)


def test_every_aim_of_a_score_has_words_in_the_order_of_its_weight() -> None:
    assert list(SHORT_OF) == list(Aims._fields)


def test_every_reason_has_words() -> None:
    assert REASONS.keys() == {*NoView, *NoOutcome}
