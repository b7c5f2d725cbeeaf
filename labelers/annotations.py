"""The Node annotations that the agent decides from a snapshot."""

from __future__ import annotations

from discovery.model import GpuState, NodeSnapshot
from labelers import keys, schema
from labelers.decision import Decision, Decisions, Keep, Value
from labelers.gpus import without_answers


def node_annotations(
    snapshot: NodeSnapshot, *, tm: str | None = None, al: str | None = None
) -> Decisions:
    """Every annotation of a node. ``tm`` and ``al``: the kubelet's and device plugin's policies."""
    return {keys.TOPOLOGY: _topology(snapshot, tm, al)}


def _topology(snapshot: NodeSnapshot, tm: str | None, al: str | None) -> Decision:
    """What was measured with all GPUs answering stays while one does not: links do not move."""
    none = without_answers(snapshot)
    if none is not None:
        return none
    silent = [gpu for gpu in snapshot.gpus if gpu.state is not GpuState.PRESENT]
    if silent:
        return Keep(reason=f"{silent[0].bus_id} does not answer")
    return Value(text=schema.encode(snapshot, tm=tm, al=al))
