# SPDX-License-Identifier: Apache-2.0
"""Labels of the machine around the GPUs: timestamp, machine type, vGPU."""

from __future__ import annotations

from api import keys
from discovery.model import NodeSnapshot, nvidia_gpus
from discovery.nvml_terms import Virtualization
from labelers.decision import Absent, Decision, Decisions, Keep, gap_text, value
from labelers.groups.labelled_gpus import all_answer, answering, nvidia_part, without_gpus
from labelers.label_settings import LabelSettings
from labelers.label_values import sanitise


def node_labels(snapshot: NodeSnapshot, settings: LabelSettings) -> Decisions:
    """Timestamp and ``vgpu.*`` labels for every node; the machine type of one with NVIDIA GPUs."""
    snapshot = nvidia_part(snapshot)
    return {
        keys.TIMESTAMP: _timestamp(settings),
        keys.MACHINE: without_gpus(snapshot) or _machine(snapshot.host.machine_type),
        **_vgpu(snapshot),
    }


def _timestamp(settings: LabelSettings) -> Decision:
    if settings.timestamp_seconds is None:
        return Absent(reason="switched off")
    return value(settings.timestamp_seconds)


def _machine(text: str | None) -> Decision:
    """The machine type; ``unknown`` where its file cannot be read, empty where that is empty."""
    return value("unknown" if text is None else sanitise(text))


_HOST_DRIVER = (keys.VGPU_HOST_VERSION, keys.VGPU_HOST_BRANCH)


def _vgpu(snapshot: NodeSnapshot) -> dict[str, Decision]:
    """The ``vgpu.*`` labels; not sanitised, as upstream.

    Source: NVIDIA/k8s-device-plugin v0.20.0, internal/vgpu and internal/lm/vgpu.go.
    """
    vgpu = snapshot.host.vgpu
    if vgpu is None:
        return _vgpu_by_nvml(snapshot)
    if not vgpu.present:
        return _no_vgpu()
    driver = zip(_HOST_DRIVER, (vgpu.host_driver_version, vgpu.host_driver_branch), strict=True)
    unknown = Absent(reason="the vGPU's configuration space has no host driver record")
    return {
        keys.VGPU_PRESENT: value("true"),
        **{key: unknown if text is None else value(text) for key, text in driver},
    }


def _vgpu_by_nvml(snapshot: NodeSnapshot) -> dict[str, Decision]:
    """The ``vgpu.*`` labels where configuration space cannot be read: NVML reports vGPUs only.

    The driver of a vGPU's host is not known then. A node has no vGPU only when every GPU reports
    its virtualization mode.
    """
    unread = Keep(reason=gap_text(snapshot.host.gaps, "vgpu"))
    modes = {nvidia.virtualization for _, nvidia in nvidia_gpus(answering(snapshot))}
    if Virtualization.VGPU in modes:
        return {keys.VGPU_PRESENT: value("true"), **dict.fromkeys(_HOST_DRIVER, unread)}
    if modes and None not in modes and all_answer(snapshot):
        return _no_vgpu()
    return dict.fromkeys((keys.VGPU_PRESENT, *_HOST_DRIVER), unread)


def _no_vgpu() -> dict[str, Decision]:
    none = Absent(reason="no GPU here is a vGPU")
    return {keys.VGPU_PRESENT: value("false"), **dict.fromkeys(_HOST_DRIVER, none)}
