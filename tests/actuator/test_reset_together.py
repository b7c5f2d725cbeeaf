# SPDX-License-Identifier: Apache-2.0
"""GPUs on NVSwitches without Fabric Manager are reset in one command, all of them or none."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress

import msgspec
import pynvml as nv
import pytest
from msgspec.structs import replace

import actuator.journal
import actuator.nvml_world
import actuator.smi_reset
from actuator.change import ChangeResult, apply, begin, resume
from actuator.journal import Journal
from actuator.nvml_world import NvmlWorld
from api.mig_mode_change import MigReset, ModeChange, ResetFallback
from api.mig_outcome import Outcome
from discovery.nvml.session import close_session
from mig.gpu_layout import MIG_OFF, GpuLayout, has_layout, layout_from_counts
from mig.mode_permission import ModePermission
from simulator.simulation import Return
from tests.actuator import killed_worker
from tests.actuator.simulated_node import SimulatedNode
from tests.actuator.test_smi_reset import (  # noqa: F401  # two are fixtures
    ALLOWED,
    BUS_ID,
    OTHER,
    SEVEN,
    on,
    pauses,
    resumed,
    unended,
)

TOGETHER = "it is on NVSwitches, and Fabric Manager does not run"


@pytest.fixture
def board(
    on: SimulatedNode,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> SimulatedNode:
    """The machine without Fabric Manager: nvidia-smi resets its GPUs in one command alone."""
    on.simulation.set_resets(fabric_manager=False)
    monkeypatch.setattr(actuator.nvml_world, "why_no_single_reset", lambda *_, **__: TOGETHER)
    return on


def changed_together(
    board: SimulatedNode, *numbers: int, layout: GpuLayout = SEVEN, reset: MigReset = MigReset.ALLOW
) -> ChangeResult:
    """Bring GPUs to a layout, as a worker does."""
    desired = {board.uuid(number): layout for number in numbers}
    modes = ModePermission(by=ModeChange.DRIVER, fallback=ResetFallback(reset=reset))
    with board.simulation, Journal(board.journal) as journal, NvmlWorld(board.start) as world:
        return apply(world, journal, desired, origin="a test", modes=modes)


def modes_of(board: SimulatedNode) -> list[tuple[bool, bool]]:
    return [(gpu.mig, gpu.mig_pending) for gpu in board.simulation.state.gpus.values()]


def resets_of(board: SimulatedNode) -> list[int]:
    return [gpu.renumbered for gpu in board.simulation.state.gpus.values()]


def test_all_gpus_of_a_board_are_reset_in_one_command_and_each_gets_its_layout(
    board: SimulatedNode, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        result = changed_together(board, 0, 1)

    assert [gpu.outcome for gpu in result.gpus] == [Outcome.APPLIED] * 2
    assert [has_layout(gpu, SEVEN) for gpu in board.gpus()] == [True, True]
    assert resets_of(board) == [1, 1]
    runs = [record for record in caplog.records if record.message == "MIG reset by nvidia-smi"]
    assert [vars(run)["bus_id"] for run in runs] == [f"{BUS_ID},{OTHER}"]


def test_a_board_is_emptied_first(board: SimulatedNode) -> None:
    assert changed_together(board, 0, 1).outcome is Outcome.APPLIED

    result = changed_together(board, 0, 1, layout=MIG_OFF)

    assert (result.outcome, modes_of(board)) == (Outcome.APPLIED, [(False, False)] * 2)
    assert resets_of(board) == [2, 2]


@pytest.mark.parametrize(
    ("numbers", "reset", "named"),
    [((0,), MigReset.ALLOW, [OTHER]), ((0,), MigReset.OFF, [OTHER]), ((0, 1), MigReset.OFF, [])],
)
def test_a_request_that_leaves_gpus_of_the_board_out_is_refused_before_anything(
    board: SimulatedNode, numbers: tuple[int, ...], reset: MigReset, named: list[str]
) -> None:
    """The sentence names them."""
    before = board.simulation.state.gpus

    result = changed_together(board, *numbers, reset=reset)

    assert result.outcome is Outcome.REFUSED
    assert result.reason.startswith(TOGETHER)
    assert "allow mig-reset" in result.reason
    assert all(bus_id in result.reason for bus_id in named)
    assert BUS_ID not in result.reason
    assert (board.simulation.state.gpus, unended(board)) == (before, ())


def test_a_gpu_that_cannot_be_read_is_one_of_the_others(board: SimulatedNode) -> None:
    board.simulation.fault(Return(code=nv.NVML_ERROR_GPU_IS_LOST), bus_id=OTHER)

    result = changed_together_first(board)

    assert result.outcome is Outcome.REFUSED
    assert OTHER in result.reason


def changed_together_first(board: SimulatedNode) -> ChangeResult:
    """As above, for the first GPU alone, where not all can be read."""
    desired = {board.gpus()[0].uuid: SEVEN}
    modes = ModePermission(by=ModeChange.DRIVER, fallback=ALLOWED)
    with board.simulation, Journal(board.journal) as journal, NvmlWorld(board.start) as world:
        return apply(world, journal, desired, origin="a test", modes=modes)


def test_a_hidden_process_on_one_gpu_leaves_the_whole_board_as_it_was(
    board: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert changed_together(board, 0, 1).outcome is Outcome.APPLIED
    before = [board.found(number) for number in (0, 1)]

    def close() -> None:
        board.simulation.add_process(OTHER, 71, kind="client")
        close_session()

    monkeypatch.setattr(actuator.smi_reset, "close_session", close)

    result = changed_together(board, 0, 1, layout=MIG_OFF)

    assert [gpu.outcome for gpu in result.gpus] == [Outcome.ROLLED_BACK] * 2
    assert all("In use by another client" in gpu.reason for gpu in result.gpus)
    assert (modes_of(board), resets_of(board)) == ([(True, True)] * 2, [1, 1])
    after = [board.found(number) for number in (0, 1)]
    assert [{it[:2] for it in gpu} for gpu in after] == [{it[:2] for it in gpu} for gpu in before]
    assert unended(board) == ()


def test_a_program_on_one_gpu_of_the_board_keeps_the_reset_from_all(board: SimulatedNode) -> None:
    """It came after the plan, and before the first GPU was asked for another mode."""
    holders = iter([False, True])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actuator.smi_reset, "is_held", lambda *_, **__: next(holders))
        result = changed_together(board, 0, 1)

    assert [gpu.outcome for gpu in result.gpus] == [Outcome.ROLLED_BACK] * 2
    assert (modes_of(board), resets_of(board)) == ([(False, False)] * 2, [0, 0])


def test_a_board_whose_reset_was_begun_once_is_not_reset_again(board: SimulatedNode) -> None:
    """Its worker died when the modes waited; each GPU goes back by itself."""
    desired = {gpu.uuid: SEVEN for gpu in board.gpus()}
    modes = ModePermission(by=ModeChange.DRIVER, fallback=ALLOWED)
    with board.simulation, Journal(board.journal) as journal, NvmlWorld(board.start) as world:
        records = begin(world, journal, world.observe(), desired, origin="a test", modes=modes)
        journal.write(*(msgspec.structs.replace(record, reset=True) for record in records))
    board.simulation.edit(
        lambda state: replace(
            state, gpus={key: replace(gpu, mig_pending=True) for key, gpu in state.gpus.items()}
        )
    )

    result = resumed(board)

    assert [gpu.outcome for gpu in result.gpus] == [Outcome.ROLLED_BACK] * 2
    assert (modes_of(board), resets_of(board)) == ([(False, False)] * 2, [0, 0])


def test_a_board_with_fabric_manager_is_reset_one_by_one(
    on: SimulatedNode,  # noqa: F811
) -> None:
    """And its other GPUs may do what they do."""
    result = changed_together(on, 0)

    assert (result.outcome, resets_of(on)) == (Outcome.APPLIED, [1, 0])


class _Killed(BaseException):
    """SIGKILL of the worker: nothing catches it."""


def _die() -> None:
    raise _Killed


def _killed_at(
    board: SimulatedNode, moment: int, desired: Mapping[str, GpuLayout]
) -> tuple[str, ...]:
    """Names of the effects of a worker that dies at a moment, or of one that ends."""
    effects = killed_worker.Effects(moment, _die)
    modes = ModePermission(by=ModeChange.DRIVER, fallback=ALLOWED)
    answer = effects.counted("smi_answer", actuator.smi_reset.smi_answer)
    with pytest.MonkeyPatch.context() as patch:
        for name in killed_worker.CALLS:
            patch.setattr(nv, name, effects.counted(name, getattr(nv, name)))
        patch.setattr(actuator.smi_reset, "smi_answer", answer)
        patch.setattr(actuator.journal, "os", killed_worker.JournalOs(effects))
        with (
            suppress(_Killed),
            board.simulation,
            Journal(board.journal) as journal,
            NvmlWorld(board.start) as world,
        ):
            apply(world, journal, desired, origin="a test", modes=modes)
    return tuple(effects.names)


def test_wherever_the_worker_is_killed_a_board_is_reset_once_at_most(
    board: SimulatedNode,
) -> None:
    """Each GPU has the desired layout or the previous one, and no mode waits."""
    layout = layout_from_counts({"7g.40gb": 1})
    desired = {gpu.uuid: layout for gpu in board.gpus()}
    first = board.simulation.state
    names = _killed_at(board, -1, desired)
    ends = set()
    for moment in range(2 * names.index("nvmlDeviceSetMigMode"), 2 * names.index("smi_answer") + 6):
        board.simulation.edit(lambda _: first)
        shutil.rmtree(board.journal, ignore_errors=True)

        _killed_at(board, moment, desired)
        with board.simulation, Journal(board.journal) as journal, NvmlWorld(board.start) as world:
            resume(world, journal)

        assert all(mode == waiting for mode, waiting in modes_of(board))
        assert max(resets_of(board)) <= 1
        assert unended(board) == ()
        ends.add(tuple(has_layout(gpu, layout) for gpu in board.gpus()))
    assert ends == {(False, False), (True, True)}
    assert names.count("smi_answer") == 1
