# SPDX-License-Identifier: Apache-2.0
"""Write the DCGM families of one snapshot as Prometheus text. Pure, and fast enough for every tick.

Labels change when the node or its pods change, values every tick. So the text of each series up
to its value is kept until a fact in its labels changes, and a tick only appends values.

prometheus_client cannot write these families: it appends ``_total`` to counters' names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import structs

from discovery.gpu_part import GpuPart
from discovery.model import GpuSnapshot, GpuState, NodeSnapshot, NvidiaFacts, Xid, nvidia_gpus
from discovery.sample import GpuSample
from exporters.dcgm.catalog import DEFAULT_FAMILIES, DEFAULT_LABELS
from exporters.dcgm.dcgm_family import (
    AnyFamily,
    Attributes,
    Counted,
    DcgmFamily,
    DcgmReading,
    LabelRow,
    Paired,
    UnderMig,
)
from exporters.dcgm.selection import FLEXIBLE, Selection, instances_of
from exporters.dcgm.series_labels import Labels, SeriesIdentity, SeriesPlace, places
from exporters.dcgm.windows import Counts, EventCounts
from exporters.device_user_names import (
    NO_JOBS,
    NO_POD_USES,
    NO_USERS,
    ContainerUsers,
    JobIds,
    PodUse,
    PodUses,
)
from exporters.prometheus_text import labels_text

__all__ = ["CONTENT_TYPE", "SeriesIdentity", "Renderer", "labels_text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Never OpenMetrics: it would require ``_total`` at the end of counters' names."""

_DRIVER_VERSION = 1
"""DCGM's field id of the one label row that has a setting of its own."""

_NO_COUNTS: Counts = {}


class Renderer:
    """Renders the DCGM families of one snapshot after the other. For one thread."""

    def __init__(
        self,
        families: Iterable[AnyFamily] = DEFAULT_FAMILIES,
        labels: Sequence[LabelRow] = DEFAULT_LABELS,
        *,
        devices: Selection = FLEXIBLE,
        prefix: str = "",
    ) -> None:
        """Families appear in the order of their field ids, whatever order they come in.

        ``prefix`` stands before every family's name, for a run together with another exporter; with
        it the name has to be one that Prometheus allows.
        """
        self._families = sorted(families, key=lambda family: family.field)
        self._names = [prefix + family.name for family in self._families]
        self._announcements = [
            _announcement(name, family)
            for name, family in zip(self._names, self._families, strict=True)
        ]
        self._label_rows = labels
        self._devices = devices
        self._facts: object = None
        self._places: list[SeriesPlace] = []
        self._rows: dict[object, list[bytes | None]] = {}
        self._columns: list[tuple[bytes | None, ...]] = []
        self._attributed: dict[tuple[int, int], tuple[bytes, bytes]] = {}

    def render(
        self,
        snapshot: NodeSnapshot,
        samples: Iterable[GpuSample],
        previous_samples: Iterable[GpuSample],
        identity: SeriesIdentity,
        users: ContainerUsers = NO_USERS,
        *,
        jobs: JobIds = NO_JOBS,
        pods: PodUses = NO_POD_USES,
        counts: Counts = _NO_COUNTS,
    ) -> bytes:
        """All series of NVIDIA GPUs that have a value, in text format 0.0.4.

        A GPU with GPU instances appears as its instances only, unless other devices were
        selected; one that did not answer, or has no sample, not at all. A family without
        series is not announced. ``pods`` are needed where shares are shown, ``counts`` by families
        that count events.
        """
        before = {sample.bus_id: sample for sample in previous_samples}
        now = {sample.bus_id: sample for sample in samples}
        gpus = [
            gpu
            for gpu, _ in nvidia_gpus(snapshot.gpus)
            if gpu.state is GpuState.PRESENT and gpu.bus_id in now
        ]
        by_entity = _readings(snapshot, gpus, now, before)
        self._arrange(gpus, by_entity, identity, users, jobs)
        if not self._places:
            return b""
        readings = [_of_place(place, by_entity[place.entity], pods) for place in self._places]
        lines: list[bytes] = []
        for column, family in enumerate(self._families):
            if series := self._series(column, family, readings, counts):
                lines.append(self._announcements[column])
                lines += series
        lines.append(b"")  # the last line ends too
        return b"\n".join(lines)

    def _arrange(
        self,
        gpus: Sequence[GpuSnapshot],
        readings: Mapping[GpuPart, DcgmReading],
        identity: SeriesIdentity,
        users: ContainerUsers,
        jobs: JobIds,
    ) -> None:
        """Know the place of every series, and make the text of those that are new."""
        entities = {
            GpuPart(gpu.bus_id, instance): gpu
            for gpu in gpus
            for instance in self._devices.instances(gpu)
        }
        devices = [(entity, users.get(entity, ()), jobs.get(entity, ())) for entity in entities]
        labels = {
            entity: self._labels_of(readings[entity], entity, identity) for entity, _, _ in devices
        }
        named = [(gpu.index, gpu.uuid, gpu.model, gpu.mig_devices) for gpu in gpus]
        facts = (identity, devices, labels, named)
        # by value, since device users and labels are new objects in each tick
        if facts == self._facts:
            return
        # by text: two places with the same one would be one series twice
        places_by_text = {
            place.text(): place
            for entity, users_of_device, ids in devices
            for place in places(
                entities[entity], entity, labels[entity], identity, users_of_device, ids
            )
        }
        known, self._rows = self._rows, {}
        for text, place in places_by_text.items():
            row = (text, place.share_of, place.unattributed)
            self._rows[row] = known.get(row) or self._heads(text, place)
        self._places = list(places_by_text.values())
        self._columns = list(zip(*self._rows.values(), strict=True))
        self._attributed.clear()  # its keys are columns and places, which are others now
        self._facts = facts

    def _labels_of(self, reading: DcgmReading, entity: GpuPart, identity: SeriesIdentity) -> Labels:
        """The facts that stand on every series of the device."""
        whole = entity.gpu_instance_id is None
        labels = {
            row.name: row.value(reading)
            for row in self._label_rows
            if (row.field != _DRIVER_VERSION or identity.driver_version)
            and (whole or row.of_instances)
        }
        return {name: value for name, value in labels.items() if value is not None}

    def _heads(self, text: str, place: SeriesPlace) -> list[bytes | None]:
        """The text up to the value for every family; None where it has no such series."""
        whole, user = place.entity.gpu_instance_id is None, place.share_of
        uid = None if user is None else user.uid
        of_pod = text if uid is None else place.text(attributes={"pod_uid": uid})

        def head(name: str, family: AnyFamily) -> bytes | None:
            shared = isinstance(family, DcgmFamily) and family.of_pod is not None
            if (place.unattributed and not shared) or not (
                whole or family.under_mig is not UnderMig.ABSENT
            ):
                return None
            return f"{name}{{{of_pod if shared else text}}} ".encode()

        return [
            head(name, family) for name, family in zip(self._names, self._families, strict=True)
        ]

    def _series(
        self,
        column: int,
        family: AnyFamily,
        readings: Sequence[DcgmReading],
        counts: Counts,
    ) -> list[bytes]:
        """The lines of one column's family; only the text that changes is put together here."""
        if isinstance(family, Counted):
            return list(self._counted(column, family, counts.get((family.event, family.span))))
        if isinstance(family, Paired):
            return list(self._paired(column, family, readings))
        values = zip(self._columns[column], family.texts(readings), strict=True)
        if family.attributes is None:
            return [head + text for head, text in values if head and text]
        return list(self._with_attributes(column, family.attributes, values))

    def _with_attributes(
        self,
        column: int,
        attributes: Attributes,
        values: Iterable[tuple[bytes | None, bytes | None]],
    ) -> Iterator[bytes]:
        """Series with labels that follow from the value: they are kept while it stays the same."""
        for where, (head, text) in enumerate(values):
            if not head or not text:
                continue
            known = self._attributed.get((column, where))
            if known is None or known[0] != text:
                value = text.decode()
                labels = self._places[where].text(attributes=attributes(value))
                known = (text, f"{self._names[column]}{{{labels}}} {value}".encode())
                self._attributed[column, where] = known
            yield known[1]

    def _counted(
        self, column: int, family: Counted, event_counts: EventCounts | None
    ) -> Iterator[bytes]:
        """A series for each event that came; in a window without any, one with 0.

        None where nothing was read.
        """
        if event_counts is None:
            return
        window = event_counts.milliseconds
        length = {} if window is None else {"window_size_in_ms": str(window)}
        for place in self._places:
            counts = event_counts.of(place.entity)
            if counts is None or place.unattributed:
                continue
            for event, count in sorted(counts.items()):
                labels = place.text({**length, family.event: event})
                yield f"{self._names[column]}{{{labels}}} {count}".encode()
            if not counts and window is not None:
                yield f"{self._names[column]}{{{place.text(length)}}} 0".encode()

    def _paired(
        self, column: int, family: Paired, readings: Sequence[DcgmReading]
    ) -> Iterator[bytes]:
        """A series for each other GPU for which there is a value."""
        for where, (head, reading) in enumerate(zip(self._columns[column], readings, strict=True)):
            if head:
                for peer, number in family.value(reading).items():
                    labels = {"peer_gpu": str(peer), "link_status": family.word(number)}
                    text = self._places[where].text(labels)
                    yield f"{self._names[column]}{{{text}}} {number}".encode()


def _announcement(name: str, family: AnyFamily) -> bytes:
    text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {family.kind}".encode()


_IDLE = PodUse(memory_bytes=0, busy_ratio=0.0)
_UNKNOWN = PodUse()


def _of_place(place: SeriesPlace, reading: DcgmReading, pods: PodUses) -> DcgmReading:
    """The reading of the device, with what the pod has where the place is one pod's share."""
    if place.share_of is None:
        return reading
    (bus_id, instance), uid = place.entity, place.share_of.uid
    uses = pods.get(bus_id)
    if uses is None or uid is None:
        return structs.replace(reading, pod=_UNKNOWN)
    return structs.replace(reading, pod=uses.get((instance, uid), _IDLE))


def _readings(
    snapshot: NodeSnapshot,
    gpus: Sequence[GpuSnapshot],
    now: Mapping[str, GpuSample],
    before: Mapping[str, GpuSample],
) -> dict[GpuPart, DcgmReading]:
    """What the values of these GPUs and of their instances are computed from."""
    indices = {gpu.bus_id: gpu.index for gpu in gpus if gpu.index is not None}
    readings: dict[GpuPart, DcgmReading] = {}
    for gpu, nvidia in nvidia_gpus(gpus):
        older = before.get(gpu.bus_id)
        readings |= _readings_of(snapshot, gpu, nvidia, now[gpu.bus_id], older, indices)
    return readings


def _readings_of(
    snapshot: NodeSnapshot,
    gpu: GpuSnapshot,
    nvidia: NvidiaFacts,
    sample: GpuSample,
    before: GpuSample | None,
    indices: Mapping[str, int],
) -> dict[GpuPart, DcgmReading]:
    """What the values of one GPU and its instances are computed from.

    ``indices`` are those of the GPUs that are shown, by bus id.
    """
    links = {link.link: link for link in sample.links}
    links_before = {link.link: link for link in before.links} if before else {}
    common = partial(
        DcgmReading,
        driver=snapshot.driver,
        gpu_count=snapshot.counts.nvml,
        sample=sample,
        gpu=gpu,
        nvidia=nvidia,
        before=before,
        numbers=dict(sample.numbers),
        memory_errors=dict(sample.memory_errors),
        link_errors=dict(sample.link_errors),
        links=links,
        links_before=links_before,
        nvlink_p2p={
            indices[bus_id]: status for bus_id, status in sample.nvlink_p2p if bus_id in indices
        },
    )
    xids = nvidia.xids
    whole = common(memory=sample.memory, xid=_newest(xids), profiling=dict(sample.profiling))
    memory, profiling = dict(sample.mig_memory), dict(sample.mig_profiling)
    return {GpuPart(gpu.bus_id): whole} | {
        GpuPart(gpu.bus_id, instance): common(
            instance=instance,
            memory=memory.get(instance),
            xid=_newest(xids, instance),
            profiling=dict(profiling.get(instance, ())),
        )
        for instance in instances_of(gpu)
    }


def _newest(xids: Sequence[Xid], instance: int | None = None) -> int:
    """Code of the newest error, 0 if there is none; an instance shares those of the whole GPU."""
    concerned = (
        xid.code
        for xid in reversed(xids)
        if instance is None or xid.gpu_instance_id in (None, instance)
    )
    return next(concerned, 0)
