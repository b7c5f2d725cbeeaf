# SPDX-License-Identifier: Apache-2.0
"""Settings of metrics: families that are served, their labels, the readings that they need."""

from __future__ import annotations

import time
from collections.abc import Callable

from agent.gpu_records import GpuRecords
from agent.metrics.followed_counters import log_skipped, read_file
from agent.metrics.latest_metrics import LatestMetrics
from agent.settings.agent_settings import AgentSettings
from discovery.sample import ReadingGroup
from exporters.dcgm.counters_format import CountersConfig, default_counters
from exporters.dcgm.peer import peer_releases
from exporters.dcgm.render import Renderer
from exporters.dcgm.series_labels import SeriesIdentity
from exporters.dcgm.series_setting_kinds import NO_LABEL
from exporters.gpuscape import core_families
from exporters.gpuscape.agent_metrics import AgentMetrics
from exporters.gpuscape.core_families import ServedFamilies
from exporters.gpuscape.gpuscape_family import GpuscapeFamily

SELECTED = frozenset({ReadingGroup.PROCESSES, ReadingGroup.BAR1, ReadingGroup.FAN})
"""Readings that are made only where the settings or the counters need them."""

OLDEST_INTERVALS = 3
"""Readings older than this many sampling intervals are not served."""


def served_families(settings: AgentSettings) -> ServedFamilies:
    """Our own families that are served."""
    return ServedFamilies(settings.own_families)


def own_families(settings: AgentSettings) -> tuple[GpuscapeFamily, ...]:
    """Our own families about the node that are served."""
    return core_families.families(served_families(settings))


def configured_counters(settings: AgentSettings) -> CountersConfig:
    """Counters to serve without a ConfigMap; lines that cannot be served are logged, one by one.

    Raises BadInput where the file of counters cannot be read.
    """
    if settings.counters is None:
        return default_counters(settings.compat_release)
    config = read_file(settings.counters)
    log_skipped(config)
    return config


def reading_groups(settings: AgentSettings, counters: CountersConfig) -> tuple[ReadingGroup, ...]:
    """Reading groups that the served families need, next to the readings that are always made."""
    needed = set(counters.groups) | (
        core_families.needed_reading_groups(own_families(settings)) - SELECTED
    )
    if settings.processes or settings.distinguishes_pods:
        needed.add(ReadingGroup.PROCESSES)
    return tuple(sorted(needed))


def latest(
    settings: AgentSettings,
    hostname: str,
    own: AgentMetrics,
    counters: CountersConfig,
    records: GpuRecords,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> LatestMetrics:
    """The exposition of these settings, going on with what was counted before."""
    own.counters_skipped(len(counters.skipped))
    return LatestMetrics(
        SeriesIdentity(
            hostname=hostname,
            hostname_label=configured_hostname_label(settings),
            old_namespace=settings.old_namespace,
            blanks_replaced=settings.replace_blanks,
            pod_uid=settings.pod_uid_label,
            shares=settings.virtual_gpus,
        ),
        own,
        renderer=renderer(settings, counters),
        families=own_families(settings),
        windows=records.windows(settings.xid_window_seconds, settings.clock_events_window_seconds),
        waste=records.waste,
        oldest_seconds=OLDEST_INTERVALS * settings.sample_interval_seconds,
        clock=clock,
    )


def configured_hostname_label(settings: AgentSettings) -> str | None:
    """Label with the node's name, as set or as the release has it; None: there is none."""
    label = settings.hostname_label or peer_releases.hostname_label(settings.compat_release)
    return None if label == NO_LABEL else label


def renderer(settings: AgentSettings, counters: CountersConfig) -> Renderer:
    """The renderer of these counters, as the settings ask for it."""
    return Renderer(
        counters.families, counters.labels, devices=settings.devices, prefix=settings.prefix or ""
    )
