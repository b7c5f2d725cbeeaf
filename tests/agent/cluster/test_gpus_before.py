# SPDX-License-Identifier: Apache-2.0
"""What the Node knew before is taken once, and another number after a boot reported once."""

from __future__ import annotations

import pytest

from agent.cluster.gpus_before import CountChange, GpusBefore
from api import known_gpus_annotation
from discovery.gpu_counts import GpuCounts
from discovery.known_node_gpus import SETTLE_SECONDS, KnownGpus, KnownGpusRecord
from labelers.decision import Absent, Keep, Value
from tests import build

NOW, EARLIER = "5e6ea2c4-4cb4-4b0c-9a30-1d1b6a2a7b11", "00000000-1111-2222-3333-444444444444"
A, B, C = (build.gpu(place).bus_id for place in range(3))


def text(*bus_ids: str, boot: str = NOW, count: int | None = None) -> str:
    number = len(bus_ids) if count is None else count
    return known_gpus_annotation.encode(
        known_gpus_annotation.known_gpus_of_boot(boot, bus_ids, number)
    )


def expect(known_gpus: KnownGpus, *listed: str, nvml: int | None = None) -> GpuCounts:
    """One reading without sysfs."""
    number = len(listed) if nvml is None else nvml
    return known_gpus.expect(listed, (), 0.0, GpuCounts(sysfs=None, nvml=number))


def test_a_gpu_that_the_node_knew_is_expected_in_its_old_place() -> None:
    known_gpus = KnownGpus()
    before = GpusBefore(known_gpus, NOW)
    expect(known_gpus, A, C)
    assert known_gpus.record.places == {A: 0, C: 1}
    assert known_gpus.awaits_record
    before.observe(text(A, B, C))
    expect(known_gpus, A, C)
    assert known_gpus.record == KnownGpusRecord(
        places={A: 0, B: 1, C: 2}, expected=frozenset({A, B, C})
    )
    assert not known_gpus.awaits_record


def test_gpus_of_which_the_node_knew_the_number_alone_are_counted() -> None:
    known_gpus = KnownGpus()
    GpusBefore(known_gpus, NOW).observe(text(count=40))
    assert expect(known_gpus, A, B).unaddressed == 38


@pytest.mark.parametrize("boot", [EARLIER, NOW])
def test_a_host_without_a_boot_id_is_in_no_boot_of_before(boot: str) -> None:
    known_gpus = KnownGpus()
    GpusBefore(known_gpus, "").observe(text(A, B, boot=boot))
    counts = expect(known_gpus, C)
    assert known_gpus.record.expected == {C}
    assert (counts.unaddressed, counts.former) == (1, 2)


def test_only_what_the_node_has_at_first_is_taken_and_the_gpus_are_read_anew_then() -> None:
    """Whatever stands there later is this agent's, or a mistake."""
    known_gpus, readings = KnownGpus(), list[None]()
    before = GpusBefore(known_gpus, NOW, taken=lambda: readings.append(None))
    before.observe(None)
    before.observe(text(A, B))
    assert (expect(known_gpus, A).unaddressed, known_gpus.record.total) == (0, 1)
    assert len(readings) == 1


def test_other_settings_take_nothing_anew_and_wait_for_nothing() -> None:
    known_gpus = KnownGpus()
    GpusBefore(known_gpus, NOW).observe(text(A, B))
    expect(known_gpus, A)
    after = GpusBefore(known_gpus, NOW)
    after.observe(text(A, B, C))
    expect(known_gpus, A)
    assert (known_gpus.awaits_record, known_gpus.record.total) == (False, 2)


def test_the_wait_for_the_node_settles_after_a_minute() -> None:
    """So long a feature file keeps what it has; the cluster is not written to before."""
    known_gpus = KnownGpus()
    GpusBefore(known_gpus, NOW)
    known_gpus.expect((), (), 100.0, GpuCounts(sysfs=0, nvml=0))
    assert known_gpus.settling(100.0 + SETTLE_SECONDS - 1)
    assert not known_gpus.settling(100.0 + SETTLE_SECONDS)
    assert known_gpus.awaits_record


@pytest.mark.parametrize(
    ("on_node", "decided", "change"),
    [
        (text(A, B, boot=EARLIER), Value(text=text(A)), (2, 1)),
        (text(A, boot=EARLIER), Value(text=text(A, B)), (1, 2)),
        (text(A, boot=EARLIER), Absent(reason="no GPU"), (1, 0)),
        (text(A, B, boot=EARLIER), Value(text=text(A, C)), None),
        (text(A, B, boot=EARLIER), Keep(reason="not settled"), None),
        (text(A, B, boot=EARLIER), None, None),
        (text(A, B), Value(text=text(A, B, C)), None),
        (text(A, B), Absent(reason="no GPU"), None),
        (None, Value(text=text(A)), None),
        ("{", Value(text=text(A)), None),
    ],
)
def test_another_number_than_before_the_boot_is_a_change_once(
    on_node: str | None, decided: Value | Keep | Absent | None, change: tuple[int, int] | None
) -> None:
    before = GpusBefore(KnownGpus(), NOW)
    found = before.change(on_node, decided)
    assert found == (None if change is None else CountChange(before=change[0], now=change[1]))
    assert before.change(on_node, decided) is None
