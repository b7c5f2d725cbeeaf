# SPDX-License-Identifier: Apache-2.0
"""What one reading leaves for the next: the reader keeps it for as long as its session is open."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar, cast

from discovery.model import Gap, GpuSnapshot, GpuState, Reason
from discovery.nvml.calls import Calls, Handle
from discovery.nvml.facts import LASTING
from discovery.nvml.link_counters import Ports, find_ports
from discovery.nvml.p2p import P2P, Peers, find_p2p
from discovery.nvml.processes import Utilization
from discovery.nvml.profiling import Profiler

WHOLE_SECONDS: Final = 600.0
"""After this a GPU is read whole again."""

Value = TypeVar("Value")


class History:
    """Earlier answers of all GPUs, by bus id.

    It holds buffers of the driver's: close it before the session.
    """

    def __init__(self) -> None:
        self.profiler = Profiler()
        self.utilization = Utilization()
        self._ports: dict[str, Ports] = {}
        self._p2p: dict[str, P2P] = {}
        self._rare: dict[tuple[str, str], tuple[Any, tuple[Gap, ...]]] = {}
        self._lacking: dict[tuple[str, str], frozenset[tuple[int, ...]]] = {}

    def rare(self, bus_id: str, name: str, calls: Calls, ask: Callable[[Calls], Value]) -> Value:
        """What ``ask`` gave after the last discovery, with its gaps; what failed is asked again.

        For what changes with an error or a licence, and not by the second.
        """
        if (bus_id, name) not in self._rare:
            tried = Calls()
            value = ask(tried)
            if any(gap.reason is not Reason.UNSUPPORTED for gap in tried.gaps):
                calls.gaps += tried.gaps
                return value
            self._rare[bus_id, name] = value, tuple(tried.gaps)
        known, gaps = self._rare[bus_id, name]
        calls.gaps += gaps
        return cast("Value", known)

    def lacking(self, bus_id: str, name: str) -> frozenset[tuple[int, ...]]:
        """Parts of a reading that the GPU refused since the last discovery, by their numbers."""
        return self._lacking.get((bus_id, name), frozenset())

    def lacks(self, bus_id: str, name: str, keys: Collection[tuple[int, ...]]) -> None:
        """Note that the GPU has not these parts of a reading either."""
        self._lacking[bus_id, name] = self.lacking(bus_id, name).union(keys)

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
        self._lacking.clear()

    def close(self) -> None:
        """Give the driver its buffers back."""
        self.profiler.close()


class LastingFacts:
    """GPUs that were read whole, by bus id; for one thread.

    Names, numbers and the far ends of links stay as they are while the GPU answers under its UUID;
    a GPU that is taken away, reset or given another firmware is lost first, or has its handles
    released. They are read again after WHOLE_SECONDS all the same.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, GpuSnapshot]] = {}

    def of(self, bus_id: str) -> GpuSnapshot | None:
        """The GPU as it was read whole; None where that is too long ago, or was not whole."""
        read_seconds, gpu = self._known.get(bus_id, (0.0, None))
        return gpu if self._clock() - read_seconds < WHOLE_SECONDS else None

    def keep(self, gpu: GpuSnapshot) -> None:
        """Know this GPU, which was just read."""
        if gpu.state is not GpuState.PRESENT or not _is_whole(gpu):
            self._known.pop(gpu.bus_id, None)
            return
        # the time of the last whole reading stays: partial readings must not extend it
        read_seconds = self._clock() if self.of(gpu.bus_id) is None else self._known[gpu.bus_id][0]
        self._known[gpu.bus_id] = read_seconds, gpu


def _is_whole(gpu: GpuSnapshot) -> bool:
    """Whether asking again would give no more: what failed may answer the next time."""
    return gpu.uuid is not None and all(
        gap.reason is Reason.UNSUPPORTED for gap in gpu.gaps if gap.what in LASTING
    )
