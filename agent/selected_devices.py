# SPDX-License-Identifier: Apache-2.0
"""Devices that the setting ``devices`` names by ids, compared with those that the node has."""

from __future__ import annotations

import logging
from dataclasses import replace

from base.log_once import LogOnce
from discovery.model import GpuState, NodeSnapshot
from exporters.dcgm.selection import Level, LevelSelection, Selection
from health.node_health import count_faults

log = logging.getLogger(__name__)

_NOUNS = {Level.GPUS: "GPU", Level.INSTANCES: "GPU instance"}


class SelectedDevices:
    """Refuses a selection at the agent's start; afterwards, missing devices are only logged."""

    def __init__(self, selection: Selection, *, at_start: bool) -> None:
        """``at_start``: no agent ran in this process before."""
        self._selection = selection
        self._may_refuse = at_start
        self._logged = LogOnce()
        self.refusal = ""
        """Why the agent has to end; empty where it goes on."""

    def accepts(self, snapshot: NodeSnapshot) -> bool:
        """Whether the agent goes on. The first complete snapshot decides, once and for all: a
        device that vanishes later ends nothing.
        """
        if self._may_refuse and is_complete(snapshot):
            self._may_refuse = False
            self.refusal = selection_refusal(self._selection, snapshot)
        if not self.refusal:
            self._log(_missing(self._selection, snapshot))
        return not self.refusal

    def _log(self, missing: str) -> None:
        if not missing:
            if self._logged.clear():
                log.info("selected devices found")
        elif self._logged.is_new(missing):
            log.warning("selected devices missing", extra={"why": missing})


def selection_refusal(selection: Selection, snapshot: NodeSnapshot) -> str:
    """Why this selection is a mistake on this node; empty where it is none, or may be none."""
    missing = _missing(selection, snapshot) if is_complete(snapshot) else ""
    return f"the setting devices is {selection}, and {missing}" if missing else ""


def is_complete(snapshot: NodeSnapshot) -> bool:
    """Whether the node has these GPUs and no others: all answer, and no source counts more."""
    return (
        snapshot.driver.present
        and snapshot.counts.nvml is not None
        and not count_faults(snapshot)
        and bool(snapshot.gpus)
        and all(gpu.state is GpuState.PRESENT for gpu in snapshot.gpus)
    )


def _missing(selection: Selection, snapshot: NodeSnapshot) -> str:
    """Selected ids that no known GPU can have, as a sentence; empty where there is none.

    A GPU that is known and does not answer is there. Where no GPU is known, nothing is missing.
    """
    if not snapshot.gpus:
        return ""
    return "; ".join(
        _sentence(replace(choice, ids=lacking), choice.available(snapshot.gpus))
        for choice in selection.choices
        if (lacking := (choice.ids or frozenset()) - choice.available(snapshot.gpus))
    )


def _sentence(lacking: LevelSelection, available: frozenset[int]) -> str:
    noun, letter = _NOUNS[lacking.level], lacking.level
    if not available:
        return f"no GPU of this node can have a {noun} ({lacking}): leave {letter} out"
    right = replace(lacking, ids=available)
    return (
        f"this node cannot have {noun} {lacking}: choose among {right}, or write {letter} for all"
    )
