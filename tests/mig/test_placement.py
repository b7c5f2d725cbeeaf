# SPDX-License-Identifier: Apache-2.0
"""Which sets of instances fit, against counts and examples that NVIDIA's documents rest on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product

import pytest

from discovery.mig_state import MigEngines, MigProfile
from mig.gpu_layout import DesiredInstance
from mig.placement import Grid, Limit, Misfit
from tests.mig.grids import grid

SEVEN_SLICES = ("a100-sxm4-40gb", "h100-sxm5-80gb", "h200-sxm-141gb", "b200-sxm-180gb")
SIZES, MEDIA, DOUBLE = (0, 1, 2, 3, 4), (7, 8), (9,)
"""Numbers of profiles: one for each size; with media engines; with double memory."""


def wanted(*names: str) -> tuple[DesiredInstance, ...]:
    """Whole instances of these profiles."""
    return tuple(DesiredInstance(name, (int(name[0]),)) for name in names)


def fitting(of: Grid, numbers: Sequence[int]) -> set[tuple[str, ...]]:
    """Every multiset of profiles that fits, but for the empty one; by trying one more each time."""
    names = [one.name for one in of.profiles if one.number in numbers]
    found: set[tuple[str, ...]] = set()
    rim: set[tuple[str, ...]] = {()}
    while rim:
        grown = {tuple(sorted((*one, name))) for one in rim for name in names}
        rim = {one for one in grown if of.misfit(wanted(*one)) is None}
        found |= rim
    return found


def maximal(found: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Those to which nothing can be added."""
    names = {name for one in found for name in one}
    return {one for one in found if not any(tuple(sorted((*one, name))) in found for name in names)}


@pytest.mark.parametrize("model", SEVEN_SLICES)
@pytest.mark.parametrize(
    ("numbers", "count", "most"),
    [
        (SIZES, 37, 12),
        (SIZES + DOUBLE, 77, 28),
        (SIZES + DOUBLE + MEDIA, 127, 44),
    ],
)
def test_as_many_sets_fit_seven_slices_as_an_independent_count_has(
    model: str, numbers: Sequence[int], count: int, most: int
) -> None:
    """The counts are of a script that shares nothing with this code."""
    found = fitting(grid(model), numbers)

    assert (len(found), len(maximal(found))) == (count, most)


@pytest.mark.parametrize(
    ("model", "numbers", "count", "most"),
    [("a30", SIZES, 9, 4), ("a30", SIZES + MEDIA, 19, 8), ("rtx-pro-6000", range(18), 114, 64)],
)
def test_as_many_sets_fit_four_slices_as_an_independent_count_has(
    model: str, numbers: Sequence[int], count: int, most: int
) -> None:
    """The same with four slices; on the RTX PRO the media engines decide."""
    found = fitting(grid(model), numbers)

    assert (len(found), len(maximal(found))) == (count, most)


def test_the_twelve_full_sets_of_seven_slices_are_those_of_the_mig_user_guide() -> None:
    """The table of an A100 40GB's configurations, one with media engines or double memory aside."""
    rows = """
        7g.40gb | 4g.20gb 3g.20gb | 3g.20gb 3g.20gb | 3g.20gb 2g.10gb 2g.10gb
        | 4g.20gb 2g.10gb 1g.5gb | 2g.10gb 2g.10gb 2g.10gb 1g.5gb | 3g.20gb 2g.10gb 1g.5gb 1g.5gb
        | 4g.20gb 1g.5gb 1g.5gb 1g.5gb | 2g.10gb 2g.10gb 1g.5gb 1g.5gb 1g.5gb
        | 3g.20gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb | 2g.10gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb
        | 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb
    """
    guide = {tuple(sorted(row.split())) for row in rows.split("|")}

    assert maximal(fitting(grid("a100-sxm4-40gb"), SIZES)) == guide


def brute_force(of: Grid, names: Sequence[str], taken: set[int]) -> Iterator[tuple[int, ...]]:
    """All disjoint starts, by trying every combination."""
    profiles = [_profile(of, name) for name in names]
    for starts in product(*(one.starts for one in profiles)):
        units = [set(range(s, s + one.size)) for s, one in zip(starts, profiles, strict=True)]
        if all(not a & b for a, b in combinations([*units, taken], 2)):
            yield starts


def _profile(of: Grid, name: str) -> MigProfile:
    found = of.profile(name)
    assert found is not None
    return found


@pytest.mark.parametrize("taken", [set(), {0}, {6}, {2, 3}, {4, 5, 6, 7}, {0, 3, 5}])
@pytest.mark.parametrize(
    "names",
    [
        *[("1g.5gb",), ("1g.5gb", "2g.10gb"), ("1g.5gb", "3g.20gb"), ("2g.10gb",) * 2],
        *[("1g.10gb",) * 3, ("1g.5gb",) * 3, ("1g.5gb", "2g.10gb", "1g.5gb")],
    ],
)
def test_places_are_those_that_leave_the_most_and_then_the_lowest(
    names: Sequence[str], taken: set[int]
) -> None:
    """Of all that there are, which is known by trying every combination; none where none is."""
    of = grid("a100-sxm4-40gb")
    by_size = sorted(of.profiles, key=lambda one: (-one.size, -one.slices, one.number))

    def merit(starts: tuple[int, ...]) -> tuple[list[int], list[int]]:
        sizes = [_profile(of, name).size for name in names]
        used = {
            *taken,
            *(u for s, size in zip(starts, sizes, strict=True) for u in range(s, s + size)),
        }
        left = [sum(not used & set(range(s, s + one.size)) for s in one.starts) for one in by_size]
        return left, [-start for start in starts]

    found = of.best_starts(wanted(*names), sum(1 << unit for unit in taken))

    assert found == max(brute_force(of, names, taken), key=merit, default=None)


@pytest.mark.parametrize(
    ("names", "starts"),
    [
        (("1g.5gb",), (6,)),
        (("1g.5gb", "1g.5gb"), (4, 5)),
        (("1g.5gb",) * 3, (4, 5, 6)),
        (("2g.10gb",), (4,)),
        (("3g.20gb",), (4,)),
    ],
)
def test_places_leave_room_for_the_largest_profiles(
    names: Sequence[str], starts: tuple[int, ...]
) -> None:
    """One more 4g.20gb, which starts at 0 alone, fits beside each of these."""
    of = grid("a100-sxm4-40gb")

    found = of.best_starts(wanted(*names))

    assert found is not None
    assert sorted(found) == sorted(starts)


ALL = "1g.10gb, 1g.5gb, 1g.5gb+me, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb"


@pytest.mark.parametrize(
    ("names", "limit", "detail"),
    [
        (("5g.30gb",), Limit.PROFILE, f"no profile 5g.30gb; the GPU has {ALL}"),
        (("1g.5gb+me",) * 2, Limit.COUNT, "2 of 1g.5gb+me, of which the GPU allows 1"),
        (("4g.20gb",) * 2, Limit.COUNT, "2 of 4g.20gb, of which the GPU allows 1"),
        (
            ("4g.20gb", "2g.10gb", "2g.10gb"),
            Limit.ROOM,
            "no disjoint places for 2 of 2g.10gb, 1 of 4g.20gb: each has few starts",
        ),
        (("7g.40gb", "1g.5gb"), Limit.ROOM, "9 memory units, of which the GPU has 8"),
        (("3g.20gb", "3g.20gb", "1g.5gb"), Limit.ROOM, "9 memory units, of which the GPU has 8"),
    ],
)
def test_what_does_not_fit_names_the_limit(names: Sequence[str], limit: Limit, detail: str) -> None:
    """With the figures."""
    of = grid("a100-sxm4-40gb")

    assert of.misfit(wanted(*names)) == Misfit(limit=limit, detail=detail)


@pytest.mark.parametrize(
    ("engines", "kind"),
    [
        (MigEngines(decoders=1, encoders=0, jpeg=0, ofa=0), "decoder"),
        (MigEngines(decoders=0, encoders=1, jpeg=0, ofa=0), "encoder"),
        (MigEngines(decoders=0, encoders=0, jpeg=1, ofa=0), "JPEG"),
        (MigEngines(decoders=0, encoders=0, jpeg=0, ofa=1), "OFA"),
    ],
)
def test_an_engine_that_two_want_and_one_has_is_named(engines: MigEngines, kind: str) -> None:
    """Two profiles of which a GPU takes one each, and full use of either takes one engine."""
    alone = [replace(one, engines=engines, max_instances=1) for one in grid("a30").profiles]

    misfit = Grid(tuple(alone)).misfit(wanted("1g.6gb", "2g.12gb"))

    detail = f"2 {kind} engines, of which there are 1"
    assert misfit == Misfit(limit=Limit.ENGINES, detail=detail)


def test_media_engines_are_counted() -> None:
    """All of them in one instance leave none for a neighbour, but one without any fits."""
    of = grid("rtx-pro-6000")

    misfit = of.misfit(wanted("1g.24gb+me.all", "1g.24gb"))

    assert misfit is not None
    assert misfit.limit is Limit.ENGINES
    assert of.misfit(wanted("1g.24gb+me.all", "1g.24gb-me")) is None


@pytest.mark.parametrize(
    ("names", "part"),
    [
        (("3g.20gb", "3g.20gb", "1g.5gb"), ("3g.20gb", "3g.20gb")),
        (("7g.40gb", "4g.20gb"), ("7g.40gb",)),
        (("4g.20gb", "2g.10gb", "2g.10gb", "1g.5gb"), ("1g.5gb", "2g.10gb", "4g.20gb")),
        (("1g.5gb",) * 9, ("1g.5gb",) * 7),
        (("9g.90gb", "1g.5gb"), ("1g.5gb",)),
    ],
)
def test_the_nearest_is_the_part_with_the_most_memory(
    names: Sequence[str], part: tuple[str, ...]
) -> None:
    """What the GPU has no profile for is left out."""
    of = grid("a100-sxm4-40gb")

    assert tuple(sorted(one.profile for one in of.nearest(wanted(*names)))) == part


def test_what_has_engines_and_what_has_none_are_the_nearest_together() -> None:
    """One instance with all of them is no reason to leave out another kind that fits."""
    of = grid("rtx-pro-6000")
    names = ("1g.24gb",) * 2 + ("1g.24gb+me.all",) + ("1g.24gb-me",) * 2

    assert [one.profile for one in of.nearest(wanted(*names))] == [
        *("1g.24gb", "1g.24gb"),
        *("1g.24gb-me", "1g.24gb-me"),
    ]


@pytest.mark.parametrize("start", [0, 1])
def test_a_start_that_a_profile_does_not_have_is_refused(start: int) -> None:
    """With those that it has. On no known GPU does a profile begin past unit 0 alone."""
    later = [
        replace(one, starts=(2, 4)) if one.name == "2g.10gb" else one
        for one in grid("a100-sxm4-40gb").profiles
    ]

    misfit = Grid(tuple(later)).misfit([DesiredInstance("2g.10gb", (2,), start)])

    detail = f"no 2g.10gb starts at unit {start}; it may start at 2, 4"
    assert misfit == Misfit(limit=Limit.PROFILE, detail=detail)


def test_more_compute_slices_than_a_profile_has_are_refused() -> None:
    """Names that a file can hold never come to that; an annotation with places may."""
    of = grid("a100-sxm4-40gb")

    misfit = of.misfit([DesiredInstance("3g.20gb", (2, 2))])

    detail = "4 compute slices on a 3g.20gb, which has 3"
    assert misfit == Misfit(limit=Limit.PROFILE, detail=detail)


def test_a_count_that_a_driver_reports_too_high_is_corrected() -> None:
    """An A30 may report more instances than have disjoint places."""
    too_many = Grid(
        tuple(replace(one, max_instances=one.max_instances + 3) for one in grid("a30").profiles)
    )

    assert [too_many.max_count(one) for one in too_many.profiles if "+" not in one.name] == [
        4,
        2,
        1,
    ]


def test_places_that_overlap_count_once() -> None:
    """No known profile has such places; a driver may."""
    (one, *_) = grid("a30").profiles
    wide = replace(one, size=2, starts=(2, 0, 1), max_instances=9)

    assert Grid((wide,)).max_count(wide) == 2
