# SPDX-License-Identifier: Apache-2.0
"""What was predicted for pods on a real node, what they got, and the page that says so. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

from api.gpu_request import GpuRequest
from placement.best_effort import LOST, Odds
from placement.kubelet_model import TopologyManager
from tests.bench.page import REAL_NODES, Section, table

COLUMNS: Final = (
    "machine, TopologyManager",
    "pods",
    "refused",
    "possible sets",
    "most likely set came",
    "expected",
    "misses",
    "extender differs",
)
_TEXT: Final = (
    "Written by `.venv/bin/python -m tests.node.prediction_run`, with the kubelet of 1.37.1 and "
    "NVIDIA's device plugin 0.19.0 on [real nodes](testing.md#real-nodes).\n\n"
    "Pods with one or two containers, some with an init container, come and go at random. For "
    "each pod the scheduler's code predicts from the free GPUs which sets it may get, with their "
    "odds. The kubelet's checkpoint then shows what it got.\n\n"
    "- `possible sets`: their mean number.\n"
    "- `most likely set came`: the share of pods that got exactly the set with the highest odds. "
    "`expected` is the share that these odds add up to, with the standard error of so few pods.\n"
    "- `misses`: a set, or a refusal, that was not possible. Another one of the possible sets is "
    "no miss: among sets that the plugin's policy finds equal, and among single GPUs, the order "
    "in which the kubelet names the devices decides.\n"
    "- `extender differs`: pods for which the extender, which reads everything from the API "
    "server, gave other odds than the prediction from the kubelet's own state."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenGpus:
    """A pod that a kubelet has admitted or refused."""

    machine: str
    policy: TopologyManager
    free: int
    """Mask of the GPUs that were free."""
    wish: GpuRequest
    predicted: Odds
    """Sets that it may get; LOST where it may be refused."""
    actual: int
    """Mask of the GPUs that the kubelet's checkpoint has; LOST where it was refused."""
    reason: str = ""
    """Of the refusal."""
    expected: float = 0.0
    """The odds of what the kubelet reports of them, which is less where init containers that have
    ended had more."""
    published: float | None = None
    """The odds that the extender logged for the same; None where it logged none."""
    unreported: bool = False
    """Other pods had GPUs which the kubelet keeps for them and does not report."""

    @property
    def likely(self) -> int:
        """The set of the highest odds, of equals that with the lowest GPUs."""
        return max(self.predicted, key=lambda each: (self.predicted[each], -each))

    @property
    def is_exact(self) -> bool:
        """The most likely set came."""
        return self.actual == self.likely

    @property
    def is_miss(self) -> bool:
        """What came was not among what could come."""
        return not self.predicted.get(self.actual)

    @property
    def differs(self) -> bool:
        """The extender gave other odds."""
        return self.published is not None and abs(self.published - self.expected) > 1e-9

    def __str__(self) -> str:
        steps = [f"{it.gpus}{' that end' if it.ends else ''}" for it in self.wish.steps]
        sets = ", ".join(f"{each:x} {odds}" for each, odds in self.predicted.items())
        got = f"{self.actual:x}" if self.actual else f"refused, {self.reason}"
        return (
            f"{self.machine}, {self.policy}: {' and '.join(steps)} of {self.free:x}: {got};"
            f" predicted {sets}; the extender {self.published}, expected {self.expected}"
        )


def misses(found: Iterable[GivenGpus]) -> list[GivenGpus]:
    """Those whose set was not among the possible ones."""
    return [each for each in found if each.is_miss]


def unexplained(found: Iterable[GivenGpus]) -> list[GivenGpus]:
    """Misses, and odds of the extender that are others though it could know all that is taken."""
    return [each for each in found if each.is_miss or (each.differs and not each.unreported)]


def page(found: Sequence[GivenGpus]) -> str:
    """The section of docs/scheduler-quality.md."""
    groups: dict[tuple[TopologyManager, str], list[GivenGpus]] = {}
    for each in found:
        groups.setdefault((each.policy, each.machine), []).append(each)
    rows = tuple(row(f"{machine}, {policy}", its) for (policy, machine), its in groups.items())
    section = Section(title=REAL_NODES, text=_TEXT, rows=rows, columns=COLUMNS)
    return "\n".join([table(section), _explained(found)])


def row(name: str, found: Sequence[GivenGpus]) -> tuple[str, ...]:
    """The figures of some pods, for :data:`COLUMNS`."""
    count = len(found)
    odds = [each.predicted[each.likely] for each in found]
    error = sqrt(sum(each * (1 - each) for each in odds))
    sets = sum(len(each.predicted) for each in found)
    return (
        name,
        str(count),
        str(sum(each.actual == LOST for each in found)),
        f"{sets / count:.1f}",
        f"{sum(each.is_exact for each in found) / count:.0%}",
        f"{float(sum(odds)) / count:.0%} ± {error / count:.0%}",
        str(len(misses(found))),
        str(sum(each.differs for each in found)),
    )


def _explained(found: Sequence[GivenGpus]) -> str:
    """What is behind the last two columns."""
    lines = []
    if missed := misses(found):
        lines.append("The misses:\n\n" + "".join(f"- {each}\n" for each in missed))
    else:
        lines.append("There was no miss.\n")
    different = [each for each in found if each.differs]
    if different and not unexplained(different):
        lines.append(
            "The extender differs only while a pod runs whose init container had more GPUs than "
            "its containers have: the kubelet keeps those for the pod until it ends and reports "
            "them to nobody, so the extender knows their number and guesses which they are.\n"
        )
    elif different:
        shown = [str(each) for each in unexplained(different)]
        lines.append("The extender differs:\n\n" + "".join(f"- {each}\n" for each in shown))
    refused = [each for each in found if each.actual == LOST]
    if reasons := sorted({each.reason for each in refused}):
        sure = sum(each.predicted[each.likely] == 1 for each in refused if each.likely == LOST)
        lines.append(
            f"Of {len(refused)} refusals ({', '.join(reasons)}) {sure} were predicted as certain.\n"
        )
    return "\n".join(lines)
