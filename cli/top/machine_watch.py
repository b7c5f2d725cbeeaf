# SPDX-License-Identifier: Apache-2.0
"""Reads this machine again and again, as the agent does: device reader, processes, kubelet.

A slow or hung GPU delays no other: the reader gives it up at its deadline, and the view shows the
newest reading without waiting for the next.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import structs

from agent.processes.gpu_processes import process_uses
from agent.processes.pids import ProcessOwner, missing, process_owner
from agent.settings.agent_settings import AgentSettings
from agent.settings.machine_from_settings import place_of
from agent.silent_gpus import with_hung
from agent.single_reading import opened_machine
from base import threads
from base.errors import Transient
from discovery.host.device_files import process_name
from discovery.model import NodeSnapshot
from discovery.node_host import NodeHost
from discovery.reader.device_reader import DeviceReader
from discovery.reader.protocol import Start
from discovery.sample import GpuSample, ReadingGroup
from exporters.device_user_names import ContainerUsers
from exporters.gpuscape.process_use import ProcessUse
from labelers.label_settings import PluginConfig

GROUPS: Final = (
    ReadingGroup.PROFILING,
    ReadingGroup.CLOCK_EVENTS,
    ReadingGroup.LIMITS,
    ReadingGroup.FAN,
    ReadingGroup.PROCESSES,
)
"""Readings of samples in addition to those that are always made."""
DISCOVER_SECONDS: Final = 10.0
"""Time between two readings of facts that change seldom: states, links, MIG devices."""
_LATE_SECONDS: Final = 1.0
_PROBE_SECONDS: Final = 5.0
"""Time between two checks whether a hung GPU is due to be tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReading:
    """The machine at one moment. A source that failed left its part empty and a note."""

    snapshot: NodeSnapshot
    samples: tuple[GpuSample, ...] = ()
    before: tuple[GpuSample, ...] = ()
    """The samples that rates are measured from."""
    users: ContainerUsers = field(default_factory=dict)
    processes: tuple[ProcessUse, ...] = ()
    knows_pods: bool = False
    """The pods of all processes are known: a process without one runs in no pod."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletAnswer:
    """Device users of GPUs as the kubelet lists them, or a note why there are none."""

    users: ContainerUsers = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOwners:
    """Source of the names and pods of processes."""

    owner_of: Callable[[int], ProcessOwner]
    knows_pods: bool = False
    """The source names the pod of each process that runs in one."""
    note: str = ""
    """Reason why the source names no pods."""


Kubelet = Callable[[NodeSnapshot], KubeletAnswer]
"""Asks the kubelet which containers hold which GPUs."""


class MachineWatch:
    """Reads from :meth:`read_on` on, in a thread; any thread may ask for the latest reading."""

    def __init__(
        self,
        reader: DeviceReader,
        host: NodeHost,
        *,
        owners: ProcessOwners,
        kubelet: Kubelet,
        interval_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = reader
        self._host = host
        self._owners = owners
        self._kubelet = kubelet
        self._interval = interval_seconds
        self._news: Callable[[], None] = _nothing
        self._clock = clock
        self._ending = threading.Event()
        self._rediscover = threading.Event()
        self._latest: MachineReading | None = None
        self._read_at = clock()
        self._failed: Transient | None = None

    # what is shown

    @property
    def latest(self) -> MachineReading | None:
        """The newest reading, with the GPUs that hang by now marked; None before the first.

        Raises Transient where there was none because no driver answers.
        """
        reading, failed = self._latest, self._failed
        if reading is None:
            if failed is not None:
                raise failed
            return None
        if failed is not None:
            reading = replace(reading, notes=(f"not read now: {failed}", *reading.notes))
        hung = self._reader.health().quarantined
        return replace(reading, snapshot=with_hung(reading.snapshot, hung))

    @property
    def late_seconds(self) -> float | None:
        """Age of the newest reading where the next one is overdue; else None."""
        since = self._clock() - self._read_at
        return since if since > 2 * self._interval + _LATE_SECONDS else None

    @property
    def initialising(self) -> str | None:
        """Bus id of the GPU whose first answer takes long, or ``driver``; None for neither."""
        return self._reader.health().initialising

    # how it is read

    def read(self, snapshot: NodeSnapshot | None = None) -> MachineReading:
        """Read the machine once; a given ``snapshot`` is not read again. Raises Transient."""
        before = () if self._latest is None else self._latest.samples
        if snapshot is None:
            discovery = self._reader.discover()
            snapshot = self._host.snapshot(discovery.driver, discovery.gpus)
        samples = self._reader.sample(GROUPS) if snapshot.answering else ()
        kubelet_answer = self._kubelet(snapshot)
        reading = MachineReading(
            snapshot=snapshot,
            samples=samples,
            before=before,
            users=kubelet_answer.users,
            processes=tuple(
                use for sample in samples for use in process_uses(sample, self._owners.owner_of)
            ),
            knows_pods=self._owners.knows_pods,
            notes=tuple(note for note in (self._owners.note, kubelet_answer.note) if note),
        )
        self._latest, self._failed, self._read_at = reading, None, self._clock()
        return reading

    def read_on(self, news: Callable[[], None]) -> None:
        """Read on in threads of their own, until :meth:`close`; they call ``news`` when there is
        another reading."""
        self._news = news
        threads.started(self._read_on, "read-machine")
        threads.started(self._probe_on, "probe")

    def close(self) -> None:
        """End the threads; a call that hangs is not waited for."""
        self._ending.set()

    def read_soon(self) -> None:
        """Have the states read soon, as after a hang or an event."""
        self._rediscover.set()
        self._news()

    def _read_on(self) -> None:
        discovered_at = float("-inf")
        while not self._ending.is_set():
            begun = self._clock()
            due = begun - discovered_at >= DISCOVER_SECONDS or self._rediscover.is_set()
            known = None if due or self._latest is None else self._latest.snapshot
            self._rediscover.clear()
            try:
                self.read(known)
            except Transient as error:
                self._failed, discovered_at = error, float("-inf")
            else:
                discovered_at = begun if known is None else discovered_at
            self._news()
            self._ending.wait(max(0.0, self._interval - (self._clock() - begun)))

    def _probe_on(self) -> None:
        while not self._ending.wait(_PROBE_SECONDS):
            if self._reader.health().quarantined:
                for _ in self._reader.probe():
                    self.read_soon()


@contextlib.contextmanager
def watched_machine(settings: AgentSettings, interval_seconds: float) -> Iterator[MachineWatch]:
    """The machine that the settings name. Raises BadInput where they name none."""
    if settings.simulate is not None and settings.node_name is None:
        settings = replace(settings, node_name=Path(settings.simulate).stem)
    with opened_machine(settings) as start, contextlib.ExitStack() as ending:
        watch: list[MachineWatch] = []
        reader = DeviceReader(
            structs.replace(start, events=False),
            deadline_seconds=settings.deadline_seconds,
            init_seconds=settings.init_deadline_seconds,
            on_news=lambda: watch[0].read_soon() if watch else None,
        )
        ending.callback(reader.close)
        watch.append(
            MachineWatch(
                reader,
                place_of(settings, PluginConfig(), start),
                owners=_owners(settings, start),
                kubelet=partial(_ask_kubelet, settings),
                interval_seconds=interval_seconds,
            )
        )
        ending.callback(watch[0].close)
        yield watch[0]


def _nothing() -> None:
    pass


def _owners(settings: AgentSettings, start: Start) -> ProcessOwners:
    """The source of process owners that this machine has."""
    if start.simulation is not None:
        names = _simulated_names(Path(start.simulation))
        return ProcessOwners(owner_of=lambda pid: ProcessOwner(name=names().get(pid)))
    proc = settings.host_root / "proc"
    why = missing(proc)
    if why is None:
        return ProcessOwners(owner_of=partial(process_owner, proc), knows_pods=True)
    return ProcessOwners(
        owner_of=lambda pid: ProcessOwner(name=process_name(pid) or None), note=f"processes: {why}"
    )


def _simulated_names(state_file: Path) -> Callable[[], Mapping[int, str]]:
    from simulator.simulation import Simulation  # never loaded on real hardware

    simulation = Simulation.open(state_file)
    return lambda: {process.pid: process.name for process in simulation.state.processes}


def _ask_kubelet(settings: AgentSettings, snapshot: NodeSnapshot) -> KubeletAnswer:
    """The device users of GPUs by the kubelet's socket; a note where there is none."""
    socket = settings.pod_resources_socket
    try:
        if not socket.exists():
            return KubeletAnswer(note=f"pods: no kubelet's socket at {socket}")
    except OSError as error:
        return KubeletAnswer(note=f"pods: {socket}: {error.strerror or error}; run it as root")
    from agent.pods.gpu_allocation import container_users
    from kubelet.allocated_devices import allocation
    from kubelet.device_resolution import DeviceNames, no_slices
    from kubelet.podresources.podresources_client import PodResources  # gRPC takes memory

    kubelet = PodResources(socket)
    names = DeviceNames(snapshot, pool=snapshot.host.name, resolve=no_slices)
    try:
        pods, offered = kubelet.list(), kubelet.allocatable()
    except Transient as error:
        return KubeletAnswer(note=f"pods: {error}")
    allocated = allocation(pods, offered, names, resources=settings.resource_names)
    return KubeletAnswer(users=container_users(allocated, snapshot))
