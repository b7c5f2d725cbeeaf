# SPDX-License-Identifier: Apache-2.0
"""Restarts device plugins that started before the MIG devices of their node were there.

One restart at most for each start of an agent or change of a layout, by eviction, without a slot
and without a cordon: pods that run are not touched by it. One thread.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from base.log_once import LogOnce
from fleet.fleet_cache import FleetCache
from fleet.leadership import Leadership
from fleet.plugins.unlisted_devices import UnlistedDevices, unlisted_devices
from fleet.rollout_settings import RolloutSettings
from kube.api import NODES, EvictingApi
from kube.api_errors import ApiError, Conflict, NotFound
from kube.events import EventSink, node_regarding

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 5.0
RESTARTS_A_TICK: Final = 10
"""Nodes in one tick at most: after a power cut all of a fleet may need a restart."""
_AGAIN_SECONDS: Final = 30.0
"""Wait after a restart that the API server did not take."""
_ACTION: Final = "RestartDevicePlugin"


class DevicePluginRestarter:
    """Restarts device plugins of nodes whose MIG devices are not listed."""

    def __init__(
        self,
        api: EvictingApi,
        cache: FleetCache,
        leadership: Leadership,
        *,
        terms: RolloutSettings,
        events: EventSink,
        shows: Callable[[Mapping[str, UnlistedDevices]], None] = lambda _: None,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``shows``: takes the unlisted devices after each tick; none while another leads."""
        self._api = api
        self._cache = cache
        self._leadership = leadership
        self._terms = terms
        self._events = events
        self._shows = shows
        self._wall = wall
        self._due: dict[str, float] = {}
        """Node to when its plugin may be restarted, Unix time."""
        self._logged = LogOnce()

    def tick(self) -> float:
        """Restart what is due; the seconds until the next time.

        Raises nothing for what the API answers.
        """
        if not self._leadership.leads or not self._cache.is_synced:
            self._due.clear()
            self._shows({})
            return TICK_SECONDS
        now = self._wall().timestamp()
        unlisted = self._unlisted()
        first = now + self._terms.register_seconds
        for gone in self._due.keys() - unlisted.keys():
            self._logged.clear(gone)
        self._due = {name: self._due.get(name, first) for name in unlisted}
        due = [name for name in sorted(unlisted) if self._due[name] <= now]
        restarts = [name for name in due if unlisted[name].plugins]
        if not self._leadership.is_paused:
            for name in restarts[:RESTARTS_A_TICK]:
                self._restart(name, now)
        for name in due:
            if unlisted[name].is_hopeless and self._logged.is_new(unlisted[name].resources, name):
                self._gives_up(unlisted[name])
        self._shows({name: unlisted[name] for name in due})
        return TICK_SECONDS

    def _unlisted(self) -> dict[str, UnlistedDevices]:
        leadership = self._leadership
        view = self._cache.view(leadership.memory, is_paused=leadership.is_paused)
        return unlisted_devices(view)

    def _restart(self, name: str, now: float) -> None:
        """Read the Node again, judge it again, and have the plugin's pods leave."""
        self._due[name] = now + _AGAIN_SECONDS
        try:
            self._cache.node(self._api.get(NODES, name))
            devices = self._unlisted().get(name)
            if devices is None or not self._leadership.leads:
                return
            for pod in devices.plugins:
                with contextlib.suppress(Conflict, NotFound):
                    self._api.evict(pod.name, namespace=pod.namespace, uid=pod.uid)
        except NotFound:
            return  # the Node is gone: the watch will show it
        except ApiError as error:
            if self._logged.is_new(str(error), ("failed", name)):
                log.warning("device plugin not evicted", extra={"node": name, "why": str(error)})
            return
        self._due[name] = now + self._terms.register_seconds
        pods = ", ".join(pod.full_name for pod in devices.plugins)
        missing = ", ".join(devices.resources)
        log.info("device plugin evicted", extra={"node": name, "pods": pods, "missing": missing})
        note = f"The MIG layout is there, but the node does not offer all of {missing}: {pods}"
        self._event(devices, "DevicePluginRestarted", f"{note} started before it and is restarted.")

    def _gives_up(self, devices: UnlistedDevices) -> None:
        """Report what no restart mends."""
        missing = ", ".join(devices.resources)
        facts = {"node": devices.node, "missing": missing}
        log.error("device plugin lists too few devices", extra=facts)
        note = (
            f"The MIG layout is there, but the node does not offer all of {missing}, although no"
            " known pod of the device plugin started before it: check the device plugin."
        )
        self._event(devices, "DevicePluginNotRegistered", note, warning=True)

    def _event(
        self, devices: UnlistedDevices, reason: str, note: str, *, warning: bool = False
    ) -> None:
        about = node_regarding(devices.node, devices.uid)
        self._events.record(about, reason=reason, action=_ACTION, note=note, warning=warning)
