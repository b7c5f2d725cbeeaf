# SPDX-License-Identifier: Apache-2.0
"""The device reader on a simulated machine: what hangs, dies or goes away costs itself alone."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import psutil
import pytest

from base.errors import Transient
from discovery.driver_errors import DriverAbsent, DriverMismatch, ReaderGone, ReaderStuck, Released
from discovery.known_node_gpus import KnownGpus
from discovery.model import GpuState
from discovery.reader.child import PROGRAM
from discovery.reader.device_reader import DeviceReader
from discovery.reader.protocol import Start, XidSeen
from discovery.reader.reader_events import EVENTS_KEPT
from discovery.reader.reader_results import DiscoveryResult
from discovery.sample import ReadingGroup
from simulator.simulation import Crash, Hang, Return, Simulation
from simulator.state.machine_state import XidEvent
from tests import build, machines
from tests.discovery.reader.reader_bench import SOON, ReaderBench, until
from tests.discovery.sampling import hopper


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ReaderBench]:
    bench = ReaderBench(Simulation.create("a30-pair", tmp_path))
    yield bench
    bench.close()


@pytest.fixture
def leaving(tmp_path: Path) -> Iterator[ReaderBench]:
    """Readers that close their session when they end."""
    bench = ReaderBench(Simulation.create("a30-pair", tmp_path), events=False)
    yield bench
    bench.close()


PRESENT, HUNG, LOST = GpuState.PRESENT, GpuState.HUNG, GpuState.LOST
UNREADABLE = GpuState.UNREADABLE


def test_all_gpus_are_read_with_driver_links_and_readings(bench: ReaderBench) -> None:
    reading: DiscoveryResult = bench.reader.discover()
    assert reading.driver.version is not None
    assert [gpu.state for gpu in reading.gpus] == [PRESENT, PRESENT]
    assert [len(build.nvidia(gpu).links) for gpu in reading.gpus] == [4, 4]
    assert [sample.bus_id for sample in bench.reader.sample()] == list(bench.bus_ids)


def test_groups_are_read_where_they_are_asked_for(bench: ReaderBench) -> None:
    plain, more = (
        bench.reader.sample(),
        bench.reader.sample((ReadingGroup.ECC, ReadingGroup.LIMITS)),
    )
    assert [sample.ecc_errors for sample in plain] == [None, None]
    assert all(sample.ecc_errors and sample.power_limits for sample in more)
    assert [sample.bar1 for sample in more] == [None, None]


def test_what_a_gpu_does_not_support_is_asked_again_after_a_discovery(bench: ReaderBench) -> None:
    bench.simulation.log_calls()
    for _ in range(2):
        bench.reader.sample((ReadingGroup.PROFILING,))
    bench.reader.discover()
    bench.reader.sample((ReadingGroup.PROFILING,))
    calls = Counter(entry for entry, _ in bench.simulation.calls().elements())
    assert calls["nvmlGpmQueryDeviceSupport"] == 2 * len(bench.bus_ids)


def test_profiling_counts_on_from_request_to_request_and_gives_all_back(tmp_path: Path) -> None:
    """Across a discovery too; a buffer left with the driver would be a leak of its."""
    simulation = machines.simulation(tmp_path, models={"small": hopper()})
    with closing(ReaderBench(simulation, deadline_seconds=SOON, init_seconds=SOON)) as bench:
        simulation.log_calls()
        wait_for_profiling(bench)
        bench.reader.discover()
        wait_for_profiling(bench)
        assert bench.reader.release()
        calls = Counter(entry for entry, _ in simulation.calls().elements())
    assert (calls["nvmlGpmSampleAlloc"], calls["nvmlGpmSampleFree"]) == (4, 4)


def wait_for_profiling(bench: ReaderBench) -> None:
    """Of each GPU once: a stall between two of them, and they never have it at the same time."""
    left = {*bench.bus_ids}

    def all_came() -> bool:
        samples = bench.reader.sample((ReadingGroup.PROFILING,))
        left.difference_update(sample.bus_id for sample in samples if sample.profiling)
        return not left

    until(all_came)


def test_readings_can_be_had_from_a_reader_that_never_discovered(bench: ReaderBench) -> None:
    bench.children()[0].kill()
    until(lambda: not bench.children())
    assert [sample.bus_id for sample in bench.reader.sample()] == list(bench.bus_ids)


def test_the_child_has_an_empty_environment_and_one_descriptor(bench: ReaderBench) -> None:
    (child,) = bench.children()
    open_files = {
        number: Path(f"/proc/{child.pid}/fd/{number}").readlink()
        for number in map(int, os.listdir(f"/proc/{child.pid}/fd"))  # noqa: PTH208  # numbers
    }
    sockets = [number for number, target in open_files.items() if "socket:" in str(target)]
    assert sockets == [0]
    assert str(open_files[1]) == "/dev/null"
    assert str(open_files[2]).startswith("pipe:")
    assert not any(
        name.startswith(("KUBE", "GPUSCAPE", "PATH", "HOME")) for name in child.environ()
    )


def test_a_gpu_that_hangs_is_quarantined_and_the_others_are_read_in_the_same_answer(
    bench: ReaderBench,
) -> None:
    bench.simulation.fault(Hang(), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[0])
    gpus = bench.reader.discover().gpus
    assert [gpu.state for gpu in gpus] == [HUNG, PRESENT]
    assert gpus[0].uuid is not None  # known from before
    assert bench.reader.health().quarantined == (bench.bus_ids[0],)


@pytest.mark.parametrize("what", ["driver", "a GPU", "start"])
def test_what_was_asked_of_a_reader_that_timed_out_is_logged(
    bench: ReaderBench, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """Without this line only a counter says that a reader was replaced."""
    names = {"a GPU": bench.bus_ids[0]}
    (child,) = bench.children()
    match what:
        case "driver":
            bench.simulation.fault(Hang(), "nvmlSystemGetDriverVersion")
        case "a GPU":
            bench.simulation.fault(Hang(), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[0])
        case "start":
            os.kill(child.pid, signal.SIGSTOP)
    with contextlib.suppress(ReaderStuck):
        bench.reader.discover()
    if what == "start":
        os.kill(child.pid, signal.SIGCONT)
    logged = [it for it in caplog.records if it.getMessage() == "device reader timed out"]
    assert [(vars(it)["reader"], vars(it)["what"]) for it in logged] == [
        (child.pid, names.get(what, what))
    ]


def test_a_gpu_that_hangs_while_sampled_costs_its_own_readings(bench: ReaderBench) -> None:
    news: list[tuple[str, ...]] = []
    bench.on_news = lambda: news.append(bench.reader.health().quarantined)
    bench.simulation.fault(Hang(), "nvmlDeviceGetPowerUsage", bus_id=bench.bus_ids[0])
    assert [sample.bus_id for sample in bench.reader.sample()] == [bench.bus_ids[1]]
    assert bench.states() == [HUNG, PRESENT]
    assert news == [(bench.bus_ids[0],)]


def test_a_pair_of_gpus_that_hangs_costs_the_one_that_did_not_answer_just_before(
    bench: ReaderBench,
) -> None:
    bench.simulation.fault(Hang(), "nvmlDeviceGetP2PStatus", bus_id=bench.bus_ids[0])
    assert [sample.bus_id for sample in bench.reader.sample((ReadingGroup.P2P,))] == [
        bench.bus_ids[0]
    ]
    assert bench.reader.health().quarantined == (bench.bus_ids[1],)


def test_the_reader_tells_of_each_pair_of_gpus(bench: ReaderBench) -> None:
    here, there = bench.bus_ids
    found = {it.bus_id: it.nvlink_p2p for it in bench.reader.sample((ReadingGroup.P2P,))}
    assert found == {here: ((there, 0),), there: ((here, 0),)}


def test_a_quarantined_gpu_is_not_touched_until_its_probe_is_due_and_then_freed(
    bench: ReaderBench,
) -> None:
    bench.simulation.fault(Hang(), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[0])
    bench.states()
    bench.simulation.clear()
    assert bench.probe() == ()
    assert bench.states() == [HUNG, PRESENT]
    bench.now += 5.0
    assert bench.probe() == (bench.bus_ids[0],)
    assert bench.states() == [PRESENT, PRESENT]


@pytest.mark.parametrize(
    ("entry", "groups"),
    [("nvmlDeviceGetPowerUsage", ()), ("nvmlDeviceGetBAR1MemoryInfo", (ReadingGroup.BAR1,))],
)
def test_a_gpu_that_hangs_in_its_readings_alone_stays_in_quarantine(
    bench: ReaderBench, entry: str, groups: tuple[ReadingGroup, ...]
) -> None:
    bench.simulation.fault(Hang(), entry, bus_id=bench.bus_ids[0])
    bench.reader.sample(groups)
    bench.now += 5.0
    assert bench.probe() == ()
    assert bench.reader.health().quarantined == (bench.bus_ids[0],)


def test_a_probe_that_hangs_disturbs_nothing_and_is_put_off(bench: ReaderBench) -> None:
    bench.simulation.fault(Hang(), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[0])
    bench.states()
    working = bench.children()
    bench.now += 5.0
    assert bench.probe() == ()
    assert bench.states() == [HUNG, PRESENT]
    assert bench.children() == working
    bench.now += 9.0
    bench.simulation.clear()
    assert bench.probe() == ()
    bench.now += 1.0
    assert bench.probe() == (bench.bus_ids[0],)


def test_where_every_gpu_hangs_the_driver_still_answers_through_one_more_child(
    bench: ReaderBench,
) -> None:
    for bus_id in bench.bus_ids:
        bench.simulation.fault(Hang(uninterruptible=True), "nvmlDeviceGetUUID", bus_id=bus_id)
    for _ in range(2):
        assert bench.states() == [HUNG, HUNG]
    assert len(bench.children()) == 3
    assert bench.reader.health().stuck == 2


def test_a_gpu_is_probed_once_the_child_that_is_stuck_on_it_has_ended(bench: ReaderBench) -> None:
    bench.simulation.fault(Hang(uninterruptible=True), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[0])
    assert bench.states() == [HUNG, PRESENT]
    bench.now += 60.0
    bench.probe()
    assert len(bench.children()) == 2
    bench.simulation.clear()
    until(lambda: bench.reader.health().stuck == 0)
    assert bench.probe() == (bench.bus_ids[0],)


def test_a_driver_that_hangs_at_init_blames_no_gpu_and_gets_no_second_child(
    bench: ReaderBench,
) -> None:
    bench.reader.release()
    bench.reader.resume()
    bench.simulation.fault(Hang(uninterruptible=True), "nvmlInit*")
    for _ in range(2):
        with pytest.raises(ReaderStuck):
            bench.reader.discover()
    assert len(bench.children()) == 1
    assert bench.reader.health().quarantined == ()
    bench.simulation.clear()
    until(lambda: bench.reader.health().stuck == 0)
    assert bench.states() == [PRESENT, PRESENT]


def test_children_that_hang_while_they_leave_count_as_stuck_and_do_not_pile_up(
    leaving: ReaderBench,
) -> None:
    """A reader that waits for events leaves without a call, and so without a hang."""
    bench = leaving
    bench.simulation.fault(Hang(uninterruptible=True), "nvmlShutdown")
    bench.simulation.fault(Return(code=15), bus_id=bench.bus_ids[0])  # asks for new sessions
    bench.simulation.log_calls()
    for _ in range(2):
        assert bench.states() == [LOST, PRESENT]
    until(lambda: bench.simulation.calls()["nvmlShutdown", None] == 1)
    for _ in range(3):
        bench.now += 5.0
        assert bench.states() == [LOST, PRESENT]
    assert (len(bench.children()), bench.reader.health().stuck) == (2, 1)


def test_a_stopped_reader_is_left_behind_and_another_one_answers(bench: ReaderBench) -> None:
    (stopped,) = bench.children()
    os.kill(stopped.pid, signal.SIGSTOP)
    assert bench.states() == [PRESENT, PRESENT]
    health = bench.reader.health()
    assert (health.stuck, health.quarantined) == (1, ())
    assert (health.hangs, health.deaths, health.event_losses) == (1, 0, 1)
    assert health.pid not in (None, stopped.pid)
    os.kill(stopped.pid, signal.SIGCONT)
    until(lambda: bench.reader.health().stuck == 0)


def test_a_killed_reader_is_replaced_within_the_next_request(bench: ReaderBench) -> None:
    (child,) = bench.children()
    os.kill(child.pid, signal.SIGKILL)
    assert bench.states() == [PRESENT, PRESENT]


def test_a_gpu_on_which_the_reader_dies_again_and_again_is_left_alone(bench: ReaderBench) -> None:
    bench.simulation.fault(Crash(ending="kill"), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[1])
    assert bench.states() == [PRESENT, UNREADABLE]
    assert bench.reader.health().deaths == 2
    gap = bench.reader.discover().gpus[1].gap("state")
    assert gap is not None
    assert gap.detail == "the device reader died on it: it closed its socket"
    bench.simulation.clear()
    bench.now += 5.0
    assert bench.probe() == (bench.bus_ids[1],)


def test_a_reader_that_dies_whatever_it_does_is_given_up(bench: ReaderBench) -> None:
    bench.reader.release()
    bench.reader.resume()
    bench.simulation.fault(Crash(ending="exit"), "nvmlInit*")
    before = bench.reader.health()
    with pytest.raises(ReaderGone, match="the device reader ended 4 times in a row"):
        bench.reader.discover()
    after = bench.reader.health()
    assert (after.starts - before.starts, after.deaths - before.deaths) == (4, 4)
    assert (after.event_losses - before.event_losses, after.pid) == (4, None)


def test_a_lost_gpu_keeps_its_name_and_comes_back_when_it_answers(bench: ReaderBench) -> None:
    bench.simulation.fault(Return(code=15), bus_id=bench.bus_ids[0])
    gpus = bench.reader.discover().gpus
    assert [gpu.state for gpu in gpus] == [LOST, PRESENT]
    assert gpus[0].uuid is not None
    bench.simulation.clear()
    assert bench.states() == [PRESENT, PRESENT]


def test_healthy_gpus_keep_their_index_when_another_leaves_the_bus(tmp_path: Path) -> None:
    """NVML's own indices close ranks."""
    bench = ReaderBench(Simulation.create("t4", tmp_path))
    before = {gpu.uuid: gpu.index for gpu in bench.reader.discover().gpus}
    machines.unplug(bench.simulation, bench.bus_ids[1])
    for _ in range(2):  # of the old session, and of a new one
        gpus = bench.reader.discover().gpus
        assert [gpu.state for gpu in gpus] == [PRESENT, LOST, PRESENT, PRESENT]
        assert {gpu.uuid: gpu.index for gpu in gpus} == before
    bench.close()


def test_a_reader_that_follows_another_goes_on_with_its_places(tmp_path: Path) -> None:
    simulation = Simulation.create("t4", tmp_path)
    known_gpus = KnownGpus()
    first = ReaderBench(simulation, known_gpus=known_gpus)
    first.close()
    machines.unplug(simulation, first.bus_ids[0])
    second = ReaderBench(simulation, known_gpus=known_gpus)
    gpus = second.reader.discover().gpus
    assert [(gpu.index, gpu.state) for gpu in gpus] == [
        (0, LOST),
        *((place, PRESENT) for place in (1, 2, 3)),
    ]
    second.close()


def test_a_node_settles_a_minute_after_its_gpus_were_first_expected(bench: ReaderBench) -> None:
    assert bench.reader.discover().settling
    bench.now += 60.0
    assert not bench.reader.discover().settling


def test_a_gpu_that_does_not_answer_is_looked_for_in_a_new_session_each_time(
    bench: ReaderBench,
) -> None:
    bench.simulation.fault(Return(code=15), bus_id=bench.bus_ids[0])
    before = bench.reader.health().starts
    bench.states()
    bench.states()
    bench.reader.sample()
    assert bench.reader.health().starts == before + 1


def test_a_gpu_that_was_read_before_it_hung_counts_as_hung(bench: ReaderBench) -> None:
    bench.simulation.fault(Hang(), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[1])
    bench.simulation.fault(Hang(), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[0], after=1)
    assert bench.states() == [HUNG, HUNG]


def test_a_reader_that_cannot_be_started_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    with pytest.raises(ReaderGone, match="cannot be started"):
        DeviceReader(Start()).sample()


def test_without_a_thread_to_be_had_no_process_is_left_behind() -> None:
    before, thread = threading.stack_size(1 << 46), threading.Thread()
    try:
        with pytest.raises(RuntimeError):  # or this test tests nothing
            thread.start()
        with pytest.raises(ReaderGone, match="thread"):
            DeviceReader(Start()).sample()
    finally:
        threading.stack_size(before)
    assert not any(str(PROGRAM) in child.cmdline() for child in psutil.Process().children())


def test_events_beyond_those_kept_are_counted(bench: ReaderBench) -> None:
    bench.simulation.edit(
        lambda state: msgspec.structs.replace(
            state, events=(XidEvent(bus_id=bench.bus_ids[0], code=48),) * (EVENTS_KEPT + 2)
        )
    )
    until(lambda: bench.reader.health().event_losses == 2)
    assert len(bench.reader.events()) == EVENTS_KEPT


def test_a_probe_for_which_no_reader_can_be_started_is_tried_again_later(
    bench: ReaderBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.simulation.fault(Hang(), "nvmlDeviceGetPowerUsage", bus_id=bench.bus_ids[0], times=1)
    bench.reader.sample()
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", "/nonexistent")
        bench.now += 5.0
        assert bench.probe() == ()
    bench.now += 60.0
    assert bench.probe() == (bench.bus_ids[0],)


@pytest.mark.parametrize(
    ("condition", "error"),
    [("absent", DriverAbsent), ("not-loaded", DriverAbsent), ("mismatch", DriverMismatch)],
)
def test_no_failure_of_the_driver_is_latched(
    bench: ReaderBench, condition: str, error: type[Transient]
) -> None:
    bench.reader.release()
    bench.reader.resume()
    bench.simulation.set_driver(condition)  # type: ignore[arg-type]  # parametrised
    for _ in range(2):
        with pytest.raises(error):
            bench.reader.discover()
    bench.simulation.set_driver("ok")
    assert bench.states() == [PRESENT, PRESENT]


def test_an_xid_is_pushed_with_its_gpu_and_instance(bench: ReaderBench) -> None:
    news: list[None] = []
    bench.on_news = lambda: news.append(None)
    bench.simulation.xid(bench.bus_ids[1], 94, gpu_instance_id=3, compute_instance_id=0)
    seen: list[object] = []

    def one_came() -> bool:
        seen.extend(bench.reader.events())
        return bool(seen)

    until(lambda: bool(news))
    until(one_came)
    expected = XidSeen(bus_id=bench.bus_ids[1], code=94, gpu_instance_id=3, compute_instance_id=0)
    assert seen == [expected]


def test_release_ends_every_child_and_closes_every_session_until_resumed(
    bench: ReaderBench,
) -> None:
    assert bench.simulation.clients() == 1
    assert bench.reader.release()
    assert (bench.children(), bench.simulation.clients()) == ([], 0)
    assert (bench.reader.health().released, bench.reader.health().pid) == (True, None)
    with pytest.raises(Released, match="all NVML handles are released on request"):
        bench.reader.discover()
    with pytest.raises(Released):
        bench.reader.sample()
    bench.reader.resume()
    assert bench.states() == [PRESENT, PRESENT]
    (child,) = bench.children()
    assert (bench.reader.health().released, bench.reader.health().pid) == (False, child.pid)


def test_a_closed_reader_is_not_resumed(bench: ReaderBench) -> None:
    bench.reader.close()
    bench.reader.resume()
    with pytest.raises(Released):
        bench.reader.sample()
    assert bench.children() == []


def test_a_session_that_the_driver_refuses_is_refused_with_its_sentence(
    bench: ReaderBench,
) -> None:
    bench.reader.release()
    bench.reader.resume()
    bench.simulation.fault(Return(code=4), "nvmlInit*", times=1)
    with pytest.raises(Transient) as caught:
        bench.reader.sample()
    assert type(caught.value) is Transient
    assert str(caught.value) == "NVML cannot be initialised: Insufficient Permissions"
    assert len(bench.reader.sample()) == 2


def test_release_ends_a_child_that_hangs_in_the_driver_too(bench: ReaderBench) -> None:
    bench.simulation.fault(Hang(uninterruptible=True), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[0])
    bench.states()
    assert bench.reader.release()
    assert (bench.children(), bench.simulation.clients()) == ([], 0)


def test_release_ends_a_probe_that_hangs_too(tmp_path: Path) -> None:
    bench = ReaderBench(Simulation.create("a30-pair", tmp_path), deadline_seconds=SOON)
    bench.simulation.fault(Crash(), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[0])
    bench.states()
    bench.simulation.clear()
    bench.simulation.fault(Hang(uninterruptible=True), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[0])
    bench.now += 5.0
    probing = threading.Thread(target=bench.probe)
    probing.start()
    until(lambda: bench.simulation.clients() == 2)
    assert bench.reader.release()
    assert (bench.children(), bench.simulation.clients()) == ([], 0)
    probing.join()
    bench.close()


def test_an_event_set_is_not_freed_under_a_wait_that_hangs(bench: ReaderBench) -> None:
    bench.simulation.log_calls()
    bench.simulation.fault(Hang(), "nvmlEventSetWait*")
    waits = bench.simulation.calls
    until(lambda: any(call.startswith("nvmlEventSetWait") for call, _ in waits()))
    bench.reader.release()
    called = {call for call, _ in bench.simulation.calls()}
    assert not called & {"nvmlEventSetFree", "nvmlShutdown"}
