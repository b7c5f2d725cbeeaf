# SPDX-License-Identifier: Apache-2.0
"""All families of our own together: names, labels, hostile text, silent GPUs, growth."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from discovery.gpu_part import GpuPart
from discovery.model import GpuState
from discovery.sample import ReadingGroup
from discovery.unread import unread_sample
from exporters.gpuscape.core_families import needed_reading_groups
from exporters.gpuscape.families import FAMILIES, GpuscapeFamilies
from exporters.gpuscape.gpuscape_family import GpuscapeFamily
from exporters.gpuscape.node_view import build_node_view
from exporters.gpuscape.process_use import ProcessUse
from health.health_verdict import Health, HealthVerdict
from tests import build, exposition, promlint
from tests.exporters.gpuscape_series import HOSTILE, all_silent, everything, held, split

SNAPSHOT, SAMPLES, ABOUT = everything()
WHOLE, WHOLE_SAMPLES, WHOLE_ABOUT = everything(instances=0)


def shown() -> dict[str, exposition.Family]:
    """Every family that has series on one of two full nodes: one with MIG and one without."""
    split_up = exposition.parse(GpuscapeFamilies().render(SNAPSHOT, SAMPLES, **ABOUT))
    return (
        exposition.parse(GpuscapeFamilies().render(WHOLE, WHOLE_SAMPLES, **WHOLE_ABOUT)) | split_up
    )


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_is_served_as_declared_and_as_prometheus_wants_it(family: GpuscapeFamily) -> None:
    served = shown()[family.name]

    assert served.help == family.help
    assert served.kind == family.kind
    assert {name for _, labels in served.series for name, _ in labels} <= set(family.labels)
    assert promlint.problems(served) == []


@pytest.mark.parametrize(
    "family", [it for it in FAMILIES if it.of_discovery], ids=lambda family: family.name
)
def test_a_family_of_discoveries_does_not_change_with_readings(family: GpuscapeFamily) -> None:
    full = build_node_view(SNAPSHOT, SAMPLES, **ABOUT)
    bare = build_node_view(SNAPSHOT, (), health=full.health)
    assert list(family.series(full)) == list(family.series(bare))


def test_a_new_snapshot_or_verdict_shows_at_once() -> None:
    families = GpuscapeFamilies()
    families.render(SNAPSHOT, SAMPLES, **ABOUT)
    later = replace(SNAPSHOT, gpus=SNAPSHOT.gpus[:1])
    worse = {
        **ABOUT,
        "health": dict.fromkeys(
            ABOUT["health"], HealthVerdict(health=Health.UNHEALTHY, reason="xid")
        ),
    }
    for snapshot, about in ((later, ABOUT), (later, worse), (SNAPSHOT, worse), (SNAPSHOT, ABOUT)):
        found = families.render(snapshot, SAMPLES, **about)
        assert found == GpuscapeFamilies().render(snapshot, SAMPLES, **about)


def test_facts_in_labels_have_the_value_1() -> None:
    infos = [family for name, family in shown().items() if name.endswith("_info")]

    assert len(infos) == 7
    assert {number for family in infos for number in family.series.values()} == {"1"}


def test_the_optional_readings_are_those_that_some_family_needs() -> None:
    """But for the status of pairs, where our own say how many NVLinks two GPUs have, and what is
    made for a family of DCGM's alone.
    """
    assert set(ReadingGroup) - {
        ReadingGroup.P2P,
        ReadingGroup.CLOCKS,
        ReadingGroup.INSTANT_POWER,
        ReadingGroup.BOARD,
        ReadingGroup.NUMBERS,
        ReadingGroup.ECC_BY_LOCATION,
        ReadingGroup.NVLINK_ERRORS_BY_LINK,
        ReadingGroup.CACHES,
        ReadingGroup.SPARE_ROWS,
        ReadingGroup.TOTALS,
    } == needed_reading_groups(FAMILIES)


def test_names_are_all_different_and_ours() -> None:
    names = [family.name for family in FAMILIES]

    assert max(Counter(names).values()) == 1
    assert all(name.startswith("gpuscape_") for name in names)


def test_a_family_says_what_it_is_and_what_it_is_computed_from() -> None:
    assert [family.name for family in FAMILIES if not family.source or "\n" in family.help] == []
    assert [family.name for family in FAMILIES if not family.help.endswith(".")] == []


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_comes_back_as_it_was(text: str) -> None:
    gpu = build.gpu(uuid=text, model=text)
    use = ProcessUse(bus_id=gpu.bus_id, pid="1", name=text, memory_bytes=1)

    body = GpuscapeFamilies().render(build.node([gpu]), (), processes=[use])

    families = exposition.parse(body)
    (info,) = families["gpuscape_gpu_info"].series
    (process,) = families["gpuscape_process_memory_bytes"].series
    assert (dict(info[1])["uuid"], dict(info[1])["model"]) == (text, text)
    assert dict(process[1])["process"] == text


def test_what_utf8_cannot_say_is_replaced_and_what_is_too_long_is_cut() -> None:
    gpu = build.gpu(uuid="GPU-\udcff", model="x" * 10_000)

    body = GpuscapeFamilies().render(build.node([gpu]), ())

    ((_, labels),) = exposition.parse(body)["gpuscape_gpu_info"].series
    assert dict(labels)["uuid"] == "GPU-?"
    assert dict(labels)["model"] == "x" * 256


def test_series_that_hostile_text_makes_equal_are_told_once() -> None:
    gpu = build.gpu()
    uses = [
        ProcessUse(bus_id=gpu.bus_id, pid="1", name=name, memory_bytes=memory)
        for name, memory in (("\udcfe", 1), ("\udcff", 2))
    ]

    body = GpuscapeFamilies().render(build.node([gpu]), (), processes=uses)

    assert list(exposition.parse(body)["gpuscape_process_memory_bytes"].series.values()) == ["1"]


def test_of_silent_gpus_nothing_is_told_but_that_and_what_others_say_of_them() -> None:
    gpus = all_silent()
    samples = [build.sample(gpu) for gpu in gpus]
    body = GpuscapeFamilies().render(
        build.node(gpus),
        samples,
        health={
            gpu.bus_id: HealthVerdict(health=Health.UNHEALTHY, reason="gpu-lost") for gpu in gpus
        },
        allocation=held(*(GpuPart(gpu.bus_id) for gpu in gpus), whole=[gpu.bus_id for gpu in gpus]),
        processes=[ProcessUse(bus_id=gpu.bus_id, pid="1", memory_bytes=1) for gpu in gpus],
    )

    families = exposition.parse(body)
    about_gpus = {
        name
        for name, family in families.items()
        if any(label == "pci_bus_id" for _, labels in family.series for label, _ in labels)
    }
    assert about_gpus == {
        "gpuscape_gpu_up",
        "gpuscape_gpu_health",
        "gpuscape_gpu_health_info",
        "gpuscape_gpu_allocated",
        "gpuscape_pod_gpu_info",
    }
    assert set(families["gpuscape_gpu_up"].series.values()) == {"0"}
    assert families["gpuscape_free_gpus"].series["gpuscape_free_gpus", ()] == "0"


def test_a_gpu_without_uuid_has_no_label_for_it() -> None:
    body = GpuscapeFamilies().render(build.node([build.gpu(uuid=None)]), ())

    assert b"uuid=" not in body
    assert b"gpuscape_gpu_up{" in body


def test_without_a_sample_there_are_facts_and_no_readings() -> None:
    gpu = split(0)
    facts = GpuscapeFamilies().render(build.node([gpu]), ())
    empty = GpuscapeFamilies().render(build.node([gpu]), [unread_sample(gpu.bus_id)])

    assert facts == empty
    assert set(exposition.parse(facts)) == {
        "gpuscape_driver_info",
        "gpuscape_gpu_info",
        "gpuscape_gpu_up",
        "gpuscape_gpu_mig_enabled",
        "gpuscape_gpu_mig_change_pending",
        "gpuscape_gpu_memory_bytes",
    }


def test_without_gpus_and_driver_nothing_is_told() -> None:
    empty = build.node(driver=replace(build.node().driver, version=None))

    assert GpuscapeFamilies().render(empty, ()) == b""


@pytest.mark.parametrize("number", [-1, float("nan"), float("inf"), 2**63, 2**64 - 1])
def test_an_impossible_number_is_no_series(number: float) -> None:
    gpu = build.gpu()
    body = GpuscapeFamilies().render(build.node([gpu]), [build.sample(gpu, power_watts=number)])

    assert b"gpuscape_gpu_power_watts" not in body


def test_a_change_of_labels_shows_and_what_is_gone_is_forgotten() -> None:
    families = GpuscapeFamilies()
    for at in range(200):  # as processes come and go
        gpu = build.gpu(uuid=f"GPU-{at}")
        body = families.render(build.node([gpu]), ())

    assert b'gpuscape_gpu_up{uuid="GPU-199",' in body
    assert b"GPU-198" not in body
    assert max(len(text._heads) for text in families._texts) < 100


def test_what_hangs_between_two_renders_is_no_longer_told() -> None:
    families, gpu = GpuscapeFamilies(), build.gpu()
    families.render(build.node([gpu]), [build.sample(gpu)])

    body = families.render(build.node([replace(gpu, state=GpuState.HUNG)]), [build.sample(gpu)])

    assert b"gpuscape_gpu_up{" in body
    assert b"watts" not in body


PAIRS = {"gpuscape_topology_nvlinks", "gpuscape_topology_pcie_level"}


def counted(gpus: int, instances: int) -> tuple[int, int]:
    """Series about pairs of GPUs, and all the others."""
    snapshot, samples, about = everything(gpus, instances)
    families = exposition.parse(GpuscapeFamilies().render(snapshot, samples, **about))
    pairs = sum(len(families[name].series) for name in PAIRS & families.keys())
    return pairs, sum(len(family.series) for family in families.values()) - pairs


@pytest.mark.parametrize("instances", [0, 1, 7])
def test_series_grow_by_the_same_number_with_every_gpu(instances: int) -> None:
    one, *counts = [counted(gpus, instances) for gpus in range(1, 17)]

    assert [pairs for pairs, _ in (one, *counts)] == [2 * n * (n - 1) for n in range(1, 17)]
    (step,) = {after - before for (_, before), (_, after) in pairwise(counts)}
    # the only GPU is free, so that no share of what is held is told, and has no rows of matrices
    assert counts[0][1] - one[1] == step + (instances == 0) + 2


def test_series_grow_by_the_same_number_with_every_gpu_instance() -> None:
    counts = [counted(2, instances)[1] for instances in range(1, 8)]

    assert len({after - before for before, after in pairwise(counts)}) == 1
