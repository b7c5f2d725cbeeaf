# SPDX-License-Identifier: Apache-2.0
"""An exporter of gpuscape's default families as one writes it with prometheus_client.

It reads through the same device reader, so that what differs is rendering and serving: a custom
collector over the newest samples, and the library's own HTTP server. Labels are put together
once for each snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import REGISTRY, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from discovery.gpu_part import GpuPart
from discovery.model import GpuSnapshot, GpuState, NodeSnapshot
from discovery.node_host import NodeHost
from discovery.reader.device_reader import DeviceReader
from discovery.reader.protocol import Start
from discovery.sample import GpuSample
from discovery.unread import UNREAD_NVIDIA_FACTS, unread_sample
from exporters.dcgm.catalog import DEFAULT_FAMILIES, DEFAULT_LABELS
from exporters.dcgm.dcgm_family import DcgmFamily, DcgmReading, UnderMig
from exporters.dcgm.selection import FLEXIBLE
from exporters.dcgm.series_labels import SeriesIdentity, places
from exporters.prometheus_text import MetricType

FAMILIES = [family for family in DEFAULT_FAMILIES if isinstance(family, DcgmFamily)]
GROUPS = {family.group for family in FAMILIES if family.group is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A GPU or a GPU instance with its labels."""

    gpu: GpuSnapshot
    instance: int | None
    labels: Mapping[str, str]

    def reading(self, sample: GpuSample, before: GpuSample | None) -> DcgmReading:
        """What its values are computed from."""
        if self.instance is None:
            memory, profiling = sample.memory, sample.profiling
        else:
            memory = dict(sample.mig_memory).get(self.instance)
            profiling = dict(sample.mig_profiling).get(self.instance, ())
        return DcgmReading(
            sample=sample,
            gpu=self.gpu,
            nvidia=self.gpu.nvidia or UNREAD_NVIDIA_FACTS,
            before=before,
            memory=memory,
            profiling=dict(profiling),
        )


class Readings(Collector):
    """The newest samples as metric families, made anew at each scrape."""

    def __init__(self, node: str) -> None:
        self._identity = SeriesIdentity(hostname=node)
        self._entities: list[Entity] = []
        self._now: Mapping[str, GpuSample] = {}
        self._before: Mapping[str, GpuSample] = {}

    def show_snapshot(self, snapshot: NodeSnapshot) -> None:
        """Serve these GPUs from now on."""
        self._entities = list(_entities(snapshot, self._identity))

    def show_samples(self, samples: tuple[GpuSample, ...]) -> None:
        """Serve these readings from now on."""
        self._before, self._now = self._now, {sample.bus_id: sample for sample in samples}

    def collect(self) -> Iterator[Metric]:
        """Families that have a series."""
        readings = [
            (entity, entity.reading(sample, self._before.get(entity.gpu.bus_id)))
            for entity in self._entities
            if (sample := self._now.get(entity.gpu.bus_id)) is not None
        ]
        for family in FAMILIES:
            metric = _metric(family, readings)
            if metric.samples:
                yield metric


def _metric(family: DcgmFamily, readings: list[tuple[Entity, DcgmReading]]) -> Metric:
    counts = family.kind is MetricType.COUNTER
    metric = (CounterMetricFamily if counts else GaugeMetricFamily)(family.name, family.help)
    name = f"{metric.name}_total" if counts else family.name
    for entity, reading in readings:
        if entity.instance is not None and family.under_mig is UnderMig.ABSENT:
            continue
        value = family.value(reading)
        if value is None or not family.least <= value <= family.most:
            continue
        labels = dict(entity.labels)
        if family.attributes is not None:
            labels |= family.attributes(f"{value:.0f}")
        metric.add_sample(name, labels, value)
    return metric


def _entities(snapshot: NodeSnapshot, identity: SeriesIdentity) -> Iterator[Entity]:
    for gpu in snapshot.gpus:
        if gpu.state is not GpuState.PRESENT:
            continue
        reading = DcgmReading(
            driver=snapshot.driver,
            sample=unread_sample(gpu.bus_id),
            gpu=gpu,
            nvidia=gpu.nvidia or UNREAD_NVIDIA_FACTS,
        )
        facts = {row.name: row.value(reading) for row in DEFAULT_LABELS}
        known = {name: value for name, value in facts.items() if value is not None}
        for instance in FLEXIBLE.instances(gpu):
            for place in places(gpu, GpuPart(gpu.bus_id, instance), known, identity, (), ()):
                labels = {**place.first, **place.labels}
                yield Entity(gpu=gpu, instance=instance, labels=labels)


def serve(
    state_file: Path,
    host: str,
    port: int,
    node: str,
    sample_seconds: float,
    discover_seconds: float,
) -> None:
    """Serve the machine's metrics until the process ends."""
    root = state_file.with_name("root")
    reader = DeviceReader(Start(host_root=str(root), simulation=str(state_file)))
    place, readings = NodeHost(root=root, name=node), Readings(node)
    REGISTRY.register(readings)
    start_http_server(port, host)
    looked_at = -discover_seconds
    while True:
        began = time.monotonic()
        if began - looked_at >= discover_seconds:
            reading = reader.discover()
            readings.show_snapshot(place.snapshot(reading.driver, reading.gpus))
            looked_at = began
        readings.show_samples(reader.sample(GROUPS))
        time.sleep(max(0.0, began + sample_seconds - time.monotonic()))
