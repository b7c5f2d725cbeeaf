# SPDX-License-Identifier: Apache-2.0
"""Changes of the MIG mode of some GPUs of a node, drawn by a seed. Pure.

At least one GPU switches its mode; others get a layout, or are nobody's concern. Programs have some
of the GPUs with MIG off, and some instances of the others.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal

from tests.bench.mig_changes.gpu_start import Desired, GpuStart, InstanceStart
from tests.bench.mig_changes.published_places import PUBLISHED, Placed, least_change
from tests.bench.mig_changes.transitions import MOST_ORDERS, drawn_layout, drawn_places, orders

GPUS: Final = 3
"""Of a node."""
DRIVERS: Final = ("resets", "reset-required")
"""What a driver answers when the mode of an idle Ampere GPU is switched: it resets it, or the mode
waits for somebody's reset."""
AMPERE: Final = ("a100-sxm4-40gb", "a100-sxm4-80gb")
HOPPER: Final = ("h100-sxm5-80gb", "h200-sxm-141gb")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChange:
    """GPUs of a node, and what is desired of them; always possible."""

    model: str
    starts: tuple[GpuStart, ...]
    desired: Desired
    driver: Literal["resets", "reset-required"]
    least: tuple[int, int]
    """Programs disturbed and GPU instances destroyed at least."""
    switched: frozenset[int]
    """GPUs whose mode changes, by index."""
    is_possible: bool = True


def mode_changes(
    count: int, models: tuple[str, ...], driver: Literal["resets", "reset-required"]
) -> list[ModeChange]:
    """So many, the models in turns, the same for each driver."""
    rng = random.Random(f"modes of {models}")  # noqa: S311  # the same each time
    found: list[ModeChange] = []
    while len(found) < count:
        drawn = _drawn(rng, models[len(found) % len(models)], driver)
        if drawn.switched:
            found.append(drawn)
    return found


def _drawn(
    rng: random.Random, model: str, driver: Literal["resets", "reset-required"]
) -> ModeChange:
    busy = rng.choice((0.0, 0.3))
    starts = tuple(_start(rng, model, busy) for _ in range(GPUS))
    desired = {
        index: None if rng.random() < 0.4 else _layout(rng, model, start)
        for index, start in enumerate(starts)
        if rng.random() < 0.65
    }
    switched = frozenset(
        index for index, its in desired.items() if starts[index].mig != (its is not None)
    )
    costs = [_least(model, starts[index], its) for index, its in desired.items()]
    disturbed, destroyed = (sum(cost[part] for cost in costs) for part in (0, 1))
    return ModeChange(
        model=model,
        starts=starts,
        desired=desired,
        driver=driver,
        least=(disturbed, destroyed),
        switched=switched,
    )


def _start(rng: random.Random, model: str, busy: float) -> GpuStart:
    if rng.random() < 0.5:
        return GpuStart(mig=False, busy=rng.random() < busy)
    instances = (
        InstanceStart(
            profile=profile,
            start=start,
            compute=((0, int(profile.partition("g.")[0])),),
            busy=frozenset({0} if rng.random() < busy else ()),
        )
        for profile, start in drawn_places(rng, PUBLISHED[model])
    )
    return GpuStart(instances=tuple(instances))


def _layout(rng: random.Random, model: str, start: GpuStart) -> Counter[str]:
    while True:
        wanted = drawn_layout(rng, PUBLISHED[model], _placed(start))
        if wanted and orders(wanted) <= MOST_ORDERS:
            return wanted


def _placed(start: GpuStart) -> tuple[Placed, ...]:
    return tuple((one.profile, one.start) for one in start.instances)


def _least(model: str, start: GpuStart, wanted: Counter[str] | None) -> tuple[int, int]:
    """A GPU that switches its mode loses whatever it has; Hopper too is idle then."""
    if start.mig != (wanted is not None):
        return start.programs, len(start.instances)
    if wanted is None:
        return 0, 0
    busy = frozenset((one.profile, one.start) for one in start.instances if one.busy)
    least = least_change(PUBLISHED[model], _placed(start), busy, wanted)
    assert least is not None
    return least
