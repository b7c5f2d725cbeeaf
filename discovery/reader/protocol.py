# SPDX-License-Identifier: Apache-2.0
"""Frames between the agent and its device reader: length-prefixed, bounded, schema-checked JSON.

The agent sends one request at a time; the reader answers with frames that carry
the request's number and ends with :class:`Done` or :class:`RequestRefused`. Before it
makes the first driver call on a GPU it sends :class:`Touching`, so that the agent
knows which GPU hangs when nothing more comes. A GPU whose answer is not known yet it
touches only when the agent allows it (:class:`Proceed`): a reader that the agent has left
waiting for one GPU goes on to no other. Events arrive at any time.
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import Final, Generic, Literal, TypeVar

import msgspec

from discovery.driver_errors import ProtocolViolation
from discovery.gpu_counts import NO_GPUS, GpuCounts
from discovery.mig_state import MigGpu, UnreadMigGpu
from discovery.model import Driver, GpuSnapshot
from discovery.sample import GpuSample, ReadingGroup

MAX_FRAME_BYTES = 4 << 20
"""A GPU with 36 links and 14 MIG devices is 12 KiB; anything near this is a broken peer."""

_LENGTH = struct.Struct(">I")


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag=True):
    """Base of all messages: the class name is the tag."""


# agent to reader


class ReaderLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Resources that a reader may take before it is replaced; None: any amount."""

    memory_bytes: int | None = None
    """Private memory."""
    descriptors: int | None = None


class Start(_Message, frozen=True, kw_only=True):
    """First message: what to read, and what to leave alone."""

    host_root: str = "/"
    """Below it lie ``sys`` and ``dev``."""
    library: str | None = None
    """Path of libnvidia-ml.so.1; None lets the loader find it."""
    simulation: str | None = None
    """State file of the simulator to put under pynvml instead of the library."""
    skip: tuple[str, ...] = ()
    """Bus ids that must not be touched: quarantined GPUs."""
    only: tuple[str, ...] | None = None
    """Bus ids to confine the reader to, for probing a quarantined GPU."""
    events: bool = True
    """Whether XIDs are sent as they come; a reader that waits for them ends up to 0.5 s later."""
    limits: ReaderLimits = ReaderLimits()


class Discover(_Message, frozen=True, kw_only=True):
    """Read everything: DriverFrame, then a GpuFrame for each GPU."""

    request: int


class Sample(_Message, frozen=True, kw_only=True):
    """Read what changes by the second: a SampleFrame for each GPU."""

    request: int
    groups: tuple[ReadingGroup, ...] = ()
    """Readings that are made in addition to those that always are."""


class ReadMig(_Message, frozen=True, kw_only=True):
    """Read all that changing MIG layouts takes: DriverFrame, then for each GPU a MigFrame or an
    UnreadMigFrame."""

    request: int


class Proceed(_Message, frozen=True, kw_only=True):
    """Touch the GPU that was announced with ``asks``."""


class Enough(_Message, frozen=True, kw_only=True):
    """Leave the GPU that was announced with ``asks`` alone, and end the answer with Done here.

    The handles that are open stay open.
    """


class Stop(_Message, frozen=True, kw_only=True):
    """Close all NVML handles and end."""


Request = Discover | Sample | ReadMig
"""Messages that are answered in frames."""

AgentMessage = Start | Request | Proceed | Enough | Stop


# reader to agent


class Touching(_Message, frozen=True, kw_only=True):
    """The next driver calls go to this GPU; None: to the driver as a whole."""

    request: int
    bus_id: str | None
    first: bool = False
    """It has not answered this reader yet, so it may have to be initialised."""
    asks: bool = False
    """It has not answered a request of this kind to this reader yet, so it may hang: the reader
    waits for Proceed or Enough, and calls nothing before."""

    @property
    def target(self) -> str:
        """The bus id, or ``driver``."""
        return self.bus_id or "driver"


class DriverFrame(_Message, frozen=True, kw_only=True):
    """The driver's own facts, and the bus ids that will be read."""

    request: int
    driver: Driver
    listed: tuple[str, ...]
    """Bus ids of the GPUs that should answer, in PCI bus order, skipped ones included."""
    elsewhere: tuple[str, ...] = ()
    """Bus ids of GPUs that are not the NVIDIA driver's: bound to another one, or excluded."""
    counts: GpuCounts = NO_GPUS


class GpuFrame(_Message, frozen=True, kw_only=True):
    """Facts of a GPU."""

    request: int
    gpu: GpuSnapshot


class SampleFrame(_Message, frozen=True, kw_only=True):
    """Readings of a GPU."""

    request: int
    sample: GpuSample


class MigFrame(_Message, frozen=True, kw_only=True):
    """MIG state of a GPU."""

    request: int
    gpu: MigGpu


class UnreadMigFrame(_Message, frozen=True, kw_only=True):
    """A GPU whose MIG state could not be read in full."""

    request: int
    gpu: UnreadMigGpu


class Done(_Message, frozen=True, kw_only=True):
    """The request is answered in full."""

    request: int


class RequestRefused(_Message, frozen=True, kw_only=True):
    """The request could not be answered at all; the text says why."""

    request: int
    kind: Literal["absent", "mismatch", "failed"]
    text: str


class XidSeen(_Message, frozen=True, kw_only=True):
    """The driver reported an XID error."""

    bus_id: str
    code: int
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    recovered: bool = False
    """The driver reported with it that the GPU needs no recovery action any more; NVML's events do
    not have that, the kernel log has."""


class EventsLost(_Message, frozen=True, kw_only=True):
    """Event delivery ended or could not start; the text says why. The reader goes on without."""

    text: str


class Grown(_Message, frozen=True, kw_only=True):
    """The reader takes more than it may, and is to be replaced; it goes on meanwhile."""

    class Resource(StrEnum):
        """Resource of the host that the reader takes."""

        MEMORY = "memory"
        DESCRIPTORS = "descriptors"

    resource: Resource
    amount: int
    """Bytes, or descriptors."""
    limit: int


Answer = (
    Touching
    | DriverFrame
    | GpuFrame
    | SampleFrame
    | MigFrame
    | UnreadMigFrame
    | Done
    | RequestRefused
)
"""Messages that belong to a request."""

Event = XidSeen | EventsLost
"""Messages that come without a request."""

ReaderMessage = Answer | Event | Grown

# made once, before there are threads: two that see a type first at the same time end the process
_FROM_AGENT: Final[msgspec.json.Decoder[AgentMessage]] = msgspec.json.Decoder(AgentMessage)
_FROM_READER: Final[msgspec.json.Decoder[ReaderMessage]] = msgspec.json.Decoder(ReaderMessage)

_Side = TypeVar("_Side")


class Framer(Generic[_Side]):
    """Cut a byte stream into messages of one side; feed it what arrives, in any portions."""

    def __init__(self, decoder: msgspec.json.Decoder[_Side]) -> None:
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[_Side]:
        """The messages completed by ``data``, in order.

        Raises ProtocolViolation for a frame over MAX_FRAME_BYTES or one that does
        not match the schema; the stream cannot be used afterwards.
        """
        self._buffer += data
        messages = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME_BYTES:
                raise ProtocolViolation(f"frame of {length} bytes, above {MAX_FRAME_BYTES}")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            try:
                messages.append(self._decoder.decode(self._buffer[_LENGTH.size : end]))
            except msgspec.MsgspecError as error:
                raise ProtocolViolation(f"frame does not match the schema: {error}") from error
            del self._buffer[:end]
        return messages


def frame(message: AgentMessage | ReaderMessage) -> bytes:
    """A message as it goes over the wire. Raises ProtocolViolation if it is too large."""
    body = msgspec.json.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolViolation(f"{type(message).__name__} of {len(body)} bytes is too large")
    return _LENGTH.pack(len(body)) + body


def from_agent() -> Framer[AgentMessage]:
    """A framer for the reader's end."""
    return Framer(_FROM_AGENT)


def from_reader() -> Framer[ReaderMessage]:
    """A framer for the agent's end."""
    return Framer(_FROM_READER)
