# SPDX-License-Identifier: Apache-2.0
"""Metrics that the agent serves: the newest values, rendered once for all scrapes."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from discovery.model import NodeSnapshot
from discovery.sample import GpuSample
from exporters.dcgm.render import CONTENT_TYPE, Renderer
from exporters.dcgm.series_labels import SeriesIdentity
from exporters.dcgm.windows import Windows
from exporters.device_user_names import NO_JOBS, NO_POD_USES, NO_USERS, JobIds, PodUses
from exporters.gpuscape.agent_metrics import AgentMetrics
from exporters.gpuscape.families import FAMILIES, GpuscapeFamilies
from exporters.gpuscape.gpuscape_family import GpuscapeFamily
from exporters.gpuscape.node_view import GpuAllocation
from exporters.gpuscape.process_use import ProcessUse
from exporters.gpuscape.switch_errors import Sxid
from exporters.gpuscape.waste import WasteRecord
from health.gpu_health import gpu_verdict
from health.health_verdict import HealthVerdict
from web.messages import Body, Response

RENDERING_SECONDS = 1.0
"""A scrape that needs something rendered waits so long for another thread that renders."""


class LatestMetrics:
    """Newest values and their text; a scrape takes what is there and waits for nobody."""

    def __init__(
        self,
        identity: SeriesIdentity,
        own: AgentMetrics,
        *,
        renderer: Renderer | None = None,
        windows: Windows | None = None,
        families: Iterable[GpuscapeFamily] = FAMILIES,
        waste: WasteRecord | None = None,
        oldest_seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``renderer`` and ``families`` are of what is served, ``windows`` of what counts; both
        ``windows`` and ``waste`` go on from where they were left.

        Readings older than ``oldest_seconds`` by ``clock`` are not served.
        """
        self._identity = identity
        self._own = own
        self._renderer = renderer or Renderer()
        self._windows = windows or Windows()
        self._oldest_seconds = oldest_seconds
        self._clock = clock
        self._families = GpuscapeFamilies(families, waste=waste)
        self._writing = threading.Lock()
        self._samples: tuple[GpuSample, ...] = ()
        self._previous: tuple[GpuSample, ...] = ()
        self._allocation: GpuAllocation | None = None
        self._processes: tuple[ProcessUse, ...] = ()
        self._pod_uses: PodUses = NO_POD_USES
        self._jobs: JobIds = NO_JOBS
        self._sxids: tuple[Sxid, ...] = ()
        self._health: Mapping[str, HealthVerdict] = {}
        self._readings, self._about_agent = b"", own.render()
        self._served = Body(self._about_agent), math.inf
        """Text that is served, and the time of its oldest reading."""
        self._changed = False
        self.snapshot: NodeSnapshot | None = None

    def go_on_from(self, before: LatestMetrics) -> None:
        """Serve what was served with other settings of the same machine, until it is read anew."""
        with self._writing:
            self.snapshot, self._health = before.snapshot, before._health
            self._samples, self._previous = before._samples, before._previous
            self._allocation, self._sxids = before._allocation, before._sxids
            self._render()

    def show_snapshot(self, snapshot: NodeSnapshot, taken_at: float) -> None:
        """Serve this snapshot from now on; ``taken_at`` in monotonic seconds."""
        with self._writing:
            self.snapshot, self._health = snapshot, _health(snapshot)
            self._own.snapshot_taken(snapshot, taken_at)
            self._windows.show_snapshot(snapshot, taken_at)
            self._render()

    def show_samples(
        self,
        samples: tuple[GpuSample, ...],
        *,
        processes: tuple[ProcessUse, ...] = (),
        of_pods: PodUses = NO_POD_USES,
        jobs: JobIds = NO_JOBS,
    ) -> None:
        """Serve these readings; none at all where the GPUs do not answer, rather than old ones.

        ``processes`` are those of the samples, ``of_pods`` what pods have by them, ``jobs`` those
        that run now.
        """
        with self._writing:
            self._processes, self._pod_uses, self._jobs = processes, of_pods, jobs
            self._take(samples)

    def show_counters(self, renderer: Renderer, skipped: int) -> None:
        """Serve these families from now on; ``skipped``: number of lines that are not served."""
        with self._writing:
            self._renderer = renderer
            self._own.counters_skipped(skipped)
            self._render()

    def show_allocation(self, allocation: GpuAllocation | None) -> None:
        """Serve these device users of GPUs from now on; None where they are not known."""
        with self._writing:
            if allocation != self._allocation:
                self._allocation = allocation
                self._render()

    def show_sxids(self, sxids: Iterable[Sxid]) -> None:
        """Serve these errors of NVSwitches, all since the agent started."""
        with self._writing:
            self._sxids = tuple(sxids)
            self._render()

    def refresh(self, change: Callable[[AgentMetrics], None]) -> None:
        """Change the metrics about the agent itself, and serve them."""
        with self._writing:
            change(self._own)
            self._changed = True

    def metrics(self) -> Response:
        """The exposition: rendered before, but for the ages of what it shows.

        What the agent says of itself changes more often than it is scraped, so the first scrape
        after a change renders that much. Readings too old at the time of the scrape are left
        out here, since the thread that should have replaced or dropped them may be gone.
        """
        if (self._changed or self._outdated) and self._writing.acquire(timeout=RENDERING_SECONDS):
            try:
                if self._outdated:
                    self._processes, self._pod_uses, self._jobs = (), NO_POD_USES, NO_JOBS
                    self._take(())
                if self._changed:
                    self._about_agent, self._changed = self._own.render(), False
                    self._put_together()
            finally:
                self._writing.release()
        body, _ = self._served
        if self._outdated:  # and the thread that renders does not end
            body = Body(self._own.render())
        return Response(body=body, tail=self._own.render_now(), content_type=CONTENT_TYPE)

    @property
    def _outdated(self) -> bool:
        """Whether the readings that are served are too old."""
        return self._clock() - self._served[1] > self._oldest_seconds

    def _take(self, samples: tuple[GpuSample, ...]) -> None:
        """Serve these readings; the lock is held."""
        self._previous, self._samples = self._samples, samples
        self._own.samples_taken(min((sample.at_seconds for sample in samples), default=None))
        self._windows.show_samples(samples)
        self._render()

    def _render(self) -> None:
        if self.snapshot is not None:
            self._readings = self._compatible(self.snapshot) + self._families.render(
                self.snapshot,
                self._samples,
                allocation=self._allocation,
                health=self._health,
                processes=self._processes,
                sxids=self._sxids,
            )
        self._changed = True
        self._put_together()

    def _put_together(self) -> None:
        oldest = min((sample.at_seconds for sample in self._samples), default=math.inf)
        self._served = Body(self._readings + self._about_agent), oldest

    def _compatible(self, snapshot: NodeSnapshot) -> bytes:
        """The families that dcgm-exporter has."""
        return self._renderer.render(
            snapshot,
            self._samples,
            self._previous,
            self._identity,
            NO_USERS if self._allocation is None else self._allocation.users,
            jobs=self._jobs,
            pods=self._pod_uses,
            counts=self._windows.counts(self._clock()),
        )


def _health(snapshot: NodeSnapshot) -> Mapping[str, HealthVerdict]:
    """Verdict on each GPU, by bus id."""
    return {gpu.bus_id: gpu_verdict(gpu, snapshot) for gpu in snapshot.gpus}
