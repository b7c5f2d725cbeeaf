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
        chosen.update(zip(group, _Group([choices[index] for index in group]).least(), strict=True))
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


Cost = tuple[int, int, int]
"""Shares of disturbed device users; compute instances destroyed next to a device user that stays;
instances destroyed. The first difference decides, also between sums of costs."""


@dataclass(frozen=True, slots=True)
class _Option:
    """A way of a GPU as the search sees it; masks have a bit for each device user."""

    way: Way
    disturbed: int
    shrunk: tuple[tuple[int, int], ...]
    """Device users of a GPU instance that the way does not disturb, and the compute instances that
    are destroyed there."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The best option of a GPU."""

    cost: Cost
    rest: Cost
    """The least cost without that of device users, of any option."""
    option: _Option


class _Group:
    """The ways of GPUs that share device users, and the answers that are known of them."""

    def __init__(self, choices: Sequence[Sequence[Way]]) -> None:
        concerned = Counter(user for ways in choices for user in _concerned(ways))
        disturbing = Counter(
            user for ways in choices for user in Users().union(*(way.disturbed for way in ways))
        )
        bits = {user: 1 << bit for bit, user in enumerate(sorted(concerned))}
        self._gpu_counts = {
            bit: disturbing[user]
            for user, bit in bits.items()
            if user in disturbing and concerned[user] > 1
        }
        """Bit of a shared device user to the GPUs with ways that disturb it."""
        self._everybody = sum(self._gpu_counts)
        self._settled = sum(bits.values()) & ~self._everybody
        """Device users that stay unless their own GPU disturbs them: nothing has to be decided."""
        self._whole = lcm(*self._gpu_counts.values())
        """Shares of one device user: each GPU that can disturb it bears as many as another one."""
        masks = Counter[int]()
        for user, count in disturbing.items():
            masks[self._whole // count] += bits[user]
        self._shares = tuple(masks.items())
        self._options = [[_option(way, bits) for way in ways] for ways in choices]
        self._concerned = [_mask(_concerned(ways), bits) for ways in choices]
        self._known: dict[tuple[int, int, int], _Answer | None] = {}

    def least(self) -> tuple[Way, ...]:
        """The ways that together cost the least."""
        gone = self._least_gone()
        answers = self._answers(gone, self._everybody & ~gone)
        return tuple(answer.option.way for answer in answers or ())

    def _least_gone(self) -> int:
        """The shared device users that are disturbed by the ways that together cost the least."""
        best, best_gone = None, self._everybody
        open_decisions = [(0, 0)]
        for _ in range(MOST_TRIED):
            if not open_decisions:
                break
            gone, stay = open_decisions.pop()
            known = self._answers(gone, stay)
            if known is None:
                continue
            chosen = gone
            for answer in known:
                chosen |= answer.option.disturbed & self._everybody
            exact = self._answers(chosen, self._everybody & ~chosen) or ()
            cost = self._total(chosen, [answer.cost for answer in exact])
            if best is None or cost < best:
                best, best_gone = cost, chosen
            bound = self._total(gone, [answer.cost for answer in known])
            if bound[0] % self._whole:  # a part of a device user is a whole one in the end
                users = bound[0] // self._whole + 1
                _, *rest = self._total(0, [answer.rest for answer in known])
                bound = users * self._whole, rest[0], rest[1]
            if bound < best:
                undecided = self._everybody & ~gone & ~stay
                user = self._next_user(undecided & chosen or undecided, known)
                open_decisions += [(gone, stay | user), (gone | user, stay)]
        return best_gone

    def _answers(self, gone: int, stay: int) -> list[_Answer] | None:
        """The least that each GPU costs; None if each way of one GPU disturbs one who stays.

        ``gone``: shared device users that are disturbed anyway; ``stay``: those that must not be.
        Of the undecided ones a GPU bears its shares, and next to them nothing costs more, so the
        cost is never above that of any decision about them.
        """
        answers = []
        for index, concerned in enumerate(self._concerned):
            key = index, gone & concerned, stay & concerned
            if key not in self._known:
                self._known[key] = self._answer(*key)
            answer = self._known[key]
            if answer is None:
                return None
            answers.append(answer)
        return answers

    def _answer(self, index: int, gone: int, stay: int) -> _Answer | None:
        surely = stay | self._settled
        answers = []
        for option in self._options[index]:
            if not option.disturbed & stay:
                users = option.disturbed & ~gone
                shares = sum((users & mask).bit_count() * share for share, mask in self._shares)
                beside = sum(lost for users, lost in option.shrunk if users & surely)
                losses = option.way.losses
                answers.append(_Answer((shares, beside, losses), (0, beside, losses), option))
        if not answers:
            return None
        best = min(answers, key=lambda answer: (answer.cost, answer.option.way.tie))
        return replace(best, rest=min(answer.rest for answer in answers))

    def _total(self, gone: int, costs: Sequence[Cost]) -> Cost:
        """The cost of all GPUs together, with that of these shared device users."""
        shares, beside, losses = map(sum, zip(*costs, strict=True))
        return gone.bit_count() * self._whole + shares, beside, losses

    def _next_user(self, users: int, known: Sequence[_Answer]) -> int:
        """The bit of the device user to decide next, of those in ``users``.

        Where all GPUs that can disturb one agree, there is little to decide; of the others the one
        that the most of these answers disturb.
        """
        counts = {
            bit: sum(bool(answer.option.disturbed & bit) for answer in known)
            for bit in self._gpu_counts
            if bit & users
        }
        return max(counts, key=lambda bit: (0 < counts[bit] < self._gpu_counts[bit], counts[bit]))


def _option(way: Way, bits: Mapping[DeviceUser, int]) -> _Option:
    shrunk = [(_mask(part.users - way.disturbed, bits), part.destroyed) for part in way.shrunk]
    return _Option(way, _mask(way.disturbed, bits), tuple(shrunk))


def _mask(users: Users, bits: Mapping[DeviceUser, int]) -> int:
    return sum(bits[user] for user in users)
