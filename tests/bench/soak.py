# SPDX-License-Identifier: Apache-2.0
"""The agent at ten times its rate for hours, while GPUs, links, pods and processes come and go.

Memory, descriptors and threads are looked at in the calm before the next disturbance. The
figures go to a page of their own: ``python -m tests.bench.soak HOURS`` writes it too.
"""

from __future__ import annotations

import contextlib
import csv
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from api.mig_resources import MigStrategy
from exporters.dcgm.catalog import CATALOG, COUNTED
from exporters.dcgm.dcgm_family import AnyFamily
from simulator.simulation import Hang, Return, Simulation
from tests.agent.agent_process import AgentProcess, Scraper, running, until
from tests.bench.page import Section, table
from tests.bench.programs import private_mib, pss_mib
from tests.bench.slope import Slope, slope
from tests.kubelet_nodes.cases import FirstOffered, pod
from tests.kubelet_nodes.node import Node

MACHINE = "dgx-a100-mig-single"
GPUS = 8
PERIOD_SECONDS = 30.0
"""One disturbance each, and one look before the next."""
OFTEN = ("--sample-interval", "1s", "--discover-interval", "6s")
"""Ten times the default."""
SCRAPE_SECONDS = 0.5
PARTS, WARM_UP_PARTS = 12, 2
"""Of two hours the first 20 minutes are not counted: caches and arenas fill, by 3 MiB in all."""
TARGET_MIB_PER_HOUR = 1.0
PODS, PROCESSES = 40, 16
FIRST_PID = 100_000
LOST = 15
EVER = 1_000_000_000
PROCESSES_SHOWN = "gpuscape_process_memory_bytes{"

PAGE = Path(__file__).parents[2] / "docs" / "soak.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One process at one moment."""

    seconds: float
    """Since the start."""
    memory_mib: float
    """Proportional set size, which shows too how many other programs share its libraries."""
    private_mib: float
    """Of that what no other program can move: its growth is judged."""
    descriptors: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Soaked:
    """What came out."""

    agent: tuple[Look, ...]
    reader: tuple[Look, ...]
    """Whichever reader worked at that moment."""
    scrapes: int
    failures: tuple[str, ...]
    slowest_seconds: float
    text: str
    """What it served at the end."""

    @property
    def together(self) -> Slope:
        """MiB an hour of agent and reader."""
        both = zip(counted(self.agent), counted(self.reader), strict=True)
        return slope([(a.seconds / 3600, a.private_mib + b.private_mib) for a, b in both])


def soak(
    periods: int, *, period_seconds: float = PERIOD_SECONDS, options: Sequence[str] = ()
) -> Soaked:
    """Run an agent for so many periods."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _scene(Path(folder), options) as (agent, disturb),
        Scraper(agent, SCRAPE_SECONDS) as scraper,
    ):
        until(lambda: agent.gpus("present") == GPUS)
        began, looks = time.monotonic(), list[tuple[Look, Look]]()
        for period in range(periods):
            disturb(period, period_seconds / 3)
            time.sleep(max(0.0, began + (period + 1) * period_seconds - time.monotonic()))
            looks.append(_look_at_both(agent, time.monotonic() - began))
        text = _all_shown(agent)
    return Soaked(
        agent=tuple(look for look, _ in looks),
        reader=tuple(look for _, look in looks),
        scrapes=scraper.answers,
        failures=tuple(scraper.failures),
        slowest_seconds=scraper.slowest_seconds,
        text=text,
    )


def _all_shown(agent: AgentProcess) -> str:
    """The first exposition that has processes: the agent may just have taken the GPUs back.

    The next one need not have them: a late reading drops them again.
    """
    text = ""

    def is_whole() -> bool:
        nonlocal text
        text = agent.metrics()
        return PROCESSES_SHOWN in text

    until(is_whole)
    return text


def counted(looks: Sequence[Look]) -> Sequence[Look]:
    """Those after the warm-up."""
    return looks[len(looks) * WARM_UP_PARTS // PARTS :]


def growth(looks: Sequence[Look]) -> Slope:
    """MiB an hour of one process."""
    return slope([(look.seconds / 3600, look.private_mib) for look in counted(looks)])


def thirds(numbers: Sequence[int]) -> tuple[float, float]:
    """Medians of the first and of the last third, which a scrape under way does not move."""
    part = max(1, len(numbers) // 3)
    return median(numbers[:part]), median(numbers[-part:])


def flat(looks: Sequence[Look]) -> bool:
    """Descriptors and threads are as many at the end as at the start."""
    after = counted(looks)
    descriptors = thirds([look.descriptors for look in after])
    threads = thirds([look.threads for look in after])
    return descriptors[0] == descriptors[1] and threads[0] == threads[1]


def _every_family(folder: Path) -> Path:
    """A counters file with all that the agent can serve."""
    file = folder / "counters.csv"
    with file.open("w", encoding="utf-8", newline="") as lines:
        families: tuple[AnyFamily, ...] = (*CATALOG, *COUNTED)
        csv.writer(lines).writerows((it.name, it.kind.value, it.help) for it in families)
    return file


Disturb = Callable[[int, float], None]
"""Does what is due in this period and undoes it within so many seconds."""


@contextlib.contextmanager
def _scene(folder: Path, options: Sequence[str]) -> Iterator[tuple[AgentProcess, Disturb]]:
    """An agent on a node with a kubelet, and what happens there."""
    simulation = Simulation.create(MACHINE, folder / "machine")
    # the agent names processes where it sees the host's alone, which a simulated host has none of
    shutil.rmtree(simulation.host_root / "proc")
    (simulation.host_root / "proc").symlink_to("/proc")
    node = Node("node-a", simulation, FirstOffered(), folder, strategy=MigStrategy.SINGLE)
    guests = _Guests(node, simulation)
    given = [*OFTEN, "--feature-file", str(folder / "features"), *options]
    given += ["--pod-resources-socket", str(node.server.path)]
    # what is off by default brings more of the agent to run
    given += ["--pods", "--virtual-gpus", "--processes", "--counters", str(_every_family(folder))]
    with running(simulation, *given) as agent:
        node.server.start()  # after the fork, which gRPC does not take well
        try:
            yield agent, _disturbances(agent, guests)
        finally:
            node.server.stop()


class _Guests:
    """As many pods and processes all the time; the oldest goes when one comes."""

    def __init__(self, node: Node, simulation: Simulation) -> None:
        self._node = node
        self._simulation = simulation
        self._gpus = list(simulation.state.gpus)
        self._came = 0
        for _ in range(max(PODS, PROCESSES)):
            self.next()

    def next(self) -> None:
        """One of each comes, with a name that was never there."""
        came, self._came = self._came, self._came + 1
        self._node.admit(pod(f"pod-{came}"))
        self._node.remove(f"pod-{came - PODS}")
        gpu = self._gpus[came % len(self._gpus)]
        self._simulation.add_process(
            gpu, FIRST_PID + came, gpu_instance_id=7, compute_instance_id=0
        )
        self._simulation.remove_process(FIRST_PID + came - PROCESSES)


def _disturbances(agent: AgentProcess, guests: _Guests) -> Disturb:
    """Each period a pod and a process come, and one more thing happens in turn."""
    gpus = list(agent.simulation.state.gpus)

    def disturb(period: int, seconds: float) -> None:
        guests.next()
        with EVENTS[period % len(EVENTS)](agent, gpus[period % len(gpus)]):
            time.sleep(seconds)

    return disturb


@contextlib.contextmanager
def _xid(agent: AgentProcess, gpu: str) -> Iterator[None]:
    agent.simulation.xid(gpu, 94, gpu_instance_id=7, compute_instance_id=0)
    yield


@contextlib.contextmanager
def _links_down(agent: AgentProcess, gpu: str) -> Iterator[None]:
    """Changes labels, and with them the feature file."""
    agent.simulation.links_down(gpu, *range(12))
    yield
    agent.simulation.links_down(gpu)


@contextlib.contextmanager
def _lost(agent: AgentProcess, gpu: str) -> Iterator[None]:
    agent.simulation.fault(Return(code=LOST), bus_id=gpu, times=EVER)
    yield
    agent.simulation.clear()


@contextlib.contextmanager
def _hangs(agent: AgentProcess, gpu: str) -> Iterator[None]:
    """The reader is given up, and another one goes on."""
    agent.simulation.fault(Hang(), "nvmlDeviceGetPowerUsage", bus_id=gpu, times=EVER)
    yield
    agent.simulation.clear()


@contextlib.contextmanager
def _killed(agent: AgentProcess, _gpu: str) -> Iterator[None]:
    with contextlib.suppress(psutil.NoSuchProcess):
        agent.reader().kill()
    yield


@contextlib.contextmanager
def _released(agent: AgentProcess, _gpu: str) -> Iterator[None]:
    """As for a driver upgrade."""
    agent.signal(signal.SIGUSR1)
    yield
    agent.signal(signal.SIGUSR2)


@contextlib.contextmanager
def _off_the_bus(agent: AgentProcess, gpu: str) -> Iterator[None]:
    agent.simulation.remove_gpu(gpu)
    yield
    agent.simulation.return_gpu(gpu)


@contextlib.contextmanager
def _nothing(_agent: AgentProcess, _gpu: str) -> Iterator[None]:
    yield


EVENTS = (_xid, _links_down, _lost, _nothing, _hangs, _off_the_bus, _killed, _xid, _released)


def _look_at_both(agent: AgentProcess, seconds: float) -> tuple[Look, Look]:
    """Agent and reader, once there is a reader that stays for as long as that takes."""
    found: list[Look] = []

    def looked() -> bool:
        found.clear()
        with contextlib.suppress(OSError, psutil.Error, ValueError):
            found.append(_look_at(psutil.Process(agent.process.pid), seconds))
            found.append(_look_at(agent.reader(), seconds))
        return len(found) == 2

    until(looked)
    return found[0], found[1]


def _look_at(process: psutil.Process, seconds: float) -> Look:
    return Look(
        seconds=seconds,
        memory_mib=pss_mib(process.pid),
        private_mib=private_mib(process.pid),
        descriptors=process.num_fds(),
        threads=process.num_threads(),
    )


def page(soaked: Soaked, machine: str) -> str:
    """What came out, for people."""
    hours = soaked.agent[-1].seconds / 3600
    text = (
        "Written by `make long`. "
        f"The agent ran for {hours:.1f} hours on a simulated DGX A100, {GPUS} GPUs with 7 MIG "
        "devices each, asked for all families it knows, at ten times its default rate. It was "
        f"scraped every {SCRAPE_SECONDS:g} s, every other time compressed. Every "
        f"{PERIOD_SECONDS:g} s a pod and a process came and others went, and in turn: an XID, all "
        "NVLinks of a GPU down (which changes labels), a GPU lost, a GPU that hangs, one off the "
        "bus, the device reader killed, all handles released. Just before the next, agent and "
        "reader were looked at. Memory is proportional set size, and the reader's holds the "
        "simulator too. Its growth is judged by what of it stands for no file: the rest changes "
        f"when other programs come and go that share libraries. The first {WARM_UP_PARTS} of "
        f"{PARTS} parts are left out: caches fill. The slope is that of the least-squares line, "
        "its bound the upper end of the 95 % interval. Descriptors and threads are medians of the "
        "first and of the last third. This run: "
        f"{machine}."
    )
    sections = (
        Section(
            title="Growth",
            text=f"{soaked.scrapes:,} scrapes, each with a liveness probe, all answered whole"
            f" but {len(soaked.failures)}; the slowest took {soaked.slowest_seconds:.2f} s.",
            columns=(
                "",
                "memory, MiB",
                "private, MiB",
                "slope, MiB/h",
                "bound, MiB/h",
                "descriptors",
                "threads",
            ),
            rows=(
                _row("agent", soaked.agent),
                _row("device reader", soaked.reader),
                (
                    f"both (target {TARGET_MIB_PER_HOUR:g} MiB/h)",
                    "",
                    "",
                    f"{soaked.together.estimate:+.2f}",
                    f"{soaked.together.upper:+.2f}",
                    "",
                    "",
                ),
            ),
        ),
        Section(
            title="Course",
            text="Medians of twelfths, the warm-up with them.",
            columns=("minutes", "agent, private MiB", "reader, private MiB", "agent, descriptors"),
            rows=tuple(_course(soaked)),
        ),
    )
    return "\n".join([f"# Soak\n\n{text}\n", *(table(section) for section in sections)])


def _row(name: str, looks: Sequence[Look]) -> tuple[str, ...]:
    after = counted(looks)
    found = growth(looks)
    descriptors = thirds([look.descriptors for look in after])
    threads = thirds([look.threads for look in after])
    return (
        name,
        _range([look.memory_mib for look in after]),
        _range([look.private_mib for look in after]),
        f"{found.estimate:+.2f}",
        f"{found.upper:+.2f}",
        f"{descriptors[0]:g} → {descriptors[1]:g}",
        f"{threads[0]:g} → {threads[1]:g}",
    )


def _range(numbers: Sequence[float]) -> str:
    return f"{min(numbers):.1f} to {max(numbers):.1f}"


def _course(soaked: Soaked) -> Iterator[tuple[str, ...]]:
    size = -(-len(soaked.agent) // PARTS)
    for at in range(0, len(soaked.agent), size):
        agent, reader = soaked.agent[at : at + size], soaked.reader[at : at + size]
        yield (
            f"{agent[-1].seconds / 60:.0f}",
            f"{median(look.private_mib for look in agent):.1f}",
            f"{median(look.private_mib for look in reader):.1f}",
            f"{median(look.descriptors for look in agent):g}",
        )


def main() -> None:
    """Soak for as many hours as the first argument says, and write the page."""
    from tests.bench.report import machine

    soaked = soak(round(float(sys.argv[1]) * 3600 / PERIOD_SECONDS))
    PAGE.write_text(page(soaked, machine()), encoding="utf-8")
    sys.stdout.write(PAGE.read_text(encoding="utf-8"))
    for failure in soaked.failures[:10]:
        sys.stderr.write(f"{failure}\n")


if __name__ == "__main__":
    main()
