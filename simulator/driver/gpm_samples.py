# SPDX-License-Identifier: Apache-2.0
"""GPM sample buffers of one process. Source: nvml.h, "GPM Functions"."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pynvml

from discovery.nvml_abi.argument_kinds import Nvml
from simulator.driver.handles import GpmSample

ENTRIES = frozenset(
    {
        "nvmlGpmSampleAlloc",
        "nvmlGpmSampleFree",
        "nvmlGpmSampleGet",
        "nvmlGpmMigSampleGet",
        "nvmlGpmMetricsGet",
    }
)
"""Entry points that work on such buffers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledSample:
    """Content of a buffer that was filled."""

    bus_id: str | None
    gpu_instance_id: int | None
    """None: of the whole GPU."""
    counters: Any
    """Counters in a form of the machine's own."""


class GpmSamples:
    """Existing buffers, each with its content."""

    def __init__(self) -> None:
        self._taken: dict[GpmSample, FilledSample | None] = {}
        self._numbers = itertools.count()

    def alloc(self) -> GpmSample:
        """An empty buffer."""
        sample = GpmSample(next(self._numbers))
        self._taken[sample] = None
        return sample

    def free(self, sample: GpmSample) -> None:
        """End a buffer. Raises Nvml: INVALID_ARGUMENT for one that has ended."""
        self.need(sample)
        del self._taken[sample]

    def need(self, sample: GpmSample) -> None:
        """Raises Nvml: INVALID_ARGUMENT for a buffer that has ended."""
        if sample not in self._taken:
            raise Nvml(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    def fill(self, sample: GpmSample, taken: FilledSample) -> None:
        """Replace the content of a buffer."""
        self._taken[sample] = taken

    def pair(self, older: GpmSample, newer: GpmSample) -> tuple[FilledSample, FilledSample]:
        """Contents of two buffers.

        Raises Nvml: INVALID_ARGUMENT for one that has ended or is empty, and for two that are
        not of the same GPU or GPU instance.
        """
        first, second = self._taken.get(older), self._taken.get(newer)
        if first is None or second is None:
            raise Nvml(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        if (first.bus_id, first.gpu_instance_id) != (second.bus_id, second.gpu_instance_id):
            raise Nvml(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return first, second

    def bus_id(self, sample: GpmSample) -> str | None:
        """The GPU a buffer was filled from."""
        taken = self._taken.get(sample)
        return None if taken is None else taken.bus_id
