# SPDX-License-Identifier: Apache-2.0
"""What each tick decides: what is served, what stays, when it is tried again."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.extra_readings import ExtraReadings
from agent.gpu_errors.kernel_records import SxidSeen
from agent.publish import NodeDecision
from base.errors import Permanent, Transient
from discovery.driver_errors import DriverAbsent, DriverMismatch, ReaderGone, ReaderStuck
from discovery.gpu_part import GpuPart
from discovery.model import GpuState
from discovery.reader.protocol import EventsLost, XidSeen
from discovery.reader.reader_results import ReaderHealth
from discovery.sample import ReadingGroup
from exporters.gpuscape.process_use import ProcessUse
from exporters.gpuscape.switch_errors import Severity
from tests import build
from tests.agent.agent_scene import GPUS, WELL, Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, {})


def test_before_the_first_look_the_agent_serves_but_is_not_ready(scene: Scene) -> None:
    assert not scene.agent.ready
    assert scene.series("gpuscape_build_info")


def test_a_look_serves_the_gpus_publishes_their_labels_and_comes_back_in_its_interval(
    scene: Scene,
) -> None:
    assert scene.discover() == 60.0
    assert scene.hastened == ["sample"]  # the first readings should not wait for their interval
    assert scene.labels["nvidia.com/gpu.count"] == "2"
    assert scene.series('gpuscape_gpus{state="present"}') == ['gpuscape_gpus{state="present"} 2.0']


def test_the_first_scrape_of_an_agent_that_is_ready_has_readings(scene: Scene) -> None:
    scene.while_hastening = scene.agent.ticks["sample"]  # another thread may be that quick
    scene.discover()
    assert scene.agent.ready
    assert len(scene.series("DCGM_FI_DEV_GPU_TEMP{")) == 2


def test_an_agent_whose_gpus_were_not_read_yet_is_not_ready(scene: Scene) -> None:
    scene.discover()
    assert not scene.agent.ready
    scene.source.failing = ReaderStuck("hangs")  # in the metrics, which must be scraped for it
    scene.sample()
    assert scene.agent.ready


def test_a_sample_is_served_for_each_gpu(scene: Scene) -> None:
    scene.discover()
    assert scene.sample() == 10.0
    assert len(scene.series("DCGM_FI_DEV_GPU_TEMP{")) == 2


@pytest.mark.parametrize(
    "error", [DriverAbsent("gone"), DriverMismatch("other version"), ReaderStuck("hangs")]
)
def test_when_the_driver_goes_labels_stay_readings_go_and_it_is_tried_again_soon(
    scene: Scene, error: Transient
) -> None:
    scene.discover()
    scene.sample()
    before = scene.labels
    scene.source.failing = error
    waits = [scene.discover() for _ in range(4)]
    scene.sample()
    assert waits == [5.0, 10.0, 20.0, 30.0]
    kept = {key: text for key, text in scene.labels.items() if key.startswith("nvidia.com/")}
    assert kept == {key: text for key, text in before.items() if key.startswith("nvidia.com/")}
    assert scene.series("DCGM_FI_DEV_GPU_TEMP{") == []
    assert scene.series('gpuscape_source_up{source="nvml"}')[0].endswith(" 0.0")
    assert GpuState.PRESENT not in scene.states()


def test_when_the_driver_comes_back_everything_is_as_before(scene: Scene) -> None:
    scene.discover()
    scene.source.failing = DriverAbsent("gone")
    scene.discover()
    scene.source.failing = None
    assert scene.discover() == 60.0
    assert scene.states() == [GpuState.PRESENT, GpuState.PRESENT]
    assert scene.series('gpuscape_source_up{source="nvml"}')[0].endswith(" 1.0")


def test_a_driver_that_was_never_there_gives_no_gpu_labels_and_no_failure(scene: Scene) -> None:
    scene.source.failing = DriverAbsent("no NVIDIA driver")
    assert scene.discover() == 5.0
    assert scene.agent.ready
    assert not [key for key in scene.labels if key.startswith("nvidia.com/gpu.")]


@pytest.mark.parametrize(
    "error", [ReaderGone("ended 4 times"), ReaderStuck("hangs"), Transient("NVML fails")]
)
def test_an_agent_whose_reader_never_answered_is_not_ready_and_one_whose_reader_did_stays_so(
    scene: Scene, error: Transient
) -> None:
    scene.source.failing = error
    scene.discover()
    scene.sample()
    assert not scene.agent.ready
    scene.source.failing = None
    scene.discover()
    scene.sample()
    scene.source.failing = error
    scene.discover()
    assert scene.agent.ready


def test_a_fresh_node_is_described_without_a_silent_gpu_once_all_had_time_to_answer(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.source.gpus = (*GPUS, build.silent(2, GpuState.UNREADABLE))
    scene.source.settling = True
    with caplog.at_level("INFO", logger="agent.node_agent"):
        scene.discover()
        assert "nvidia.com/gpu.count" not in scene.labels
        scene.source.settling = False
        scene.discover()
    assert scene.labels["nvidia.com/gpu.count"] == "2"
    assert scene.labels["gpuscape.io/gpu.expected"] == "3"
    assert scene.labels["gpuscape.io/gpu.health-reason"] == "gpu-unreadable"
    assert [line.endswith(" 1") for line in scene.series("gpuscape_gpu_up{")] == [True, True, False]
    assert 'gpuscape_gpu_up{pci_bus_id="0000:12:00.0"} 0' in scene.metrics()
    named = [record.gpus for record in caplog.records if record.message == "GPUs not responding"]  # type: ignore[attr-defined]  # a field of ours
    assert named == ["0000:12:00.0 unreadable"]  # once


def test_a_gpu_that_does_not_answer_is_looked_at_sooner_and_hides_no_other(scene: Scene) -> None:
    lost = build.gpu(1, state=GpuState.LOST)
    scene.source.gpus = (GPUS[0], lost)
    assert scene.discover() == 5.0
    scene.sample()
    assert len(scene.series("DCGM_FI_DEV_GPU_TEMP{")) == 1


def test_a_gpu_lost_while_it_is_sampled_is_looked_at_now(scene: Scene) -> None:
    scene.discover()
    scene.source.lost = GPUS[1].bus_id
    scene.sample()
    assert scene.hastened[-1] == "discover"


def test_a_gpu_that_hangs_while_it_is_sampled_is_looked_at_now(scene: Scene) -> None:
    scene.discover()
    scene.source.after_sample = ReaderHealth(
        starts=2, hangs=1, deaths=0, stuck=1, quarantined=(GPUS[1].bus_id,), released=False
    )
    scene.sample()
    assert scene.hastened[-1] == "discover"


def test_a_gpu_in_quarantine_is_shown_as_hung_before_the_others_are_read_again(
    scene: Scene,
) -> None:
    scene.discover()
    scene.source.state = replace(WELL, hangs=1, stuck=1, quarantined=(GPUS[1].bus_id,))
    scene.agent.watch(scene.now)
    assert scene.states() == [GpuState.PRESENT, GpuState.HUNG]
    assert scene.hastened[-2:] == ["discover", "probe"]


def test_labels_wait_for_a_second_missed_deadline_of_a_gpu_and_metrics_do_not(
    scene: Scene,
) -> None:
    scene.discover()
    before = scene.labels
    hung = GPUS[1].bus_id
    scene.source.gpus = (GPUS[0], build.gpu(1, state=GpuState.HUNG))
    scene.source.state = replace(WELL, quarantined=(hung,), missed_once=frozenset({hung}))
    scene.discover()
    assert scene.states() == [GpuState.PRESENT, GpuState.HUNG]
    assert scene.labels == before
    scene.source.state = replace(WELL, quarantined=(hung,))
    scene.discover()
    assert scene.labels["gpuscape.io/gpu.health-reason"] == "gpu-hung"
    assert scene.labels["gpuscape.io/gpu.found"] == "1"


def test_an_xid_of_a_gpu_that_missed_one_deadline_is_in_the_labels_at_once(scene: Scene) -> None:
    scene.discover()
    hung = GPUS[1].bus_id
    scene.source.events_due = [XidSeen(bus_id=hung, code=79)]
    scene.agent.watch(scene.now)
    scene.source.gpus = (GPUS[0], build.gpu(1, state=GpuState.HUNG))
    scene.source.state = replace(WELL, quarantined=(hung,), missed_once=frozenset({hung}))
    scene.discover()
    assert scene.labels["gpuscape.io/gpu.health-reason"] == "xid-79"


def test_a_gpu_that_hangs_from_the_start_is_in_the_first_labels(scene: Scene) -> None:
    hung = GPUS[1].bus_id
    scene.source.gpus = (GPUS[0], build.silent(1, GpuState.HUNG))
    scene.source.state = replace(WELL, quarantined=(hung,), missed_once=frozenset({hung}))
    scene.discover()
    assert scene.labels["gpuscape.io/gpu.found"] == "1"


def test_a_gpu_that_is_waited_for_after_the_reader_was_replaced_changes_no_label(
    scene: Scene,
) -> None:
    scene.discover()
    before = scene.labels
    scene.source.gpus = (GPUS[0], build.silent(1, GpuState.INITIALISING))
    scene.discover()
    assert scene.states() == [GpuState.PRESENT, GpuState.INITIALISING]
    assert scene.labels == before


def test_at_the_start_a_gpu_that_is_waited_for_takes_nothing_from_the_node(scene: Scene) -> None:
    """Labels of an agent before this one stay, whatever they are, until its answer is known."""
    before = {
        "gpuscape.io/gpu.found": "2",
        "nvidia.com/gpu.count": "2",
        "gpuscape.io/gpu.health": "unhealthy",
    }
    scene.labels = dict(before)
    scene.source.gpus = (GPUS[0], build.silent(1, GpuState.INITIALISING))
    scene.discover()
    assert {key: scene.labels[key] for key in before} == before
    scene.source.gpus = (GPUS[0], build.silent(1, GpuState.HUNG))
    scene.discover()
    assert scene.labels["gpuscape.io/gpu.found"] == "1"


def test_a_node_without_labels_gets_those_of_the_gpus_that_answer_and_no_health_yet(
    scene: Scene,
) -> None:
    scene.source.gpus = (GPUS[0], build.silent(1, GpuState.INITIALISING))
    scene.discover()
    assert scene.labels["nvidia.com/gpu.product"]
    assert "gpuscape.io/gpu.health" not in scene.labels
    scene.source.gpus = GPUS
    scene.discover()
    assert scene.labels["gpuscape.io/gpu.health"] == "healthy"
    assert scene.labels["gpuscape.io/gpu.found"] == "2"


def test_a_gpu_whose_answer_is_not_waited_for_any_more_is_looked_at_now(scene: Scene) -> None:
    late = build.silent(1, GpuState.INITIALISING)
    scene.source.gpus = (GPUS[0], late)
    scene.source.state = replace(WELL, awaited=frozenset({late.bus_id}))
    scene.discover()
    scene.hastened.clear()
    scene.agent.watch(scene.now)
    assert scene.hastened == []
    scene.source.state = WELL
    scene.agent.watch(scene.now)
    assert scene.hastened == ["discover"]


def test_labels_wait_for_a_second_missed_deadline_of_the_driver_and_metrics_do_not(
    scene: Scene,
) -> None:
    scene.discover()
    before = scene.labels
    for _ in range(2):
        scene.source.failing = ReaderStuck("hangs")
        scene.discover()
        assert GpuState.PRESENT not in scene.states()
        assert scene.labels == before
        scene.source.failing = None
        scene.discover()  # and so each stall is a first one
    scene.source.failing = ReaderStuck("hangs")
    for _ in range(2):
        scene.discover()
    assert scene.labels["gpuscape.io/gpu.health-reason"] == "driver-hung"


def test_a_second_missed_deadline_has_the_labels_decided_anew(scene: Scene) -> None:
    hung = GPUS[1].bus_id
    scene.source.state = replace(WELL, quarantined=(hung,), missed_once=frozenset({hung}))
    scene.agent.probe(scene.now)
    assert scene.hastened == []
    scene.source.while_probing = lambda: setattr(
        scene.source, "state", replace(WELL, quarantined=(hung,))
    )
    scene.agent.probe(scene.now)
    assert scene.hastened == ["discover"]


def test_a_driver_that_initialises_is_shown_and_logged_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="agent.reader_reports"):
        for initialising in ("driver", "driver", None):
            scene.source.state = replace(WELL, initialising=initialising)
            scene.agent.watch(scene.now)
            shown = scene.series("gpuscape_reader_initialising")
            assert shown[0].endswith(" 0.0" if initialising is None else " 1.0")
    assert caplog.text.count("device reader initialising") == 1


def test_quarantined_gpus_are_probed_at_every_watch_and_no_others(scene: Scene) -> None:
    scene.discover()
    scene.agent.watch(scene.now)
    assert "probe" not in scene.hastened
    scene.source.state = replace(WELL, hangs=1, quarantined=(GPUS[1].bus_id,))
    for _ in range(2):
        scene.agent.watch(scene.now)
    assert scene.hastened.count("probe") == 2


def test_an_xid_is_counted_shown_and_looked_at_now(scene: Scene) -> None:
    scene.discover()
    scene.source.events_due = [XidSeen(bus_id=GPUS[0].bus_id, code=79)] * 2
    scene.agent.watch(scene.now)
    assert scene.hastened[-1] == "discover"
    scene.discover()
    (count,) = [line for line in scene.series("gpuscape_xid_errors_total") if 'xid="79"' in line]
    assert count.endswith(" 2.0")


def _logged(caplog: pytest.LogCaptureFixture, message: str) -> list[int]:
    """How many were left out before each line of this message."""
    found = (record for record in caplog.records if record.message == message)
    return [getattr(record, "left_out", 0) for record in found]


def test_an_xid_is_logged_once_a_minute_with_a_count_of_the_rest(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (XidSeen(bus_id=gpu.bus_id, code=48) for gpu in GPUS)
    scene.source.events_due = [first] * 305
    scene.agent.watch(scene.now)
    scene.source.events_due = [first, second]
    scene.agent.watch(scene.now + 59)
    assert _logged(caplog, "XID error") == [0, 0]  # one for each GPU
    scene.source.events_due = [first]
    scene.agent.watch(scene.now + 60)
    assert _logged(caplog, "XID error") == [0, 0, 305]
    scene.source.events_due = [first, second]
    scene.agent.watch(scene.now + 61)
    scene.agent.watch(scene.now + 119)
    assert _logged(caplog, "XID error") == [0, 0, 305, 1]  # of the second GPU, whose minute is over
    scene.agent.watch(scene.now + 120)
    assert _logged(caplog, "XID error") == [0, 0, 305, 1, 1]


def test_errors_of_a_switch_are_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen = SxidSeen(bus_id="0000:c5:00.0", code=12028, severity=Severity.NON_FATAL)
    scene = Scene(tmp_path, {}, ExtraReadings(kernel_log=lambda _now: (seen,) * 50))
    scene.agent.watch(scene.now)
    scene.agent.watch(scene.now + 60)
    assert _logged(caplog, "SXid error") == [0, 49]


def test_errors_that_may_be_lost_are_counted_by_their_source(tmp_path: Path) -> None:
    logged = [EventsLost(text="records of the kernel log were lost")]
    scene = Scene(tmp_path, {}, ExtraReadings(kernel_log=lambda _now: tuple(logged)))
    scene.source.state = replace(WELL, event_losses=3)
    scene.source.events_due = [EventsLost(text="waiting for XID events fails")]
    scene.agent.watch(scene.now)
    logged.clear()
    scene.source.state = replace(WELL, event_losses=4)
    scene.agent.watch(scene.now + 5)
    assert scene.series("gpuscape_gpu_event_losses_total{") == [
        'gpuscape_gpu_event_losses_total{source="nvml"} 5.0',
        'gpuscape_gpu_event_losses_total{source="kernel-log"} 1.0',
    ]


def test_an_xid_that_only_the_kernel_logged_counts_once_the_driver_stayed_silent(
    tmp_path: Path,
) -> None:
    logged = [XidSeen(bus_id=GPUS[0].bus_id, code=79)]
    scene = Scene(tmp_path, {}, ExtraReadings(kernel_log=lambda _now: tuple(logged)))
    scene.discover()
    scene.agent.watch(scene.now)
    logged.clear()
    assert "discover" not in scene.hastened
    scene.now += 6.0
    scene.agent.watch(scene.now)
    scene.discover()
    assert scene.series("gpuscape_xid_errors_total{")[0].endswith(" 1.0")


def test_what_agent_and_reader_take_of_the_host_is_told(scene: Scene) -> None:
    scene.source.state = replace(WELL, pid=os.getppid())
    scene.discover()
    scene.sample()
    told = scene.series("gpuscape_program_resident_memory_bytes{")
    assert [line.partition(" ")[0].partition("program=")[2] for line in told] == [
        '"agent"}',
        '"reader"}',
    ]
    assert all(float(line.rpartition(" ")[2]) > 1 << 20 for line in told)


def test_a_reader_that_ended_is_left_out(scene: Scene) -> None:
    scene.source.state = replace(WELL, pid=2**22 + 1)  # above what Linux gives
    scene.discover()
    scene.sample()
    assert len(scene.series("gpuscape_program_cpu_seconds_total{")) == 1


def test_errors_of_switches_are_shown(tmp_path: Path) -> None:
    seen = SxidSeen(bus_id="0000:c5:00.0", code=12028, severity=Severity.NON_FATAL)
    scene = Scene(tmp_path, {}, ExtraReadings(kernel_log=lambda _now: (seen,)))
    scene.discover()
    scene.agent.watch(scene.now)
    assert '"12028"' in scene.series("gpuscape_nvswitch_errors_total{")[0]


def test_samples_are_asked_for_with_their_groups_and_shown_with_jobs_and_processes(
    tmp_path: Path,
) -> None:
    use = ProcessUse(bus_id=GPUS[0].bus_id, pid="4711", memory_bytes=1 << 30)
    beside = ExtraReadings(
        groups=(ReadingGroup.ECC,),
        processes=lambda samples: (use,) if samples else (),
        jobs=lambda _snapshot: {GpuPart(GPUS[1].bus_id): ("job-7",)},
    )
    scene = Scene(tmp_path, {}, beside)
    scene.discover()
    scene.sample()
    assert scene.source.groups == (ReadingGroup.ECC,)
    assert 'pid="4711"' in scene.series("gpuscape_process_memory_bytes{")[0]
    assert ['hpc_job="job-7"' in line for line in scene.series("DCGM_FI_DEV_GPU_TEMP{")] == [
        False,
        True,
    ]


def test_lost_events_are_told_and_change_nothing(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.source.events_due = [EventsLost(text="not supported")]
    scene.agent.watch(scene.now)
    assert "discover" not in scene.hastened
    assert caplog.records[-1].__dict__["reason"] == "not supported"


def test_readers_started_after_the_first_count_as_restarts(scene: Scene) -> None:
    for starts in (1, 1, 3):
        scene.source.state = replace(WELL, starts=starts)
        scene.agent.watch(scene.now)
    assert scene.series("gpuscape_reader_restarts_total")[0].endswith(" 2.0")


def test_a_gpu_freed_by_a_probe_is_looked_at_now(scene: Scene) -> None:
    scene.source.freed = (GPUS[0].bus_id,)
    scene.agent.probe(scene.now)
    assert scene.hastened == ["discover"]


def test_release_drops_the_readings_keeps_the_labels_and_resume_looks_at_once(
    scene: Scene,
) -> None:
    scene.discover()
    scene.sample()
    labels = scene.labels
    scene.agent.release()
    assert scene.discover() == 60.0
    scene.sample()
    assert (scene.labels, scene.series("DCGM_FI_DEV_GPU_TEMP{")) == (labels, [])
    scene.agent.resume()
    assert scene.hastened[-1] == "discover"


def test_readings_are_back_as_soon_as_a_release_ends(scene: Scene) -> None:
    """Not an interval later, though the GPUs were never gone from the snapshot."""
    runtime = scene.run_ticks()
    runtime.run(25.0)
    scene.agent.release()
    runtime.run(1.0)
    assert scene.series("DCGM_FI_DEV_GPU_TEMP{") == []
    scene.agent.resume()
    runtime.run(0.0)
    assert len(scene.series("DCGM_FI_DEV_GPU_TEMP{")) == 2


def test_readings_that_a_release_overtakes_are_not_shown(scene: Scene) -> None:
    """Those of a GPU that was read before the release began, handed over after its end."""
    scene.discover()
    scene.source.while_sampling = scene.agent.release
    scene.sample()
    assert scene.series("DCGM_FI_DEV_GPU_TEMP{") == []


def test_readings_that_always_fail_are_tried_once_an_interval(scene: Scene) -> None:
    """Each failure has the node read again, and the GPUs answer that: it must not go round."""
    runtime = scene.run_ticks()
    tries: list[float] = []

    def fail() -> None:
        assert len(tries) < 100
        tries.append(runtime.now)
        raise ReaderGone("ended")

    scene.source.while_sampling = fail
    runtime.run(59.0)
    assert [at - tries[0] for at in tries] == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]


def test_a_driver_gone_for_a_release_needs_no_new_library(scene: Scene) -> None:
    scene.source.failing = DriverAbsent("no driver")
    scene.discover()
    scene.agent.release()
    scene.now += 3600.0
    assert not scene.agent.needs_new_library


def test_it_is_alive_while_ticks_are_run_and_not_once_they_stop(scene: Scene) -> None:
    scene.agent.watch(scene.now)
    scene.now += 29
    assert scene.agent.alive
    scene.now += 2
    assert not scene.agent.alive


@pytest.mark.parametrize(
    ("error", "needed"),
    [(DriverAbsent("x"), True), (DriverMismatch("x"), True), (ReaderStuck("x"), False)],
)
def test_a_new_library_is_needed_once_the_driver_has_been_gone_for_a_minute(
    scene: Scene, error: Transient, needed: bool
) -> None:
    scene.source.failing = error
    scene.discover()
    scene.now += 59
    scene.discover()
    assert not scene.agent.needs_new_library
    scene.now += 1
    assert scene.agent.needs_new_library is needed


def test_a_driver_that_came_back_in_time_needs_no_new_library(scene: Scene) -> None:
    scene.source.failing = DriverAbsent("x")
    scene.discover()
    scene.source.failing = None
    scene.discover()
    scene.now += 100
    assert not scene.agent.needs_new_library


def _broken(_: NodeDecision) -> None:
    raise Permanent("features.d does not exist")


@pytest.fixture
def broken_sink() -> Callable[[Path], Scene]:
    return lambda root: Scene(root, {"broken": _broken})


def test_a_sink_that_fails_leaves_the_others_alone_and_is_told_once(
    broken_sink: Callable[[Path], Scene], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = broken_sink(tmp_path)
    scene.discover()
    scene.discover()
    assert scene.labels["nvidia.com/gpu.count"] == "2"
    assert [r.__dict__["sink"] for r in caplog.records if "sink" in r.__dict__] == ["broken"]
    assert scene.series('gpuscape_source_up{source="broken"}')[0].endswith(" 0.0")
