# SPDX-License-Identifier: Apache-2.0
"""What a node shows of its GPUs for every combination of the three counts, as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from discovery.gpu_counts import GpuCounts
from discovery.known_node_gpus import KnownGpus, KnownGpusRecord
from discovery.model import Driver, GpuSnapshot, GpuState, Host, NodeSnapshot
from discovery.reader.quarantine import Quarantine
from discovery.unread import unread_gpu
from health.node_health import expected_gpus, node_verdict
from tools.markdown import table

COUNTS: Final = (None, 3, 4, 5)
"""Counts of sysfs and of NVML in the tables; None: no count."""


def _gpu(place: int) -> GpuSnapshot:
    return unread_gpu(f"0000:{0x10 + place:02x}:00.0", GpuState.PRESENT)


def record(
    count: int, *, of_earlier_boot: bool = False, gpu: Callable[[int], GpuSnapshot] = _gpu
) -> KnownGpusRecord:
    """What a Node knew that had so many GPUs."""
    bus_ids = [gpu(place).bus_id for place in range(count)]
    known = KnownGpusRecord(
        places={bus_id: place for place, bus_id in enumerate(bus_ids)}, expected=frozenset(bus_ids)
    )
    return known.of_earlier_boot if of_earlier_boot else known


RECORDS: Final[dict[str, KnownGpusRecord]] = {
    "none": KnownGpusRecord(),
    "equal": record(4),
    "more": record(5),
    "earlier": record(5, of_earlier_boot=True),
}


def snapshot(
    sysfs: int | None,
    nvml: int | None,
    known: KnownGpusRecord,
    gpu: Callable[[int], GpuSnapshot] = _gpu,
) -> NodeSnapshot:
    """A node whose agent has just started, as these counts and what the Node knew make it.

    A GPU answers where NVML has it, and where NVML counts none, which it may have yet.
    """
    gpus = [gpu(place) for place in range(max(sysfs or 0, nvml or 0))]
    listed = [gpu_snapshot.bus_id for gpu_snapshot in gpus]
    answering = gpus if nvml is None else gpus[:nvml]
    known_gpus = KnownGpus()
    known_gpus.await_record()
    known_gpus.offer_record(known)
    uncounted = "Unknown Error" if nvml is None else ""
    counts = known_gpus.expect(
        listed, (), 0.0, GpuCounts(sysfs=sysfs, nvml=nvml, why_uncounted=uncounted)
    )
    read = {gpu_snapshot.bus_id: gpu_snapshot for gpu_snapshot in answering}
    return NodeSnapshot(
        host=Host(name="node-a"),
        driver=Driver(version="580.0"),
        gpus=known_gpus.described(listed, read, Quarantine()),
        counts=counts,
    )


def gpu_counts_table(name: str) -> str:
    """The number of GPUs and the health, by the counts of sysfs and NVML, for one of RECORDS."""
    header = ["sysfs, then NVML", *(_text(nvml) for nvml in COUNTS)]
    return table(header, _rows(RECORDS[name]))


def _rows(known: KnownGpusRecord) -> Iterator[Sequence[str]]:
    for sysfs in COUNTS:
        yield _text(sysfs), *(_cell(snapshot(sysfs, nvml, known)) for nvml in COUNTS)


def _cell(node: NodeSnapshot) -> str:
    verdict = node_verdict(node)
    why = f", `{verdict.reason}`" if verdict.reason else ""
    return f"{expected_gpus(node)} {verdict.health.word}{why}"


def _text(count: int | None) -> str:
    return "none" if count is None else str(count)
