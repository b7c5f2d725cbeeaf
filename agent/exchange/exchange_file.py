# SPDX-License-Identifier: Apache-2.0
"""Writes the file for ``gpuscape devices``: when the devices changed, and as a heartbeat.

The folder is the agent's alone (0700), since what stands in the file decides which device nodes
containers get. A file that cannot be written changes nothing else: the reader keeps what it has.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace as replaced

from agent.exchange.exchange_content import ExchangedDevices, best_sets, exchanged_devices
from api.device_exchange import (
    FILE_NAME,
    MOST_BYTES,
    VERSION,
    DeviceExchange,
    read_exchange,
    written,
)
from base import threads
from base.defects import Defects
from base.errors import BadInput
from base.files import cannot_write, read_bytes, replace_file
from base.log_once import LogOnce
from base.text import rfc3339
from discovery.host.driver_load import boot_id
from discovery.model import NodeSnapshot
from kubelet.device_access.device_nodes import capability_minors

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 60.0
"""The file is written anew after this time though nothing has changed, so that its age shows
whether the agent lives."""
RETRY_SECONDS = 10.0
LAST_WRITE_SECONDS = 1.0
"""The agent's end waits so long for a write under way."""


class ExchangeFile:
    """Keeps the file in one folder like the newest snapshot."""

    def __init__(
        self,
        folder: Path,
        root: Path,
        *,
        report: Callable[[bool], None] = lambda _is_good: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``root`` is the host's; ``report`` gets whether the file could be written just now.

        ``wall`` is Unix time, only shown.
        """
        self._path = folder / FILE_NAME
        self._root = root
        self._report = report
        self._wall = wall
        self._news = threading.Event()
        self._latest: tuple[int, NodeSnapshot] | None = None
        self._before: DeviceExchange | None = None
        """What the file has."""
        self._first_reading = 0
        self._due = -math.inf
        self._failures, self._omissions = LogOnce(), LogOnce()

    def show(self, snapshot: NodeSnapshot) -> None:
        """Write what this snapshot says soon; never waits."""
        number = 1 if self._latest is None else self._latest[0] + 1
        self._latest = number, snapshot
        self._news.set()

    @contextlib.contextmanager
    def kept(self, defects: Defects) -> Iterator[None]:
        """Keep the file up to date until the block ends.

        It takes a thread of its own, since a disk may hang. Raises NoThread.
        """
        ending = threading.Event()

        def run() -> None:
            seconds: float | None = None
            while not ending.is_set():
                self._news.wait(seconds)
                self._news.clear()
                seconds = RETRY_SECONDS
                with defects.contained("device exchange"):
                    seconds = self.write_due(time.monotonic())

        thread = threads.started(run, "device-exchange")
        try:
            yield
        finally:
            ending.set()
            self._news.set()
            thread.join(LAST_WRITE_SECONDS)

    def write_due(self, now: float) -> float | None:
        """Write the file where it is due; seconds until the next time, None: with the next news."""
        if self._latest is None:
            return None
        boot = boot_id(self._root)
        if not boot:
            return self._failed("the host has no readable boot id")
        if self._before is None:
            self._before = self._stored(boot)
        content = self._content(self._before, self._latest, boot)
        if content is None:
            return None
        is_same = self._before is not None and content.generation == self._before.generation
        waits = self._due - now
        return waits if is_same and waits > 0 else self._write(content, now)

    def _content(
        self, before: DeviceExchange | None, latest: tuple[int, NodeSnapshot], boot: str
    ) -> DeviceExchange | None:
        """The file as it should be now; None where nothing can be said yet."""
        written_at = rfc3339.whole_seconds(self._wall())
        devices = self._devices(latest[1])
        if devices is None:
            return None if before is None else replaced(before, written_at=written_at)
        content = DeviceExchange(
            v=VERSION,
            generation=1 if before is None else before.generation,
            reading=self._first_reading + latest[0],
            boot_id=boot,
            written_at=written_at,
            gpus=devices.gpus,
            links=devices.links,
            table="" if devices.links is None else best_sets(devices.links),
        )
        if before is None or content.same_but_time == before.same_but_time:
            return content
        return replaced(content, generation=before.generation + 1)

    def _devices(self, snapshot: NodeSnapshot) -> ExchangedDevices | None:
        has_mig = any(gpu.mig_devices for gpu in snapshot.gpus)
        devices = exchanged_devices(snapshot, capability_minors(self._root) if has_mig else {})
        for why in () if devices is None else devices.left_out:
            if self._omissions.is_new(why, why):
                log.warning("GPU left out of the device exchange", extra={"why": why})
        return devices

    def _stored(self, boot: str) -> DeviceExchange | None:
        """What an agent before this one wrote in this boot; its numbers go on."""
        try:
            data = read_bytes(self._path, most_bytes=MOST_BYTES, from_pipe=False)
            stored = read_exchange(data, boot)
        except BadInput:
            return None
        self._first_reading = stored.reading
        return stored

    def _write(self, content: DeviceExchange, now: float) -> float:
        try:
            _make_private(self._path.parent)
            replace_file(self._path, written(content), mode=0o600)
        except OSError as error:
            return self._failed(cannot_write(self._path, error))
        except BadInput as error:
            return self._failed(str(error))
        self._before, self._due = content, now + HEARTBEAT_SECONDS
        self._report(True)
        self._failures.clear()
        return HEARTBEAT_SECONDS

    def _failed(self, why: str) -> float:
        self._report(False)
        if self._failures.is_new(why):
            log.warning("device exchange not written", extra={"why": why})
        return RETRY_SECONDS


def _make_private(folder: Path) -> None:
    """Make the folder, which only this user can enter. Raises OSError where it is another's."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "the folder belongs to another user")
        if stat.S_IMODE(status.st_mode) != 0o700:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
