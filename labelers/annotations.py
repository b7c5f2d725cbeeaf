"""The Node annotations that the agent decides from a snapshot."""

from __future__ import annotations

from api import keys
from api import topology_annotation as schema
from discovery.model import NodeSnapshot
from labelers.decision import Decision, Decisions, Value
from labelers.groups.labelled_gpus import unsure, without_answers


def node_annotations(snapshot: NodeSnapshot) -> Decisions:
    """Every annotation of a node."""
    return {keys.TOPOLOGY: _topology(snapshot)}


def _topology(snapshot: NodeSnapshot) -> Decision:
    """What was measured with all GPUs answering stays while one does not: links do not move.

    A node without it gets what is known, once all GPUs had time for their first answer.
    """
    none = without_answers(snapshot)
    if none is not None:
        return none
    text = schema.encode(snapshot)
    unknown = schema.unknown_places(snapshot)
    if not unknown:
        return Value(text=text)
    missing = ", ".join(snapshot.gpus[place].bus_id for place in unknown)
    return unsure(snapshot, f"links or UUID not known: {missing}", text)
