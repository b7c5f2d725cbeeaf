# SPDX-License-Identifier: Apache-2.0
"""The annotations that the agent decides from a snapshot: topology, known GPUs and state."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping

import msgspec

from api import keys, known_gpus_annotation, limits, state_annotation, topology_annotation
from api.state_annotation import StateAnnotation, hex_mask, numbered, pod_key
from api.topology_annotation import NicLevels, TopologyAnnotation, level_digits, link_digits
from base.text.safe_text import safe_line
from discovery.model import NodeSnapshot
from discovery.topology import link_bytes_per_second, links_known
from health.gpu_health import gpu_verdict
from health.health_verdict import Health
from labelers.decision import Decision, Decisions, Keep, Value
from labelers.groups.labelled_gpus import answering, unsure, without_answers, without_gpus

_GIGA = 10**9


def node_annotations(snapshot: NodeSnapshot, boot: str = "") -> Decisions:
    """Every annotation of a node; ``boot`` is its boot id, empty where that cannot be read."""
    return {keys.TOPOLOGY: _topology(snapshot), keys.KNOWN_GPUS: _known_gpus(snapshot, boot)}


def topology_of(snapshot: NodeSnapshot) -> TopologyAnnotation:
    """The topology annotation of a node, with as many of its NICs as a Node has room for."""
    links = snapshot.topology
    n = len(links.gpus)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    return _with_fitting_nics(
        TopologyAnnotation(
            v=topology_annotation.VERSION,
            gen="",
            n=n,
            fab=links.kind,
            lbw=_rates(snapshot),
            nv=link_digits(links.effective(i, j) for i, j in pairs),
            pc=level_digits(links.pcie[i][j] for i, j in pairs),
            numa=tuple(-1 if gpu.numa_node is None else gpu.numa_node for gpu in snapshot.gpus),
            ids=tuple(safe_line(gpu.uuid or "") for gpu in snapshot.gpus),
            bus=links.gpus,
            nic=tuple(
                NicLevels(safe_line(nic.name), nic.bus_id, level_digits(links.pcie[n + k][:n]))
                for k, nic in enumerate(snapshot.host.nics)
            ),
            miss=_unknown_places(snapshot),
        ),
        most_bytes=_topology_bytes(snapshot),
    )


def _topology_bytes(snapshot: NodeSnapshot) -> int:
    """Bytes of the topology that fit on an idle Node next to the GPUs that it knows."""
    return limits.MOST_IDLE_ANNOTATION_BYTES - len(_known_gpus_text(snapshot, _ANY_BOOT))


def _with_fitting_nics(annotation: TopologyAnnotation, most_bytes: int) -> TopologyAnnotation:
    """Keep as many NICs as fit, the nearest to any GPU first; ``more`` counts the others.

    Where the GPUs alone are too large it has no NIC, and the Node no annotation.
    """
    nics = annotation.nic
    nearest = sorted(range(len(nics)), key=lambda place: min(nics[place].levels, default=""))

    def having(count: int) -> TopologyAnnotation:
        kept = tuple(nics[place] for place in sorted(nearest[:count]))
        return topology_annotation.with_generation(
            msgspec.structs.replace(annotation, nic=kept, more=len(nics) - count)
        )

    def is_too_large(count: int) -> bool:
        size = len(topology_annotation.encode(having(count)).encode())
        return size > most_bytes

    return having(bisect_left(range(1, len(nics) + 1), True, key=is_too_large))


def state_of(
    snapshot: NodeSnapshot,
    *,
    gen: str,
    whole: Collection[str],
    pods: Mapping[tuple[str, str], Collection[str]],
    before: StateAnnotation | None = None,
) -> StateAnnotation:
    """The state annotation now; equal to ``before`` where nothing changed, ``seq`` included.

    ``gen``: of the topology annotation on the Node. ``whole``: bus ids of the GPUs
    that device plugins offer undivided and unshared. ``pods``: (namespace, name) to
    the bus ids of the GPUs that the pod has all or part of.
    """
    works = {
        gpu.bus_id
        for gpu in answering(snapshot)
        if not gpu.mig_enabled and gpu_verdict(gpu, snapshot).health < Health.UNHEALTHY
    }
    by_key: dict[str, set[str]] = {}
    for (namespace, name), gpus in pods.items():
        by_key.setdefault(pod_key(namespace, name), set()).update(gpus)
    now = StateAnnotation(
        v=state_annotation.VERSION,
        gen=gen,
        seq=0,
        ok=_mask(snapshot, works.intersection(whole)),
        used=_mask(snapshot, set().union(*by_key.values())),
        pods={key: _mask(snapshot, gpus) for key, gpus in sorted(by_key.items())},
    )
    return numbered(now, before)


def _topology(snapshot: NodeSnapshot) -> Decision:
    """The decision about the topology annotation; kept while a GPU is silent: links do not move.

    A node without it gets what is known, once all GPUs had time for their first answer.
    """
    none = without_answers(snapshot)
    if none is not None:
        return none
    annotation = topology_of(snapshot)
    text = topology_annotation.encode(annotation)
    if why := snapshot.counts.why_unaddressed:
        return unsure(snapshot, why, text)
    if not annotation.miss:
        return Value(text=text, note=_left_out(annotation, _topology_bytes(snapshot)))
    missing = ", ".join(snapshot.gpus[place].bus_id for place in annotation.miss)
    return unsure(snapshot, f"links or UUID not known: {missing}", text)


def _known_gpus(snapshot: NodeSnapshot, boot: str) -> Decision:
    """The GPUs that the next agent of this boot has to expect, silent ones too."""
    none = without_gpus(snapshot)
    if none is not None:
        return none
    if not known_gpus_annotation.is_boot(boot):
        return Keep(reason="the boot id of this host cannot be read")
    if snapshot.counts.former:
        return Keep(reason=snapshot.counts.why_unaddressed)
    return Value(text=_known_gpus_text(snapshot, boot))


_ANY_BOOT = "0" * 36


def _known_gpus_text(snapshot: NodeSnapshot, boot: str) -> str:
    bus_ids = [gpu.bus_id for gpu in snapshot.gpus]
    count = len(bus_ids) + snapshot.counts.unaddressed
    return known_gpus_annotation.encode(
        known_gpus_annotation.known_gpus_of_boot(boot, bus_ids, count)
    )


def _left_out(annotation: TopologyAnnotation, most_bytes: int) -> str:
    if not annotation.more:
        return ""
    return (
        f"{annotation.more} of {annotation.more + len(annotation.nic)} RDMA NICs are left out, the"
        f" farthest from all GPUs: it may have {most_bytes} bytes"
    )


def _unknown_places(snapshot: NodeSnapshot) -> tuple[int, ...]:
    """Places of the GPUs whose links or UUID are not known from this snapshot."""
    return tuple(
        place for place, gpu in enumerate(snapshot.gpus) if gpu.uuid is None or not links_known(gpu)
    )


def _rates(snapshot: NodeSnapshot) -> tuple[int, ...]:
    """GB/s of one NVLink: one for all GPUs with a known rate that agree, else one each."""
    rates = [rate and rate // _GIGA for rate in link_bytes_per_second(snapshot.gpus)]
    known = {rate for rate in rates if rate is not None}
    if len(known) > 1:
        return tuple(rate or 0 for rate in rates)
    return (max(known, default=0),) if rates else ()


def _mask(snapshot: NodeSnapshot, bus_ids: Collection[str]) -> str:
    """The mask of these GPUs."""
    places = (place for place, gpu in enumerate(snapshot.gpus) if gpu.bus_id in bus_ids)
    return hex_mask(places, len(snapshot.gpus))
