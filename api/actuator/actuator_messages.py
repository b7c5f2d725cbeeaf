# SPDX-License-Identifier: Apache-2.0
"""Messages between the agent and the actuator on the actuator's socket, version 2. Values.

One connection has one request and one answer, each a line of JSON. Requests are read strictly: an
unknown key, another version or a value out of its range is refused, never passed over, since an
ignored key could change the meaning of the request. Answers only gain keys.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from api.mig_outcome import GpuOutcome, Outcome
from api.mig_resources import MigStrategy
from base.errors import BadInput

VERSION: Final = 2
MOST_REQUEST_BYTES: Final = 1 << 18
"""Size of a request; sixteen GPUs with seven instances each, and a pod on each, take 40 KiB."""
MOST_ANSWER_BYTES: Final = 1 << 17
MOST_USERS: Final = 256
"""Device users that an answer lists, at 100 bytes each."""
MOST_TEXT: Final = 2000
"""Characters of a text in an answer."""
MOST_GPU_TEXT: Final = 160
"""Characters of the reason for one GPU in an answer."""

GpuUuid = Annotated[str, Meta(pattern=r"\AGPU-[0-9A-Za-z-]{1,64}\Z")]
ChangeId = Annotated[str, Meta(pattern=r"\A[0-9A-Za-z-]{8,64}\Z")]
"""Id of a change, such as a random UUID: the client makes it, and uses it for this change only."""
Words = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f\u2028\u2029\ud800-\udfff]{0,256}\Z")]
"""A line of text for people."""
_Slices = Annotated[int, Meta(ge=1, le=16)]


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base: unknown keys are errors."""


class RequestedInstance(_Request, frozen=True, kw_only=True):
    """A GPU instance of a layout."""

    profile: Annotated[
        str, Meta(pattern=r"\A[0-9]{1,2}g\.[0-9]{1,4}gb([+-][0-9A-Za-z.,]{1,24})?\Z")
    ]
    """Name of the GPU instance's profile, such as ``3g.40gb``, without compute slices in front."""
    compute: Annotated[tuple[_Slices, ...], Meta(min_length=1, max_length=16)]
    """Slices of each of its compute instances."""
    start: Annotated[int, Meta(ge=0, le=63)] | None = None
    """First memory unit; None for any."""


class RequestedLayout(_Request, frozen=True, kw_only=True):
    """The desired layout of one GPU."""

    mig: bool
    instances: Annotated[tuple[RequestedInstance, ...], Meta(max_length=64)] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for instances with MIG off."""
        if self.instances and not self.mig:
            raise ValueError("instances with MIG off")


class PodOnGpu(_Request, frozen=True, kw_only=True, omit_defaults=True):
    """A pod, or a pending pod, that uses a part of a GPU; the driver knows neither of them.

    An actuator of 0.1.0 refuses ``compute``, so the key is there only where it says something.
    """

    gpu: GpuUuid
    instance: Annotated[int, Meta(ge=0, le=255)] | None
    """None: the whole GPU."""
    compute: Annotated[int, Meta(ge=0, le=255)] | None = None
    """Id of the compute instance; None: all of the GPU instance, or not known."""
    kind: Literal["pod", "pending-pod"]
    name: Annotated[str, Meta(pattern=r"\A[0-9a-z./-]{1,320}\Z")]
    """``namespace/name``."""


PodsOnGpus = Annotated[tuple[PodOnGpu, ...], Meta(max_length=2048)]


class StateRequest(_Request, frozen=True, kw_only=True, tag_field="verb", tag="state"):
    """Asks which change is open and how the last one ended. Changes nothing."""

    v: Literal[2] = VERSION
    change: ChangeId | None = None
    """Id of a change whose outcome is asked for as well."""


class ApplyRequest(_Request, frozen=True, kw_only=True, tag_field="verb", tag="apply"):
    """Asks for a change that brings GPUs to their desired layouts, each by itself.

    A second request with the same ``change`` is answered with how that change ended. One that waits
    for a boot is answered with its state.
    """

    v: Literal[2] = VERSION
    change: ChangeId
    origin: Words
    """Origin of the layouts, for people."""
    desired: Annotated[dict[GpuUuid, RequestedLayout], Meta(min_length=1, max_length=64)]
    """Desired layouts by GPU UUID; other GPUs stay as they are."""
    strategy: MigStrategy | None = None
    """MIG strategy of the device plugin."""
    pods: PodsOnGpus = ()
    mode_change: Literal["driver"] | UnsetType = UNSET
    """Permission to switch modes that need a reset. Left out where none does: older actuators
    refuse a request that has it."""


class RestoreRequest(_Request, frozen=True, kw_only=True, tag_field="verb", tag="restore"):
    """Asks to end the changes that are open or stuck; stuck ones are rolled back.

    Where no change is open, layouts come back that a reboot or a load of the driver took.
    """

    v: Literal[2] = VERSION
    change: ChangeId
    """Id of this change; once it has ended, a request with it is answered with how it ended."""
    pods: PodsOnGpus = ()
    give_up: Annotated[tuple[GpuUuid, ...], Meta(max_length=64)] = ()
    """GPUs to take out of the changes that are open or stuck, before anything else is done."""


class UseRequest(_Request, frozen=True, kw_only=True, tag_field="verb", tag="use"):
    """Asks which programs have GPUs open. Changes nothing."""

    v: Literal[2] = VERSION


ActuatorRequest = StateRequest | UseRequest | ApplyRequest | RestoreRequest


class ActuatorRefusal(StrEnum):
    """Reasons to refuse a request. Nothing was done."""

    MALFORMED = "malformed"
    """The line is no request of this version."""
    VERSION = "version"
    """The request is of another version."""
    TOO_LARGE = "too-large"
    SLOW = "slow"
    """The request was not complete in time."""
    CROWDED = "crowded"
    """Other clients had all connections."""
    PEER = "peer"
    """The client's user has no right to ask."""
    BUSY = "busy"
    """A change is under way; ``change`` names it where this actuator carries it out."""
    STOPPING = "stopping"
    """The actuator is about to end."""
    CONFLICT = "conflict"
    """Another change has this id, or has not ended on one of these GPUs."""
    JOURNAL = "journal"
    """The journal cannot be read or written."""
    FAILED = "failed"
    """The change could not begin, or its outcome is not known; if it had begun, it is open."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base: readers pass over keys that they do not know."""


class KnownChange(_Answer, frozen=True, kw_only=True):
    """A change in the journal."""

    change: str
    origin: str
    started: str
    """RFC 3339."""
    gpus: tuple[str, ...]
    """UUIDs of the GPUs on which the change goes on or is stuck; once it has ended, of all."""
    back: bool = False
    """The change goes, or went, back to the previous layout on one of these GPUs."""
    outcome: Outcome | None = None
    """The worst outcome of its GPUs; None: the change has not ended."""
    reason: str = ""
    outcomes: tuple[GpuOutcome, ...] = ()
    """Outcome on each affected GPU, without those on which the change goes on."""
    awaits_boot: str = ""
    """File that asks for the boot for which the change waits; empty where it waits for none. A
    RestoreRequest with the change's id takes its mode back instead."""


class StateAnswer(_Answer, frozen=True, kw_only=True, tag_field="answer", tag="state"):
    """The changes that the actuator knows."""

    v: Literal[2] = VERSION
    running: str | None = None
    """Id of the change that is being carried out."""
    open: KnownChange | None = None
    """The change in the journal that has not ended: it runs, was interrupted, or is stuck."""
    last: KnownChange | None = None
    """The change that ended last."""
    named: KnownChange | None = None
    """The change that the request names; None where the journal does not have it: it has not begun,
    or more changes than the history keeps have ended since."""
    stuck: tuple[GpuOutcome, ...] = ()
    """The GPUs on which a change is stuck, whichever change that is."""
    problem: str = ""
    """Why the journal cannot be read."""
    no_reboot: str = ""
    """Why no boot can be asked for, where the settings allow one: no mode is to be changed then."""


class ChangeAnswer(_Answer, frozen=True, kw_only=True, tag_field="answer", tag="change"):
    """How a change ended."""

    v: Literal[2] = VERSION
    change: str
    outcome: Outcome
    """The worst outcome of its GPUs."""
    reason: str = ""
    outcomes: tuple[GpuOutcome, ...] = ()
    """Outcome on each GPU of the request; empty where nothing was begun."""
    again: bool = False
    """The change had ended before this request, which did nothing."""


class RefusalAnswer(_Answer, frozen=True, kw_only=True, tag_field="answer", tag="refusal"):
    """The refusal of a request, with its reason."""

    v: Literal[2] = VERSION
    refusal: ActuatorRefusal
    reason: str
    change: str | None = None
    """Id of the change that is in the way."""


class GpuUser(_Answer, frozen=True, kw_only=True):
    """A program that has device files of a GPU open."""

    minor: int
    """The GPU's minor number."""
    pid: int
    """Process id in the host's PID namespace."""
    name: str = ""
    """Name of the program, at most 15 characters."""
    pod: str = ""
    """UID of its pod; empty where the program is in no pod."""


class UseAnswer(_Answer, frozen=True, kw_only=True, tag_field="answer", tag="use"):
    """The programs that have GPUs open, without the client and its own programs."""

    v: Literal[2] = VERSION
    users: tuple[GpuUser, ...] = ()
    more: int = 0
    """Number of further programs, which ``users`` has no room for."""
    together: str = ""
    """Why no GPU can be reset alone, but all of them in one command; empty where each one can."""
    may_reset: bool = False
    """Whether nvidia-smi may make that reset."""


ActuatorAnswer = StateAnswer | UseAnswer | ChangeAnswer | RefusalAnswer


class _Version(msgspec.Struct):
    v: int


_HEADS: Final = msgspec.json.Decoder(_Version)
_REQUESTS: Final[msgspec.json.Decoder[ActuatorRequest]] = msgspec.json.Decoder(ActuatorRequest)
_ANSWERS: Final[msgspec.json.Decoder[ActuatorAnswer]] = msgspec.json.Decoder(ActuatorAnswer)


class OtherVersion(BadInput):
    """A request of another version."""


def decode_request(line: bytes) -> ActuatorRequest:
    """The request in one line. Raises OtherVersion, and BadInput for what is no request."""
    try:
        version = _HEADS.decode(line).v
        if version != VERSION:
            raise OtherVersion(f"version {version} is not spoken here, but {VERSION}")
        return _REQUESTS.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadInput(f"no request: {error}") from error


def decode_answer(line: bytes) -> ActuatorAnswer:
    """The answer in one line. Raises BadInput for what is no answer."""
    try:
        return _ANSWERS.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadInput(f"no answer: {error}") from error


def encode_message(message: ActuatorRequest | ActuatorAnswer) -> bytes:
    """A message as its line, without the line's end."""
    return msgspec.json.encode(message)
