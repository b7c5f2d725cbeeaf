# SPDX-License-Identifier: Apache-2.0
"""What the supervisor of MIG changes and its worker send each other: a line of JSON each. Values.

The order is all of the worker's standard input; log lines and the end come on its standard output.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from actuator.change import ChangeResult
from actuator.journal import JournalBusy, JournalUnusable
from actuator.mig_world import StepFailed
from actuator.selftest import OfferedNow, TriedLayout
from api.mig_resources import MigStrategy
from base.errors import BadInput, GpuscapeError, Transient
from discovery.driver_errors import DriverAbsent, DriverMismatch
from discovery.reader.protocol import Start
from mig.gpu_layout import GpuLayout
from mig.holders import HolderKind, MigHolder, MigHolders, MigPart

MOST_MESSAGE_BYTES: Final = 1 << 20
"""Of one line; a refusal that names holders on sixteen GPUs has 20 KiB."""


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base: unknown keys are errors."""


class NamedHolder(_Strict, frozen=True, kw_only=True):
    """A pod, or the claim of one, that holds a part of a GPU: the driver knows neither."""

    gpu: str
    """UUID."""
    instance: int | None
    """Id of the GPU instance; None for the whole GPU."""
    kind: HolderKind
    name: str
    """``namespace/name``."""


class ChangeRequest(_Strict, frozen=True, kw_only=True):
    """A change of MIG layouts that is asked for."""

    wanted: dict[str, GpuLayout]
    """By GPU UUID; other GPUs stay as they are."""
    change: str = ""
    """Its name in journal and history; one of its own unless given."""
    asked: str
    """Where the layouts come from, for people: ``all-1g.10gb of config.yaml``."""
    strategy: MigStrategy | None = None
    """The device plugin's; None where there is none."""
    holders: tuple[NamedHolder, ...] = ()
    as_is: bool = False
    """Only see and remember the layouts: whoever asks has found that no step is needed."""


class SelftestRequest(_Strict, frozen=True, kw_only=True):
    """A self-test that is asked for."""

    gpu: str
    """UUID."""
    seconds: float
    """No layout is begun later than that."""


class Order(_Strict, frozen=True, kw_only=True):
    """What one worker is started for."""

    start: Start
    journal: str
    request: ChangeRequest | None
    """None: end what is open, and begin nothing."""
    selftest: SelftestRequest | None = None
    """In the place of a change."""
    until: int | None = None
    """Descriptor; as soon as it can be read, or its other end is closed, a self-test goes back."""
    holders: tuple[NamedHolder, ...]
    give_up: tuple[str, ...] = ()
    """UUIDs of GPUs to take out of the changes that are open, first of all."""
    owner: bool = False
    """The actuator has it done, which has the journal's folder for its whole life."""
    lifetime_seconds: float
    """The worker ends itself after that, in case its supervisor is gone."""


class Logged(_Strict, frozen=True, kw_only=True, tag=True):
    """A line for the supervisor's log."""

    logger: str
    level: int
    message: str
    facts: dict[str, str]


class Tried(_Strict, frozen=True, kw_only=True, tag=True):
    """What a self-test has come to."""

    layout: TriedLayout | None = None
    offered: OfferedNow | None = None


class Ended(_Strict, frozen=True, kw_only=True, tag=True):
    """The last message: how it ended."""

    result: ChangeResult


class Failed(_Strict, frozen=True, kw_only=True, tag=True):
    """The last message: an error that is raised again in the supervisor."""

    kind: str
    text: str


WorkerMessage = Logged | Tried | Ended | Failed

_ERRORS: Final[tuple[type[GpuscapeError], ...]] = (
    JournalBusy,
    JournalUnusable,
    StepFailed,
    DriverAbsent,
    DriverMismatch,
    BadInput,
)


def failed(error: GpuscapeError) -> Failed:
    """An error as a message."""
    kind = next((one for one in _ERRORS if type(error) is one), Transient)
    return Failed(kind=kind.__name__, text=str(error))


def raised(message: Failed) -> GpuscapeError:
    """A message as the error that it was."""
    kind = next((one for one in _ERRORS if one.__name__ == message.kind), Transient)
    return kind(message.text)


def by_part(holders: Iterable[NamedHolder]) -> MigHolders:
    """Holders as the planner has them."""
    found: dict[MigPart, set[MigHolder]] = {}
    for one in holders:
        part = MigPart(one.gpu, one.instance)
        found.setdefault(part, set()).add(MigHolder(one.kind, one.name))
    return {part: frozenset(of) for part, of in found.items()}
