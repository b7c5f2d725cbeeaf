# SPDX-License-Identifier: Apache-2.0
"""Plans of random states, against a search through every final state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from mig.gpu_layout import current_layout, layout_from_counts
from mig.planner import MigRefusal, plan
from tests.mig.naive_gpu import NaiveGpu, mig_gpu
from tests.mig.test_planner import A100, held, performed, planned

NAMES = ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
SIZE = {"1g.5gb": 1, "1g.5gb+me": 1, "1g.10gb": 2, "2g.10gb": 2, "3g.20gb": 4, "4g.20gb": 4} | {
    "7g.40gb": 8
}
STARTS = {
    "1g.5gb": range(7),
    "1g.5gb+me": range(7),
    "1g.10gb": (0, 2, 4, 6),
    "2g.10gb": (0, 2, 4),
    "3g.20gb": (0, 4),
    "4g.20gb": (0,),
    "7g.40gb": (0,),
}
MOST = dict.fromkeys(NAMES, 7) | {"1g.5gb+me": 1, "4g.20gb": 1, "7g.40gb": 1}
"""The published table once more, so that the oracle reads nothing that the planner reads."""


def fits(placed: Sequence[tuple[str, int]]) -> bool:
    """No unit twice, and one instance with media engines at most."""
    units = [at for name, start in placed for at in range(start, start + SIZE[name])]
    media = sum(1 for name, _ in placed if name in ("1g.5gb+me", "7g.40gb"))
    many = Counter(name for name, _ in placed)
    return len(set(units)) == len(units) and media <= 1 and all(many[n] <= MOST[n] for n in many)


@st.composite
def placed_instances(draw: st.DrawFn) -> list[tuple[str, int]]:
    """A state that hardware could be in."""
    found: list[tuple[str, int]] = []
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=8)):
        start = draw(st.sampled_from(list(STARTS[name])))
        if fits([*found, (name, start)]):
            found.append((name, start))
    return found


def final_states(names: Sequence[str]) -> Iterator[tuple[tuple[str, int], ...]]:
    """Every way to lay out these profiles."""
    kinds = sorted(Counter(names).items())

    def grow(at: int, done: tuple[tuple[str, int], ...]) -> Iterator[tuple[tuple[str, int], ...]]:
        if at == len(names):
            yield done
            return
        name = ordered[at]
        low = done[-1][1] if done and done[-1][0] == name else -1
        for start in STARTS[name]:
            if start > low and fits([*done, (name, start)]):
                yield from grow(at + 1, (*done, (name, start)))

    ordered = [name for name, number in kinds for _ in range(number)]
    return grow(0, ())


def least(
    there: Sequence[tuple[str, int]], pods: Sequence[str | None], names: Sequence[str]
) -> tuple[int, int] | None:
    """Pods disturbed and instances destroyed at least, over every final state; None: infeasible."""
    best = None
    for state in final_states(names):
        gone = [at for at, one in enumerate(there) if one not in state]
        disturbed = {pods[at] for at in gone if pods[at] is not None}
        cost = (len(disturbed), len(gone))
        best = cost if best is None else min(best, cost)
    return best


@settings(max_examples=300, deadline=None)
@given(
    there=placed_instances(),
    names=st.lists(st.sampled_from(NAMES), max_size=7),
    pods=st.lists(st.sampled_from([None, None, "ns/a", "ns/b", "ns/c"]), min_size=8, max_size=8),
)
def test_no_plan_disturbs_less_and_no_feasible_layout_is_refused(
    there: list[tuple[str, int]], names: list[str], pods: list[str | None]
) -> None:
    """Against every final state there is; and the steps lead there on hardware that refuses."""
    gpu = mig_gpu(A100, *there)
    by = {start: name for (_, start), name in zip(there, pods, strict=False) if name is not None}
    want = layout_from_counts(Counter(names))
    best = least(there, pods, names)

    found = plan([gpu], {gpu.uuid: want}, held(gpu, by))

    assert isinstance(found, MigRefusal) == (best is None)
    if isinstance(found, MigRefusal):
        return
    assert (len(found.disturbed), len(found.destroyed)) == best
    hardware = performed(gpu, found)
    assert Counter(one for one, _ in hardware.counts().elements()) == Counter(names)
    kept = {(one.profile, one.start) for _, one in found.kept}
    assert kept <= {(one.profile, one.start) for one in hardware.gpu.instances if one.id < 100}
    assert found == plan([gpu], {gpu.uuid: want}, held(gpu, by))


@settings(max_examples=100, deadline=None)
@given(
    there=placed_instances(),
    names=st.lists(st.sampled_from(NAMES), max_size=7),
    cut=st.integers(0, 30),
)
def test_a_change_that_stopped_after_any_step_goes_on_or_back(
    there: list[tuple[str, int]], names: list[str], cut: int
) -> None:
    """From whatever is there then, to the wanted layout and to the one before."""
    gpu = mig_gpu(A100, *there)
    want, before = layout_from_counts(Counter(names)), current_layout(gpu, exact=True)
    found = plan([gpu], {gpu.uuid: want}, {})
    if isinstance(found, MigRefusal):
        return
    hardware = NaiveGpu(gpu)
    for step in found.steps[:cut]:
        hardware.take(step)
    stopped = hardware.gpu

    on, back = planned(stopped, want), planned(stopped, before)

    assert current_layout(performed(stopped, on).gpu) == want
    assert current_layout(performed(stopped, back).gpu, exact=True) == before
