# SPDX-License-Identifier: Apache-2.0
"""Nodes as agents leave them, and what runs on them, with only what a test is about."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from api import keys, mig_status_annotation
from api.mig_status_annotation import MigPhase, MigStatusAnnotation
from forecast.node_preview import RolloutRequest
from forecast.resource_forecast import LayoutMeaning
from kube.api import Object
from mig.configs.config_choice import LayoutChoice
from mig.configs.layout_annotation import parse_layout_annotation

GOLDEN = Path(__file__).parents[1] / "golden"
GPU = "nvidia.com/gpu"
TEAM = "team"


def mig(profile: str) -> str:
    """The resource of a profile."""
    return f"nvidia.com/mig-{profile}"


def node(
    name: str = "n",
    machine: str = "hgx-h100",
    *,
    strategy: str = "mixed",
    offers: Mapping[str, int] | None = None,
    phase: str = MigPhase.IDLE,
    asked: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **more: Any,
) -> Object:
    """A Node of one of the simulator's machines; without ``offers`` 8 whole GPUs are offered."""
    folder = GOLDEN / machine
    written = (folder / f"labels-{strategy}.txt").read_text(encoding="utf-8").split()
    notes = {keys.TOPOLOGY: (folder / "topology.json").read_text(encoding="utf-8").strip()}
    if phase:
        status = MigStatusAnnotation(v=2, phase=phase, desired=asked)
        notes[keys.MIG_STATUS] = mig_status_annotation.encode(status)
    room = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    room |= {key: str(count) for key, count in ({GPU: 8} if offers is None else offers).items()}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "labels": dict(line.split("=", 1) for line in written) | dict(labels or {}),
            "annotations": notes | dict(annotations or {}),
        },
        "spec": more.pop("spec", {}),
        "status": {
            "allocatable": room,
            "capacity": room | more.pop("capacity", {}),
            "conditions": more.pop("conditions", [ready]),
        },
        **more,
    }


def asked(layout: str, **more: Any) -> RolloutRequest:
    """A rollout of a layout, by the default configurations unless others are given."""
    meaning = LayoutMeaning(
        choice=LayoutChoice(
            layout=parse_layout_annotation(layout), configs=more.pop("configs", None)
        ),
        unknown=more.pop("unknown", ""),
    )
    return RolloutRequest(text=layout, meaning=meaning, **{"mode": "enforce", **more})


def gpu_spec(asks: Mapping[str, int], **more: Any) -> Object:
    """A pod's spec that asks for these."""
    limits = {name: str(count) for name, count in asks.items()}
    return {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}], **more}


def pod(
    name: str,
    asks: Mapping[str, int],
    *,
    on: str = "",
    phase: str = "",
    spec: Mapping[str, Any] | None = None,
    **meta: Any,
) -> Object:
    """A pod that runs on a node, or is pending."""
    its = gpu_spec(asks, **dict(spec or {})) | ({"nodeName": on} if on else {})
    state = phase or ("Running" if on else "Pending")
    ready = "True" if state == "Running" else "False"
    return {
        "metadata": {"name": name, "namespace": TEAM, "uid": f"uid-{name}", **meta},
        "spec": its,
        "status": {"phase": state, "conditions": [{"type": "Ready", "status": ready}]},
    }


def made(kind: str, name: str, spec: Mapping[str, Any], **more: Any) -> Object:
    """An object that makes pods."""
    meta = {"name": name, "namespace": TEAM, "uid": f"uid-{name}", **more.pop("metadata", {})}
    return {"kind": kind, "metadata": meta, "spec": dict(spec), **more}


def template(asks: Mapping[str, int], **more: Any) -> Object:
    """A template of pods that ask for these."""
    return {"metadata": {"labels": {"app": "a"}}, "spec": gpu_spec(asks, **more)}
