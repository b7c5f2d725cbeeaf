# SPDX-License-Identifier: Apache-2.0
"""The tables of metric families and their labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from api.mig_outcome import Outcome
from api.mig_status_annotation import MigPhase
from discovery.model import Driver, GpuState, Host, NodeSnapshot, Xid
from discovery.unread import UNREAD_NVIDIA_FACTS, unread_gpu
from exporters.dcgm.catalog import CATALOG, COUNTED, DEFAULT_FAMILIES, DEFAULT_LABELS, LABEL_ROWS
from exporters.dcgm.counters_format import read_counters
from exporters.dcgm.dcgm_family import AnyFamily, LabelRow, UnderMig
from exporters.dcgm.peer.peer_counters import counters_of
from exporters.dcgm.peer.peer_releases import RELEASES
from exporters.dcgm.peer.unserved_fields import UNSERVED
from exporters.desired_layout_metrics import DesiredLayoutState
from exporters.gpuscape.agent_metrics import AgentMetrics, ProgramUse
from exporters.gpuscape.core_families import CORE, ServedFamilies
from exporters.gpuscape.families import FAMILIES
from tools.markdown import quoted, table

_NUMBER = re.compile(r"(?<=_L)(?<!(?:VOL|AGG)_L)\d+|(?<=NVDEC|NVJPG|NVOFA)\d")
"""Number of a link or an engine in a family's name; such families differ in nothing else."""
_DEFAULT = {family.name for family in DEFAULT_FAMILIES}
_WITH_MIG = {
    UnderMig.REPEATED: "the GPU's, on each instance",
    UnderMig.OWN: "each instance's own",
    UnderMig.ABSENT: "none",
}


def metric_table(selection: str) -> str:
    """The families named as dcgm-exporter names them: the ``default`` or the ``optional`` ones."""
    families: list[AnyFamily] = [*CATALOG, *COUNTED]
    alike: dict[str, list[AnyFamily]] = {}
    for family in families:
        if (family.name in _DEFAULT) == (selection == "default"):
            alike.setdefault(_NUMBER.sub("n", family.name), []).append(family)
    return table(
        ("name", "type", "meaning", "with MIG", "readings", "GPUs"),
        (
            (
                _names(same[0], same[-1]),
                same[0].kind,
                same[0].help if len(same) == 1 else re.sub(r"\b0\b", "n", same[0].help, count=1),
                _WITH_MIG[same[0].under_mig],
                quoted(same[0].group),
                same[0].gpus,
            )
            for same in alike.values()
        ),
    )


def unserved_table() -> str:
    """Fields of DCGM that are not served, by reason."""
    names: dict[str, list[str]] = {}
    for pattern, why in UNSERVED.items():
        names.setdefault(why, []).append(f"`{pattern}`")
    return table(("fields", "why not"), ((", ".join(alike), why) for why, alike in names.items()))


def served_share_table() -> str:
    """How many rows of each release's counters file are served, by its names and types."""
    rows = []
    for release in RELEASES:
        counters = counters_of(release)
        text = "\n".join(f"{counter.name}, {counter.kind}, x." for counter in counters)
        served = len(counters) - len(read_counters(text, release).skipped)
        rows.append((release, str(len(counters)), str(served)))
    return table(("dcgm-exporter", "rows, those commented out too", "served"), rows)


def metric_label_table() -> str:
    """The facts that can stand on every series."""
    return table(
        ("name", "meaning", "by default"),
        (
            (_names(row, row), row.help, "yes" if row in DEFAULT_LABELS else "")
            for row in LABEL_ROWS
        ),
    )


def _names(first: AnyFamily | LabelRow, last: AnyFamily | LabelRow) -> str:
    """Both spellings, of one family or of many that are numbered."""
    to = "" if first is last else f" to `{last.name}`"
    since = "" if first is last else f" to `{last.renamed}`"
    renamed = f"<br>since DCGM 4.6 `{first.renamed}`{since}" if first.renamed else ""
    return f"`{first.name}`{to}{renamed}"


def own_metric_table() -> str:
    """What the agent serves about itself, read from its own exposition."""
    own, core = _own_metrics(ServedFamilies.ALL), _own_metrics(ServedFamilies.CORE)
    in_core = set(re.findall(r"^# TYPE (\w+) ", core, re.MULTILINE))
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", own, re.MULTILINE))
    helps = re.findall(r"^# HELP (\w+) (.*)$", own, re.MULTILINE)
    rows = (
        (f"`{name}`", "yes" if name in in_core else "", types[name], words)
        for name, words in sorted(helps)
    )
    return table(("name", "core", "type", "meaning"), rows)


_WISH = DesiredLayoutState(
    phase=MigPhase.WAITING, since_seconds=0.0, retries={Outcome.ROLLED_BACK: 1}, enforced=True
)
"""A change that has a series in each MIG family."""


def _own_metrics(served: ServedFamilies) -> str:
    own = AgentMetrics("0", lambda: 0.0, served)
    gpu = replace(
        unread_gpu("0000:00:00.0", GpuState.PRESENT),
        nvidia=replace(UNREAD_NVIDIA_FACTS, xids=(Xid(code=1, count=1),)),
    )
    own.snapshot_taken(NodeSnapshot(host=Host(name=""), driver=Driver(), gpus=(gpu,)), taken_at=0.0)
    own.samples_taken(0.0)
    own.programs_use({"agent": ProgramUse(cpu_seconds=0.0, resident_bytes=0)})
    own.set_desired_layout(_WISH)
    return (own.render() + own.render_now()).decode()


def own_family_table() -> str:
    """The families of our own about the node, and what each is computed from."""
    return table(
        ("name", "core", "type", "labels", "meaning", "computed from"),
        (
            (
                f"`{family.name}`",
                CORE[family.name].words if family.name in CORE else "",
                family.kind,
                ", ".join(f"`{label}`" for label in _shortened(family.labels)),
                family.help,
                family.source + "".join(f" (`{group}`)" for group in family.groups),
            )
            for family in FAMILIES
        ),
    )


def _shortened(labels: Sequence[str]) -> list[str]:
    """Labels, with the first one and dots in place of all numbered ones."""
    first, *more = [label for label in labels if label.startswith("to_")] or ["", ""]
    return [label if label != first else f"{label} …" for label in labels if label not in more]
