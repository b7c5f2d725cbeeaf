# SPDX-License-Identifier: Apache-2.0
"""The program ``gpuscape devices``: one door, until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal

from base.errors import BadInput
from base.process.process_signals import delivered_signals
from devices.device_plugin_door import DevicePluginDoor, serve_door
from devices.device_settings import DeviceSettings
from discovery.host.driver_load import boot_id

_ENDING = (signal.SIGTERM, signal.SIGINT)


def run(settings: DeviceSettings) -> None:
    """Hand devices out until SIGTERM or SIGINT. Raises BadInput where the host is not there."""
    boot = boot_id(settings.host_root)
    if not boot:
        raise BadInput(
            f"host-root is {settings.host_root}: the host's boot id is not readable there"
        )
    asyncio.run(_run(settings, boot))


async def _run(settings: DeviceSettings, boot: str) -> None:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def take(number: signal.Signals) -> None:
        if number in _ENDING:
            loop.call_soon_threadsafe(ended.set)

    door = DevicePluginDoor(settings, boot, owner=os.geteuid())
    with delivered_signals(take):
        await serve_door(door, ended)
