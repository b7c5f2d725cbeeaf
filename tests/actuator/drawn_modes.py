# SPDX-License-Identifier: Apache-2.0
"""Requests drawn by a seed that switch the MIG mode of Ampere GPUs, on a simulated node where
programs hold GPUs, resets fail, and processes and the node itself die in the middle.

The actuator's own worker runs in this process, over pynvml and the simulator's state file. Time is
the test's: pauses and resets take none. A kill ends the worker before or after a call of the
driver, a write of the journal, or in a pause; the GPUs go on.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pynvml
import pytest
from msgspec.structs import replace

import actuator.gpu_holders
import actuator.journal
import actuator.mode_reset
import actuator.nvml_world
import actuator.smi_reset
import actuator.worker
from actuator.change import ChangeResult
from actuator.change_record import ChangeRecord
from actuator.journal import Journal
from actuator.worker import carry_out
from actuator.worker_messages import ChangeRequest, Order
from api.mig_mode_change import MigReset, ModeChange, ResetFallback
from base.errors import GpuscapeError
from simulator.driver.calling_process import ThisProcess
from simulator.simulation import Return
from simulator.smi import smi_actions
from simulator.state.edits import with_reset, without_processes
from tests import machines
from tests.actuator.ampere_node import (
    BEFORE,
    DESIRED,
    GPUS,
    AmpereNode,
    as_layout,
    first_state,
    mode_and_shape,
    slices_of,
    with_pending,
    with_reset_ended,
)
from tests.actuator.drawn_boot import BOOT_SECONDS, DrawnBoot
from tests.actuator.killed_worker import CALLS, JournalOs
from tests.actuator.mode_judge import GpuTruth, ModeCase
from tests.actuator.watched_worker import Hung, Killed, WatchedWorker

REQUEST: Final = "the-request"
LOST: Final = Return(code=pynvml.NVML_ERROR_GPU_IS_LOST)
UNKNOWN: Final = Return(code=pynvml.NVML_ERROR_UNKNOWN)

TROUBLES: Final = (
    *[""] * 5,
    *["client"] * 5,
    "stays",
    "lost",
    "fails",
    "fails",
    "loses",
    "hangs",
    *["reset-required"] * 3,
    "smi fails",
    "smi loses",
    "smi hangs",
    "hidden",
    "not taken back",
    "foreign",
    "program",
)
"""What goes wrong on a GPU; the empty one is nothing, ``stays`` a client that does not end.

Of GPUs that the driver does not reset, nvidia-smi's reset fails too, loses the GPU, or hangs, or
refuses it for a ``hidden`` process that came just before.
"""
BY_SMI: Final = ("reset-required", "smi fails", "smi loses", "smi hangs", "hidden")
"""The driver resets none of these."""


@dataclass
class DrawnModes:
    """One request, what goes wrong while it is carried out, and how it ended."""

    node: AmpereNode
    seed: int
    troubles: dict[int, str] = field(default_factory=dict)
    desired: dict[int, Mapping[str, int] | None] = field(default_factory=dict)
    client_seconds: dict[int, float] = field(default_factory=dict)
    lost_at: dict[int, int] = field(default_factory=dict)
    """Index to the effect at which the GPU falls off the bus."""
    met: set[int] = field(default_factory=set)
    """GPUs whose reset has ended badly once, after which it ends well."""
    hung: list[str] = field(default_factory=list)
    kills: int = 0
    boots: int = 0
    effects: int = 0
    """Of all workers."""
    most_effects: int = 0
    """Of one worker."""
    most_seconds: float = 0.0
    before: dict[int, GpuTruth] = field(default_factory=dict)
    rebooted: bool = False
    smi: set[int] = field(default_factory=set)
    """GPUs that nvidia-smi was started for."""
    cut: set[int] = field(default_factory=set)
    """GPUs whose worker died when nvidia-smi was to bring the mode, or was about to."""
    _bus_id: str = ""

    def __post_init__(self) -> None:
        """Draw all of it, and put the GPUs in their first state."""
        self.on, self.time, self.uuids = self.node.on, self.node.time, self.node.uuids
        self.draw = draw = random.Random(self.seed)  # noqa: S311 - repeatable, not secret
        simulation = self.on.simulation
        shutil.rmtree(self.on.journal, ignore_errors=True)
        layouts = [draw.choice(BEFORE) for _ in range(GPUS)]
        simulation.edit(lambda state: first_state(state, layouts, self.time.now))
        chosen = sorted(draw.sample(range(GPUS), draw.choice((1, 2, 2, 3))))
        self.desired = {index: self._draw_layout(layouts[index] is None) for index in chosen}
        self.troubles = {index: draw.choice(TROUBLES) for index in range(GPUS)}
        simulation.set_resets(seconds=draw.choice((0.0, 2.0, 20.0)), renumbers=draw.random() < 0.3)
        for index, trouble in self.troubles.items():
            self._prepare(index, trouble)
        self.permits = draw.random() < 0.93
        self.allows = draw.random() < 0.6
        self.boot = DrawnBoot(self.on, may_boot=not self.allows or draw.random() < 0.6)
        self.moments = [
            draw.randrange(70) if draw.random() < 0.5 else draw.randrange(14)
            for _ in range(draw.choice((0, 1, 1, 2, 3)))
        ]

    def _draw_layout(self, is_off: bool) -> Mapping[str, int] | None:
        """Of three layouts two have the other mode."""
        if not is_off and self.draw.random() < 0.67:
            return None
        return self.draw.choice(DESIRED if is_off else DESIRED[1:])

    def _prepare(self, index: int, trouble: str) -> None:
        simulation, bus_id = self.on.simulation, machines.gpu(index).bus_id
        match trouble:
            case "client":
                seconds = self.draw.choice((self.draw.uniform(1, 30), self.draw.uniform(1, 60)))
                self.client_seconds[index] = seconds
                simulation.add_process(bus_id, 700 + index, kind="client")
                simulation.remove_process(700 + index, after_seconds=seconds)
            case "stays":
                simulation.add_process(bus_id, 700 + index, kind="client")
            case "lost":
                self.lost_at[index] = self.draw.randrange(25)
            case "foreign":
                simulation.edit(lambda state: with_pending(state, bus_id))
            case "program":
                instances = simulation.state.gpus[bus_id].instances
                number = self.draw.choice(instances).id if instances else None
                part = 0 if instances else None
                simulation.add_process(
                    bus_id, 800 + index, gpu_instance_id=number, compute_instance_id=part
                )

    # the GPUs

    def truth(self, index: int) -> GpuTruth:
        """A GPU in the state file."""
        gpu = self.on.simulation.state.gpus[machines.gpu(index).bus_id]
        instances = frozenset(
            (it.profile, it.start, slices_of(it), it.birth) for it in gpu.instances
        )
        return GpuTruth(mode=gpu.mig, pending=gpu.mig_pending, instances=instances)

    def truths(self) -> dict[int, GpuTruth]:
        """All of them."""
        return {index: self.truth(index) for index in range(GPUS)}

    def is_lost(self, index: int) -> bool:
        """Whether a GPU does not answer."""
        state, bus_id = self.on.simulation.state, machines.gpu(index).bus_id
        is_off = any(fault.bus_id == bus_id and fault.action == LOST for fault in state.faults)
        return is_off or state.gpus[bus_id].reset is not None

    def records(self) -> tuple[ChangeRecord, ...]:
        """The request in the journal, a GPU each."""
        if not self.on.journal.is_dir():
            return ()
        with Journal(self.on.journal, lock=False) as journal:
            return journal.content().of(REQUEST)

    def unended(self) -> set[str]:
        """UUIDs of GPUs whose change has not ended."""
        if not self.on.journal.is_dir():
            return set()
        with Journal(self.on.journal, lock=False) as journal:
            return {record.gpu for record in journal.content().unended}

    # the workers

    def run(self) -> ChangeResult | None:
        """Worker after worker, until one reports; None: it could not read the GPUs."""
        request: ChangeRequest | None = self._request()
        while True:
            if not self.records():
                self.before, self.rebooted = self.truths(), False
            moment = self.moments.pop(0) if self.moments else None
            try:
                result = self._work(self._order(request), moment)
            except Killed:
                self.kills += 1
                self.cut |= {
                    self._index(record.bus_id) for record in self.records() if record.reset
                }
                request = self._next_request(request)
                continue
            except Hung:
                self.hung.append(self._bus_id)
                assert len(self.hung) == len(set(self.hung)), "a GPU that hung was touched"
                continue
            except GpuscapeError:
                if not self.records():
                    return None
                raise
            if any(record.outcome is None for record in self.records()):
                request = self._after_wait()
                continue
            self.boot.judge_end()
            if request is not None:
                return result
            request = self._request()

    def _next_request(self, request: ChangeRequest | None) -> ChangeRequest | None:
        """The same request again; after a boot a worker without one comes first, until it ends."""
        if self.draw.random() < 0.3:
            self._boot()
            return None
        return request if self.draw.random() < 0.5 else None

    def _boot(self) -> None:
        self.boots += 1
        self.rebooted, self.hung = True, []
        self.on.simulation.clear()
        self.on.simulation.reboot()

    def _after_wait(self) -> ChangeRequest | None:
        """Changes wait for a boot: it comes, or not in time, or they are taken back."""
        waiting = [record for record in self.records() if record.outcome is None]
        self.boot.judge_wait(waiting)
        indices = {self._index(record.bus_id) for record in waiting}
        assert all(self.troubles[index] in (*BY_SMI, "not taken back") for index in indices)
        match self.draw.choice(("boot", "boot", "boot", "late", "back", "again")):
            case "boot":
                self.boot.brought |= {i for i in indices if self.troubles[i] in BY_SMI}
                self._boot()
            case "late":
                self.time.now += BOOT_SECONDS
            case "back":
                self.boot.takes_back = True
            case _:
                return self._request()
        return None

    def restore(self, *, give_up: tuple[str, ...] = ()) -> None:
        """Nothing is in the way any more; then ``gpuscape mig restore``."""
        simulation = self.on.simulation
        simulation.edit(without_processes(lambda _: True, self.time.now))
        lost = [machines.gpu(index).bus_id for index in range(GPUS) if self.is_lost(index)]
        simulation.clear()
        simulation.set_resets(result="done", mode_change="resets", seconds=2.0)
        for bus_id in lost:
            simulation.edit(partial(with_reset_ended, bus_id=bus_id))
            simulation.change(with_reset(bus_id))
        self.troubles, self.lost_at = dict.fromkeys(range(GPUS), ""), {}
        self._work(replace(self._order(None), give_up=give_up, hung=()), None)

    def _request(self) -> ChangeRequest:
        desired = {self.uuids[index]: as_layout(counts) for index, counts in self.desired.items()}
        by = ModeChange.DRIVER if self.permits else ModeChange.OFF
        fallback = ResetFallback(
            reset=MigReset.ALLOW if self.allows else MigReset.OFF, reboot=self.boot.setting
        )
        return ChangeRequest(
            desired=desired, origin="a test", change=REQUEST, mode_change=by, fallback=fallback
        )

    def _order(self, request: ChangeRequest | None) -> Order:
        return Order(
            start=self.on.start,
            journal=str(self.on.journal),
            request=request,
            users=(),
            change=REQUEST if self.boot.takes_back else "",
            hung=tuple(self.hung),
            sentinel=self.boot.sentinel,
            deadline_seconds=60,
        )

    def _work(self, order: Order, moment: int | None) -> ChangeResult:
        """One worker, which dies at a moment."""
        worker = WatchedWorker(moment, self.time, self.before_call, self.has_waiting_mode)
        with pytest.MonkeyPatch.context() as patch, self.on.simulation:
            patch.setattr(self.time, "on_sleep", worker.on_sleep)
            for name in CALLS:
                patch.setattr(pynvml, name, worker.watched(name, getattr(pynvml, name)))
            patch.setattr(actuator.journal, "os", JournalOs(worker.effects))
            smi = worker.effects.counted("nvidia-smi", self._run_smi)
            patch.setattr(actuator.smi_reset, "smi_answer", smi)
            try:
                return carry_out(order, lambda bus_id: self._on_call(bus_id, order))
            finally:
                self.most_effects = max(self.most_effects, len(worker.effects.names))
                self.most_seconds = max(self.most_seconds, self.time.now - worker.begun)

    def _on_call(self, bus_id: str, order: Order) -> None:
        assert bus_id not in order.hung, "a GPU that hung was touched"
        self._bus_id = bus_id

    def before_call(self, name: str) -> int:
        """The driver is about to be called: what goes wrong now. The index of the GPU."""
        self.effects += 1
        self._lose()
        index = self._index(self._bus_id)
        if name == "nvmlDeviceSetMigMode":
            self._let_it_fail(index)
        return index

    @staticmethod
    def _index(bus_id: str) -> int:
        return next(i for i in range(GPUS) if machines.gpu(i).bus_id == bus_id)

    def _run_smi(self, _root: Path, arguments: tuple[str, ...], *, simulated: bool) -> str:
        """The simulator's nvidia-smi, which may be started once for each GPU of the request."""
        assert simulated
        option, i, bus_id = arguments
        index, gpu = self._index(bus_id), self.on.simulation.state.gpus[bus_id]
        assert (option, i) == ("--gpu-reset", "-i")
        assert self.allows, "nobody has allowed a reset"
        assert index in self.desired, "a GPU was reset that the request does not name"
        assert index not in self.smi, "a GPU was reset twice"
        assert self.troubles[index] in BY_SMI, "the driver could have reset the GPU"
        assert gpu.mig != gpu.mig_pending, "a GPU was reset for nothing"
        assert not gpu.instances, "a GPU was reset with its instances"
        assert [record.reset for record in self.records() if record.bus_id == bus_id] == [True]
        self.smi.add(index)
        trouble = self.troubles[index]
        if trouble == "hidden":
            self.on.simulation.add_process(bus_id, 900 + index, kind="client")
        result = trouble.removeprefix("smi ") if trouble.startswith("smi ") else "done"
        self.on.simulation.set_resets(result=result)
        answer = smi_actions.run_smi(self.on.simulation, arguments, ThisProcess())
        return f"ended with {answer.code}: {answer.text}"

    def has_waiting_mode(self, index: int) -> bool:
        """Whether a mode waits on a GPU from which nothing keeps the driver."""
        gpu = self.truth(index)
        is_fine = self.troubles[index] in ("", "client", "stays") and not self.is_lost(index)
        return is_fine and gpu.mode != gpu.pending

    def _lose(self) -> None:
        for index, at in list(self.lost_at.items()):
            if self.effects > at:
                del self.lost_at[index]
                self.on.simulation.fault(LOST, bus_id=machines.gpu(index).bus_id)

    def _let_it_fail(self, index: int) -> None:
        """Settings of the reset that the call is about to make."""
        trouble = self.troubles[index]
        is_first = index not in self.met
        self.met.add(index)
        result = trouble if is_first and trouble in ("fails", "loses", "hangs") else "done"
        cannot = trouble in (*BY_SMI, "not taken back")
        self.on.simulation.set_resets(
            result=result, mode_change="reset-required" if cannot else "resets"
        )
        if trouble == "not taken back" and is_first:
            self.on.simulation.fault(UNKNOWN, "nvmlDeviceSetMigMode", bus_id=self._bus_id, after=1)

    # for the judge

    def cases(self, result: ChangeResult | None) -> dict[int, ModeCase]:
        """What happened on each GPU."""
        outcomes = {gpu.gpu: gpu for gpu in result.gpus} if result is not None else {}
        # not of the change that brings its layout back after a boot
        unended = self.unended() & {it.gpu for it in self.records() if it.outcome != "applied"}
        refused = result is None or str(result.outcome) == "refused"
        return {
            index: ModeCase(
                before=self.before[index],
                after=self.truth(index),
                desired=mode_and_shape(self.desired, index),
                troubles=self._troubles(index, trouble),
                client_seconds=self.client_seconds.get(index, 0.0),
                used=self._used(index),
                is_lost=self.is_lost(index),
                rebooted=self.rebooted,
                outcome=_outcome(outcomes.get(uuid), refused and index in self.desired),
                reason=getattr(outcomes.get(uuid), "reason", ""),
                unended=uuid in unended,
            )
            for (index, trouble), uuid in zip(self.troubles.items(), self.uuids, strict=True)
        }

    def _troubles(self, index: int, trouble: str) -> frozenset[str]:
        """What may keep a GPU from its layout."""
        if index in self.boot.brought and index not in self.cut:
            return frozenset()  # the boot brings it
        if trouble == "reset-required" and self.allows and index not in self.cut:
            return frozenset()  # nvidia-smi brings it
        return frozenset({trouble} - {""})

    def _used(self, index: int) -> frozenset[Any]:
        if self.troubles[index] != "program" or self.boots:
            return frozenset()
        state, bus_id = self.on.simulation.state, machines.gpu(index).bus_id
        numbers = {it.gpu_instance_id for it in state.processes if it.bus_id == bus_id}
        first = self.before[index].instances
        instances = state.gpus[bus_id].instances
        now = {(it.profile, it.start, it.birth) for it in instances if it.id in numbers}
        return frozenset(it for it in first if (*it[:2], it[3]) in now) if now else first


def _outcome(gpu: Any, refused: bool) -> str | None:
    if gpu is not None:
        return str(gpu.outcome)
    return "refused" if refused else None
