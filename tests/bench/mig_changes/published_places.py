# SPDX-License-Identifier: Apache-2.0
"""Where GPU instances can be, by tables that are not ours; and what fits by them. Pure.

Shares nothing with the planner or the simulator, which are judged by it.
Sources: A100: go-nvml, pkg/nvml/mock/dgxa100/mig-profile.go. H100 and B200: NVIDIA/k8s-test-infra,
pkg/gpu/mocknvml/configs/mock-nvml-config-{h100,b200}.mig.yaml. A30 and RTX PRO 6000: output of
``nvidia-smi mig -lgip`` and ``-lgipp`` that people published. H200 has the names of the MIG user
guide and the places of the H100.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

Placed = tuple[str, int]
"""Profile and first memory unit."""


@dataclass(frozen=True, slots=True)
class PublishedProfile:
    """Where one profile may be, and how often."""

    id: int
    """As ``nvidia-smi mig -lgip`` prints it."""
    most: int
    size: int
    starts: tuple[int, ...]
    media: tuple[int, int] = (0, 0)
    """JPEG and OFA engines, which are what +me, +me.all and -me are about."""


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """The table of one model."""

    profiles: Mapping[str, PublishedProfile]
    media: tuple[int, int] | None = None
    """How many of these engines the GPU has; None: the limit of each profile says all."""
    ids_assumed: bool = False
    """No table has the ids; they are those of the models before."""

    def fits(self, placed: Sequence[Placed]) -> bool:
        """Whether these can be there together."""
        units: set[int] = set()
        for name, start in placed:
            profile = self.profiles[name]
            mine = set(range(start, start + profile.size))
            if units & mine:
                return False
            units |= mine
        if any(n > self.profiles[name].most for name, n in Counter(n for n, _ in placed).items()):
            return False
        if self.media is None:
            return True
        used = [self.profiles[name].media for name, _ in placed]
        return all(sum(one[at] for one in used) <= there for at, there in enumerate(self.media))

    def final_states(self, wanted: Counter[str]) -> Iterator[tuple[Placed, ...]]:
        """Every way to lay out these profiles, each once."""
        names = sorted(wanted.elements())

        def grow(done: tuple[Placed, ...]) -> Iterator[tuple[Placed, ...]]:
            if len(done) == len(names):
                yield done
                return
            name = names[len(done)]
            low = done[-1][1] if done and done[-1][0] == name else -1
            for start in self.profiles[name].starts:
                if start > low and self.fits([*done, (name, start)]):
                    yield from grow((*done, (name, start)))

        return grow(())

    def feasible(self, wanted: Counter[str]) -> bool:
        """Whether an empty GPU can have these."""
        return next(self.final_states(wanted), None) is not None


def least_change(
    model: PublishedModel, there: Sequence[Placed], busy: frozenset[Placed], wanted: Counter[str]
) -> tuple[int, int] | None:
    """Busy instances disturbed and instances destroyed at least, in this order; None: infeasible.

    By looking at every final state there is.
    """
    present = frozenset(there)
    costs = (
        (len(busy - state), len(present - state))
        for state in map(frozenset, model.final_states(wanted))
    )
    return min(costs, default=None)


def _seven(*names: str, ids_assumed: bool = False) -> PublishedModel:
    """Eight memory units and seven slices; names from 1g, 1g+me, doubled 1g, 2g, 3g, 4g, 7g."""
    any_unit, pairs, halves = tuple(range(7)), (0, 2, 4, 6), (0, 4)
    table = (
        PublishedProfile(19, 7, 1, any_unit),
        PublishedProfile(20, 1, 1, any_unit),
        PublishedProfile(15, 4, 2, pairs),
        PublishedProfile(14, 3, 2, pairs[:3]),
        PublishedProfile(9, 2, 4, halves),
        PublishedProfile(5, 1, 4, halves[:1]),
        PublishedProfile(0, 1, 8, (0,)),
    )
    return PublishedModel(dict(zip(names, table, strict=True)), ids_assumed=ids_assumed)


_A30: Final = {
    "1g.6gb": PublishedProfile(14, 4, 1, (0, 1, 2, 3)),
    "1g.6gb+me": PublishedProfile(21, 1, 1, (0, 1, 2, 3), (1, 1)),
    "2g.12gb": PublishedProfile(5, 2, 2, (0, 2)),
    "2g.12gb+me": PublishedProfile(6, 1, 2, (0, 2), (1, 1)),
    "4g.24gb": PublishedProfile(0, 1, 4, (0,), (1, 1)),
}
_QUARTERS: Final = (0, 3, 6, 9)
_RTX_PRO: Final = {
    "1g.24gb": PublishedProfile(14, 4, 3, _QUARTERS, (1, 0)),
    "1g.24gb+me": PublishedProfile(21, 1, 3, _QUARTERS, (1, 1)),
    "1g.24gb+gfx": PublishedProfile(47, 4, 3, _QUARTERS, (1, 0)),
    "1g.24gb+me.all": PublishedProfile(65, 1, 3, _QUARTERS, (4, 1)),
    "1g.24gb-me": PublishedProfile(67, 4, 3, _QUARTERS),
    "2g.48gb": PublishedProfile(5, 2, 6, (0, 6), (2, 0)),
    "2g.48gb+gfx": PublishedProfile(35, 2, 6, (0, 6), (2, 0)),
    "2g.48gb+me.all": PublishedProfile(64, 1, 6, (0, 6), (4, 1)),
    "2g.48gb-me": PublishedProfile(66, 2, 6, (0, 6)),
    "4g.96gb": PublishedProfile(0, 1, 12, (0,), (4, 1)),
    "4g.96gb+gfx": PublishedProfile(32, 1, 12, (0,), (4, 1)),
}
_A100: Final = ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
_EIGHTY: Final = ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
_H200: Final = ("1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb")
_B200: Final = ("1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb")

PUBLISHED: Final[Mapping[str, PublishedModel]] = MappingProxyType(
    {
        "a30": PublishedModel(_A30, media=(1, 1)),
        "a100-sxm4-40gb": _seven(*_A100),
        "a100-sxm4-80gb": _seven(*_EIGHTY),
        "h100-sxm5-80gb": _seven(*_EIGHTY),
        "h200-sxm-141gb": _seven(*_H200),
        "b200-sxm-180gb": _seven(*_B200, ids_assumed=True),
        "rtx-pro-6000": PublishedModel(_RTX_PRO, media=(4, 1)),
    }
)
"""By the simulator's names of the models."""

NAMED: Final[Mapping[str, PublishedModel]] = MappingProxyType(
    {
        "gh200-96gb": _seven(
            "1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"
        ),
        "gb200": _seven(
            "1g.23gb", "1g.23gb+me", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"
        ),
        "b300-sxm-270gb": _seven(
            "1g.34gb", "1g.34gb+me", "1g.67gb", "2g.67gb", "3g.135gb", "4g.135gb", "7g.269gb"
        ),
    }
)
"""Models of which only the names are published, in the MIG user guide; with the H100's places."""
