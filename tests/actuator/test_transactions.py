# SPDX-License-Identifier: Apache-2.0
"""What is too early at the actuator's start is tried again, less and less often."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from actuator.change import ChangeResult, apply, begin, give_up
from actuator.journal import CHANGE, Journal, JournalBusy, JournalUnusable
from actuator.mig_world import StepFailed
from actuator.service.transactions import Transactions
from api.actuator.actuator_messages import (
    MOST_ANSWER_BYTES,
    ActuatorRefusal,
    ApplyRequest,
    ChangeAnswer,
    RefusalAnswer,
    RequestedInstance,
    RequestedLayout,
    RestoreRequest,
    encode_message,
)
from api.mig_outcome import Outcome
from base import threads
from base.errors import GpuscapeError
from discovery.driver_errors import DriverAbsent
from mig.gpu_layout import layout_from_counts
from tests.actuator.played_world import Hardware, PlayedWorld
from tests.mig.naive_gpu import mig_gpu

SOON = 30.0


class Started:
    """An actuator's transactions at a time of the test's choosing."""

    def __init__(self, journal: Path, fails: Iterator[GpuscapeError]) -> None:
        """``fails``: what becomes of the first tries."""
        self.now = 100.0
        self.tried: list[float] = []
        self._fails = fails
        self._woken = threading.Event()
        self.transactions = Transactions(
            self._run, journal, self._woken.set, clock=lambda: self.now
        )

    def _run(self, request: ApplyRequest | RestoreRequest | None) -> ChangeResult:
        del request
        self.tried.append(self.now)
        for error in self._fails:
            raise error
        return ChangeResult(outcome=Outcome.APPLIED)

    def ended(self) -> None:
        """Wait for the try that runs."""
        assert self._woken.wait(SOON)
        self._woken.clear()
        self.transactions.finish()

    def pass_time(self) -> float:
        """Up to the next try, and through it; how long that was."""
        waited = self.transactions.due - self.now
        self.now += waited - 0.1
        self.transactions.tick()
        assert self.transactions.running is None
        self.now += 0.1
        self.transactions.tick()
        self.ended()
        return waited


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """One that has a layout to restore."""
    world = PlayedWorld(Hardware.of([mig_gpu("a100-sxm4-40gb")]))
    with Journal(tmp_path / "mig") as opened:
        apply(world, opened, {"GPU-0": layout_from_counts({"7g.40gb": 1})}, origin="a test")
    return tmp_path / "mig"


def test_a_driver_that_comes_late_gets_its_layouts_all_the_same(
    journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The waits double up to half a minute; then it is done."""
    errors = [DriverAbsent("no driver")] * 5 + [JournalBusy("another process")] * 4
    started = Started(journal, iter(errors))
    started.transactions.resume()
    started.ended()

    waits = [started.pass_time() for _ in errors]

    assert waits == pytest.approx([2, 4, 8, 16, 30, 30, 30, 30, 30])
    assert len(started.tried) == 10
    assert started.transactions.due == float("inf")
    logged = [one for one in caplog.records if one.message == "MIG restore waits"]
    assert [vars(one)["seconds"] for one in logged] == pytest.approx(waits)
    assert vars(logged[0])["why"] == "no driver"
    assert "MIG change failed" not in caplog.messages


def test_what_does_not_pass_is_not_tried_again(
    journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    started = Started(journal, iter([StepFailed("the driver refused it")]))
    started.transactions.resume()
    started.ended()

    assert started.transactions.due == float("inf")
    assert "MIG change failed" in caplog.messages


def test_a_thread_that_is_not_to_be_had_at_the_start_is_asked_for_again(
    journal: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started = Started(journal, iter(()))

    def no_thread(*_: object) -> None:
        raise threads.NoThread("none is to be had")

    with monkeypatch.context() as patch:
        patch.setattr(threads, "started", no_thread)
        started.transactions.resume()
    assert "MIG restore waits" in caplog.messages
    assert started.tried == []

    started.pass_time()
    assert len(started.tried) == 1
    assert started.transactions.due == float("inf")


def test_a_journal_that_cannot_be_used_at_the_start_is_left_as_it_is(journal: Path) -> None:
    (journal / CHANGE).write_text("damaged")
    started = Started(journal, iter(()))
    started.transactions.resume()
    assert started.transactions.due == float("inf")


def test_who_is_to_end_tries_nothing_again(journal: Path) -> None:
    started = Started(journal, iter([DriverAbsent("no driver")]))
    started.transactions.resume()
    started.ended()
    started.transactions.stop()
    started.now += 1000
    started.transactions.tick()
    assert (started.transactions.running, len(started.tried)) == (None, 1)


def test_what_became_of_a_change_is_told_whatever_came_after_it(tmp_path: Path) -> None:
    """Who died while it ran asks by its name, and it need not be the last one."""
    world = PlayedWorld(Hardware.of([mig_gpu("a100-sxm4-40gb")]))
    with Journal(tmp_path / "mig") as opened:
        for change, layout in (("change-one", {"7g.40gb": 1}), ("change-two", {"3g.20gb": 2})):
            wanted = {"GPU-0": layout_from_counts(layout)}
            apply(world, opened, wanted, origin="a test", change=change)
    state = Started(tmp_path / "mig", iter(())).transactions.state

    first, unknown, nothing = state("change-one"), state("change-ten"), state()

    assert first.named is not None
    assert (first.named.change, first.named.outcome) == ("change-one", Outcome.APPLIED)
    assert first.last is not None
    assert first.last.change == "change-two"
    assert (unknown.named, nothing.named) == (None, None)


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """A journal in which a change of two is stuck on a lost GPU and applied to the other."""
    gpus = [mig_gpu("a100-sxm4-40gb", uuid=f"GPU-{at}", index=at) for at in range(3)]
    hardware = Hardware.of(gpus)
    wanted = {f"GPU-{at}": layout_from_counts({"7g.40gb": 1}) for at in range(2)}
    with Journal(tmp_path / "mig") as opened:
        world = PlayedWorld(hardware, loses={1: "GPU-0"})
        result = apply(world, opened, wanted, origin="a test", change="held-change")
    assert result.outcome is Outcome.STUCK
    return tmp_path / "mig"


def answers(journal: Path, request: ApplyRequest | RestoreRequest) -> tuple[list[object], object]:
    """What the actuator carries out for a request, and its answer."""
    ran: list[object] = []
    answered: list[object] = []
    woken = threading.Event()

    def run(carried: ApplyRequest | RestoreRequest | None) -> ChangeResult:
        ran.append(carried)
        return ChangeResult(outcome=Outcome.APPLIED)

    transactions = Transactions(run, journal, woken.set)
    transactions.ask(request, answered.append)
    if not answered:
        assert woken.wait(SOON)
        transactions.finish()
    return ran, answered[0]


def change_of(gpu: str) -> ApplyRequest:
    """Another one than that which is held."""
    layout = RequestedLayout(mig=True)
    return ApplyRequest(change="another-change", origin="", desired={gpu: layout})


def test_a_held_change_refuses_changes_of_its_own_gpus_alone(held: Path) -> None:
    """The other GPU of it is free."""
    for gpu in ("GPU-1", "GPU-2"):
        request = change_of(gpu)
        ran, answer = answers(held, request)
        assert ran == [request]
        assert isinstance(answer, ChangeAnswer)

    ran, answer = answers(held, change_of("GPU-0"))

    assert ran == []
    assert isinstance(answer, RefusalAnswer)
    assert (answer.refusal, answer.change) == (ActuatorRefusal.CONFLICT, "held-change")
    assert "stuck on GPU GPU-0: restore it, or give the GPU up" in answer.reason


@pytest.mark.parametrize(
    ("error", "refusal", "change"),
    [
        (JournalUnusable("the disk is full"), ActuatorRefusal.JOURNAL, None),
        (JournalBusy("another process"), ActuatorRefusal.BUSY, None),
        (StepFailed("the driver refused it"), ActuatorRefusal.FAILED, "another-change"),
    ],
)
def test_an_error_of_the_worker_is_refused_by_its_kind(
    tmp_path: Path, error: GpuscapeError, refusal: ActuatorRefusal, change: str | None
) -> None:
    """A journal that cannot be kept refuses the change, as where it is read before the worker."""
    started = Started(tmp_path / "mig", iter([error]))
    answered: list[object] = []
    started.transactions.ask(change_of("GPU-0"), answered.append)
    started.ended()

    assert answered == [RefusalAnswer(refusal=refusal, reason=str(error), change=change)]


def test_a_request_to_restore_hands_on_the_gpus_that_are_given_up(held: Path) -> None:
    """By the name of the change that is held, or by a new one."""
    for change in ("held-change", "a-new-name"):
        request = RestoreRequest(change=change, give_up=("GPU-0",))
        ran, answer = answers(held, request)
        assert ran == [request]
        assert isinstance(answer, ChangeAnswer)


def test_the_state_names_the_gpus_that_hold_a_change(held: Path) -> None:
    """The agent goes by it."""
    transactions = Transactions(
        lambda *_: ChangeResult(outcome=Outcome.UNCHANGED), held, lambda: None
    )

    state = transactions.state("held-change")

    assert state.open is not None
    assert (state.open.gpus, state.open.outcome) == (("GPU-0",), Outcome.STUCK)
    assert [(one.gpu, str(one.outcome)) for one in state.open.outcomes] == [
        ("GPU-0", "stuck"),
        ("GPU-1", "applied"),
    ]
    assert state.named == state.open


def test_the_state_has_the_gpus_that_are_stuck_whichever_change_is_open(held: Path) -> None:
    """Also while another GPU's change is open, which ``open`` names instead; none once given up."""

    def stuck() -> list[tuple[str, int | None, str]]:
        idle = Transactions(lambda *_: ChangeResult(outcome=Outcome.APPLIED), held, lambda: None)
        answer = idle.state()
        return [(gpu.gpu, gpu.index, str(gpu.outcome)) for gpu in answer.stuck]

    assert stuck() == [("GPU-0", 0, "stuck")]
    other = mig_gpu("a100-sxm4-40gb", uuid="GPU-2", index=2)
    with Journal(held) as journal:
        world = PlayedWorld(Hardware.of([other]))
        layout = layout_from_counts({"7g.40gb": 1})
        begin(world, journal, [other], {"GPU-2": layout}, origin="a test", change="open-change")
    assert stuck() == [("GPU-0", 0, "stuck")]
    with Journal(held) as journal:
        give_up(journal, ["GPU-0"])
    assert stuck() == []


def test_a_request_that_comes_again_gets_the_table_of_all_its_gpus(held: Path) -> None:
    """Also of a GPU that needed no step, which the journal does not have."""
    layout = RequestedLayout(
        mig=True, instances=(RequestedInstance(profile="7g.40gb", compute=(7,)),)
    )
    desired = {f"GPU-{at}": layout for at in range(3)}
    request = ApplyRequest(change="held-change", origin="a test", desired=desired)

    ran, answer = answers(held, request)

    assert ran == []
    assert isinstance(answer, ChangeAnswer)
    assert (answer.outcome, answer.again) == (Outcome.STUCK, True)
    assert [(one.gpu, str(one.outcome)) for one in answer.outcomes] == [
        ("GPU-0", "stuck"),
        ("GPU-1", "applied"),
        ("GPU-2", "unchanged"),
    ]
    assert answer.reason.startswith("GPU 0: ")
    assert [one.index for one in answer.outcomes] == [0, 1, None]
    other = ApplyRequest(change="held-change", origin="another", desired=desired)
    _, refused = answers(held, other)
    assert isinstance(refused, RefusalAnswer)
    assert refused.refusal is ActuatorRefusal.CONFLICT


def test_a_change_that_was_interrupted_is_in_the_way_of_its_own_gpus_alone(tmp_path: Path) -> None:
    """The same request goes on with it, and so does a request to restore it."""
    gpus = [mig_gpu("a100-sxm4-40gb", uuid=f"GPU-{at}", index=at) for at in range(2)]
    layout = layout_from_counts({"7g.40gb": 1})
    with Journal(tmp_path / "mig") as opened:
        world = PlayedWorld(Hardware.of(gpus))
        begin(world, opened, gpus[:1], {"GPU-0": layout}, origin="a test", change="open-change")

    for request in (
        change_of("GPU-1"),
        RestoreRequest(change="open-change"),
        ApplyRequest(
            change="open-change",
            origin="a test",
            desired={
                "GPU-0": RequestedLayout(
                    mig=True, instances=(RequestedInstance(profile="7g.40gb", compute=(7,)),)
                )
            },
        ),
    ):
        ran, _ = answers(tmp_path / "mig", request)
        assert ran == [request]
    for refused in (change_of("GPU-0"), RestoreRequest(change="another-name")):
        ran, answer = answers(tmp_path / "mig", refused)
        assert ran == []
        assert isinstance(answer, RefusalAnswer)
        assert "open-change has not ended on GPU GPU-0" in answer.reason


def test_an_answer_has_room_for_all_gpus(tmp_path: Path) -> None:
    """Sixty-four of them, each with a long reason, open and named and last."""
    gpus = [mig_gpu("a100-sxm4-40gb", uuid=f"GPU-{at:036}", index=at) for at in range(64)]
    layouts = {gpu.uuid: layout_from_counts({"7g.40gb": 1}) for gpu in gpus}
    with Journal(tmp_path / "mig") as opened:
        world = PlayedWorld(Hardware.of(gpus))
        for change in ("first-change", "other-change"):
            records = begin(world, opened, gpus, layouts, origin="o" * 256, change=change)
            stuck = change == "other-change"
            outcome = Outcome.STUCK if stuck else Outcome.ROLLED_BACK
            long = [
                msgspec.structs.replace(one, outcome=outcome, reason="r" * 3000) for one in records
            ]
            if stuck:
                opened.write(*long)
            else:
                for record in long:
                    opened.end(record)
    transactions = Transactions(
        lambda *_: ChangeResult(outcome=Outcome.UNCHANGED), tmp_path / "mig", lambda: None
    )

    answer = transactions.state("other-change")

    assert answer.open is not None
    assert len(answer.open.outcomes) == 64
    assert [gpu.index for gpu in answer.stuck] == list(range(64))
    assert answer.last is not None
    assert len(encode_message(answer)) < MOST_ANSWER_BYTES
