# SPDX-License-Identifier: Apache-2.0
"""Ways from one GPU's current layout to its desired layout: what can stay, and who is disturbed.

Pure and exact. GPU instances and compute instances are kept, destroyed and created one by one: a
GPU instance may stay while compute instances in it go. The caller chooses among the ways of all
GPUs, and sees the device users of each; only the chosen way is turned into steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from discovery.mig_state import CurrentCompute, CurrentInstance, MigGpu
from mig.compute_places import compute_places, keepable, missing_sizes
from mig.gpu_layout import DesiredInstance, GpuLayout
from mig.placement import Grid, mask
from mig.users.device_users import (
    DeviceUser,
    DeviceUsers,
    compute_users,
    instance_users,
    users_on_gpu,
)

Users = frozenset[DeviceUser]
Tie = tuple[
    tuple[int, ...],
    tuple[DesiredInstance, ...],
    tuple[tuple[int, tuple[tuple[int, int], ...]], ...],
]
"""Order of ways that cost the same: free places (more is better), the layout at the end, and the
places of compute instances in kept GPU instances. It depends on the state at the end alone, so the
way stays the first one after each of its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptInstance:
    """A GPU instance that stays, with the part of its compute instances that stays."""

    instance: CurrentInstance
    desired: DesiredInstance
    """The desired instance that it becomes."""
    compute: tuple[CurrentCompute, ...]
    """Its compute instances that stay."""

    @property
    def destroyed(self) -> tuple[CurrentCompute, ...]:
        """Its compute instances that go."""
        return tuple(compute for compute in self.instance.compute if compute not in self.compute)

    @property
    def missing(self) -> tuple[int, ...]:
        """Slices of the compute instances that it lacks, the largest first."""
        return missing_sizes(self.compute, self.desired.compute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """A GPU instance that stays and loses compute instances, and that has device users."""

    instance: int
    """Id of the GPU instance."""
    users: Users
    """Its device users, disturbed or not."""
    destroyed: int
    """Number of its compute instances that go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to change a GPU: what stays, what goes, and where new instances are placed."""

    kept: tuple[KeptInstance, ...]
    destroyed: tuple[CurrentInstance, ...]
    """GPU instances that go, with all their compute instances."""
    created: tuple[DesiredInstance, ...]
    """Instances to create, each at its place."""
    after: tuple[DesiredInstance, ...]
    """The instances at the end, each at its place, sorted."""
    disturbed: Users
    """Device users of what is destroyed; with a change of mode, all device users of the GPU."""
    shrunk: tuple[Shrunk, ...]
    losses: int
    """Number of GPU instances and compute instances that are destroyed. The number of steps
    follows from it, since each instance that is lost is one more to create."""
    tie: Tie


_Used = Mapping[tuple[int, int | None], Users]
"""Device users by the ids of GPU instance and compute instance; with None those of any part of the
GPU instance."""


def gpu_ways(gpu: MigGpu, desired: GpuLayout, users: DeviceUsers) -> tuple[Way, ...]:
    """The ways of a GPU of which any may be part of the best plan for all GPUs; at least one.

    Left out is a way that another one makes useless, whatever happens on other GPUs. ``desired``
    must fit the empty GPU, and there must be permission for a reset that its mode needs.
    """
    grid, used = Grid(gpu.profiles), _used(gpu, users)
    if gpu.mode is not None and gpu.mode.current != desired.mig:
        # a change of mode takes the whole GPU, from device users without an instance as well
        way = _way(grid, gpu, used, (), desired.instances)
        return () if way is None else (replace(way, disturbed=users_on_gpu(users, gpu.uuid)),)
    ways = [
        way
        for kept, missing in _kept_sets(grid, gpu, desired)
        if (way := _way(grid, gpu, used, kept, missing)) is not None
    ]
    useful: list[Way] = []
    for way in sorted(ways, key=lambda way: (len(way.disturbed), _order(way))):
        if not any(_is_as_good(other, way) for other in useful):
            useful.append(way)
    return tuple(useful)


def _used(gpu: MigGpu, users: DeviceUsers) -> _Used:
    used: dict[tuple[int, int | None], Users] = {}
    for instance in gpu.instances:
        used[instance.id, None] = instance_users(users, gpu.uuid, instance.id)
        for number, whose in compute_users(users, gpu.uuid, instance).items():
            used[instance.id, number] = whose
    return used


def _kept_sets(
    grid: Grid, gpu: MigGpu, desired: GpuLayout
) -> Iterator[tuple[tuple[KeptInstance, ...], tuple[DesiredInstance, ...]]]:
    """Every set of instances that can stay, and what is missing then, in a fixed order.

    A GPU has seven compute slices at most, so there are few hundred sets.
    """
    options = ((None, *_options(grid, instance, desired)) for instance in gpu.instances)
    for fates in product(*options):
        kept = tuple(stays for stays in fates if stays is not None)
        missing = Counter(desired.instances)
        missing.subtract(stays.desired for stays in kept)
        if all(count >= 0 for count in missing.values()):
            # sorted: the order of the input must not decide between plans of equal worth
            yield kept, tuple(sorted(missing.elements()))


def _options(grid: Grid, instance: CurrentInstance, desired: GpuLayout) -> Iterator[KeptInstance]:
    """What a GPU instance can become if it stays."""
    alike = {other for other in desired.instances if other.profile == instance.profile}
    here = {other for other in alike if other.start == instance.start}
    # no other instance can be made where this one stays
    for candidate in sorted(here or (other for other in alike if other.start < 0)):
        profile = grid.profile_of(candidate)
        for compute in keepable(profile, instance.compute, candidate.compute):
            yield KeptInstance(instance=instance, desired=candidate, compute=compute)


def _way(
    grid: Grid,
    gpu: MigGpu,
    used: _Used,
    kept: Sequence[KeptInstance],
    missing: Sequence[DesiredInstance],
) -> Way | None:
    """The way that keeps just these; None if the missing instances have no places then."""
    taken = 0
    for stays in kept:
        taken |= mask(stays.instance.start, stays.instance.size)
    starts = grid.best_starts(missing, taken)
    if starts is None:
        return None
    created = tuple(
        replace(instance, start=start) for instance, start in zip(missing, starts, strict=True)
    )
    for instance in created:
        taken |= mask(instance.start, grid.size(instance))
    placed = (replace(stays.desired, start=stays.instance.start) for stays in kept)
    after = tuple(sorted((*placed, *created)))
    places = sorted((stays.instance.start, _places(grid, stays)) for stays in kept)
    staying = {stays.instance.id for stays in kept}
    gone = tuple(instance for instance in gpu.instances if instance.id not in staying)
    disturbed = [used[instance.id, None] for instance in gone]
    shrunk = []
    for stays in kept:
        number, lost = stays.instance.id, stays.destroyed
        disturbed += [used[number, compute.id] for compute in lost]
        if lost and (whose := used[number, None]):
            shrunk.append(Shrunk(instance=number, users=whose, destroyed=len(lost)))
    return Way(
        kept=tuple(kept),
        destroyed=gone,
        created=created,
        after=after,
        disturbed=Users().union(*disturbed),
        shrunk=tuple(shrunk),
        losses=sum(1 + len(instance.compute) for instance in gone)
        + sum(len(stays.destroyed) for stays in kept),
        tie=(tuple(-free for free in grid.free_places(taken)), after, tuple(places)),
    )


def _places(grid: Grid, stays: KeptInstance) -> tuple[tuple[int, int], ...]:
    """First slice and slices of each compute instance at the end, ascending."""
    profile = grid.profile_of(stays.desired)
    new = compute_places(profile, stays.missing, stays.compute) or ()
    kept = [(compute.start, compute.slices) for compute in stays.compute]
    return tuple(sorted([*kept, *((place.first, place.slices) for place in new)]))


def _order(way: Way) -> tuple[int, Tie]:
    return way.losses, way.tie


def _is_as_good(way: Way, other: Way) -> bool:
    """Whether a way costs no more than another one, whoever else is disturbed."""
    if not way.disturbed <= other.disturbed or _order(way) > _order(other):
        return False
    losses = {shrunk.instance: shrunk.destroyed for shrunk in other.shrunk}
    return all(
        shrunk.destroyed <= losses.get(shrunk.instance, 0) or shrunk.users <= other.disturbed
        for shrunk in way.shrunk
    )
