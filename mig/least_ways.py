# SPDX-License-Identifier: Apache-2.0
"""Chooses one way for each GPU, so that all together cost the least. Pure; exact up to a bound.

Costs are compared in this order: device users disturbed; compute instances destroyed next to a
device user that stays in the same GPU instance; instances destroyed. A device user with instances
on several GPUs counts once, so those GPUs cannot be decided one by one: a branch and bound decides
user by user whether it is disturbed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Final

from mig.device_users import DeviceUser
from mig.gpu_ways import Tie, Users, Way

MOST_TRIED: Final = 20_000
"""Decisions that are tried at most for GPUs that share device users. At the bound the best ways so
far are taken: they lead to the layouts as well, but may cost more than the least."""


def least_ways(choices: Sequence[Sequence[Way]]) -> tuple[Way, ...]:
    """The way of each GPU; ``choices``: the ways of each GPU, at least one for each."""
    chosen: dict[int, Way] = {}
    for group in _groups(choices):
        chosen.update(zip(group, _least([choices[index] for index in group]), strict=True))
    return tuple(chosen[index] for index in range(len(choices)))


def _groups(choices: Sequence[Sequence[Way]]) -> list[list[int]]:
    """The GPUs in groups: no device user that may be disturbed makes a difference in two groups."""
    disturbable = Users().union(*(way.disturbed for ways in choices for way in ways))
    groups: list[tuple[Users, list[int]]] = []
    for index, ways in enumerate(choices):
        users, members = _concerned(ways) & disturbable, [index]
        for other_users, others in [group for group in groups if group[0] & users]:
            groups.remove((other_users, others))
            users, members = users | other_users, others + members
        groups.append((users, members))
    return [sorted(members) for _, members in groups]


def _concerned(ways: Sequence[Way]) -> Users:
    """Device users that make a difference between the ways."""
    return Users().union(
        *(way.disturbed for way in ways),
        *(shrunk.users for way in ways for shrunk in way.shrunk),
    )


@dataclass(frozen=True, slots=True)
class _Option:
    """A way of a GPU as the search sees it; masks have a bit for each shared device user."""

    way: Way
    disturbed: int
    """Shared device users that it disturbs."""
    others: int
    """Number of other device users that it disturbs."""
    shrunk: tuple[tuple[int, int], ...]
    """Shared device users of a GPU instance that the way does not disturb, and the compute
    instances that are destroyed there."""
    beside: int
    """Compute instances that are destroyed next to a device user that surely stays."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """Costs as one number each, so that sums compare in the right order."""

    shares: tuple[tuple[int, int], ...]
    """Mask of shared device users, and the part of such a user's cost that each GPU bears."""
    user: int
    """Cost of one device user: a multiple of all shares, and more than the rest of any plan."""
    beside: int
    """Cost of a compute instance that is destroyed next to a device user: more than all losses."""

    def part(self, users: int) -> int:
        """The part of the cost of these shared device users that one GPU bears."""
        return sum((users & mask).bit_count() * share for mask, share in self.shares)


class _Gpu:
    """One GPU of the search, with the answers that it has given."""

    def __init__(self, options: Sequence[_Option], scale: _Scale) -> None:
        self._options = options
        self._scale = scale
        self._concerned = 0
        for option in options:
            self._concerned |= option.disturbed
            for users, _ in option.shrunk:
                self._concerned |= users
        self._known: dict[tuple[int, int], tuple[int, int, _Option] | None] = {}

    def least(self, gone: int, stay: int) -> tuple[int, int, _Option] | None:
        """The least cost, the least without device users, and the option of the least cost.

        ``gone``: shared device users that are disturbed anyway; ``stay``: those that must not be.
        Of the others the option bears its part, and they count as gone next to it, so the cost is
        never above that of any decision about them. None: every option disturbs one that stays.
        """
        key = gone & self._concerned, stay & self._concerned
        if key not in self._known:
            self._known[key] = self._answer(*key)
        return self._known[key]

    def _answer(self, gone: int, stay: int) -> tuple[int, int, _Option] | None:
        best: tuple[int, Tie, _Option] | None = None
        least_rest = -1
        for option in self._options:
            if option.disturbed & stay:
                continue
            beside = option.beside + sum(lost for users, lost in option.shrunk if users & stay)
            rest = beside * self._scale.beside + option.way.losses
            users = option.others * self._scale.user + self._scale.part(option.disturbed & ~gone)
            if best is None or (users + rest, option.way.tie) < best[:2]:
                best = users + rest, option.way.tie, option
            least_rest = rest if least_rest < 0 else min(rest, least_rest)
        return None if best is None else (best[0], least_rest, best[2])


def _least(choices: Sequence[Sequence[Way]]) -> tuple[Way, ...]:
    """The ways that together cost the least, for GPUs that share device users."""
    concerned = Counter(user for ways in choices for user in _concerned(ways))
    disturbing = Counter(
        user for ways in choices for user in Users().union(*(way.disturbed for way in ways))
    )
    shared = sorted(user for user in disturbing if concerned[user] > 1)
    bits = {user: 1 << bit for bit, user in enumerate(shared)}
    scale = _scale(choices, {bits[user]: disturbing[user] for user in shared})
    gpus = [_Gpu([_option(way, bits) for way in ways], scale) for ways in choices]
    everybody = (1 << len(shared)) - 1
    gone = _least_gone(gpus, scale, everybody)
    answers = [gpu.least(gone, everybody & ~gone) for gpu in gpus]
    return tuple(answer[2].way for answer in answers if answer is not None)


def _scale(choices: Sequence[Sequence[Way]], gpu_counts: Mapping[int, int]) -> _Scale:
    """``gpu_counts``: bit of a shared device user to the GPUs with ways that disturb it."""
    beside = 1 + sum(max(way.losses for way in ways) for ways in choices)
    user = lcm(*gpu_counts.values()) * beside * beside
    masks: dict[int, int] = {}
    for bit, count in gpu_counts.items():
        masks[count] = masks.get(count, 0) | bit
    shares = tuple((mask, user // count) for count, mask in sorted(masks.items()))
    return _Scale(shares, user, beside)


def _option(way: Way, bits: Mapping[DeviceUser, int]) -> _Option:
    shrunk, beside = [], 0
    for part in way.shrunk:
        staying = part.users - way.disturbed
        if staying <= bits.keys():
            shrunk.append((_mask(staying, bits), part.destroyed))
        else:
            beside += part.destroyed
    return _Option(
        way,
        _mask(way.disturbed & bits.keys(), bits),
        len(way.disturbed - bits.keys()),
        tuple(shrunk),
        beside,
    )


def _mask(users: Users, bits: Mapping[DeviceUser, int]) -> int:
    return sum(bits[user] for user in users)


def _least_gone(gpus: Sequence[_Gpu], scale: _Scale, everybody: int) -> int:
    """The shared device users that are disturbed by the ways that together cost the least."""
    best, best_gone = -1, everybody
    open_decisions = [(0, 0)]
    for _ in range(MOST_TRIED):
        if not open_decisions:
            break
        gone, stay = open_decisions.pop()
        answers = [gpu.least(gone, stay) for gpu in gpus]
        known = [answer for answer in answers if answer is not None]
        if len(known) < len(gpus):
            continue
        chosen = gone
        for _, _, option in known:
            chosen |= option.disturbed
        exact = [gpu.least(chosen, everybody & ~chosen) for gpu in gpus]
        cost = chosen.bit_count() * scale.user + sum(answer[0] for answer in exact if answer)
        if best < 0 or cost < best:
            best, best_gone = cost, chosen
        bound = gone.bit_count() * scale.user + sum(answer[0] for answer in known)
        if _rounded(bound, sum(answer[1] for answer in known), scale) >= best:
            continue
        undecided = everybody & ~gone & ~stay
        user = _next_user(undecided & chosen or undecided, known)
        open_decisions += [(gone, stay | user), (gone | user, stay)]
    return best_gone


def _rounded(bound: int, rest: int, scale: _Scale) -> int:
    """The bound with a whole number of device users; ``rest``: the least cost without them."""
    users, part = divmod(bound, scale.user)
    fraction = part >= scale.beside * scale.beside
    return (users + 1) * scale.user + rest if fraction else bound


def _next_user(users: int, known: Sequence[tuple[int, int, _Option]]) -> int:
    """The bit of the device user that the most of these options disturb; of several the lowest."""
    bits = [1 << bit for bit in range(users.bit_length()) if users >> bit & 1]
    return max(bits, key=lambda bit: sum(bool(option.disturbed & bit) for _, _, option in known))
