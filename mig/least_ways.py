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
from dataclasses import dataclass, replace
from math import lcm
from typing import Final

from mig.gpu_ways import Users, Way
from mig.users.device_users import DeviceUser

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


@dataclass(frozen=True, slots=True)
class _Answer:
    """The best option of a GPU."""

    cost: int
    rest: int
    """The least cost without that of device users, of any option."""
    option: _Option


class _Gpu:
    """The ways of one GPU in the search, and the answers that are known of them."""

    def __init__(self, options: Sequence[_Option], scale: _Scale) -> None:
        self._options = options
        self._scale = scale
        self._concerned = 0
        for option in options:
            self._concerned |= option.disturbed
            for users, _ in option.shrunk:
                self._concerned |= users
        self._known: dict[tuple[int, int], _Answer | None] = {}

    def least(self, gone: int, stay: int) -> _Answer | None:
        """The least that the GPU costs; None if each of its ways disturbs one who stays.

        ``gone``: shared device users that are disturbed anyway; ``stay``: those that must not be.
        Of the undecided ones the GPU bears its part, and next to them nothing costs more, so the
        cost is never above that of any decision about them.
        """
        key = gone & self._concerned, stay & self._concerned
        if key not in self._known:
            self._known[key] = self._answer(*key)
        return self._known[key]

    def _answer(self, gone: int, stay: int) -> _Answer | None:
        answers = []
        for option in self._options:
            if not option.disturbed & stay:
                beside = sum(lost for users, lost in option.shrunk if users & stay)
                rest = (option.beside + beside) * self._scale.beside + option.way.losses
                users = self._scale.part(option.disturbed & ~gone)
                users += option.others * self._scale.user
                answers.append(_Answer(users + rest, rest, option))
        if not answers:
            return None
        best = min(answers, key=lambda answer: (answer.cost, answer.option.way.tie))
        return replace(best, rest=min(answer.rest for answer in answers))


def _least(choices: Sequence[Sequence[Way]]) -> tuple[Way, ...]:
    """The ways that together cost the least, for GPUs that share device users."""
    concerned = Counter(user for ways in choices for user in _concerned(ways))
    disturbing = Counter(
        user for ways in choices for user in Users().union(*(way.disturbed for way in ways))
    )
    shared = sorted(user for user in disturbing if concerned[user] > 1)
    bits = {user: 1 << bit for bit, user in enumerate(shared)}
    gpu_counts = {bits[user]: disturbing[user] for user in shared}
    scale = _scale(choices, gpu_counts)
    gpus = [_Gpu([_option(way, bits) for way in ways], scale) for ways in choices]
    gone = _least_gone(gpus, scale, gpu_counts)
    answers = _answers(gpus, gone, sum(gpu_counts) & ~gone)
    return tuple(answer.option.way for answer in answers or ())


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


def _least_gone(gpus: Sequence[_Gpu], scale: _Scale, disturbing: Mapping[int, int]) -> int:
    """The shared device users that are disturbed by the ways that together cost the least.

    ``disturbing``: bit of a shared device user to the GPUs with ways that disturb it.
    """
    everybody = sum(disturbing)
    best, best_gone = -1, everybody
    open_decisions = [(0, 0)]
    for _ in range(MOST_TRIED):
        if not open_decisions:
            break
        gone, stay = open_decisions.pop()
        known = _answers(gpus, gone, stay)
        if known is None:
            continue
        chosen = gone
        for answer in known:
            chosen |= answer.option.disturbed
        exact = _answers(gpus, chosen, everybody & ~chosen) or ()
        cost = chosen.bit_count() * scale.user + sum(answer.cost for answer in exact)
        if best < 0 or cost < best:
            best, best_gone = cost, chosen
        bound = gone.bit_count() * scale.user + sum(answer.cost for answer in known)
        if _rounded(bound, sum(answer.rest for answer in known), scale) >= best:
            continue
        undecided = everybody & ~gone & ~stay
        user = _next_user(undecided & chosen or undecided, known, disturbing)
        open_decisions += [(gone, stay | user), (gone | user, stay)]
    return best_gone


def _answers(gpus: Sequence[_Gpu], gone: int, stay: int) -> list[_Answer] | None:
    """The answer of each GPU; None if one of them has no way."""
    answers = [gpu.least(gone, stay) for gpu in gpus]
    known = [answer for answer in answers if answer is not None]
    return known if len(known) == len(gpus) else None


def _rounded(bound: int, rest: int, scale: _Scale) -> int:
    """The bound with a whole number of device users; ``rest``: the least cost without them."""
    users, part = divmod(bound, scale.user)
    fraction = part >= scale.beside * scale.beside
    return (users + 1) * scale.user + rest if fraction else bound


def _next_user(users: int, known: Sequence[_Answer], disturbing: Mapping[int, int]) -> int:
    """The bit of the device user to decide next, of those in ``users``.

    Where all GPUs that can disturb one agree, there is little to decide; of the others the one that
    the most of these answers disturb.
    """
    counts = {
        bit: sum(bool(answer.option.disturbed & bit) for answer in known)
        for bit in disturbing
        if bit & users
    }
    return max(counts, key=lambda bit: (0 < counts[bit] < disturbing[bit], counts[bit]))
