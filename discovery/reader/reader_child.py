# SPDX-License-Identifier: Apache-2.0
"""The device reader: the one process that calls NVML, and the only thing lost when a call hangs.

It is started with an empty environment and its socket as descriptor 0, reads
requests, answers in frames and announces each GPU before it touches it. It never
decides anything: deadlines, quarantine and restarts are the agent's.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from base import threads
from base.errors import Transient
from discovery.driver_errors import DriverAbsent, DriverMismatch, GpuLost
from discovery.mig_state import MigGpu
from discovery.model import GpuSnapshot, GpuState, Reason
from discovery.nvml.calls import Handle
from discovery.nvml.facts import read_driver, read_gpu, unreadable
from discovery.nvml.history import History, LastingFacts
from discovery.nvml.mig_gpu import read_mig_gpu
from discovery.nvml.samples import read_sample
from discovery.nvml.session import (
    NvmlError,
    XidEvents,
    close_session,
    open_gpu,
    open_session,
)
from discovery.reader import own_use
from discovery.reader.machine_access import allowed, listed_gpus
from discovery.reader.own_use import OwnUse
from discovery.reader.protocol import (
    AgentMessage,
    Discover,
    Done,
    DriverFrame,
    Enough,
    EventsLost,
    GpuFrame,
    MigFrame,
    Proceed,
    ReaderMessage,
    ReadMig,
    Request,
    RequestRefused,
    Sample,
    SampleFrame,
    Start,
    Touching,
    UnreadMigFrame,
    frame,
    from_agent,
)
from discovery.unread import unread_gpu

EVENT_WAIT_MILLISECONDS = 500
"""How long one wait for events lasts, and so how long a stop may take."""
LONG_EVENT_WAIT_MILLISECONDS = 5000
"""A longer wait, in a process that ends with the stop and so does not wait for its end."""

EVENT_RETRY_SECONDS = 5.0


class _NoMore(Exception):
    """The agent wants no further GPU in this answer."""


class Channel:
    """The socket to the agent: whole frames, sent from any thread, received by one."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._framer = from_agent()
        self._received = deque[AgentMessage]()

    def send(self, message: ReaderMessage) -> None:
        """Write one frame. Raises OSError when the agent is gone."""
        data = frame(message)
        # three threads send: answers, XID events, own use; no frame may be cut by another
        with self._lock:
            self._connection.sendall(data)

    def receive(self) -> AgentMessage | None:
        """The next message, waiting for it; None when the agent closed its end."""
        while not self._received:
            data = self._connection.recv(1 << 16)
            if not data:
                return None
            self._received += self._framer.feed(data)
        return self._received.popleft()

    def may_proceed(self) -> bool:
        """Whether the agent allows what was announced; whatever else it wants is received next."""
        message = self.receive()
        if message is not None and not isinstance(message, Proceed | Enough):
            # a Stop or a new request came in place of the permission: it is handled next
            self._received.appendleft(message)
        return isinstance(message, Proceed)


class EventThread:
    """A thread that pushes XID events to the agent; its failures are reported, once each."""

    def __init__(self, channel: Channel, *, ends_process: bool) -> None:
        self._channel = channel
        self._ends_process = ends_process
        self._wait_milliseconds = (
            LONG_EVENT_WAIT_MILLISECONDS if ends_process else EVENT_WAIT_MILLISECONDS
        )
        self._source: XidEvents | None = None
        self._reported: set[str] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def register(self, bus_id: str, handle: Handle) -> None:
        """Have this GPU's XIDs delivered from now on."""
        try:
            if self._source is None:
                self._source = XidEvents()
            if self._thread is None:
                self._thread = threads.started(self._run, "events")
            self._source.register(bus_id, handle)
        except (NvmlError, threads.NoThread) as error:
            self._report_once(f"{bus_id}: XID events are not delivered: {error}")

    def close(self) -> bool:
        """End the thread and free the event set, where the thread does not wait in the driver.

        False where it does: then nothing may be freed under it, and the end of the process gives
        all back. Where that comes next, the wait is not waited for.
        """
        self._stop.set()
        if self._thread is not None:
            if not self._ends_process:
                self._thread.join(timeout=2 * self._wait_milliseconds / 1000)
            if self._thread.is_alive():
                return False
        if self._source is not None:
            self._source.close()
        return True

    def _run(self) -> None:
        while not self._stop.is_set() and self._source is not None:
            until = time.monotonic() + self._wait_milliseconds / 1000
            try:
                event = self._source.wait(self._wait_milliseconds)
                if event is not None:
                    self._channel.send(event)
                else:  # at once, where a broken driver does not wait
                    self._stop.wait(until - time.monotonic())
            except OSError:
                return
            except Exception as error:  # else the thread ends, and nobody notices
                self._report_once(f"waiting for XID events fails: {error!r}")
                self._stop.wait(EVENT_RETRY_SECONDS)  # a lost GPU makes every wait fail at once

    def _report_once(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._channel.send(EventsLost(text=text))


class SessionReader:
    """An NVML session and the GPUs opened in it."""

    def __init__(self, channel: Channel, start: Start, *, ends_process: bool) -> None:
        self._channel = channel
        self._start = start
        self._open = False
        self._handles: dict[str, Handle] | None = None
        self._answered: set[str | None] = set()  # GPUs; None: the driver
        self._known_to_answer: set[tuple[type[Request], str | None]] = set()
        self._events = EventThread(channel, ends_process=ends_process)
        self._use = OwnUse(start.limits)
        self._ended = threading.Event()
        with contextlib.suppress(threads.NoThread):  # then after each answer alone
            threads.started(self._watch_own_use, "own use")
        self._history = History()
        self._facts = LastingFacts(time.monotonic)

    def answer(self, message: Request) -> None:
        """Answer one request in frames that end with Done or Refused."""
        try:
            # announced first: nvmlInit itself may hang, on the driver as a whole
            self._touch(message, None)
            if not self._open:
                open_session()
                self._open = True
            match message:
                case Discover():
                    self._discover(message)
                case Sample():
                    self._sample(message)
                case ReadMig():
                    self._read_mig(message)
            self._channel.send(Done(request=message.request))
        except _NoMore:
            self._channel.send(Done(request=message.request))
        except DriverMismatch as error:
            self._refuse(message, "mismatch", error)
        except DriverAbsent as error:
            self._refuse(message, "absent", error)
        except Transient as error:
            self._refuse(message, "failed", error)
        self._use.has_answered()
        self._report_own_use()

    def _watch_own_use(self) -> None:
        while not self._ended.wait(own_use.CHECK_SECONDS):
            self._report_own_use()

    def _report_own_use(self) -> None:
        if (grown := self._use.exceeded()) is not None:
            with contextlib.suppress(OSError):  # the agent is gone, and this process ends
                self._channel.send(grown)

    def close(self) -> None:
        """Give all NVML handles back."""
        self._ended.set()
        if self._open:
            self._history.close()
        if self._events.close() and self._open:
            close_session()

    def _discover(self, message: Discover) -> None:
        listed = self._listed(message)
        handles: dict[str, Handle] = {}
        self._handles = handles
        for bus_id in allowed(self._start, listed):
            self._touch(message, bus_id)
            gpu = self._gpu(bus_id, handles)
            self._has_answered(message, bus_id)
            self._channel.send(GpuFrame(request=message.request, gpu=gpu))
        self._history.rediscovered(handles)

    def _read_mig(self, message: ReadMig) -> None:
        for bus_id in allowed(self._start, self._listed(message)):
            self._touch(message, bus_id)
            gpu = read_mig_gpu(bus_id)
            self._has_answered(message, bus_id)
            if isinstance(gpu, MigGpu):
                self._channel.send(MigFrame(request=message.request, gpu=gpu))
            else:
                self._channel.send(UnreadMigFrame(request=message.request, gpu=gpu))

    def _listed(self, message: Discover | ReadMig) -> tuple[str, ...]:
        """The GPUs that should answer; sends them with the driver."""
        driver, gpus = read_driver(), listed_gpus(self._start)
        self._answered.add(None)
        head = DriverFrame(
            request=message.request,
            driver=driver,
            listed=gpus.ours,
            elsewhere=gpus.elsewhere,
            counts=gpus.counts,
        )
        self._channel.send(head)
        return gpus.ours

    def _gpu(self, bus_id: str, handles: dict[str, Handle]) -> GpuSnapshot:
        """Read one GPU; if it answers, its handle is kept for samples and its XIDs come."""
        try:
            handle, gap = open_gpu(bus_id)
        except GpuLost as error:
            source = "nvmlDeviceGetHandleByPciBusId"
            return unreadable(bus_id, GpuState.LOST, Reason.LOST, source, str(error))
        if gap is not None:
            return unread_gpu(bus_id, GpuState.UNREADABLE, gap)
        gpu = read_gpu(bus_id, handle, handles, self._facts.of(bus_id))
        self._facts.keep(gpu)
        if gpu.state is GpuState.PRESENT:
            self._keep(bus_id, handle, handles)
        return gpu

    def _sample(self, message: Sample) -> None:
        if self._handles is None:
            self._handles = self._opened(message)
        for bus_id, handle in self._handles.items():
            self._touch(message, bus_id)
            sample = read_sample(
                bus_id,
                handle,
                time.monotonic,
                message.groups,
                self._history,
                peers=self._peers(message, bus_id, self._handles),
            )
            self._has_answered(message, bus_id)
            self._channel.send(SampleFrame(request=message.request, sample=sample))

    def _peers(
        self, message: Sample, bus_id: str, handles: Mapping[str, Handle]
    ) -> Iterator[tuple[str, Handle]]:
        """All GPUs but the one of ``bus_id``, each announced before it comes.

        Where a pair hangs it is the other one, since the GPU itself has answered just before.
        """
        for peer, handle in handles.items():
            if peer != bus_id:
                self._touch(message, peer)
                yield peer, handle

    def _opened(self, message: Sample) -> dict[str, Handle]:
        """Handles alone, for a reader that replaced another between two discoveries."""
        handles: dict[str, Handle] = {}
        gpus = listed_gpus(self._start)
        self._answered.add(None)
        for bus_id in allowed(self._start, gpus.ours):
            self._touch(message, bus_id)
            with contextlib.suppress(GpuLost):
                handle, gap = open_gpu(bus_id)
                if gap is None:
                    self._keep(bus_id, handle, handles)
        return handles

    def _keep(self, bus_id: str, handle: Handle, handles: dict[str, Handle]) -> None:
        handles[bus_id] = handle
        if self._start.events:
            self._events.register(bus_id, handle)

    def _touch(self, message: Request, bus_id: str | None) -> None:
        """Announce what comes next; a GPU that may hang is touched once the agent allows it.

        Raises _NoMore where it does not.
        """
        first = bus_id not in self._answered
        asks = bus_id is not None and (type(message), bus_id) not in self._known_to_answer
        self._channel.send(Touching(request=message.request, bus_id=bus_id, first=first, asks=asks))
        if asks and not self._channel.may_proceed():
            raise _NoMore

    def _has_answered(self, message: Request, bus_id: str) -> None:
        self._answered.add(bus_id)
        self._known_to_answer.add((type(message), bus_id))

    def _refuse(
        self,
        message: Request,
        kind: Literal["absent", "mismatch", "failed"],
        why: Exception,
    ) -> None:
        self._channel.send(RequestRefused(request=message.request, kind=kind, text=str(why)))


def serve(
    channel: Channel, choose_library: Callable[[Start], None], *, ends_process: bool = False
) -> None:
    """Answer the agent until it says stop or goes away.

    ``choose_library``: lets pynvml load the library that the first message names.
    ``ends_process``: the process ends right after, and what the driver gave it with it.
    """
    reader: SessionReader | None = None
    try:
        while (message := channel.receive()) is not None:
            match message:
                case Start():
                    choose_library(message)
                    reader = SessionReader(channel, message, ends_process=ends_process)
                case Discover() | Sample() | ReadMig() if reader is not None:
                    reader.answer(message)
                case _:
                    return
    finally:
        if reader is not None:
            reader.close()


def main(choose_library: Callable[[Start], None]) -> None:
    """Entry point of the child process: the agent's socket is descriptor 0."""
    own_use.end_first()
    with contextlib.suppress(OSError), socket.socket(fileno=0) as connection:
        serve(Channel(connection), choose_library, ends_process=True)
