# SPDX-License-Identifier: Apache-2.0
"""An agent and all that it depends on: GPUs, kubelet, files, API server. Each may break."""

from __future__ import annotations

import contextlib
import csv
import itertools
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from exporters.dcgm.catalog import CATALOG
from simulator.simulation import Simulation
from tests.agent.agent_process import GPUSCAPE, SOON, AgentProcess, running, until
from tests.cluster.agents import Site, agent
from tests.fakes.proxy import Relay
from tests.faults.truth import Truth
from tests.kubelet_nodes.cases import FirstOffered, pod
from tests.kubelet_nodes.node import Node

DESCRIPTORS = 128
"""All that the agent may have: few enough for a test to take its clients' places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Intervals of an agent under test."""

    sample_seconds: float
    options: tuple[str, ...]
    hold_seconds: float
    """How long each fault lasts: the agent meets it, and gives up what does not answer."""

    @property
    def oldest_seconds(self) -> float:
        """The oldest readings that may be served."""
        return 3 * self.sample_seconds


DEFAULT = Pace(sample_seconds=10, options=(), hold_seconds=25)
QUICK = Pace(
    sample_seconds=1,
    options=(
        *("--discover-interval", "3s", "--sample-interval", "1s"),
        *("--deadline", "1s", "--init-deadline", "3s"),
    ),
    hold_seconds=5,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process takes of the machine."""

    descriptors: int
    threads: int
    children: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        """What it takes now, answers to scrapes that are under way included.

        Of its connections that the other end has closed, one to the API server may stay until the
        next request finds that out: the client keeps what it has, and uses the newest first.
        """
        process = psutil.Process(pid)
        return cls(
            descriptors=process.num_fds() - min(1, _closed_by_peer(process)),
            threads=process.num_threads(),
            children=len(process.children()),
        )

    @classmethod
    def least(cls, pid: int, looks: int = 20) -> Usage:
        """What it takes at rest: the least of several looks."""
        found = []
        for _ in range(looks):
            found.append(cls.of(pid))
            time.sleep(0.05)
        return cls(
            descriptors=min(it.descriptors for it in found),
            threads=min(it.threads for it in found),
            children=min(it.children for it in found),
        )

    def exceeds(self, other: Usage) -> bool:
        """Whether it takes more of anything."""
        return (
            self.descriptors > other.descriptors
            or self.threads > other.threads
            or self.children > other.children
        )


def _closed_by_peer(process: psutil.Process) -> int:
    """How many connections that it opened itself the other end has closed."""
    connections = process.net_connections("tcp")
    ports = {it.laddr.port for it in connections if it.status == psutil.CONN_LISTEN}
    return sum(
        it.status == psutil.CONN_CLOSE_WAIT and it.laddr.port not in ports for it in connections
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The agent and what it depends on."""

    agent: AgentProcess
    truth: Truth
    kubelet: Node
    folder: Path
    pace: Pace
    labels: Callable[[], Mapping[str, str]]
    """Those that the agent has published last."""
    relay: Relay | None = None
    """The way to the API server, where there is one."""
    spoil_labels: Callable[[], None] | None = None
    """Has somebody change labels on the Node, past the relay."""

    @property
    def simulation(self) -> Simulation:
        """The machine."""
        return self.agent.simulation

    @property
    def gpus(self) -> tuple[str, ...]:
        """Bus ids of all GPUs, in their order."""
        return tuple(self.simulation.state.gpus)

    @property
    def settings_file(self) -> Path:
        """The agent's settings."""
        return settings_file(self.folder)

    @property
    def counters_file(self) -> Path:
        """Which families it serves."""
        return counters_file(self.folder)

    @property
    def feature_folder(self) -> Path:
        """Where it writes labels, outside of a cluster."""
        return feature_file(self.folder).parent

    def is_well(self, since: float) -> bool:
        """Whether all GPUs are present, read after ``since``, and matched with their pods."""
        text = self.agent.metrics()
        return (
            f'gpuscape_gpus{{state="present"}} {len(self.gpus)}.0' in text
            and self.truth.fresh(text, since) == frozenset(self.gpus)
            and f'pod="{POD}"' in text
            and 'gpuscape_source_up{source="pod-resources"} 1.0' in text
        )


POD = "pod-a"
COUNT = "nvidia.com/gpu.count"


def settings_file(folder: Path) -> Path:
    """The agent's settings."""
    return folder / "agent.yaml"


def counters_file(folder: Path) -> Path:
    """Which families it serves."""
    return folder / "counters.csv"


def feature_file(folder: Path) -> Path:
    """Where it writes labels, outside of a cluster."""
    return folder / "features.d" / "gpuscape"


def prepare(folder: Path) -> None:
    """Write the agent's files: a settings file, and a counters file with every family of a GPU."""
    settings_file(folder).write_text("mig-strategy: none\n")
    feature_file(folder).parent.mkdir()
    with counters_file(folder).open("w", encoding="utf-8", newline="") as lines:
        csv.writer(lines).writerows((it.name, it.kind.value, it.help) for it in CATALOG)


@contextlib.contextmanager
def standalone(
    machine: str, pace: Pace, folder: Path, *, program: Path = GPUSCAPE
) -> Iterator[Scene]:
    """An agent without a cluster, whose labels go to a feature file, once all is well.

    ``program`` is gpuscape as installed for the Python to be tested.
    """
    prepare(folder)
    simulation = Simulation.create(machine, folder / "machine")
    kubelet = Node("node-a", simulation, FirstOffered(), folder / "kubelet")
    kubelet.admit(pod(POD))
    options = (
        *pace.options,
        *("--pod-resources-socket", str(kubelet.server.path), "--pods"),
        *("--config", str(settings_file(folder))),
        *("--counters", str(counters_file(folder))),
        *("--feature-file", str(feature_file(folder))),
    )
    limits = {resource.RLIMIT_NOFILE: DESCRIPTORS}
    with (
        running(simulation, *options, limits=limits, program=program) as agent,
        serving(kubelet),
        Truth(simulation, pace.sample_seconds / 4) as truth,
    ):
        scene = Scene(
            agent=agent,
            truth=truth,
            kubelet=kubelet,
            folder=folder,
            pace=pace,
            labels=lambda: _features(feature_file(folder)),
        )
        _settle(scene)
        yield scene


@contextlib.contextmanager
def in_cluster(
    site: Site, machine: str, pace: Pace, folder: Path, *, program: Path = GPUSCAPE
) -> Iterator[Scene]:
    """An agent as its DaemonSet starts it, which labels a Node, once all is well."""
    prepare(folder)
    simulation = Simulation.create(machine, folder / "machine")
    node = site.plane.make_node()
    kubelet = Node(node, simulation, FirstOffered(), folder / "sockets")
    kubelet.admit(pod(POD))

    def labels() -> Mapping[str, str]:
        in_file = {f"file: {key}": of for key, of in _features(feature_file(folder)).items()}
        return {**site.labels(node), **in_file}

    def spoil_labels() -> None:
        """Another one each time: a key that somebody changes again and again is left to them."""
        ours = [key for key in site.labels(node) if key.startswith("nvidia.com/")]
        site.edit(node, labels={ours[next(spoilt) % len(ours)]: "spoilt"})

    spoilt = itertools.count()
    with Relay(site.plane.port) as relay:
        options = {
            **dict(zip(map(_variable, pace.options[::2]), pace.options[1::2], strict=True)),
            "KUBERNETES_SERVICE_PORT": str(relay.port),
            "GPUSCAPE_PODS": "true",
            "GPUSCAPE_CONFIG": str(settings_file(folder)),
            "GPUSCAPE_COUNTERS": str(counters_file(folder)),
            "GPUSCAPE_FEATURE_FILE": str(feature_file(folder)),
        }
        with (
            agent(site, node, simulation, folder, options=options, program=program) as process,
            serving(kubelet),
            Truth(simulation, pace.sample_seconds / 4) as truth,
        ):
            scene = Scene(
                agent=process,
                truth=truth,
                kubelet=kubelet,
                folder=folder,
                pace=pace,
                labels=labels,
                relay=relay,
                spoil_labels=spoil_labels,
            )
            _settle(scene)
            yield scene


def _variable(option: str) -> str:
    """The environment's name of a flag."""
    return f"GPUSCAPE_{option.removeprefix('--').replace('-', '_').upper()}"


def _settle(scene: Scene) -> None:
    began = time.monotonic()
    until(lambda: scene.is_well(began), 2 * SOON)
    until(lambda: scene.labels().get(COUNT) == str(len(scene.gpus)), 2 * SOON)


@contextlib.contextmanager
def serving(kubelet: Node) -> Iterator[None]:
    """The kubelet's socket, from after the agent's fork on: gRPC does not take one well."""
    kubelet.server.start()
    try:
        yield
    finally:
        kubelet.server.stop()


def _features(file: Path) -> Mapping[str, str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
