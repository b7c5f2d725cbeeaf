# SPDX-License-Identifier: Apache-2.0
"""The process that serves the simulated fleet.

    python -m tests.monitoring.fleet_process FOLDER

It reads each machine with the device reader's own code, shows it to the agent's own ``Latest``,
which renders it, and serves each node on a port of its own; FOLDER/ports.json says which. What an
agent learns from the kubelet, the API server and the kernel log is made up here.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

from agent.gpu_records import GpuRecords
from agent.metrics import metric_settings
from agent.settings.agent_settings import AgentSettings
from api.mig_outcome import Outcome
from discovery.gpu_fields import with_gpu_fields
from discovery.gpu_part import GpuPart
from discovery.model import Driver, GpuSnapshot, NodeSnapshot
from discovery.node_host import NodeHost
from discovery.reader.protocol import (
    AgentMessage,
    Discover,
    DriverFrame,
    GpuFrame,
    ReaderMessage,
    Sample,
    SampleFrame,
    Start,
    XidSeen,
)
from discovery.reader.reader_child import Channel, serve
from discovery.sample import GpuSample, ProcessKind
from exporters.dcgm.counters_format import DEFAULT_COUNTERS
from exporters.dcgm.render import CONTENT_TYPE
from exporters.desired_layout_metrics import DesiredLayoutState
from exporters.device_user_names import ContainerUser
from exporters.gpuscape import waste
from exporters.gpuscape.agent_metrics import AgentMetrics, ProgramUse
from exporters.gpuscape.node_view import GpuAllocation
from exporters.gpuscape.process_use import OfPod, ProcessUse
from fleet.figures.change_steps import ChangeStep
from fleet.figures.coordinator_metrics import CoordinatorMetrics
from fleet.policy.assigned_layouts import Assignment
from fleet.rollback_record import RollbackRecord
from fleet.slot_gate import WaitReason
from fleet.startup.startup_taint import StartupNode, StartupWait
from scheduler.cluster.node_views import NoView
from scheduler.extender.extender_metrics import (
    ClassUse,
    ExtenderMetrics,
    FleetUse,
    Neutral,
    NodeVisibility,
    Verb,
)
from scheduler.extender.server_tls import Party
from simulator.description.machine_catalog import load_machine
from simulator.library_choice import choose_library
from simulator.simulation import Return, Simulation
from simulator.state import edits
from tests.controlplane.components import LOOPBACK
from tests.monitoring.fleet import COORDINATOR, EXTENDER, NODES, PORTS, Node, Work
from web.refusals import RefusalReason

ROUND_SECONDS = 1.0
FIRST_PID = 4000
GPU_IS_LOST = 15
IN_PROGRESS = 2
"""NVML_GPU_FABRIC_STATE_IN_PROGRESS."""
IDLE_AFTER_SECONDS = 5.0
"""In place of the 15 minutes for which nobody waits in a test."""
BETWEEN_SAMPLES_SECONDS = 0.15
"""Profiling metrics come from two samples that are not too near to each other."""
NO_DRIVER = DriverFrame(request=1, driver=Driver(), listed=())
SETTINGS = AgentSettings(processes=True)
"""Those of an agent that is configured to do nothing but read processes."""
SOURCES = ("nvml", "pod-resources", "kubernetes")
"""The first one is all that an agent without a cluster asks."""


class _Talk(Channel):
    """All that is asked of a device reader in one session, and its answers."""

    def __init__(self, *messages: AgentMessage) -> None:
        self._left = list(messages)
        self.answers: list[ReaderMessage] = []

    def send(self, message: ReaderMessage) -> None:
        self.answers.append(message)

    def receive(self) -> AgentMessage | None:
        if len(self._left) == 1:
            time.sleep(BETWEEN_SAMPLES_SECONDS)
        return self._left.pop(0) if self._left else None

    def may_proceed(self) -> bool:
        return True


class _Machine:
    """One node: its machine, and what of its agent makes metrics."""

    def __init__(self, node: Node, folder: Path) -> None:
        self._node = node
        self._started = time.time()
        self._simulation = Simulation.create(node.machine, folder / node.name)
        self._place = NodeHost(root=self._simulation.host_root, name=node.name)
        self._own = AgentMetrics("0.1.0", time.monotonic, metric_settings.served_families(SETTINGS))
        records = GpuRecords()
        self._xids = records.xids
        self._latest = metric_settings.latest(
            SETTINGS, node.name, self._own, DEFAULT_COUNTERS, records
        )
        healthy, _ = self._read()
        self._bus_ids = tuple(gpu.bus_id for gpu in healthy.gpus)
        self._instances = [_instance_ids(gpu) for gpu in healthy.gpus]
        self._work()
        self._break()
        self._latest.refresh(self._begin)

    def round(self) -> bytes:
        """Read it; what is then served."""
        self._happen()
        snapshot, samples = self._read()
        self._latest.show_snapshot(snapshot, time.monotonic())
        self._latest.show_allocation(self._allocation(snapshot))
        self._latest.show_samples(samples, processes=tuple(self._processes()))
        self._latest.refresh(self._tell)
        served = self._latest.metrics()
        return served.body.plain + served.tail

    # what happens on it

    def _read(self) -> tuple[NodeSnapshot, tuple[GpuSample, ...]]:
        start = Start(host_root=str(self._simulation.host_root))
        samples = [
            Sample(request=at, groups=metric_settings.reading_groups(SETTINGS, DEFAULT_COUNTERS))
            for at in (2, 3)
        ]
        talk = _Talk(start, Discover(request=1), *samples)
        with self._simulation:
            serve(talk, choose_library)
        answers = talk.answers
        head = next((it for it in answers if isinstance(it, DriverFrame)), NO_DRIVER)
        facts = self._node.trouble.facts
        frames = (it for it in answers if isinstance(it, GpuFrame))
        gpus = tuple(
            with_gpu_fields(replace(frame.gpu, index=place), facts.get(place, {}))
            for place, frame in enumerate(frames)
        )
        newest = (it for it in answers if isinstance(it, SampleFrame) and it.request == 3)
        snapshot = self._xids.enter(self._place.snapshot(head.driver, gpus, head.counts))
        return snapshot, tuple(it.sample for it in newest)

    def _break(self) -> None:
        trouble = self._node.trouble
        for gpu in trouble.lost:
            self._simulation.fault(Return(code=GPU_IS_LOST), bus_id=self._bus_ids[gpu])
        for gpu, links in trouble.links_down.items():
            self._simulation.links_down(self._bus_ids[gpu], *links)
        for gpu, readings in trouble.readings.items():
            self._simulation.set_readings(self._bus_ids[gpu], **readings)
        for gpu, mask in trouble.fabric_masks.items():
            self._edit_fabric(gpu, health_mask=mask)
        for gpu in trouble.unregistered:
            self._edit_fabric(gpu, state=IN_PROGRESS)

    def _edit_fabric(self, gpu: int, **changes: int) -> None:
        fabric = load_machine(self._node.machine).gpus[gpu].fabric
        assert fabric is not None, f"{self._node.machine} has no fabric"
        changed = msgspec.structs.replace(fabric, **changes)
        self._simulation.edit(edits.with_gpu_changed(self._bus_ids[gpu], fabric=changed))

    def _happen(self) -> None:
        """Errors come again in every round, so that they are new however long a run takes."""
        trouble, now = self._node.trouble, time.time()
        for gpu, code in trouble.xids.items():
            self._xids.add(XidSeen(bus_id=self._bus_ids[gpu], code=code), now)
        self._latest.show_sxids(replace(it, last_seen_seconds=now) for it in trouble.sxids)

    def _begin(self, own: AgentMetrics) -> None:
        """What an agent tells once: settings, its place in the cluster."""
        own.counters_skipped(0)
        own.readers_stuck(0)
        own.gpus_quarantined(0)
        own.is_released(False)
        own.labels_changed(12)
        own.labeler_failed("topology")
        if self._node.in_cluster:
            own.confined("gpuscape-agent-node", True)
            own.holds_lease(f"gpuscape-{self._node.name}", True)
            own.unknown_devices("pod-resources", 0)
            for kind in ("Node", "Lease"):
                own.wrote(kind)
                own.left_alone(kind, 0)
                own.keys_refused(kind, 0)

    def _work(self) -> None:
        for at, work in enumerate(self._node.works):
            self._simulation.add_process(
                self._bus_ids[work.gpu],
                FIRST_PID + at,
                memory_mib=work.memory_mib,
                percent=work.percent,
                **self._part(work),
            )

    def _part(self, work: Work) -> dict[str, int]:
        if work.instance is None:
            return {}
        instance = self._instances[work.gpu][work.instance]
        return {"gpu_instance_id": instance, "compute_instance_id": 0}

    # what an agent knows of it

    def _entity(self, work: Work) -> GpuPart:
        return GpuPart(self._bus_ids[work.gpu], self._part(work).get("gpu_instance_id"))

    def _allocation(self, snapshot: NodeSnapshot) -> GpuAllocation:
        users: dict[GpuPart, tuple[ContainerUser, ...]] = {}
        for work in self._node.works:
            user = ContainerUser(namespace=work.namespace, pod=work.pod, container="main")
            entity = self._entity(work)
            users[entity] = (*users.get(entity, ()), user)
        whole = frozenset(gpu.bus_id for gpu in snapshot.gpus if not gpu.mig_enabled)
        parts = sum(len(_instance_ids(gpu)) for gpu in snapshot.gpus)
        on_whole = sum(instance is None for _, instance in users)
        # MIG devices as one resource, whatever the profiles
        allocatable = {"nvidia.com/gpu": len(whole), "nvidia.com/mig": parts}
        allocated = {"nvidia.com/gpu": on_whole, "nvidia.com/mig": len(users) - on_whole}
        offered = [name for name, count in allocatable.items() if count]
        return GpuAllocation(
            users=users,
            allocatable={name: allocatable[name] for name in offered},
            allocated={name: allocated[name] for name in offered},
            whole=whole,
        )

    def _processes(self) -> Iterator[ProcessUse]:
        for at, work in enumerate(self._node.works):
            bus_id, instance = self._entity(work)
            yield ProcessUse(
                bus_id=bus_id,
                gpu_instance_id=instance,
                pid=str(FIRST_PID + at),
                name="python3",
                kinds=(ProcessKind.COMPUTE,),
                pod=OfPod(uid=f"uid-{work.pod}", namespace=work.namespace, name=work.pod),
                memory_bytes=work.memory_mib << 20,
                busy_ratio=None if instance is not None else work.percent / 100,
            )

    def _tell(self, own: AgentMetrics) -> None:
        """What an agent tells of each of its cycles."""
        for source in SOURCES if self._node.in_cluster else SOURCES[:1]:
            own.source_answered(source, time.time())
        own.cycle_done("discover", 0.2)
        own.cycle_done("sample", 0.05)
        if self._node.mig_phase:
            own.set_desired_layout(
                DesiredLayoutState(
                    phase=self._node.mig_phase,
                    since_seconds=self._started,
                    ends={Outcome.ROLLED_BACK: 2},
                    retries={Outcome.ROLLED_BACK: 1},
                    enforced=True,
                )
            )
        use = ProgramUse(cpu_seconds=time.process_time(), resident_bytes=40 << 20)
        own.programs_use({"agent": use, "reader": use})


class _Extender:
    """The scheduler extender: its own metrics, of requests and pods that are made up."""

    def __init__(self) -> None:
        self._metrics = ExtenderMetrics("0.1.0")
        now = time.time()
        self._metrics.ask_certificates(lambda: dict.fromkeys(Party, now + 20 * 86400))
        use = ClassUse(gen="9f31c07ab2", nodes=3, free=11, worth=6.0, best_worth=8.0)
        views = (NodeVisibility.SURE, NodeVisibility.UNSURE, NoView.STALE)
        self._metrics.ask_fleet(lambda: FleetUse(synced=True, views=views, classes=(use,)))

    def round(self) -> bytes:
        """What is served after some more pods."""
        for seconds in (0.001, 0.004, 0.02):
            self._metrics.answered(Verb.PRIORITIZE, HTTPStatus.OK, seconds)
        self._metrics.judged(3, {NoView.STALE: 1})
        self._metrics.neutral(Neutral.BUDGET)
        self._metrics.refused(RefusalReason.CERTIFICATE)
        self._metrics.landed(odds=0.5, ideal=True, unlinked=False)
        self._metrics.landed(odds=0.0, ideal=False, unlinked=True)
        return self._metrics.render()


class _Coordinator:
    """The coordinator that acts: its own metrics, of changes that are made up."""

    def __init__(self) -> None:
        self._metrics = CoordinatorMetrics("0.1.0")
        self._began = time.time()

    def round(self) -> bytes:
        """What is served after one more change."""
        seconds = time.time() - self._began
        totals = {"leader": 1, "slots": 3, "slots_used": 1, "parked_nodes": 2}
        totals |= {"stopped_rollouts": 1, "window_open": 1, "long_wait_seconds": 86400}
        not_idle, slot = (WaitReason.NOT_IDLE.value,), (WaitReason.SLOT.value,)
        self._metrics.shows(
            {
                **{name: {(): total} for name, total in totals.items()},
                "waiting_nodes": {not_idle: 1, slot: 1},
                "oldest_wait_seconds": {not_idle: 90_000.0, slot: 1.0 + seconds},
                "policy_nodes": {(Assignment.WRITTEN.value,): 3, (Assignment.DUE.value,): 1},
                "policy_info": {("5e1f",): 1},
                "change_step_seconds": {
                    ("h100-0", "mig-slot-0", ChangeStep.CHANGING.value): seconds,
                    ("a100-0", "mig-slot-1000", ChangeStep.STUCK.value): seconds,
                    ("v100-0", "mig-slot-1001", ChangeStep.LATE.value): 9e3,
                },
            }
        )
        new = StartupNode(node="t4-0", wait=StartupWait.NO_AGENT, seconds=2e3 + seconds)
        self._metrics.shows_startup((new,))
        self._metrics.ended(Outcome.APPLIED)
        at = int(time.time()) - 40
        record = RollbackRecord(v=2, node="h100-0", uid="u", request="0" * 16, taken_at=at)
        self._metrics.freed(record, time.time())
        return self._metrics.render()


def _instance_ids(gpu: GpuSnapshot) -> tuple[int, ...]:
    return tuple(dict.fromkeys(device.gpu_instance_id for device in gpu.mig_devices))


def _serve(name: str, served: Mapping[str, bytes]) -> int:
    """Serve a node's newest text from a thread; the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.end_headers()
            self.wfile.write(served[name])

        def log_message(self, *_: object) -> None:
            """Every second, of every node: it would fill the log."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def main(folder: Path) -> None:
    """Serve the fleet until the process is ended."""
    waste.WINDOW_SECONDS = IDLE_AFTER_SECONDS
    machines: dict[str, _Machine | _Extender | _Coordinator] = {
        node.name: _Machine(node, folder) for node in NODES
    }
    machines[EXTENDER] = _Extender()
    machines[COORDINATOR] = _Coordinator()
    served = {name: machine.round() for name, machine in machines.items()}
    ports = {name: _serve(name, served) for name in served}
    written = folder / f"{PORTS}.new"
    written.write_text(json.dumps(ports))
    written.rename(folder / PORTS)
    while True:
        began = time.monotonic()
        for name, machine in machines.items():
            served[name] = machine.round()
        time.sleep(max(0.0, began + ROUND_SECONDS - time.monotonic()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
