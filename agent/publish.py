# SPDX-License-Identifier: Apache-2.0
"""Carry each snapshot's labels to their sinks, and log what changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from base.errors import GpuscapeError
from base.log_once import LogOnce
from base.text.safe_text import safe_line
from discovery.model import GpuSnapshot, GpuState, NodeSnapshot, Reason
from labelers import feature_file, unsettled
from labelers.annotations import node_annotations
from labelers.compose import LabelerFailure, decide_labels
from labelers.decision import Decisions
from labelers.diff import applied, changes
from labelers.label_rules import former_rule_labels
from labelers.label_settings import LabelSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDecision:
    """Labels and annotations for the Node, decided from one snapshot."""

    labels: Decisions
    annotations: Decisions
    awaits_record: bool = False
    """Whether the GPUs that the Node knew before are not in it yet."""


Sink = Callable[[NodeDecision], object]
"""Brings one place to the desired labels; raises GpuscapeError where it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Result of one publication."""

    changed: int
    """Labels added, changed or removed since the last one."""
    failures: tuple[LabelerFailure, ...]
    """Labelers that failed."""
    reached: Mapping[str, bool]
    """Sink to whether it took the labels."""


class Publisher:
    """Decides the labels of snapshot after snapshot and hands them to every sink."""

    def __init__(
        self,
        settings: LabelSettings,
        sinks: Mapping[str, Sink],
        before: Publisher | None = None,
        *,
        boot: str = "",
        show: Callable[[NodeSnapshot], object] = lambda _snapshot: None,
    ) -> None:
        """``before`` had other settings; its labels are those that changes are counted from.

        ``boot`` is the host's boot id; empty where it cannot be read. ``show`` gets each snapshot
        that labels are decided from.
        """
        self._show = show
        self._settings = settings
        self._boot = boot
        self._sinks = sinks
        self._labels: dict[str, str] = {} if before is None else before._labels
        self._present: dict[str, GpuSnapshot] = {} if before is None else before._present
        self._driver_hung: bool = before is not None and before._driver_hung
        self._failures = LogOnce()

    def publish(
        self, snapshot: NodeSnapshot, missed_once: Collection[str] = frozenset()
    ) -> Published:
        """Decide and hand over; one sink's failure leaves the others alone and is tried again.

        A single missed deadline changes no label, since it may be a stall: GPUs of ``missed_once``
        (bus ids) count as they were before, and where the driver as a whole missed one, nothing is
        published until the next snapshot. Nor does a GPU whose first answer is being waited for.
        """
        hung = any(gap.reason is Reason.HUNG for gap in snapshot.driver.gaps)
        before, self._driver_hung = self._driver_hung, hung
        if hung and not before:
            return Published(changed=0, failures=(), reached={})
        snapshot = self._as_before(snapshot, missed_once)
        self._show(snapshot)
        labels = decide_labels(snapshot, self._settings)
        decided = NodeDecision(
            labels=_settled(labels.decisions, snapshot),
            annotations=_settled(node_annotations(snapshot, self._boot), snapshot),
            awaits_record=snapshot.awaits_record,
        )
        of_all = {**decided.labels, **former_rule_labels(self._labels, labels.decisions)}
        changed = changes(self._labels, of_all)
        self._labels = applied(self._labels, of_all)
        for failure in labels.failures:
            log.error("labeler failed", extra={"labeler": failure.labeler, "why": failure.error})
        return Published(
            changed=len(changed),
            failures=labels.failures,
            reached={name: self._reach(name, decided) for name in self._sinks},
        )

    def _as_before(self, snapshot: NodeSnapshot, missed_once: Collection[str]) -> NodeSnapshot:
        gpus = tuple(
            _with_xids(self._present[gpu.bus_id], gpu)
            if gpu.bus_id in self._present
            and (gpu.bus_id in missed_once or gpu.state is GpuState.INITIALISING)
            else gpu
            for gpu in snapshot.gpus
        )
        if snapshot.driver.present:
            self._present = {gpu.bus_id: gpu for gpu in gpus if gpu.state is GpuState.PRESENT}
            snapshot = replace(snapshot, gpus=gpus)
        return snapshot

    def _reach(self, name: str, decided: NodeDecision) -> bool:
        try:
            self._sinks[name](decided)
        except GpuscapeError as error:
            if self._failures.is_new(str(error), name):
                log.error("labels not written", extra={"sink": name, "why": str(error)})  # noqa: TRY400  # the sentence is enough
            return False
        self._failures.clear(name)
        return True


def _with_xids(before: GpuSnapshot, now: GpuSnapshot) -> GpuSnapshot:
    """The GPU as it was before, with the errors that have come since."""
    if before.nvidia is None or now.nvidia is None:
        return before
    return replace(before, nvidia=replace(before.nvidia, xids=now.nvidia.xids))


def _settled(decisions: Decisions, snapshot: NodeSnapshot) -> Decisions:
    why = unsettled.why_unsettled(snapshot)
    return unsettled.kept(decisions, why) if why else decisions


def to_feature_file(path: Path) -> Sink:
    """A sink that keeps an NFD feature file."""
    return lambda decided: feature_file.write_feature_file(path, decided.labels)


def to_stream(write_lines: Callable[[Iterable[str]], object]) -> Sink:
    """A sink that prints all labels, one ``key=value`` a line, whenever they change.

    ``write_lines`` raises GpuscapeError where it takes none; then they are tried again.
    """
    printed: dict[str, str] = {}

    def write(decided: NodeDecision) -> None:
        after = applied(printed, decided.labels)
        if after != printed:
            write_lines(safe_line(f"{key}={text}") for key, text in after.items())
            printed.clear()
            printed.update(after)

    return write
