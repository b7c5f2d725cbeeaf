# SPDX-License-Identifier: Apache-2.0
"""What one sample leaves for the next: the reader keeps it for as long as its session is open."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

from discovery.model import Gap, Reason
from discovery.nvml.calls import Calls, Handle
from discovery.nvml.link_counters import Ports, find_ports
from discovery.nvml.p2p import P2P, Peers, find_p2p
from discovery.nvml.processes import Utilization
from discovery.nvml.profiling import Profiler

Value = TypeVar("Value")


class History:
    """Of all GPUs, by bus id. It holds buffers of the driver's: close it before the session."""

    def __init__(self) -> None:
        self.profiler = Profiler()
        self.utilization = Utilization()
        self._ports: dict[str, Ports] = {}
        self._p2p: dict[str, P2P] = {}
        self._rare: dict[tuple[str, str], tuple[Any, tuple[Gap, ...]]] = {}

    def rare(self, bus_id: str, what: str, calls: Calls, ask: Callable[[Calls], Value]) -> Value:
        """What ``ask`` gave after the last discovery, with its gaps; what failed is asked again.

        For what changes with an error or a licence, and not by the second.
        """
        if (bus_id, what) not in self._rare:
            tried = Calls()
            value = ask(tried)
            if any(gap.reason is not Reason.UNSUPPORTED for gap in tried.gaps):
                calls.gaps += tried.gaps
                return value
            self._rare[bus_id, what] = value, tuple(tried.gaps)
        known, gaps = self._rare[bus_id, what]
        calls.gaps += gaps
        return cast("Value", known)

    def ports(self, bus_id: str, handle: Handle) -> Ports:
        """The GPU's active NVLinks, as they were after the last discovery."""
        if bus_id not in self._ports:
            self._ports[bus_id] = find_ports(handle)
        return self._ports[bus_id]

    def p2p(self, bus_id: str, handle: Handle, peers: Peers) -> P2P:
        """What the GPU can do with these others, as it was after the last discovery."""
        if bus_id not in self._p2p:
            self._p2p[bus_id] = find_p2p(handle, peers)
        return self._p2p[bus_id]

    def rediscovered(self, bus_ids: Collection[str]) -> None:
        """Forget all but these GPUs, and what these do not support."""
        self.profiler.rediscovered(bus_ids)
        self.utilization.keep(bus_ids)
        self._ports.clear()
        self._p2p.clear()
        self._rare.clear()

    def close(self) -> None:
        """Give the driver its buffers back."""
        self.profiler.close()
