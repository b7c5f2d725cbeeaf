"""Write the DCGM families of one snapshot as Prometheus text. Pure, and fast enough for every tick.

Labels change when the node changes, values every tick. So the text of each series up to its
value is kept until a fact in its labels changes, and a tick only appends values.

prometheus_client cannot write these families: it appends ``_total`` to counters' names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from discovery.model import GpuSnapshot, GpuState, NodeSnapshot, Xid
from discovery.sample import GpuSample
from exporters.catalog import CATALOG
from exporters.family import Family, Reading, UnderMig

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Never OpenMetrics: it would require ``_total`` at the end of counters' names."""

MOST_LABEL_CHARACTERS = 256
"""Longer label values are cut; the longest legal one is a node name of 253."""

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_COMPUTE_SLICES = re.compile(r"^\d+c\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What every series says of the node beside its GPU."""

    hostname: str
    """The node's name in the cluster, else the host's."""
    hostname_label: Literal["hostname", "Hostname"] | None = "hostname"
    """``Hostname`` for dashboards older than dcgm-exporter 4.8.3; None leaves the label out."""
    driver_version: bool = True
    """Put the driver's version on every series."""


class Renderer:
    """Renders snapshot after snapshot; one instance for one stream of them, in one thread."""

    def __init__(self, families: Iterable[Family] = CATALOG) -> None:
        """Families appear in the order of their field ids, whatever order they come in."""
        self._families = sorted(families, key=lambda family: family.field)
        self._facts: object = None
        self._heads: list[list[str | None]] = []

    def render(
        self,
        snapshot: NodeSnapshot,
        samples: Iterable[GpuSample],
        previous_samples: Iterable[GpuSample],
        identity: Identity,
    ) -> bytes:
        """All series that have a value, in text format 0.0.4.

        A GPU with GPU instances appears as its instances only, as in dcgm-exporter's default
        device selection; one that did not answer, or has no sample, not at all. A family
        without series is not announced.
        """
        before = {sample.bus_id: sample for sample in previous_samples}
        now = {sample.bus_id: sample for sample in samples}
        gpus = [gpu for gpu in snapshot.gpus if gpu.state is GpuState.PRESENT and gpu.bus_id in now]
        readings = [
            reading
            for gpu in gpus
            for reading in _readings(gpu, now[gpu.bus_id], before.get(gpu.bus_id))
        ]
        lines: list[str] = []
        all_heads = self._heads_for(gpus, snapshot.driver.version, identity)
        for family, heads in zip(self._families, all_heads, strict=True):
            if series := _series(family, heads, readings):
                lines.append(_announcement(family))
                lines += series
        if lines:
            lines.append("")  # the last line ends too
        # Text from a driver may hold what UTF-8 cannot say; the exposition must stay readable.
        return "\n".join(lines).encode("utf-8", "replace")

    def _heads_for(
        self, gpus: Sequence[GpuSnapshot], driver_version: str | None, identity: Identity
    ) -> list[list[str | None]]:
        """For each family its series' text up to the value; kept while the facts in it last.

        One head for each reading, in the same order; None where the family has no series.
        """
        facts = (identity, driver_version, [_labelled_facts(gpu) for gpu in gpus])
        if facts != self._facts:
            trailing = _node_labels(driver_version, identity)
            labels = [(gpu, text) for gpu in gpus for text in _entities(gpu, trailing)]
            self._heads = [[_head(family, *each) for each in labels] for family in self._families]
            self._facts = facts
        return self._heads


def labels_text(labels: Mapping[str, str | None]) -> str:
    """``name="value",…`` in the given order; a label whose value is None is left out."""
    return ",".join(
        f'{name}="{value[:MOST_LABEL_CHARACTERS].translate(_ESCAPES)}"'
        for name, value in labels.items()
        if value is not None
    )


def _labelled_facts(gpu: GpuSnapshot) -> tuple[object, ...]:
    return (gpu.bus_id, gpu.index, gpu.uuid, gpu.model, gpu.mig_devices)


def _node_labels(driver_version: str | None, identity: Identity) -> str:
    labels: dict[str, str | None] = {}
    if identity.hostname_label is not None:
        labels[identity.hostname_label] = identity.hostname
    if identity.driver_version:
        labels["DCGM_FI_DRIVER_VERSION"] = driver_version
    return labels_text(labels)


def _entities(gpu: GpuSnapshot, trailing: str) -> list[str]:
    """The labels of each entity the GPU appears as: its GPU instances, or itself.

    Source of names and order: dcgm-exporter, ``render_metrics.go``. ``device`` carries the
    index there too, not the minor number.
    """
    domain, _, rest = gpu.bus_id.partition(":")
    own = {
        "gpu": None if gpu.index is None else str(gpu.index),
        "UUID": gpu.uuid,
        "pci_bus_id": f"{domain:0>8}:{rest}".upper(),
        "device": None if gpu.index is None else f"nvidia{gpu.index}",
        "modelName": gpu.model,
    }
    instances: list[dict[str, str | None]] = [
        {"GPU_I_PROFILE": profile, "GPU_I_ID": str(instance)}
        for instance, profile in _instances(gpu).items()
    ]
    return [
        ",".join(part for part in (labels_text(own | extra), trailing) if part)
        for extra in instances or [{}]
    ]


def _instances(gpu: GpuSnapshot) -> dict[int, str]:
    """GPU instance id to its profile, in the order of its first MIG device.

    A MIG device's profile names its compute slices too where they differ: ``1c.3g.20gb``.
    """
    return {
        device.gpu_instance_id: _COMPUTE_SLICES.sub("", device.profile)
        for device in gpu.mig_devices
    }


def _head(family: Family, gpu: GpuSnapshot, labels: str) -> str | None:
    if gpu.mig_devices and family.under_mig is UnderMig.ABSENT:
        return None
    return f"{family.name}{{{labels}" + ("} " if family.attributes is None else ",")


def _announcement(family: Family) -> str:
    text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {family.name} {text}\n# TYPE {family.name} {family.kind}"


def _readings(gpu: GpuSnapshot, sample: GpuSample, before: GpuSample | None) -> list[Reading]:
    """One reading for each entity of :func:`_entities`, in that order."""
    instances = _instances(gpu)
    if not instances:
        xid = _newest(gpu.xids)
        return [Reading(sample=sample, before=before, memory=sample.memory, xid=xid)]
    memory = dict(sample.mig_memory)
    return [
        Reading(
            sample=sample,
            before=before,
            memory=memory.get(instance),
            xid=_newest(gpu.xids, instance),
        )
        for instance in instances
    ]


def _newest(xids: Sequence[Xid], instance: int | None = None) -> int:
    """Code of the newest error, 0 if there is none; an instance shares those of the whole GPU."""
    concerned = (
        xid.code
        for xid in reversed(xids)
        if instance is None or xid.gpu_instance_id in (None, instance)
    )
    return next(concerned, 0)


def _series(family: Family, heads: Iterable[str | None], readings: Iterable[Reading]) -> list[str]:
    values = zip(heads, family.texts(readings), strict=True)
    if family.attributes is None:
        return [head + text for head, text in values if head and text]
    return [
        f"{head}{labels_text(family.attributes(text))}}} {text}"
        for head, text in values
        if head and text
    ]
