# SPDX-License-Identifier: Apache-2.0
"""Mode, architecture, memory type and the inventory of models."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from discovery.model import Gap, GpuSnapshot, Reason
from discovery.nvml_terms import Architecture
from labelers.decision import Absent, Decision, Keep, Value
from labelers.groups.hardware_labels import hardware_labels, model_key
from labelers.label_settings import LabelSettings
from labelers.label_values import key_fault
from tests import build, machines
from tests.observed import look_at
from tools.label_deviations import DEVIATIONS

NOT_UTF_8 = "text that is not UTF-8"
COUNT, MEMORY = "gpuscape.io/count.<model>", "gpuscape.io/memory.<model>"
LONG = "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition"


def decided(*gpus: GpuSnapshot) -> dict[str, Decision]:
    return dict(hardware_labels(build.node(gpus), LabelSettings()))


def values(*gpus: GpuSnapshot) -> dict[str, str]:
    return {key: of.text for key, of in decided(*gpus).items() if isinstance(of, Value)}


@pytest.mark.parametrize(
    ("classes", "mode"),
    [
        ([0x030000], "graphics"),
        ([0x030200, 0x030200], "compute"),
        ([0x068000], "unknown"),
        ([0x030200, 0x030000], "unknown"),
        ([0x030200, None], "unknown"),
        ([None], "unknown"),
    ],
)
def test_the_mode_is_that_of_all_gpus(classes: list[int | None], mode: str) -> None:
    gpus = [build.gpu(at, pci_class=pci_class) for at, pci_class in enumerate(classes)]

    assert values(*gpus)["nvidia.com/gpu.mode"] == mode


def test_the_mode_of_a_gpu_in_a_domain_of_five_digits_is_its_own(tmp_path: Path) -> None:
    """gpu-feature-discovery cuts the domain and says unknown; the table of deviations lists it."""
    far = machines.gpu(0, bus_id="10000:01:00.0", root="10000:00", path=("10000:00:02.0",))

    (gpu,) = look_at(machines.simulation(tmp_path, far), "node-a").snapshot.gpus

    assert gpu.bus_id == far.bus_id
    assert values(gpu)["nvidia.com/gpu.mode"] == "compute"
    assert any("more than four digits" in one.about for one in DEVIATIONS)


@pytest.mark.parametrize(
    ("gpu", "kind"),
    [
        (build.gpu(memory_bus_bits=5120), "hbm"),
        (build.gpu(memory_bus_bits=1024), "hbm"),
        (build.gpu(memory_bus_bits=512), "gddr"),
        (build.lacking(build.gpu(memory_bus_bits=256), "memory_bytes"), "unified"),
    ],
)
def test_the_memory_type_follows_from_the_width_of_the_bus(gpu: GpuSnapshot, kind: str) -> None:
    assert values(gpu)["gpuscape.io/gpu.memory-type"] == kind


def test_gpus_with_different_memory_are_mixed() -> None:
    labels = values(build.gpu(0, memory_bus_bits=5120), build.gpu(1, memory_bus_bits=256))

    assert labels["gpuscape.io/gpu.memory-type"] == "mixed"


def test_a_gpu_that_hides_its_bus_leaves_the_others_their_type() -> None:
    labels = values(
        build.gpu(0, memory_bus_bits=5120),
        build.lacking(build.gpu(1), "memory_bus_bits", Reason.FAILED),
    )

    assert labels["gpuscape.io/gpu.memory-type"] == "hbm"


@pytest.mark.parametrize(("reason", "kind"), [(Reason.UNSUPPORTED, Absent), (Reason.FAILED, Keep)])
def test_a_memory_type_that_cannot_be_read_is_not_guessed(reason: Reason, kind: type) -> None:
    decision = decided(build.lacking(build.gpu(), "memory_bus_bits", reason))

    assert isinstance(decision["gpuscape.io/gpu.memory-type"], kind)


def test_the_architecture_is_that_of_the_model_named_as_product() -> None:
    labels = values(
        build.gpu(0, model="Thor", architecture=Architecture.BLACKWELL),
        build.gpu(1, model="Uhr", architecture=Architecture.AMPERE),
        build.gpu(2, model="Uhr", architecture=Architecture.AMPERE),
    )

    assert labels["gpuscape.io/gpu.architecture"] == "ampere"


def test_an_architecture_unknown_to_gpuscape_is_left_out() -> None:
    decision = decided(build.gpu(architecture=Architecture.OTHER))

    assert isinstance(decision["gpuscape.io/gpu.architecture"], Absent)


def test_every_model_of_a_mixed_node_is_counted_with_its_memory() -> None:
    labels = values(
        build.gpu(0, model="NVIDIA A100-SXM4-40GB", memory_bytes=40960 * build.MIB),
        build.gpu(1, model="Tesla T4", memory_bytes=15360 * build.MIB + 5),
        build.gpu(2, model="Tesla T4", memory_bytes=15360 * build.MIB, mig=build.SPLIT),
    )

    inventory = {key: text for key, text in labels.items() if "count." in key or "memory." in key}
    assert inventory == {
        "gpuscape.io/count.NVIDIA-A100-SXM4-40GB": "1",
        "gpuscape.io/count.Tesla-T4": "2",
        "gpuscape.io/memory.NVIDIA-A100-SXM4-40GB": "40960",
        "gpuscape.io/memory.Tesla-T4": "15360",
    }


def test_a_name_that_is_no_utf_8_is_the_reason_and_not_a_gpu_that_does_not_answer() -> None:
    gap = Gap(what="model", reason=Reason.GARBAGE, source="nvmlDeviceGetName", detail=NOT_UTF_8)
    nameless = replace(build.gpu(1), model=None, gaps=(gap,))

    decision = decided(build.gpu(0), nameless)

    for key in (COUNT, MEMORY):
        kept = decision[key]
        assert isinstance(kept, Keep)
        assert kept.reason == (
            f"the model of {nameless.bus_id} is not known: nvmlDeviceGetName: {NOT_UTF_8}"
        )


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        (build.gpu(1), Absent),
        (build.silent(1), Keep),
        (build.lacking(build.gpu(1), "model", Reason.FAILED), Keep),
    ],
)
def test_a_model_is_gone_only_when_every_gpu_told_its_own(other: GpuSnapshot, kind: type) -> None:
    decision = decided(build.gpu(0), other)

    assert isinstance(decision[COUNT], kind)
    assert isinstance(decision[MEMORY], kind)


@pytest.mark.parametrize("name", [LONG, LONG + "-2", "ends-in-a-dot.", "", "x" * 200])
def test_a_model_of_any_name_has_a_legal_key(name: str) -> None:
    for family in (COUNT, MEMORY):
        assert key_fault(model_key(family, name)) is None


def test_a_name_that_fits_stands_as_it_is_and_long_ones_stay_apart() -> None:
    assert model_key(COUNT, LONG) == f"gpuscape.io/count.{LONG}"
    assert model_key(COUNT, LONG + "-one") != model_key(COUNT, LONG + "-two")


@pytest.mark.parametrize(("family", "room"), [(COUNT, 57), (MEMORY, 56)])
def test_a_name_of_exactly_the_room_stands_as_it_is_and_a_longer_one_ends_in_its_hash(
    family: str, room: int
) -> None:
    """63 characters behind the prefix are a label key's most."""
    stem = family.removesuffix("<model>")
    assert model_key(family, "A" * room) == stem + "A" * room
    for name in ("A" * (room + 1), "A" * (room - 1) + "."):
        key = model_key(family, name)
        assert re.fullmatch(f"{re.escape(stem)}A{{{room - 7}}}-[0-9a-f]{{6}}", key)
        assert len(key.partition("/")[2]) == 63
