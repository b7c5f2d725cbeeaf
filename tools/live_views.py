# SPDX-License-Identifier: Apache-2.0
"""Pictures of ``gpuscape top`` and ``gpuscape free``: simulated machines, and nodes made up here.

What changes with time is fixed, so that a picture is the same each time it is drawn.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from agent.settings.agent_settings import AgentSettings
from agent.silent_gpus import with_hung
from agent.single_reading import take_snapshot
from api import keys, names, state_annotation, topology_annotation
from api.mig_resources import GPU_RESOURCE, mig_resource
from api.state_annotation import StateAnnotation
from api.topology_annotation import TopologyAnnotation
from base.text import rfc3339
from cli import terminal
from cli.discover import GIB
from cli.free.free_view import node_table, totals_by_product, totals_table
from cli.scheduler.explain_command import explanation_table
from cli.terminal import TextTable
from cli.top.gpu_rows import top_node
from cli.top.machine_watch import MachineReading, watched_machine
from cli.top.top_view import top_lines
from discovery.gpu_part import GpuPart
from discovery.sample import GpuSample
from exporters.device_user_names import ContainerUser
from forecast.fleet_reading import read_fleet
from forecast.pod_places import pod_places
from kube.api import LEASES, NODES, ApiResource, Change, Object, ServerInfo
from labelers.annotations import topology_of
from simulator.simulation import Simulation
from tools.terminal_svg import terminal_svg

FOLDER: Final = "docs/pictures"
_MACHINE: Final = "hgx-h100-mig-mixed"
_NODE: Final = "gpu-node-1"
_STATUS: Final = "09:41:00  q quits"
_GIGABYTE: Final = 10**9
_BUSY: Final = (97, 95, 96, 98, 41, 0, 0, 0)
"""Percent, of each GPU."""
_LINK_GBPS: Final = (112, 108, 110, 115, 3, 0, 0, 0)
_HUNG: Final = 5
_CAPPED: Final = 3
_POWER_CAP: Final = 0x4
_MIG_BUSY: Final = 0.63
_NOW: Final = 1_700_000_000.0
_COLUMNS: Final = 120
_TRAIN: Final = ContainerUser(namespace="team-a", pod="train-0", container="main")
_CHAT: Final = ContainerUser(namespace="team-b", pod="chat-7d9f", container="vllm")
_SMALL: Final = ContainerUser(namespace="team-c", pod="notebook-ann", container="jupyter")


def files() -> Mapping[str, str]:
    """Every picture by its path."""
    reading = _reading()
    return {
        f"{FOLDER}/top-80.svg": _top(reading, 80),
        f"{FOLDER}/top-200.svg": _top(reading, 200),
        f"{FOLDER}/free.svg": _free(),
        f"{FOLDER}/free-4.svg": _places(),
    }


# one node


def _top(reading: MachineReading, columns: int) -> str:
    lines = top_lines(top_node(reading), styled=True, width=columns, status=_STATUS)
    return terminal_svg("\n".join(lines), title="gpuscape top", columns=columns)


def _reading() -> MachineReading:
    """A node that trains, serves and is cut into MIG devices, with a GPU that hangs."""
    with tempfile.TemporaryDirectory() as folder:
        simulation = Simulation.create(_MACHINE, Path(folder))
        settings = replace(AgentSettings(), simulate=str(simulation.state_file), node_name=_NODE)
        gpus = take_snapshot(settings).gpus
        bus = [gpu.bus_id for gpu in gpus]
        small = gpus[7].mig_devices[0]
        for index in range(4):
            simulation.add_process(bus[index], 41000 + index, memory_mib=74000 + 100 * index)
        simulation.add_process(bus[4], 52310, name="vllm", memory_mib=61440)
        simulation.add_process(
            bus[7],
            60777,
            memory_mib=4096,
            gpu_instance_id=small.gpu_instance_id,
            compute_instance_id=small.compute_instance_id,
        )
        simulation.links_down(bus[4], 17)
        with watched_machine(settings, 1.0) as watch:
            reading = watch.read()
    users: dict[GpuPart, tuple[ContainerUser, ...]] = {
        GpuPart(bus[index]): (_TRAIN,) for index in range(4)
    }
    users |= {GpuPart(bus[4]): (_CHAT,), GpuPart(bus[7], small.gpu_instance_id): (_SMALL,)}
    samples = tuple(_fixed(sample, bus.index(sample.bus_id)) for sample in reading.samples)
    return replace(
        reading,
        snapshot=with_hung(reading.snapshot, {bus[_HUNG]}),
        samples=samples,
        before=tuple(
            replace(sample, at_seconds=0.0, nvlink_sent_bytes=0, nvlink_received_bytes=0)
            for sample in samples
        ),
        users=users,
        processes=tuple(
            replace(
                process,
                busy_ratio=None
                if process.gpu_instance_id
                else _BUSY[bus.index(process.bus_id)] / 100,
            )
            for process in reading.processes
        ),
        notes=(),
    )


def _fixed(sample: GpuSample, index: int) -> GpuSample:
    """The sample with readings that do not depend on when it was made."""
    busy, sent = _BUSY[index] / 100, _LINK_GBPS[index] * _GIGABYTE
    instances = tuple(
        (instance, ((1, _MIG_BUSY if use.used_bytes > GIB else 0.0),))
        for instance, use in sample.mig_memory
    )
    return replace(
        sample,
        at_seconds=1.0,
        gpu_busy_ratio=busy,
        memory_busy_ratio=busy * 0.6,
        gpu_celsius=33 + round(35 * busy) + index % 3,
        memory_celsius=39 + round(40 * busy) + index % 2,
        power_watts=72 + 600 * busy,
        sm_clock_hertz=1_980_000_000 if busy else 345_000_000,
        clock_event_reasons=_POWER_CAP if index == _CAPPED else 0,
        nvlink_sent_bytes=sent,
        nvlink_received_bytes=sent * 9 // 10,
        profiling=((1, 0.12),) if instances else (),
        mig_profiling=instances,
    )


# the fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    """An API server with these nodes and Leases alone."""

    nodes: tuple[Object, ...]
    leases: tuple[Object, ...]

    def server_info(self) -> ServerInfo:
        """See :class:`kube.api.InspectedApi`."""
        return ServerInfo(version="v1.37.1", unix_seconds=_NOW)

    def watch(self, resource: ApiResource, **_selected: Any) -> _Present:
        """See :class:`kube.api.Api`."""
        return _Present({NODES: self.nodes, LEASES: self.leases}[resource])


class _Present:
    """A watch that begins with what there is, and ends."""

    def __init__(self, objects: tuple[Object, ...]) -> None:
        self._objects = objects

    def __iter__(self) -> Iterator[Change]:
        yield from (Change(type="ADDED", object=seen_object) for seen_object in self._objects)
        yield Change(type="BOOKMARK", object={})

    def close(self) -> None:
        """Nothing is open."""


def _free() -> str:
    fleet = read_fleet(_cluster())  # type: ignore[arg-type]  # it only watches and asks for the time
    tables = (
        node_table(fleet.nodes, _COLUMNS),
        totals_table(totals_by_product(fleet.nodes), _COLUMNS),
    )
    return _picture("kubectl gpuscape free", *tables)


def _places() -> str:
    fleet = read_fleet(_cluster())  # type: ignore[arg-type]  # it only watches and asks for the time
    return _picture("kubectl gpuscape free 4", explanation_table(pod_places(fleet, 4), wide=False))


def _picture(command: str, *tables: TextTable) -> str:
    parts = [terminal.table_lines(text_table, styled=True, width=_COLUMNS) for text_table in tables]
    lines = [f"$ {command}"]
    for part in parts:
        lines += ["", *part] if len(lines) > 1 else part
    return terminal_svg("\n".join(lines), title=command)


def _cluster() -> _Cluster:
    """Nodes that are free, shared, fragmented, cordoned, and one whose agent is silent."""
    nodes_and_leases = [
        _node("dgx-a", "hgx-h100", held={"team-a/train-0": range(4)}),
        _node("dgx-b", "hgx-h100"),
        _node("mesh-a", "dgx1-v100", held={"team-b/sweep-0": (1, 2, 4), "team-b/sweep-1": (6, 7)}),
        _node("mesh-b", "dgx1-v100", held={"team-c/eval": (4, 5, 6, 7)}),
        _node("mesh-c", "dgx1-v100", cordoned=True),
        _node("mig-a", "dgx-a100-mig-single", ok=0),
        _node("pcie-a", "a100-pcie-pairs", age=400.0),
    ]
    return _Cluster(
        nodes=tuple(node for node, _ in nodes_and_leases),
        leases=tuple(lease for _, lease in nodes_and_leases),
    )


def _node(
    name: str,
    machine: str,
    *,
    held: Mapping[str, Sequence[int]] | None = None,
    ok: int | None = None,
    cordoned: bool = False,
    age: float = 20.0,
) -> tuple[Object, Object]:
    """A Node and its agent's Lease, renewed ``age`` seconds ago; ``held``: pods to their GPUs."""
    topology, product, slices = _described(machine)
    masks = {pod: sum(1 << gpu for gpu in gpus) for pod, gpus in (held or {}).items()}
    digits = -(-topology.n // 4)
    every = (1 << topology.n) - 1 if ok is None else ok
    state = StateAnnotation(
        v=state_annotation.VERSION,
        gen=topology.gen,
        seq=1,
        ok=f"{every:0{digits}x}",
        used=f"{sum(masks.values()):0{digits}x}",
        pods={
            state_annotation.pod_key(*pod.split("/")): f"{mask:0{digits}x}"
            for pod, mask in masks.items()
        },
    )
    whole = {GPU_RESOURCE: str(topology.n)} if not slices else {}
    node = {
        "metadata": {
            "name": name,
            "labels": {keys.GPU_PRODUCT: product},
            "annotations": {keys.TOPOLOGY: topology_annotation.encode(topology)},
        },
        "spec": {"unschedulable": cordoned},
        "status": {"allocatable": {"pods": "110", **whole, **slices}},
    }
    lease = {
        "metadata": {
            "name": names.agent_lease(name),
            "uid": name,
            "annotations": {keys.STATE: state_annotation.encode(state)},
        },
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": 180,
            "renewTime": rfc3339.whole_seconds(_NOW - age),
        },
    }
    return node, lease


@cache
def _described(machine: str) -> tuple[TopologyAnnotation, str, Mapping[str, str]]:
    """Topology, product and MIG devices of a simulated machine, as its agent publishes them."""
    snapshot = take_snapshot(replace(AgentSettings(), simulate=machine))
    profiles = Counter(
        mig_resource(mig.profile) for gpu in snapshot.gpus for mig in gpu.mig_devices
    )
    models = {gpu.model or "" for gpu in snapshot.gpus}
    return (
        topology_of(snapshot),
        max(models).replace(" ", "-"),
        {resource: str(count) for resource, count in profiles.items()},
    )
