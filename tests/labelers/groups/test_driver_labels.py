# SPDX-License-Identifier: Apache-2.0
"""Driver and CUDA versions under both their key families."""

from __future__ import annotations

import pytest

from discovery.model import Driver, Gap, NodeSnapshot, Reason
from labelers.decision import Absent, Keep, Value
from labelers.groups.driver_labels import driver_labels
from labelers.label_settings import LabelSettings
from tests import build

SILENT = Driver(gaps=(Gap(what="version", reason=Reason.ABSENT, source="nvmlInit", detail="no"),))


def values(node: NodeSnapshot) -> dict[str, str]:
    return {
        key.removeprefix("nvidia.com/cuda."): of.text
        for key, of in driver_labels(node, LabelSettings()).items()
        if isinstance(of, Value)
    }


def with_driver(**facts: object) -> NodeSnapshot:
    return build.node([build.gpu()], driver=Driver(**facts))  # type: ignore[arg-type] # by test


def test_versions_stand_in_parts_and_whole_under_old_and_new_keys() -> None:
    assert values(with_driver(version="550.54.15", cuda_version=(12, 4))) == {
        "driver.major": "550",
        "driver.minor": "54",
        "driver.rev": "15",
        "driver-version.major": "550",
        "driver-version.minor": "54",
        "driver-version.revision": "15",
        "driver-version.full": "550.54.15",
        "runtime.major": "12",
        "runtime.minor": "4",
        "runtime-version.major": "12",
        "runtime-version.minor": "4",
        "runtime-version.full": "12.4",
    }


def test_a_version_of_two_parts_has_an_empty_revision_and_keeps_leading_zeros() -> None:
    labels = values(with_driver(version="400.02", cuda_version=(8, 0)))

    assert [labels[f"driver.{part}"] for part in ("major", "minor", "rev")] == ["400", "02", ""]


@pytest.mark.parametrize("version", ["400", "1.2.3.4"])
def test_an_odd_version_costs_its_parts_only(version: str) -> None:
    labels = values(with_driver(version=version, cuda_version=(8, 0)))

    assert {key for key in labels if key.startswith("driver")} == {"driver-version.full"}
    assert labels["runtime-version.full"] == "8.0"


def test_while_no_driver_answers_its_labels_are_kept() -> None:
    node = build.node([build.silent()], driver=SILENT)

    decisions = driver_labels(node, LabelSettings())

    assert set(decisions.values()) == {Keep(reason="no driver answers: nvmlInit: no")}


def test_a_cuda_version_that_is_not_told_costs_no_driver_label() -> None:
    labels = values(with_driver(version="400.300"))

    assert labels["driver-version.full"] == "400.300"
    assert not any(key.startswith("runtime") for key in labels)


def test_a_node_known_to_have_no_gpu_has_no_driver_labels() -> None:
    decisions = driver_labels(build.node(), LabelSettings())

    assert set(decisions.values()) == {Absent(reason="this node has no NVIDIA GPU")}
