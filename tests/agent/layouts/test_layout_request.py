# SPDX-License-Identifier: Apache-2.0
"""What a Node asks for, and who else manages MIG there."""

from __future__ import annotations

from typing import Any

import pytest

from agent.layouts.layout_request import (
    GKE_PARTITION,
    HAMI_REGISTER,
    LayoutRequest,
    StatedLayout,
    other_managers,
    stated_layout,
)
from api import keys
from api.mig_status_annotation import MigStatusAnnotation, RequestSource

IDLE = MigStatusAnnotation(v=2, phase="idle")
BY_LABEL = LayoutRequest(source=RequestSource.LABEL, text="all-1g.5gb")
BY_ANNOTATION = LayoutRequest(source=RequestSource.ANNOTATION, text="all-balanced")


def metadata(label: str | None = None, annotation: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": "node-a"}
    if label is not None:
        found["labels"] = {keys.MIG_CONFIG: label}
    if annotation is not None:
        found["annotations"] = {keys.MIG_LAYOUT: annotation}
    return found


@pytest.mark.parametrize(
    ("label", "annotation", "before", "expected"),
    [
        (None, None, None, StatedLayout()),
        (None, "all-balanced", None, StatedLayout(request=BY_ANNOTATION)),
        ("all-1g.5gb", None, IDLE, StatedLayout(request=BY_LABEL)),
        ("all-1g.5gb", "all-balanced", IDLE, StatedLayout(request=BY_ANNOTATION)),
        ("", None, IDLE, StatedLayout()),
    ],
)
def test_the_annotation_wins_over_the_label(
    label: str | None,
    annotation: str | None,
    before: MigStatusAnnotation | None,
    expected: StatedLayout,
) -> None:
    assert stated_layout(metadata(label, annotation), before) == expected


def test_a_label_older_than_the_first_status_is_not_obeyed_until_it_changes() -> None:
    first = stated_layout(metadata("all-disabled"), None)
    assert first == StatedLayout(unadopted="all-disabled")
    shown = MigStatusAnnotation(v=2, phase="unadopted", unadopted="all-disabled")
    assert stated_layout(metadata("all-disabled"), shown) == first
    assert stated_layout(metadata("all-1g.5gb"), shown) == StatedLayout(request=BY_LABEL)
    assert stated_layout(metadata(), shown) == StatedLayout()


def test_the_annotation_counts_beside_a_label_that_does_not() -> None:
    wish = stated_layout(metadata("all-disabled", "all-balanced"), None)
    assert wish == StatedLayout(request=BY_ANNOTATION, unadopted="all-disabled")


def test_nobody_else_is_found_on_a_plain_node() -> None:
    pods = ["gpu-operator/nvidia-device-plugin-daemonset-x", "team/nvidia-mig"]
    drivers = ["acme.com", "nvidia.com", "compute-domain.nvidia.com", "gpu.nvidia.com.acme.com", ""]
    assert other_managers(metadata("x"), pods=pods, slice_drivers=drivers) == ()


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (
            {"pods": ["a/b", "gpu-operator/nvidia-mig-manager-x7k2p"]},
            "NVIDIA's MIG manager (pod gpu-operator/nvidia-mig-manager-x7k2p)",
        ),
        (
            {"service_enabled": True},
            "NVIDIA's MIG manager (service nvidia-mig-manager of the host)",
        ),
        (
            {"slice_drivers": ["gpu.nvidia.com"]},
            "NVIDIA's DRA driver (ResourceSlices of gpu.nvidia.com)",
        ),
    ],
)
def test_each_other_manager_is_named(where: dict[str, Any], expected: str) -> None:
    assert other_managers(metadata(), **where) == (expected,)


def test_managers_that_mark_the_node_are_named() -> None:
    marked = {"labels": {GKE_PARTITION: "1g.5gb"}, "annotations": {HAMI_REGISTER: "GPU-1,10"}}
    assert other_managers(marked) == (
        "GKE (label cloud.google.com/gke-gpu-partition-size=1g.5gb)",
        "HAMi (annotation hami.io/node-nvidia-register)",
    )
