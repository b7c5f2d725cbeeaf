# SPDX-License-Identifier: Apache-2.0
"""What the agent's ticks log, count and hand on; what goes on after a reload."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.extra_readings import ExtraReadings
from agent.gpu_errors.kernel_records import SxidSeen
from agent.publish import NodeDecision
from base.errors import Permanent, Transient
from discovery.driver_errors import DriverAbsent, DriverMismatch, ReaderGone, ReaderStuck, Released
from discovery.gpu_part import GpuPart
from discovery.model import Driver, Gap, GpuState, NodeSnapshot, Reason
from discovery.reader.protocol import EventsLost, XidSeen
from discovery.sample import GpuSample, ReadingGroup
from exporters.dcgm.series_labels import SeriesIdentity
from exporters.device_user_names import NO_POD_USES, ContainerUser, JobIds, PodUse, PodUses
from exporters.gpuscape.node_view import GpuAllocation
from exporters.gpuscape.process_use import ProcessUse
from exporters.gpuscape.switch_errors import Severity
from tests import build
from tests.agent.agent_scene import DRIVER, GPUS, WELL, Scene
from tests.log_lines import LogLine, log_lines


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, {})


def _broken(_: NodeDecision) -> None:
    raise Permanent("features.d does not exist")


@pytest.fixture
def broken_sink() -> Callable[[Path], Scene]:
    return lambda root: Scene(root, {"broken": _broken})


def _lines(caplog: pytest.LogCaptureFixture, message: str) -> list[LogLine]:
    return [line for line in log_lines(caplog) if line[1] == message]


def test_each_cycle_has_one_line_with_what_was_found_and_decided(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    scene.source.gpus = (*GPUS, build.gpu(2, state=GpuState.LOST))
    scene.source.while_discovering = lambda: setattr(scene, "now", scene.now + 1.23456)
    scene.discover()
    labels = len(scene.labels)
    scene.source.gpus = GPUS
    scene.source.failing = DriverAbsent("no driver")
    scene.discover()
    scene.latest.snapshot = None
    scene.source.failing = None
    scene.source.gpus = ()
    scene.discover()
    fields = [it for _, _, it in _lines(caplog, "discovery cycle finished")]
    assert fields[0] == {
        "gpus": "present:2,lost:1",
        "driver": "550.1.2",
        "label_changes": labels,
        "seconds": 1.235,
    }
    assert (fields[1]["gpus"], fields[1]["driver"]) == ("unreadable:3", "no driver")
    assert fields[2]["gpus"] == "none"
    assert {level for level, _, _ in _lines(caplog, "discovery cycle finished")} == {"INFO"}


def test_what_a_cycle_took_decided_and_reached_is_in_the_metrics(
    broken_sink: Callable[[Path], Scene], tmp_path: Path
) -> None:
    scene = broken_sink(tmp_path)
    scene.source.while_discovering = lambda: setattr(scene, "now", scene.now + 2.0)
    scene.discover()
    scene.source.while_sampling = lambda: setattr(scene, "now", scene.now + 3.0)
    scene.sample()
    assert scene.series("gpuscape_cycle_duration_seconds_sum{") == [
        'gpuscape_cycle_duration_seconds_sum{cycle="discover"} 2.0',
        'gpuscape_cycle_duration_seconds_sum{cycle="sample"} 3.0',
    ]
    assert scene.series("gpuscape_label_changes_total") == [
        f"gpuscape_label_changes_total {float(len(scene.labels))}"
    ]
    for source, up in (("nvml", 1.0), ("labels", 1.0), ("broken", 0.0)):
        assert scene.series(f'gpuscape_source_up{{source="{source}"}} {up}')
    answered = scene.series("gpuscape_last_success_timestamp_seconds{")
    assert [it.partition(" ")[0].partition("=")[2] for it in answered] == [
        '"nvml"}',
        '"labels"}',
    ]
    assert {float(it.rpartition(" ")[2]) for it in answered} == {1_700_000_000.0}


def test_a_labeler_that_fails_is_counted_by_its_name(scene: Scene) -> None:
    wrong: Any = (12,)
    scene.source.driver = replace(DRIVER, cuda_version=wrong)
    scene.discover()
    assert scene.series("gpuscape_labeler_failures_total{") == [
        'gpuscape_labeler_failures_total{labeler="driver"} 1.0'
    ]


def test_gpus_that_do_not_answer_and_their_return_have_a_line_each(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for state in (None, GpuState.LOST, GpuState.LOST, GpuState.HUNG, None, None):
        scene.source.gpus = GPUS if state is None else (GPUS[0], build.gpu(1, state=state))
        scene.discover()
    lines = [line for line in log_lines(caplog) if "respond" in line[1]]
    assert lines == [
        ("WARNING", "GPUs not responding", {"gpus": f"{GPUS[1].bus_id} lost"}),
        ("WARNING", "GPUs not responding", {"gpus": f"{GPUS[1].bus_id} hung"}),
        ("INFO", "all GPUs responding", {}),
    ]


@pytest.mark.parametrize("closed", [True, False])
def test_a_release_is_logged_and_shown_until_it_ends(
    scene: Scene, closed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    scene.source.closes = closed
    scene.agent.release()
    assert log_lines(caplog) == [("INFO", "NVML handles released", {"all_closed": closed})]
    assert scene.series("gpuscape_released") == ["gpuscape_released 1.0"]
    scene.agent.resume()
    assert scene.series("gpuscape_released") == ["gpuscape_released 0.0"]


def test_errors_have_a_line_with_where_they_happened_and_their_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    switch = SxidSeen(bus_id="0000:c5:00.0", code=12028, severity=Severity.NON_FATAL)
    scene = Scene(tmp_path, {}, ExtraReadings(kernel_log=lambda _now: (switch,)))
    scene.source.events_due = [XidSeen(bus_id=GPUS[0].bus_id, code=79), EventsLost(text="full")]
    scene.agent.watch(scene.now)
    assert log_lines(caplog) == [
        ("WARNING", "SXid error", {"switch": "0000:c5:00.0", "sxid": 12028}),
        ("WARNING", "XID error", {"gpu": GPUS[0].bus_id, "xid": 79}),
        ("WARNING", "XID events incomplete", {"reason": "full"}),
    ]


def test_what_the_reader_waits_for_is_in_the_log(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    scene.source.state = replace(WELL, initialising=GPUS[0].bus_id)
    scene.agent.watch(scene.now)
    fields = {"what": GPUS[0].bus_id}
    assert log_lines(caplog) == [("INFO", "device reader initialising", fields)]


# how the reader fares


def test_stuck_readers_and_quarantined_gpus_are_shown(scene: Scene) -> None:
    for stuck, held in ((0, 0), (1, 1), (2, 2), (0, 0)):
        quarantined = tuple(gpu.bus_id for gpu in GPUS[:held])
        scene.source.state = replace(WELL, stuck=stuck, quarantined=quarantined)
        scene.agent.watch(scene.now)
        assert scene.series("gpuscape_reader_stuck") == [f"gpuscape_reader_stuck {float(stuck)}"]
        assert scene.series("gpuscape_quarantined_gpus") == [
            f"gpuscape_quarantined_gpus {float(held)}"
        ]


def test_a_reload_counts_no_start_and_no_loss_again(scene: Scene, tmp_path: Path) -> None:
    """The agent of other settings goes on, with the same reader and the same metrics."""
    scene.source.state = replace(WELL, starts=4, event_losses=3)
    scene.source.failing = DriverAbsent("gone")
    scene.discover()
    scene.agent.watch(scene.now)
    after = Scene(tmp_path, {})
    after.source.state = scene.source.state
    after.agent.go_on_from(scene.agent)
    after.agent.watch(after.now)
    assert scene.series("gpuscape_reader_restarts_total") == ["gpuscape_reader_restarts_total 3.0"]
    assert after.series("gpuscape_reader_restarts_total") == ["gpuscape_reader_restarts_total 0.0"]
    losses = 'gpuscape_gpu_event_losses_total{source="nvml"}'
    assert scene.series(losses) == [f"{losses} 3.0"]
    assert after.series(losses) == [f"{losses} 0.0"]
    assert after.agent.ready
    after.now += 60.0
    assert after.agent.needs_new_library
    after.source.failing = DriverAbsent("gone")
    assert after.discover() == 10.0  # the second failure in a row


def test_silent_gpus_that_were_logged_before_a_reload_are_not_logged_again(
    scene: Scene, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    after = Scene(tmp_path, {})
    for it in (scene, after):
        it.source.gpus = (GPUS[0], build.gpu(1, state=GpuState.LOST))
    scene.discover()
    after.agent.go_on_from(scene.agent)
    after.discover()
    assert len(_lines(caplog, "GPUs not responding")) == 1


# readings


def test_other_readings_are_made_from_the_next_sample_on_which_comes_at_once(
    tmp_path: Path,
) -> None:
    jobs: JobIds = {GpuPart(GPUS[1].bus_id): ("job-7",)}
    extra = ExtraReadings(groups=(ReadingGroup.ECC,), jobs=lambda _snapshot: jobs)
    scene = Scene(tmp_path, {}, extra)
    scene.discover()
    scene.sample()
    scene.hastened.clear()
    scene.agent.read_groups((ReadingGroup.FAN,))
    assert scene.hastened == ["sample"]
    scene.sample()
    assert scene.source.groups == (ReadingGroup.FAN,)
    assert any('hpc_job="job-7"' in it for it in scene.series("DCGM_FI_DEV_GPU_TEMP{"))


def test_pods_processes_and_jobs_are_found_from_the_samples_and_the_snapshot_shown(
    tmp_path: Path,
) -> None:
    asked: list[object] = []

    def processes(samples: Iterable[GpuSample]) -> tuple[ProcessUse, ...]:
        asked.append([sample.bus_id for sample in samples])
        return ()

    def of_pods(samples: Iterable[GpuSample]) -> PodUses:
        asked.append([sample.bus_id for sample in samples])
        return NO_POD_USES

    def jobs(snapshot: NodeSnapshot) -> JobIds:
        asked.append([gpu.bus_id for gpu in snapshot.gpus])
        return {}

    scene = Scene(tmp_path, {}, ExtraReadings(processes=processes, of_pods=of_pods, jobs=jobs))
    scene.discover()
    scene.sample()
    assert asked == [[gpu.bus_id for gpu in GPUS]] * 3


def test_what_pods_use_of_a_gpu_that_they_share_is_on_their_series(tmp_path: Path) -> None:
    whole = GpuPart(GPUS[0].bus_id)
    users = tuple(
        ContainerUser(namespace="team", pod=uid, container="main", uid=uid, share=uid[-1])
        for uid in ("pod-0", "pod-1")
    )
    uses: PodUses = {
        GPUS[0].bus_id: {
            (None, user.uid or ""): PodUse(memory_bytes=(at + 1) << 30)
            for at, user in enumerate(users)
        }
    }
    identity = SeriesIdentity(hostname="node-a", shares=True)
    scene = Scene(tmp_path, {}, ExtraReadings(of_pods=lambda _samples: uses), identity)
    scene.discover()
    scene.latest.show_allocation(GpuAllocation(users={whole: users}))
    scene.sample()
    used = {
        pod: line.rpartition(" ")[2]
        for line in scene.series("DCGM_FI_DEV_FB_USED{")
        for pod in ("pod-0", "pod-1")
        if f'pod="{pod}"' in line
    }
    assert used == {"pod-0": "1024", "pod-1": "2048"}


def test_a_sample_that_fails_drops_the_readings_and_has_the_node_read_now(scene: Scene) -> None:
    scene.discover()
    scene.sample()
    scene.hastened.clear()
    scene.source.failing = ReaderGone("ended")
    assert scene.sample() == 10.0
    assert scene.series("DCGM_FI_DEV_GPU_TEMP{") == []
    assert scene.hastened == ["discover"]


def test_a_sample_that_a_release_ends_hastens_nothing(scene: Scene) -> None:
    scene.discover()
    scene.hastened.clear()
    scene.source.failing = Released("asked for")
    scene.sample()
    assert scene.hastened == []


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (ReaderStuck("no answer within 5 s"), GpuState.HUNG, Reason.HUNG),
        (DriverAbsent("no driver"), GpuState.UNREADABLE, Reason.ABSENT),
        (DriverMismatch("other version"), GpuState.UNREADABLE, Reason.ABSENT),
        (ReaderGone("ended 4 times"), GpuState.UNREADABLE, Reason.FAILED),
    ],
)
def test_gpus_known_before_are_shown_with_the_reason_why_none_answers(
    scene: Scene, error: Transient, state: GpuState, reason: Reason
) -> None:
    scene.discover()
    scene.source.failing = error
    scene.discover()
    gap = Gap(what="state", reason=reason, source="device reader", detail=str(error))
    assert scene.latest.snapshot is not None
    found = [(gpu.state, gpu.gaps[0]) for gpu in scene.latest.snapshot.gpus]
    assert found == [(state, gap)] * 2
    assert scene.latest.snapshot.driver == Driver(gaps=(replace(gap, what="version"),))


def test_of_a_driver_that_hangs_on_one_gpu_that_one_is_hung_and_the_others_unreadable(
    scene: Scene,
) -> None:
    scene.discover()
    scene.source.failing = ReaderStuck("hangs")
    scene.source.state = replace(WELL, quarantined=(GPUS[1].bus_id,))
    scene.discover()
    assert scene.states() == [GpuState.UNREADABLE, GpuState.HUNG]


def test_a_gpu_shown_as_hung_before_the_others_are_read_says_why_and_keeps_its_age(
    scene: Scene,
) -> None:
    scene.discover()
    scene.now += 7.0
    scene.source.state = replace(WELL, quarantined=(GPUS[1].bus_id,))
    scene.agent.watch(scene.now)
    gap = Gap(what="state", reason=Reason.HUNG, source="device reader", detail="quarantined")
    assert scene.latest.snapshot is not None
    well, hung = scene.latest.snapshot.gpus
    assert hung.gaps == (gap,)
    assert gap not in well.gaps
    (age,) = scene.series("gpuscape_snapshot_age_seconds ")
    assert age.endswith(" 7.0")


def test_the_ticks_come_back_at_their_times(scene: Scene) -> None:
    assert scene.sample() == 10.0  # with nothing to sample yet
    assert scene.agent.watch(scene.now) == 5.0
    assert scene.agent.probe(scene.now) == 60.0
    assert scene.agent.ticks.keys() == {"discover", "sample", "watch", "probe"}


def test_failures_never_wait_longer_than_the_interval(scene: Scene) -> None:
    scene.source.failing = DriverAbsent("gone")
    waits = [scene.discover() for _ in range(6)]
    assert waits == [5.0, 10.0, 20.0, 30.0, 30.0, 30.0]
    scene.source.failing = None
    scene.discover()
    scene.source.failing = DriverAbsent("gone")
    assert scene.discover() == 5.0
