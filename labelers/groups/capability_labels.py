# SPDX-License-Identifier: Apache-2.0
"""Labels that the GPU operator's other parts select by: MIG capability, MPS configured."""

from __future__ import annotations

from api import keys
from discovery.model import NodeSnapshot
from labelers.decision import Absent, Decision, Decisions, Keep, gap_text, value
from labelers.groups.labelled_gpus import (
    all_answer,
    answering,
    nvidia_part,
    without_answers,
)
from labelers.groups.mig_labels import mode_known
from labelers.label_settings import LabelSettings


def capability_labels(snapshot: NodeSnapshot, settings: LabelSettings) -> Decisions:
    """Labels ``mig.capable``, by the hardware, and ``mps.capable``, by the configuration."""
    snapshot = nvidia_part(snapshot)
    none = without_answers(snapshot)
    return {
        keys.MIG_CAPABLE: none or _mig_capable(snapshot),
        keys.MPS_CAPABLE: none or _mps_capable(snapshot, settings),
    }


def _mig_capable(snapshot: NodeSnapshot) -> Decision:
    """True once one GPU has MIG; false only when every GPU reports that it has not."""
    gpus = answering(snapshot)
    if any(gpu.mig_capable for gpu in gpus):
        return value("true")
    for gpu in gpus:
        if not mode_known(gpu):
            return Keep(reason=gap_text(gpu.gaps, "mig"))
    if not all_answer(snapshot):
        return Keep(reason="no GPU that answered has MIG, but not all answered")
    return value("false")


def _mps_capable(snapshot: NodeSnapshot, settings: LabelSettings) -> Decision:
    """Left out where a GPU has MIG on: MPS cannot share it; upstream gives up altogether."""
    if not settings.sharing.uses_mps:
        return value("false")
    for gpu in answering(snapshot):
        if gpu.mig_enabled:
            return Absent(reason=f"MPS sharing is configured, but {gpu.bus_id} has MIG on")
        if not mode_known(gpu):
            return Keep(reason=gap_text(gpu.gaps, "mig"))
    return value("true")
