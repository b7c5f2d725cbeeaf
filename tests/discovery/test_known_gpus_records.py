# SPDX-License-Identifier: Apache-2.0
"""What another process or boot knew of the GPUs: records joined, and a count that still holds."""

from __future__ import annotations

from itertools import product

import pytest

from discovery.gpu_counts import GpuCounts
from discovery.known_node_gpus import KnownGpus, KnownGpusRecord
from tests import build

BUS_IDS = tuple(build.gpu(at).bus_id for at in range(4))


def record(
    *places: int, lost: tuple[int, ...] = (), unaddressed: int = 0, former: int = 0
) -> KnownGpusRecord:
    """These GPUs in this order; another driver has those of ``lost``."""
    return KnownGpusRecord(
        places={BUS_IDS[it]: place for place, it in enumerate(places)},
        expected=frozenset(BUS_IDS[it] for it in places if it not in lost),
        unaddressed=unaddressed,
        former=former,
    )


RECORDS = (
    record(),
    record(0, 1),
    record(1, 0),
    record(2, 3, 1),
    record(0, 1, 2, 3),
    record(0, 1, lost=(0,)),
    record(0, unaddressed=3),
    record(3, unaddressed=1, former=3),
    record(former=4),
)


@pytest.mark.parametrize(("first", "second"), list(product(RECORDS, RECORDS)))
def test_two_records_joined_expect_every_gpu_of_both_in_the_places_of_the_second(
    first: KnownGpusRecord, second: KnownGpusRecord
) -> None:
    both = first.joined(second)
    assert both.expected == first.expected | second.expected
    assert both.total >= max(first.total, second.total)
    assert sorted(both.places.values()) == list(range(len(both.places)))
    assert both.places.keys() == first.places.keys() | second.places.keys()
    assert dict(both.places) | dict(second.places) == dict(both.places)
    assert both.joined(second) == both


def test_a_gpu_without_a_bus_id_in_one_record_may_be_one_that_the_other_names() -> None:
    assert record(0, unaddressed=1).joined(record(0, 1)).total == 2


def test_an_earlier_boot_leaves_the_number_and_another_driver_which_gpus_there_are() -> None:
    before = record(0, 1, 2, unaddressed=1)
    assert before.of_earlier_boot == KnownGpusRecord(former=4)
    assert before.of_earlier_boot.of_earlier_boot == KnownGpusRecord(former=4)
    assert before.of_other_driver == before


def expected_after(counts: GpuCounts, listed: int) -> tuple[int, int]:
    """GPUs that are expected, of a node with four in an earlier boot; those of that boot kept."""
    known_gpus = KnownGpus()
    known_gpus.restore(KnownGpusRecord(former=4), 0.0)
    after = known_gpus.expect(BUS_IDS[:listed], (), 0.0, counts)
    return len(known_gpus) + after.unaddressed, known_gpus.record.former


@pytest.mark.parametrize(
    ("counts", "listed", "expected"),
    [
        (GpuCounts(sysfs=3, nvml=3), 3, (3, 0)),
        (GpuCounts(sysfs=0, nvml=0), 0, (0, 0)),
        (GpuCounts(sysfs=4, nvml=4), 4, (4, 0)),
        (GpuCounts(sysfs=None, nvml=3), 3, (4, 4)),
        (GpuCounts(sysfs=None, nvml=None), 0, (4, 4)),
        (GpuCounts(sysfs=3, nvml=None), 3, (4, 4)),
        (GpuCounts(sysfs=3, nvml=2), 3, (4, 4)),
        (GpuCounts(sysfs=2, nvml=3), 3, (4, 4)),
        (GpuCounts(sysfs=None, nvml=3, on_pci=False), 3, (3, 0)),
        (GpuCounts(sysfs=None, nvml=None, on_pci=False), 0, (4, 4)),
    ],
)
def test_the_number_of_an_earlier_boot_holds_until_sysfs_and_nvml_agree(
    counts: GpuCounts, listed: int, expected: tuple[int, int]
) -> None:
    """Where the platform shows no GPU in sysfs, as WSL2, NVML alone settles it."""
    assert expected_after(counts, listed) == expected


def test_a_number_of_an_earlier_boot_is_named_while_it_is_more_than_there_are() -> None:
    known_gpus = KnownGpus()
    known_gpus.restore(KnownGpusRecord(former=4), 0.0)
    unsure = GpuCounts(sysfs=None, nvml=3)
    before = known_gpus.expect(BUS_IDS[:3], (), 0.0, unsure)
    assert (before.unaddressed, before.former) == (1, 4)
    assert "had 4 GPUs in an earlier boot" in before.why_unaddressed
    found = known_gpus.expect(BUS_IDS, (), 0.0, GpuCounts(sysfs=None, nvml=4))
    assert (found.unaddressed, found.former, found.why_unaddressed) == (0, 0, "")
    settled = known_gpus.expect(BUS_IDS, (), 0.0, GpuCounts(sysfs=4, nvml=4))
    assert (settled.former, known_gpus.record.former) == (0, 0)
