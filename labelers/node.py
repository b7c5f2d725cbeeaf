"""Labels of the machine around the GPUs: timestamp, machine type, vGPU."""

from __future__ import annotations

from discovery.model import NodeSnapshot
from labelers import keys
from labelers.decision import Absent, Decision, Decisions, Keep, gap_text, value
from labelers.gpus import without_gpus
from labelers.settings import LabelSettings
from labelers.values import sanitise


def node_labels(snapshot: NodeSnapshot, settings: LabelSettings) -> Decisions:
    """Timestamp and ``vgpu.*`` stand on every node, the machine type where there are GPUs."""
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
    """``unknown`` where the file cannot be read; empty where it is empty."""
    return value("unknown" if text is None else sanitise(text))


def _vgpu(snapshot: NodeSnapshot) -> dict[str, Decision]:
    """Not sanitised, as upstream. Source: facts on vGPU; PCI configuration space."""
    vgpu = snapshot.host.vgpu
    hosts = (keys.VGPU_HOST_VERSION, keys.VGPU_HOST_BRANCH)
    if vgpu is None:
        unknown: Decision = Keep(reason=gap_text(snapshot.host.gaps, "vgpu"))
        return dict.fromkeys((keys.VGPU_PRESENT, *hosts), unknown)
    if not vgpu.present:
        none: Decision = Absent(reason="no GPU here is a vGPU")
        return {keys.VGPU_PRESENT: value("false"), **dict.fromkeys(hosts, none)}
    told = zip(hosts, (vgpu.host_driver_version, vgpu.host_driver_branch), strict=True)
    untold = Absent(reason="the vGPU's configuration space has no host driver record")
    return {
        keys.VGPU_PRESENT: value("true"),
        **{key: untold if text is None else value(text) for key, text in told},
    }
