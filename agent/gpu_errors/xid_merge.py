# SPDX-License-Identifier: Apache-2.0
"""XIDs that come twice, from NVML and from the kernel log, are counted once. Pure.

The driver writes to the log and then notifies NVML's listeners, and one error may write several
lines. NVML's count is right wherever NVML delivers, and only there. So what the log says waits for
NVML to say the same, and counts once where it does not.
Source: osHandleGpuLost and nvErrorLog_va in NVIDIA's open kernel modules; DCGM issue 235.
"""

from __future__ import annotations

from collections.abc import Iterable

from discovery.reader.protocol import Event, XidSeen

WINDOW_SECONDS = 5.0
"""Longer than an event takes from the driver through the device reader to the agent's next poll."""

MOST_HELD = 1024


class XidMerge:
    """Merges the XIDs of NVML with those of the kernel log, so that each counts once."""

    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        self._window = window_seconds
        self._delivered_at: dict[tuple[str, int], float] = {}
        self._held: dict[tuple[str, int], tuple[float, XidSeen]] = {}

    def merged(
        self, delivered: Iterable[Event], logged: Iterable[XidSeen], now: float
    ) -> list[Event]:
        """The events that count now: all of NVML's, and those that only the log had a while ago.

        ``now`` is monotonic; call it again and again, with nothing new too.
        """
        counting: list[Event] = []
        for event in delivered:
            counting.append(event)
            if isinstance(event, XidSeen):
                self._delivered_at[_key(event)] = now
                self._held.pop(_key(event), None)
        self._forget(now)
        for xid in logged:
            if _key(xid) not in self._delivered_at and len(self._held) < MOST_HELD:
                self._held.setdefault(_key(xid), (now, xid))
        counting += self._due(now)
        return counting

    def _forget(self, now: float) -> None:
        self._delivered_at = {
            key: delivered_at
            for key, delivered_at in self._delivered_at.items()
            if now - delivered_at < self._window
        }

    def _due(self, now: float) -> list[XidSeen]:
        due = [key for key, (logged_at, _) in self._held.items() if now - logged_at >= self._window]
        return [self._held.pop(key)[1] for key in due]


def _key(xid: XidSeen) -> tuple[str, int]:
    """The log names no PCI function, and may blame another instance of the GPU than NVML does."""
    return xid.bus_id.partition(".")[0], xid.code
