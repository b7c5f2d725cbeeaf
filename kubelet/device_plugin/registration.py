# SPDX-License-Identifier: Apache-2.0
"""Keeps one resource registered with the kubelet, through its restarts and lost streams.

Each registration has a server and a socket of its own. It is over when the kubelet ends the stream
of the list, when another ``kubelet.sock`` is there (the kubelet started again), or when the own
socket's file is gone (a starting kubelet empties the folder).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final

from base.backoff import Backoff
from base.defects import Defects
from base.log_once import LogOnce
from kubelet.device_plugin.plugin_model import ListedDevice, ResourceAnswers
from kubelet.device_plugin.plugin_sockets import (
    KUBELET_SOCKET,
    fresh_name,
    identity,
    name_pattern,
    rival_socket,
)
from kubelet.device_plugin.resource_server import CannotServe, ResourceServer, register

REGISTER_SECONDS: Final = 15.0
"""The kubelet calls back within, for at most 10 s."""
WATCH_SECONDS: Final = 5.0
"""Time from a registration to the kubelet's ListAndWatch."""
POLL_SECONDS: Final = 0.5
FIRST_WAIT_SECONDS: Final = 0.1
LONGEST_WAIT_SECONDS: Final = 5.0
STEADY_SECONDS: Final = 10.0
"""A registration that ended sooner counts as a failure for the wait before the next one."""

log = logging.getLogger(__name__)


class RegistrationState(StrEnum):
    """State of a resource's registration with the kubelet."""

    UNREGISTERED = "unregistered"
    RIVAL = "rival"
    """Another plugin answers for the resource."""
    REGISTERED = "registered"
    """The kubelet follows the list."""


class Registration:
    """One resource and its registration. Belongs to one event loop."""

    def __init__(
        self, folder: Path, resource: str, answers: ResourceAnswers, backoff: Backoff | None = None
    ) -> None:
        """``folder``: the kubelet's folder of device plugins. Nothing happens before ``run``."""
        self._folder = folder
        self._answers = answers
        self._backoff = backoff or Backoff(
            first_seconds=FIRST_WAIT_SECONDS, longest_seconds=LONGEST_WAIT_SECONDS
        )
        self._failures = LogOnce()
        self._defects = Defects()
        self._server: ResourceServer | None = None
        self._kubelet: tuple[int, int, int] | None = None
        """Identity of the kubelet's socket at the last try."""
        self._devices: tuple[ListedDevice, ...] = ()
        self.resource = resource
        self.state = RegistrationState.UNREGISTERED
        self.registrations = 0
        """Registrations that succeeded, since the start."""

    def publish(self, devices: Iterable[ListedDevice]) -> None:
        """List these devices, now and after each new registration.

        An empty list withdraws the resource: the stream stays, since the Node keeps the old number
        of devices for five minutes after its end.
        """
        self._devices = tuple(devices)
        if self._server is not None:
            self._server.publish(self._devices)

    async def run(self) -> None:
        """Register, and register again whenever that is needed, until the task is cancelled."""
        while True:
            began, why = time.monotonic(), "internal error"
            with self._defects.contained("registration"):
                why = await self._registered_once()
            self.state = RegistrationState.UNREGISTERED
            _raise_lost_cancellation()
            if why:
                self._failed(why)
            if not why and time.monotonic() - began >= STEADY_SECONDS:
                self._backoff.succeeded()
            else:
                await self._wait(self._backoff.failed())

    async def _wait(self, seconds: float) -> None:
        """Wait so long, or until there is another kubelet than at the last try."""
        end = time.monotonic() + seconds
        while (rest := end - time.monotonic()) > 0:
            await asyncio.sleep(min(rest, POLL_SECONDS))
            if identity(self._folder / KUBELET_SOCKET) not in (self._kubelet, None):
                self._backoff.succeeded()
                return

    def _failed(self, why: str) -> None:
        if self._failures.is_new(why):
            facts = {"resource": self.resource, "why": why}
            log.warning("device plugin not registered", extra=facts)
        with self._defects.contained("registration"):
            if rival_socket(self._folder, self.resource):
                self.state = RegistrationState.RIVAL

    async def _registered_once(self) -> str:
        """One registration from its begin to its end; why it failed, empty where it was one.

        Sockets of ours are named by their pattern in it, so that the same failure is the same text.
        """
        kubelet_socket = self._folder / KUBELET_SOCKET
        self._kubelet = identity(kubelet_socket)
        if why := self._beside(""):
            return why
        if self._kubelet is None:
            return f"{kubelet_socket}: the kubelet is down, or its folder is not mounted here"
        name = fresh_name(self.resource)
        server = ResourceServer(self.resource, self._answers)
        server.publish(self._devices)
        self._server = server
        try:
            await server.start(self._folder / name)
            why = await self._follow(server, name)
        except CannotServe as error:
            why = str(error)
        finally:
            self._server = None
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()
            await server.stop()
        return why.replace(name, name_pattern(self.resource))

    def _beside(self, own: str) -> str:
        """Why nothing is registered beside another plugin; empty where there is none."""
        rival = rival_socket(self._folder, self.resource, own)
        if rival is None:
            return ""
        return f"another device plugin answers for the resource on {rival}: remove it first"

    async def _follow(self, server: ResourceServer, name: str) -> str:
        """Register a server and follow that to its end; why it failed, empty where it was one."""
        own = identity(self._folder / name)
        if why := self._beside(name):  # both began at once
            return why
        why = await register(self._folder / KUBELET_SOCKET, name, self.resource, REGISTER_SECONDS)
        if why:
            return f"the kubelet refused: {why}"
        if not await is_set_within(server.watched, WATCH_SECONDS):
            return f"the kubelet did not ask for the list within {WATCH_SECONDS:g} s"
        self._begun(name)
        ended = await self._end(server, name, (self._kubelet, own))
        log.info(
            "device plugin registration ended", extra={"resource": self.resource, "why": ended}
        )
        return ""

    def _begun(self, name: str) -> None:
        self.state = RegistrationState.REGISTERED
        self.registrations += 1
        self._failures.clear()
        log.info(
            "device plugin registered",
            extra={"resource": self.resource, "socket": name, "devices": len(self._devices)},
        )

    def _watch_rival(self, name: str) -> None:
        """Report a plugin that began later. The stream stays: up to Kubernetes 1.36 its end would
        disconnect the other one too."""
        why = self._beside(name)
        self.state = RegistrationState.RIVAL if why else RegistrationState.REGISTERED
        if not why:
            self._failures.clear()
        elif self._failures.is_new(why):
            facts = {"resource": self.resource, "why": why}
            log.warning("another device plugin started", extra=facts)

    async def _end(self, server: ResourceServer, name: str, identities: object) -> str:
        """Why the registration is over, once it is."""
        kubelet_socket = self._folder / KUBELET_SOCKET
        while not await is_set_within(server.lost, POLL_SECONDS):
            self._watch_rival(name)
            kubelet, own = identity(kubelet_socket), identity(self._folder / name)
            if (kubelet, own) != identities and kubelet is not None:
                return "own socket removed" if own is None else "the kubelet has a new socket"
        return "the kubelet ended the stream"


def _raise_lost_cancellation() -> None:
    """Raise CancelledError where this task was cancelled and goes on all the same.

    grpc.aio waits for its server's end by :func:`asyncio.wait_for`, see below.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event is set within so many seconds.

    Not by :func:`asyncio.wait_for`, which in Python 3.11 loses a cancellation that comes with the
    event.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
