# SPDX-License-Identifier: Apache-2.0
"""Changes of a node's layouts, from the annotation to the end, whose agent or coordinator gets
SIGKILL: real programs on a real API server, and a simulated driver.

The state file, the journal and the Node show how a change ended.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from api import keys
from api.actuator.actuator_messages import RestoreRequest
from api.mig_outcome import Outcome
from tests.actuator.actuator_process import ActuatorProcess, started
from tests.actuator.drawn_changes import DrawnChange, DrawnChanges, KillFigures
from tests.cluster.agents import Site
from tests.cluster.mig_nodes import coordinator_process
from tests.cluster.test_layouts import EnforcingNode
from tests.controlplane.plane import Plane
from tests.kubelet_nodes.checkpoint_file import write_checkpoint

Program = Literal["agent", "coordinator"]
MOST_SECONDS: Final = 300.0
"""From the kill to the end, on a busy machine; a lost GPU's change may be tried a second time."""
LOST_SECONDS: Final = 20.0
"""A lost GPU answers again after that time, or when its change is held."""
ENDED: Final = (Outcome.APPLIED, Outcome.ROLLED_BACK)


def kill_programs(
    folder: Path, program: Program, seed: int, kills: int, lost_every: int = 4
) -> Iterator[KillFigures]:
    """Kill the program in the middle of so many changes, and start it again; at every
    ``lost_every``-th kill a GPU is lost. The figures after each kill."""
    with (
        tempfile.TemporaryDirectory(prefix="killed-") as short,
        Plane.start(folder / "plane", controller_manager=False) as plane,
    ):
        changes = DrawnChanges.of(Path(short), seed, lost_every)
        socket = Path(short) / "run" / "a.sock"
        site = Site.create(plane, "gpuscape")
        node = EnforcingNode(site, folder, changes.on, socket)
        node.kubelet.start()
        write_checkpoint(changes.on.simulation.host_root, {})
        try:
            with ExitStack() as programs:
                actuator = programs.enter_context(started(changes.on, socket, gpu=changes.uuids[0]))
                stage = _Stage(site, node, changes, actuator, folder, program)
                programs.enter_context(stage.running(stage.other))
                with stage:
                    while changes.figures.kills < kills:
                        stage.kill_in_a_change()
                        yield changes.figures
        finally:
            node.kubelet.stop()


@dataclass
class _Stage:
    """One node of a cluster, and its coordinator; as a context, the program that is killed runs."""

    site: Site
    node: EnforcingNode
    changes: DrawnChanges
    actuator: ActuatorProcess
    folder: Path
    program: Program
    kept: ExitStack = field(default_factory=ExitStack)
    """Ends the program that is killed."""
    starts: int = 0
    """Of coordinators."""

    @property
    def other(self) -> Program:
        """The program that is not killed."""
        return "coordinator" if self.program == "agent" else "agent"

    def __enter__(self) -> None:
        self.process = self.kept.enter_context(self.running(self.program))

    def __exit__(self, *_: object) -> None:
        self.kept.close()

    def kill_in_a_change(self) -> None:
        """Ask for layouts, kill the program in the middle, start it again, and judge the end.

        The next change's program is the one that ended this one.
        """
        change, before = self.changes.next(), self.node.status.request
        self.node.ask(_document(change))
        self._wait_for_the_middle(before)
        self.process.kill()
        self.process.wait()
        begun = time.monotonic()
        self.kept.close()
        self.changes.lose(change)
        self.__enter__()
        if change.lost is not None:
            self._bring_back()
        self._wait(lambda: self._has_ended_or_is_restored(before))
        self.changes.figures.took(time.monotonic() - begun)
        assert not self.site.node(self.node.name)["spec"].get("unschedulable")
        self._judge(change)

    def _judge(self, change: DrawnChange) -> None:
        """A lost GPU answers again: it is judged as the others are."""
        change.name = self.node.status.request
        outcome = self.changes.judge(change, is_back=True)
        is_applied = self.node.status.outcome == Outcome.APPLIED
        assert (outcome is Outcome.APPLIED) == is_applied

    def _wait_for_the_middle(self, before: str) -> None:
        """A moment that is drawn: the request, the permit, a step of the actuator, or the end."""
        instances = self.changes.instances()
        moments: list[Callable[[], bool]] = [
            lambda: self.node.leave.request() is not None,
            lambda: keys.MIG_PERMIT in self.site.annotations(self.node.name),
            lambda: self.changes.instances() != instances,
        ]
        moment = self.changes.draw.choice(moments)
        self._wait(lambda: moment() or self._has_ended(before))
        time.sleep(self.changes.draw.uniform(0, 1))

    def _bring_back(self) -> None:
        """The GPU answers again after a while."""
        last = time.monotonic() + LOST_SECONDS
        while time.monotonic() < last and not self.changes.held():
            time.sleep(0.2)
        self.changes.on.simulation.clear()

    def _has_ended_or_is_restored(self, before: str) -> bool:
        """A person restores what is held, whenever that comes: the GPU is there again."""
        for record in self.changes.held():
            self.actuator.ask(RestoreRequest(change=record.change))
        return self._has_ended(before)

    def _has_ended(self, before: str) -> bool:
        """The request has ended, and the coordinator has undone what it did for it."""
        status = self.node.status
        return (
            status.request not in ("", before)
            and status.outcome in ENDED
            and keys.MIG_PERMIT not in self.site.annotations(self.node.name)
        )

    @contextmanager
    def running(
        self, program: Program
    ) -> Iterator[subprocess.Popen[str] | subprocess.Popen[bytes]]:
        """A program of the node's cluster, until the block ends."""
        if program == "agent":
            with self.node.agent() as agent:
                yield agent.process
        else:
            self.starts += 1
            pod = f"coordinator-{self.starts // 2}"  # a container starts again, or a pod follows
            with coordinator_process(self.site, pod, self.folder) as (process, _):
                yield process

    def _wait(self, condition: Callable[[], bool]) -> None:
        last = time.monotonic() + MOST_SECONDS
        while not condition():
            assert time.monotonic() < last, self.node.status
            time.sleep(0.1)


def _document(change: DrawnChange) -> str:
    """The annotation's value."""
    return json.dumps({str(at): dict(layout.devices()) for at, layout in change.desired.items()})
