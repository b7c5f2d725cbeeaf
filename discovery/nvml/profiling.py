# SPDX-License-Identifier: Apache-2.0
"""Profiling metrics of a GPU and of its GPU instances, from one sample to the next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import pynvml

from discovery.model import Gap, Reason
from discovery.nvml import gpm
from discovery.nvml.calls import Calls, Handle
from discovery.nvml.conversions import boolean
from discovery.nvml.gpm import Found, GpmTrack
from discovery.sample import ReadingGroup

_WHAT = "profiling"
_SUPPORT = "nvmlGpmQueryDeviceSupport"


class Profiled(NamedTuple):
    """Profiling metrics since the sample before; empty the first time."""

    gpu: Found
    instances: tuple[tuple[int, Found], ...]
    """GPU instance id to its metrics, of those that have some."""


NOT_PROFILED = Profiled((), ())


class Profiler:
    """GPM of all GPUs; holds two of the driver's sample buffers for each track until closed."""

    def __init__(self) -> None:
        self._refused: dict[str, Gap | None] = {}
        self._tracks: dict[tuple[str, int | None], GpmTrack] = {}
        self._question = pynvml.c_nvmlGpmMetricsGet_t()
        self._question.version = pynvml.NVML_GPM_METRICS_GET_VERSION

    def read(
        self,
        calls: Calls,
        bus_id: str,
        handle: Handle,
        instances: Sequence[int],
        groups: Collection[ReadingGroup],
        now: Callable[[], float],
    ) -> Profiled:
        """The metrics of one GPU and of its GPU instances.

        ``instances`` are its GPU instances that have a compute instance: nothing runs
        on the others, and the driver refuses them. Of ``groups`` those of GPM count.
        Raises as :meth:`Calls.ask` does.
        """
        self._forget(lambda gpu, instance: gpu == bus_id and instance not in (None, *instances))
        refused = self._refusal(bus_id, handle)
        if refused is not None:
            calls.gaps.append(refused)
            return NOT_PROFILED

        def metrics(instance: int | None, take: str, *args: object) -> Found:
            track = self._track(bus_id, instance)
            questions = gpm.questions(groups, of_instance=instance is not None)
            return track.metrics(calls, self._question, now, questions, take, *args)

        of_gpu = metrics(None, "nvmlGpmSampleGet", handle)
        of_instances = [
            (instance, metrics(instance, "nvmlGpmMigSampleGet", handle, instance))
            for instance in instances
        ]
        return Profiled(
            of_gpu, tuple((instance, measured) for instance, measured in of_instances if measured)
        )

    def rediscovered(self, bus_ids: Collection[str]) -> None:
        """Give back what was for other GPUs, and ask these again for what they refused."""
        self._forget(lambda gpu, _: gpu not in bus_ids)
        self._refused.clear()
        for track in self._tracks.values():
            track.ask_again()

    def close(self) -> None:
        """Give all buffers back."""
        self._forget(lambda *_: True)

    def _refusal(self, bus_id: str, handle: Handle) -> Gap | None:
        """Why the GPU has no GPM; read once, unless that failed."""
        if bus_id in self._refused:
            return self._refused[bus_id]
        tried = Calls()
        has = tried.ask(
            _WHAT, _SUPPORT, handle, convert=lambda support: boolean(support.isSupportedDevice)
        )
        if has is False:
            tried.miss(_WHAT, Reason.UNSUPPORTED, _SUPPORT, "Hopper and later have it")
        gap = tried.gaps[0] if tried.gaps else None
        if gap is None or gap.reason is Reason.UNSUPPORTED:
            self._refused[bus_id] = gap
        return gap

    def _track(self, bus_id: str, instance: int | None) -> GpmTrack:
        key = (bus_id, instance)
        if key not in self._tracks:
            self._tracks[key] = GpmTrack("profiling" if instance is None else "mig_profiling")
        return self._tracks[key]

    def _forget(self, gone: Callable[[str, int | None], bool]) -> None:
        for key in [key for key in self._tracks if gone(*key)]:
            self._tracks.pop(key).close()
