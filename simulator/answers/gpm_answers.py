# SPDX-License-Identifier: Apache-2.0
"""GPM: profiling counters of Hopper and later, and the metrics between two samples of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from discovery.nvml_abi.argument_kinds import SUCCESS, Nvml
from simulator.answers.fields import ALL_LINKS, carried_kib
from simulator.answers.registry import (
    INVALID_ARGUMENT,
    answers,
    answers_on_gpu,
    need,
)
from simulator.answers.sensors import sensors
from simulator.description.machine_schema import GpuInstanceProfile
from simulator.machine_view import MachineView, SimulatedGpu
from simulator.sensor_values import process_joules
from simulator.state import mig_geometry
from simulator.state.machine_state import SimulatedProcess

_SHORTEST_SECONDS = 0.1
"""Nearer samples give nothing. Source: nvml.h, nvmlGpmMetricsGet; that it is NaN is inferred."""
_MIB_KIB = 1024
_MIB_BYTES = 1 << 20
_PERCENT = 100

_SHARES = {1: 1.0, 2: 0.85, 3: 0.4, 4: 0.12, 5: 0.5, 6: 0.02, 7: 0.45, 8: 0.01, 9: 0.03}
_SHARES |= {10: 0.6, 11: 0.04, 12: 0.2, 13: 0.1}
_SHARES |= {160: 0.7, 161: 0.3, 162: 0.55, 163: 0.44}
"""Metric to its value on a fully busy GPU, 0 to 1; all of them, those of caches too, are
invented, and no two are alike."""

_PCIE_SENT, _PCIE_RECEIVED = 20, 21
_DECODERS, _JPEG, _OPTICAL_FLOW = 30, 40, 50  # of the first engine of a kind
_ALL_NVLINKS, _NVLINKS = 60, 62  # received; sent is the next one
_LINKS = 18
_C2C = 100  # sent, received, sent data, received data
_CYCLES_ELAPSED = 248
_CYCLES_ACTIVE = {249: 2, 250: 5, 251: 6, 252: 7, 253: 9, 254: 8, 257: 4, 258: 11, 259: 12, 260: 13}
"""Total of cycles to the share of time in which they were."""
_PCIE_SENT_BYTES, _PCIE_RECEIVED_BYTES = 255, 256
_HERTZ_PER_MEGAHERTZ = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GpmCounters:
    """Counters of a GPU or of a GPU instance in one GPM sample."""

    taken_seconds: float
    """Moment of the sample on the monotonic clock."""
    worked: Mapping[tuple[int, float], float]
    """Pid and start to the seconds for which it would have kept fully busy what it runs on."""
    engines: Mapping[int, float]
    """Metric to how busy that engine is, per cent, for those there are."""
    totals: Mapping[int, float]
    """Metric to cycles or bytes since the driver was loaded."""
    traffic_mib: Mapping[int, float]
    """Metric to MiB so far; a GPU instance has none of these."""


@answers_on_gpu("nvmlGpmQueryDeviceSupport")
def support(gpu: SimulatedGpu, version: dict[str, int]) -> dict[str, int]:
    """1 where the model has GPM."""
    del version  # there is one
    return {"isSupportedDevice": int(gpu.model.profiling)}


@answers_on_gpu("nvmlGpmSampleGet")
def sample(gpu: SimulatedGpu) -> GpmCounters:
    """Counters of the whole GPU, with MIG on too."""
    need(gpu.model.profiling)
    whole = max(gpu.model.mig, key=lambda profile: profile.slices, default=None)
    return GpmCounters(
        taken_seconds=gpu.view.now,
        worked=_worked(gpu, gpu.processes, 1),
        engines=_engines(gpu, whole),
        totals=_cycles(gpu, 1) | _pcie_bytes(gpu),
        traffic_mib=_traffic_mib(gpu),
    )


@answers_on_gpu("nvmlGpmMigSampleGet")
def instance_sample(gpu: SimulatedGpu, instance_id: int) -> GpmCounters:
    """Counters of one GPU instance; NO_DATA without a compute instance in it, as DCGM expects."""
    need(gpu.model.profiling and gpu.state.mig)
    instance = mig_geometry.gpu_instance(gpu.state, instance_id)
    if instance is None:
        raise Nvml(INVALID_ARGUMENT)
    if not instance.compute:
        raise Nvml(pynvml.NVML_ERROR_NO_DATA)
    profile = mig_geometry.profile_of(gpu.model, instance)
    part = profile.slices / max(candidate.slices for candidate in gpu.model.mig)
    mine = [process for process in gpu.processes if process.gpu_instance_id == instance_id]
    return GpmCounters(
        taken_seconds=gpu.view.now,
        worked=_worked(gpu, mine, part),
        engines=_engines(gpu, profile),
        totals=_cycles(gpu, part),
        traffic_mib={},
    )


@answers("nvmlGpmMetricsGet")
def metrics(
    view: MachineView, older: GpmCounters, newer: GpmCounters, ids: Sequence[int]
) -> list[dict[str, Any]]:
    """A return code and a value for each metric: per cent, MiB each second, or a total."""
    del view  # the samples hold all there is
    return [_answer(older, newer, metric) for metric in ids]


def _answer(older: GpmCounters, newer: GpmCounters, metric: int) -> dict[str, Any]:
    try:
        value = _value(older, newer, metric)
    except Nvml as refused:
        return {"nvmlReturn": refused.code, "value": 0.0}
    far_enough = newer.taken_seconds - older.taken_seconds >= _SHORTEST_SECONDS
    return {"nvmlReturn": SUCCESS, "value": value if far_enough else math.nan}


def _value(older: GpmCounters, newer: GpmCounters, metric: int) -> float:
    seconds = newer.taken_seconds - older.taken_seconds or math.inf
    if metric in _SHARES:
        return _PERCENT * _SHARES[metric] * min(1.0, _grown(older.worked, newer.worked) / seconds)
    if metric in newer.engines:
        return newer.engines[metric]
    if metric in newer.totals:
        return newer.totals[metric]
    need(metric in newer.traffic_mib)
    return (newer.traffic_mib[metric] - older.traffic_mib[metric]) / seconds


def _grown(
    older: Mapping[tuple[int, float], float], newer: Mapping[tuple[int, float], float]
) -> float:
    """Seconds worked between two samples by the processes of the newer one; ended ones are lost."""
    return sum(worked - older.get(process, 0.0) for process, worked in newer.items())


def _worked(
    gpu: SimulatedGpu, processes: Sequence[SimulatedProcess], part: float
) -> dict[tuple[int, float], float]:
    """Pid and start to busy seconds; ``part``: how much of the GPU the processes run on."""
    watts = (gpu.model.power_limit_watts - gpu.model.idle_watts) * part
    now = gpu.view.now
    return {
        (process.pid, process.started): process_joules(gpu.model, process, now) / watts
        for process in processes
    }


def _engines(gpu: SimulatedGpu, profile: GpuInstanceProfile | None) -> dict[int, float]:
    """Engines of video and pictures are as busy as the decoders, of motion as the encoders."""
    if profile is None:
        return {}
    decoder = float(gpu.state.readings.decoder_percent or 0)
    encoder = float(gpu.state.readings.encoder_percent or 0)
    return {
        **{_DECODERS + index: decoder for index in range(profile.decoders)},
        **{_JPEG + index: decoder for index in range(profile.jpeg)},
        **{_OPTICAL_FLOW + index: encoder for index in range(profile.ofa)},
    }


def _cycles(gpu: SimulatedGpu, part: float) -> dict[int, float]:
    """Cycles at the highest clock. An instance has its part of what the GPU worked in all.

    Nobody remembers on which instance a process ran that ended.
    """
    hertz = gpu.model.max_sm_clock_mhz * _HERTZ_PER_MEGAHERTZ
    worked = part * sensors(gpu).worked_seconds()
    active = {total: hertz * worked * _SHARES[metric] for total, metric in _CYCLES_ACTIVE.items()}
    return {_CYCLES_ELAPSED: hertz * sensors(gpu).uptime, **active}


def _pcie_bytes(gpu: SimulatedGpu) -> dict[int, float]:
    sent, received = (float(sensors(gpu).pcie_bytes(way)) for way in ("sent", "received"))
    return {_PCIE_SENT_BYTES: sent, _PCIE_RECEIVED_BYTES: received}


def _traffic_mib(gpu: SimulatedGpu) -> dict[int, float]:
    now = sensors(gpu)
    sent, received = now.pcie_bytes("sent") / _MIB_BYTES, now.pcie_bytes("received") / _MIB_BYTES
    traffic = {_PCIE_SENT: sent, _PCIE_RECEIVED: received}
    if gpu.spec.numa_id is not None:  # it shares memory with its CPU, over NVLink-C2C
        traffic |= {_C2C: sent, _C2C + 1: received, _C2C + 2: sent, _C2C + 3: received}
    links = range(min(gpu.model.nvlink_links, _LINKS))
    for first, scope in (
        (_ALL_NVLINKS, ALL_LINKS),
        *((_NVLINKS + 2 * link, link) for link in links),
    ):
        if links:
            traffic[first] = carried_kib(gpu, scope, received=True) / _MIB_KIB
            traffic[first + 1] = carried_kib(gpu, scope, received=False) / _MIB_KIB
    return traffic
