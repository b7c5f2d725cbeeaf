"""What the agent serves: the newest snapshot and samples, rendered once for all scrapes."""

from __future__ import annotations

import threading
from collections.abc import Callable

from discovery.model import NodeSnapshot
from discovery.sample import GpuSample
from exporters.http import Body, Response
from exporters.own import OwnMetrics
from exporters.render import CONTENT_TYPE, Identity, Renderer


class Latest:
    """Newest values and their text; a scrape takes what is there and waits for nobody."""

    def __init__(self, identity: Identity, own: OwnMetrics) -> None:
        self._identity = identity
        self._own = own
        self._renderer = Renderer()
        self._writing = threading.Lock()
        self._samples: tuple[GpuSample, ...] = ()
        self._previous: tuple[GpuSample, ...] = ()
        self._readings = b""
        self._body = Body(own.render())
        self.snapshot: NodeSnapshot | None = None

    def show_snapshot(self, snapshot: NodeSnapshot, at: float) -> None:
        """Serve this snapshot from now on; ``at`` is when it was taken, monotonic seconds."""
        with self._writing:
            self.snapshot = snapshot
            self._own.snapshot_taken(snapshot, at)
            self._render()

    def show_samples(self, samples: tuple[GpuSample, ...]) -> None:
        """Serve these readings; none at all where the GPUs do not answer, rather than old ones."""
        with self._writing:
            self._previous, self._samples = self._samples, samples
            self._render()

    def refresh(self, change: Callable[[OwnMetrics], None]) -> None:
        """Change what the agent says of itself, and serve it."""
        with self._writing:
            change(self._own)
            self._body = Body(self._readings + self._own.render())

    def metrics(self) -> Response:
        """The exposition: rendered before, but for the snapshot's age."""
        return Response(body=self._body, tail=self._own.render_age(), content_type=CONTENT_TYPE)

    def _render(self) -> None:
        if self.snapshot is not None:
            self._readings = self._renderer.render(
                self.snapshot, self._samples, self._previous, self._identity
            )
        self._body = Body(self._readings + self._own.render())
