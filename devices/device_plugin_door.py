# SPDX-License-Identifier: Apache-2.0
"""Hands GPUs out as the kubelet's device plugin: follows the agent's file, registers resources."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from api.device_exchange import DeviceExchange
from api.mig_resources import is_gpu_resource
from base.defects import Defects
from base.errors import BadInput
from base.log_once import LogOnce
from devices.container_access import CONTROL_NODES, AccessSettings
from devices.device_settings import DeviceSettings, NumaHints
from devices.exchange_reader import ExchangeReader, ExchangeState
from devices.linked_sets import LinkedSets
from devices.offered_devices import OfferedDevice, offered_devices
from devices.plugin_resource import PluginResource
from kubelet.device_plugin.plugin_sockets import remove_leftovers
from kubelet.device_plugin.registration import Registration
from kubelet.devices_checkpoint import held_by_resource

POLL_SECONDS: Final = 1.0
_CHECKPOINT: Final = "kubelet_internal_checkpoint"

log = logging.getLogger(__name__)


class DevicePluginDoor:
    """All resources of the node. Belongs to one event loop."""

    def __init__(
        self,
        settings: DeviceSettings,
        boot_id: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        owner: int = 0,
    ) -> None:
        """``boot_id``: that of the host, as its /proc has it; ``owner``: user ID of the agent."""
        self._settings = settings
        self._clock = clock
        self._executor = ThreadPoolExecutor(1, "choice")
        self._failures, self._defects = LogOnce(), Defects()
        self._reader = ExchangeReader(settings.exchange_folder, boot_id, owner=owner)
        self._exchange: DeviceExchange | None = None
        self._sets: LinkedSets | None = None
        self._held: Mapping[str, Mapping[str, int | None]] = {}
        self._is_held_known = True
        self.resources: dict[str, PluginResource] = {}
        self.registrations: dict[str, Registration] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Serve until the task is cancelled; then sockets are removed."""
        remove_leftovers(self._settings.plugin_folder)
        try:
            while True:
                with self._defects.contained("device plugin"):
                    self.poll()
                await asyncio.sleep(POLL_SECONDS)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            self._executor.shutdown(wait=False, cancel_futures=True)

    def poll(self) -> None:
        """Take over the agent's file and the kubelet's checkpoint, and publish what follows.

        The last good file stays where a new one is damaged. One of another boot offers nothing.
        """
        self._read_exchange()
        self._read_held()
        if self._exchange is None or self._sets is None:
            return
        offered = offered_devices(
            self._exchange, self._settings.mig_strategy, self._settings.disable_healthchecks
        )
        held = {resource for resource, ids in self._held.items() if ids}
        access = self._access()
        for resource in sorted({*offered, *self.resources, *filter(is_gpu_resource, held)}):
            self._offer(resource, offered.get(resource, ()), self._exchange, self._sets, access)

    def _access(self) -> AccessSettings:
        """With the control nodes of now: the driver may be loaded after this program's start."""
        root = self._settings.host_root / self._settings.dev_root[1:]
        return AccessSettings(
            device_specs=self._settings.pass_device_specs,
            dev_root=self._settings.dev_root,
            control_nodes=[node for node in CONTROL_NODES if (root / node[1:]).exists()],
        )

    def _offer(
        self,
        resource: str,
        devices: tuple[OfferedDevice, ...],
        exchange: DeviceExchange,
        sets: LinkedSets,
        access: AccessSettings,
    ) -> None:
        known = self.resources.get(resource)
        if known is None:
            known = PluginResource(
                resource, self._executor, numa=self._settings.numa is NumaHints.GPU
            )
            self.resources[resource] = known
            registration = Registration(self._settings.plugin_folder, resource, known)
            self.registrations[resource] = registration
        held = self._held.get(resource, {}) if self._is_held_known else None
        known.offer(devices, sets.best, held, access, reading=exchange.reading, now=self._clock())
        self.registrations[resource].publish(known.devices)
        if resource not in self._tasks:
            self._tasks[resource] = asyncio.create_task(self.registrations[resource].run())

    def _read_exchange(self) -> None:
        reading = self._reader.read(self._clock())
        if reading.state is not ExchangeState.GOOD:
            if self._failures.is_new(reading.why, "exchange"):
                facts = {"state": reading.state, "why": reading.why}
                log.warning("file of devices not taken over", extra=facts)
        elif self._failures.clear("exchange"):
            log.info("file of devices valid again")
        before, new = self._exchange, reading.exchange
        if new is None or new is before:
            return
        if before is None or (before.links, before.table) != (new.links, new.table):
            self._sets = LinkedSets(new)
        self._exchange = new

    def _read_held(self) -> None:
        """Who holds devices; where it cannot be read, each device that is listed may be held."""
        try:
            self._held = held_by_resource(self._settings.plugin_folder / _CHECKPOINT)
        except (BadInput, OSError) as error:
            self._is_held_known = False
            if self._failures.is_new(str(error), "checkpoint"):
                log.warning("held devices not read", extra={"why": str(error)})
        else:
            self._is_held_known = True
            self._failures.clear("checkpoint")


async def serve_door(door: DevicePluginDoor, ended: asyncio.Event) -> None:
    """Run the door until ``ended`` is set."""
    task = asyncio.create_task(door.run())
    waiting = asyncio.create_task(ended.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    for pending in (task, waiting):
        pending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await pending
