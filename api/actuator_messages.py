# SPDX-License-Identifier: Apache-2.0
"""What the agent and the actuator say on the actuator's socket, version 1. Values.

One connection has one request and one answer, each a line of JSON. Requests are read strictly: an
unknown key, another version or a value out of its range is refused, never passed over, since what
is not understood might be what makes the difference. Answers only gain keys.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from api.mig_resources import MigStrategy
from base.errors import BadInput

VERSION: Final = 1
MOST_REQUEST_BYTES: Final = 1 << 18
"""Sixteen GPUs with seven instances each, and a pod on every one, take 40 KiB."""
MOST_ANSWER_BYTES: Final = 1 << 16
MOST_USERS: Final = 256
"""Of an answer: 100 bytes each."""
MOST_TEXT: Final = 2000
"""Characters of a text in an answer."""

GpuUuid = Annotated[str, Meta(pattern=r"\AGPU-[0-9A-Za-z-]{1,64}\Z")]
ChangeId = Annotated[str, Meta(pattern=r"\A[0-9A-Za-z-]{8,64}\Z")]
"""Made by whoever asks, such as a random UUID; never used for another change."""
Words = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f\u2028\u2029\ud800-\udfff]{0,256}\Z")]
"""One line of text for people."""
_Slices = Annotated[int, Meta(ge=1, le=16)]


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base: unknown keys are errors."""


class InstanceAsked(_Request, frozen=True, kw_only=True):
    """A GPU instance of a layout."""

    profile: Annotated[
        str, Meta(pattern=r"\A[0-9]{1,2}g\.[0-9]{1,4}gb([+-][0-9A-Za-z.,]{1,24})?\Z")
    ]
    """Without compute slices in front."""
    compute: Annotated[tuple[_Slices, ...], Meta(min_length=1, max_length=16)]
    """Slices of each of its compute instances."""
    start: Annotated[int, Meta(ge=0, le=63)] | None = None
    """First memory unit; None for any."""


class LayoutAsked(_Request, frozen=True, kw_only=True):
    """What one GPU is to look like."""

    mig: bool
    instances: Annotated[tuple[InstanceAsked, ...], Meta(max_length=64)] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for instances with MIG off."""
        if self.instances and not self.mig:
            raise ValueError("instances with MIG off")


class PodOnGpu(_Request, frozen=True, kw_only=True):
    """A pod, or the claim of one, that holds a GPU instance: the driver knows neither."""

    gpu: GpuUuid
    instance: Annotated[int, Meta(ge=0, le=255)] | None
    """None: the whole GPU."""
    kind: Literal["pod", "claim"]
    name: Annotated[str, Meta(pattern=r"\A[0-9a-z./-]{1,320}\Z")]
    """``namespace/name``."""


PodsOnGpus = Annotated[tuple[PodOnGpu, ...], Meta(max_length=2048)]


class StateRequest(_Request, frozen=True, kw_only=True, tag_field="verb", tag="state"):
    """What is open, and how the last change ended. Changes nothing."""

    v: Literal[1] = VERSION
    change: ChangeId | None = None
    """What became of this one is asked as well."""


class ApplyRequest(_Request, frozen=True, kw_only=True, tag_field="verb", tag="apply"):
    """Bring GPUs to layouts.

    Asked a second time with the same ``change``, it is answered with how that change ended.
    """

    v: Literal[1] = VERSION
    change: ChangeId
    asked: Words
    """Where the layouts come from, for people."""
    wanted: Annotated[dict[GpuUuid, LayoutAsked], Meta(min_length=1, max_length=64)]
    """By GPU UUID; other GPUs stay as they are."""
    strategy: MigStrategy | None = None
    """The device plugin's."""
    pods: PodsOnGpus = ()


class RestoreRequest(_Request, frozen=True, kw_only=True, tag_field="verb", tag="restore"):
    """End the change that is open or held; a held one is taken back.

    Where none is, layouts come back that a reboot or a load of the driver took.
    """

    v: Literal[1] = VERSION
    change: ChangeId
    """Which one: a request for one that has ended is answered with how it did."""
    pods: PodsOnGpus = ()
    give_up: Annotated[tuple[GpuUuid, ...], Meta(max_length=64)] = ()
    """GPUs to take out of the changes that are open or held, before anything else is done."""


class UseRequest(_Request, frozen=True, kw_only=True, tag_field="verb", tag="use"):
    """Which programs have GPUs open. Changes nothing."""

    v: Literal[1] = VERSION


ActuatorRequest = StateRequest | UseRequest | ApplyRequest | RestoreRequest


class ChangeEnd(StrEnum):
    """How a request for a change ended."""

    APPLIED = "applied"
    """The GPUs have the wanted layouts."""
    PREVIOUS = "previous"
    """They have those from before; ``reason`` says why."""
    HELD = "held"
    """Neither could be reached; a person decides."""
    UNCHANGED = "unchanged"
    """They had the wanted layouts already, or nothing was open."""
    REFUSED = "refused"
    """There is no plan, or somebody would be disturbed: nothing was touched."""


class ActuatorRefusal(StrEnum):
    """Why a request is not met. Nothing was done."""

    MALFORMED = "malformed"
    """It is no request of this version."""
    VERSION = "version"
    """It is of another version."""
    TOO_LARGE = "too-large"
    SLOW = "slow"
    """It was not there in time."""
    CROWDED = "crowded"
    """Others had all places."""
    PEER = "peer"
    """The user who asks may not."""
    BUSY = "busy"
    """A change is under way; ``change`` names it where this actuator carries it out."""
    STOPPING = "stopping"
    """The actuator ends."""
    CONFLICT = "conflict"
    """Another change has this name, another one than this is open, or one is held on a GPU of this
    one."""
    JOURNAL = "journal"
    """The journal cannot be used."""
    FAILED = "failed"
    """The change could not begin, or its end is not known; where it had begun, it is open now."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base: readers pass over keys that they do not know."""


class KnownChange(_Answer, frozen=True, kw_only=True):
    """A change in the journal."""

    change: str
    asked: str
    started: str
    """RFC 3339."""
    gpus: tuple[str, ...]
    """UUIDs of the affected ones; of a change that is held those that hold it."""
    back: bool = False
    """It goes, or went, back to the layouts from before."""
    end: ChangeEnd | None = None
    """None: it has not ended."""
    reason: str = ""


class StateAnswer(_Answer, frozen=True, kw_only=True, tag_field="answer", tag="state"):
    """What the actuator knows."""

    v: Literal[1] = VERSION
    running: str | None = None
    """The change that is being carried out."""
    open: KnownChange | None = None
    """In the journal: it runs, was interrupted, or is held."""
    last: KnownChange | None = None
    """That ended last."""
    named: KnownChange | None = None
    """The one that the request names; None where the journal does not have it: it has not begun, or
    more changes than the history keeps have ended since."""
    problem: str = ""
    """Why the journal cannot be read."""


class ChangeAnswer(_Answer, frozen=True, kw_only=True, tag_field="answer", tag="change"):
    """How a change ended."""

    v: Literal[1] = VERSION
    change: str
    end: ChangeEnd
    reason: str = ""
    again: bool = False
    """It had ended before this request, which did nothing."""


class RefusalAnswer(_Answer, frozen=True, kw_only=True, tag_field="answer", tag="refusal"):
    """Why a request is not met."""

    v: Literal[1] = VERSION
    refusal: ActuatorRefusal
    reason: str
    change: str | None = None
    """The one that is in the way."""


class GpuUser(_Answer, frozen=True, kw_only=True):
    """A program that has device files of a GPU open."""

    minor: int
    """The GPU's minor number."""
    pid: int
    """As the host counts."""
    name: str = ""
    """In 15 characters at most."""
    pod: str = ""
    """UID of its pod; empty where it is no pod's."""


class UseAnswer(_Answer, frozen=True, kw_only=True, tag_field="answer", tag="use"):
    """Who has GPUs open, apart from the asker and its own programs."""

    v: Literal[1] = VERSION
    users: tuple[GpuUser, ...] = ()
    more: int = 0
    """That are not named."""


ActuatorAnswer = StateAnswer | UseAnswer | ChangeAnswer | RefusalAnswer


class _Version(msgspec.Struct):
    v: int


_HEADS: Final = msgspec.json.Decoder(_Version)
_REQUESTS: Final[msgspec.json.Decoder[ActuatorRequest]] = msgspec.json.Decoder(ActuatorRequest)
_ANSWERS: Final[msgspec.json.Decoder[ActuatorAnswer]] = msgspec.json.Decoder(ActuatorAnswer)


class OtherVersion(BadInput):
    """A request of another version."""


def read_request(line: bytes) -> ActuatorRequest:
    """The request in one line. Raises OtherVersion, and BadInput for all else that is none."""
    try:
        version = _HEADS.decode(line).v
        if version != VERSION:
            raise OtherVersion(f"version {version} is not spoken here, but {VERSION}")
        return _REQUESTS.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadInput(f"no request: {error}") from error


def read_answer(line: bytes) -> ActuatorAnswer:
    """The answer in one line. Raises BadInput for what is none."""
    try:
        return _ANSWERS.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadInput(f"no answer: {error}") from error


def written(message: ActuatorRequest | ActuatorAnswer) -> bytes:
    """A message as its line, without the line's end."""
    return msgspec.json.encode(message)
