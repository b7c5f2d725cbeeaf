# SPDX-License-Identifier: Apache-2.0
"""Metrics of the agent that follow from the latest snapshot: GPUs, gaps and XID errors."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from discovery.model import GpuState, NodeSnapshot, Reason, nvidia_gpus


class SnapshotCollector(Collector):
    """The families that follow from the latest snapshot; none before the first."""

    def __init__(self) -> None:
        self.latest: NodeSnapshot | None = None

    def collect(self) -> Iterator[Metric]:
        if self.latest is None:
            return
        yield _gpus(self.latest)
        yield _counts(self.latest)
        yield _gaps(self.latest)
        yield from _xids(self.latest)


# what passes within seconds, such as a GPU that initialises, has a series only while it is there


def _gpus(snapshot: NodeSnapshot) -> Metric:
    family = GaugeMetricFamily("gpuscape_gpus", "GPUs of this node by state.", labels=["state"])
    tally = Tally(gpu.state for gpu in snapshot.gpus)
    for state in GpuState:
        if tally[state] or state is not GpuState.INITIALISING:
            family.add_metric([state], tally[state])
    return family


def _counts(snapshot: NodeSnapshot) -> Metric:
    family = GaugeMetricFamily(
        "gpuscape_gpus_counted",
        "GPUs as each source counts them, while they differ: sysfs, nvml, and the node with those"
        " known from before; no series where a source gives no count.",
        labels=["source"],
    )
    counts = snapshot.counts
    node = len(snapshot.gpus) + counts.unaddressed
    by_source = {"sysfs": counts.sysfs, "nvml": counts.nvml, "node": node}
    if len(set(by_source.values())) > 1:
        for source, count in by_source.items():
            if count is not None:
                family.add_metric([source], count)
    return family


def _gaps(snapshot: NodeSnapshot) -> Metric:
    family = GaugeMetricFamily(
        "gpuscape_gaps", "Readings missing in the snapshot by reason.", labels=["reason"]
    )
    of_gpus = (gap for gpu in snapshot.gpus for gap in gpu.gaps)
    tally = Tally(gap.reason for gap in (*snapshot.host.gaps, *snapshot.driver.gaps, *of_gpus))
    for reason in Reason:
        if tally[reason] or reason is not Reason.PENDING:
            family.add_metric([reason], tally[reason])
    return family


def _xids(snapshot: NodeSnapshot) -> Iterable[Metric]:
    labels = ["uuid", "pci_bus_id", "xid"]
    errors = CounterMetricFamily(
        "gpuscape_xid_errors_total",
        "XID errors since this agent started, or with a state file since the boot.",
        labels=labels,
    )
    last = GaugeMetricFamily(
        "gpuscape_xid_last_timestamp_seconds",
        "When the newest XID error of this code came, Unix time.",
        labels=labels,
    )
    for gpu, nvidia in nvidia_gpus(snapshot.gpus):
        for code in sorted({xid.code for xid in nvidia.xids}):
            same = [xid for xid in nvidia.xids if xid.code == code]
            series = [_utf8(gpu.uuid or ""), _utf8(gpu.bus_id), str(code)]
            errors.add_metric(series, sum(xid.count for xid in same))
            last.add_metric(series, max(xid.last_seen_seconds for xid in same))
    return errors, last


def _utf8(text: str) -> str:
    """Text from a driver may hold what UTF-8 cannot say, and prometheus_client would raise."""
    return text.encode("utf-8", "replace").decode("utf-8")
