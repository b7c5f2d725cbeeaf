# SPDX-License-Identifier: Apache-2.0
"""What is served as news of different kinds come."""

from __future__ import annotations

import threading

import pytest

from agent.metrics.latest_metrics import LatestMetrics
from discovery.gpu_part import GpuPart
from exporters.dcgm.counters_format import read_counters
from exporters.dcgm.render import Renderer
from exporters.dcgm.series_labels import SeriesIdentity
from exporters.device_user_names import ContainerUser
from exporters.gpuscape.agent_metrics import AgentMetrics
from exporters.gpuscape.node_view import GpuAllocation
from exporters.gpuscape.process_use import ProcessUse
from exporters.gpuscape.switch_errors import Severity, Sxid
from tests import build

OLDEST_SECONDS = 30.0
GPUS = (build.gpu(0), build.gpu(1))
HELD = GpuAllocation(
    users={
        GpuPart(GPUS[0].bus_id): (ContainerUser(namespace="jobs", pod="train", container="main"),)
    }
)


class Served:
    """A Latest with two GPUs that were sampled at second 100."""

    def __init__(self) -> None:
        self.now = 100.0
        own = AgentMetrics("0", lambda: self.now)
        self.latest = LatestMetrics(
            SeriesIdentity(hostname="node-a"),
            own,
            oldest_seconds=OLDEST_SECONDS,
            clock=lambda: self.now,
        )
        self.latest.show_snapshot(build.node(GPUS), self.now)
        self.latest.show_samples(tuple(build.sample(gpu, at_seconds=100.0) for gpu in GPUS))

    def series(self, family: str) -> list[str]:
        response = self.latest.metrics()
        text = (response.body.plain + response.tail).decode()
        return [line for line in text.splitlines() if line.startswith((family + "{", family + " "))]


@pytest.fixture
def served() -> Served:
    return Served()


def test_who_holds_a_gpu_stands_on_its_series_and_in_families_of_its_own(served: Served) -> None:
    served.latest.show_allocation(HELD)
    held, free = served.series("DCGM_FI_DEV_GPU_TEMP")
    assert 'namespace="jobs",pod="train"' in held
    assert "pod=" not in free
    assert [line[-1] for line in served.series("gpuscape_gpu_allocated")] == ["1", "0"]


def test_where_nobody_tells_who_holds_what_nothing_is_said_of_it(served: Served) -> None:
    served.latest.show_allocation(HELD)
    served.latest.show_allocation(None)
    assert not [line for line in served.series("DCGM_FI_DEV_GPU_TEMP") if "pod=" in line]
    assert served.series("gpuscape_gpu_allocated") == []


def test_the_same_holders_again_change_nothing(served: Served) -> None:
    served.latest.show_allocation(HELD)
    before = served.latest.metrics().body
    served.latest.show_allocation(HELD)
    assert served.latest.metrics().body is before


def test_what_the_agent_says_of_itself_is_rendered_by_the_first_scrape_after_it_changed(
    served: Served,
) -> None:
    served.latest.refresh(lambda own: own.reader_restarted())
    served.latest.refresh(lambda own: own.reader_restarted())
    assert served.series("gpuscape_reader_restarts_total") == ["gpuscape_reader_restarts_total 2.0"]
    before = served.latest.metrics().body
    assert served.latest.metrics().body is before


def test_the_age_of_the_readings_grows_and_goes_with_them(served: Served) -> None:
    served.now = 107.0
    assert served.series("gpuscape_samples_age_seconds") == ["gpuscape_samples_age_seconds 7.0"]
    served.latest.show_samples(())
    assert served.series("gpuscape_samples_age_seconds") == []


def test_health_of_every_gpu_is_told(served: Served) -> None:
    lost = build.node((GPUS[0], build.silent(1)))
    served.latest.show_snapshot(lost, 101.0)
    unhealthy = [line for line in served.series("gpuscape_gpu_health") if line.endswith(" 1")]
    assert [('health="healthy"' in line, 'health="unhealthy"' in line) for line in unhealthy] == [
        (True, False),
        (False, True),
    ]


def test_readings_too_old_at_a_scrape_are_not_in_it_though_no_thread_dropped_them(
    served: Served,
) -> None:
    served.now = 100.0 + OLDEST_SECONDS
    assert len(served.series("DCGM_FI_DEV_GPU_TEMP")) == 2
    served.now += 0.1
    assert served.series("DCGM_FI_DEV_GPU_TEMP") == []
    assert served.series("gpuscape_samples_age_seconds") == []
    assert len(served.series("gpuscape_gpu_up")) == 2  # the snapshot has an age of its own
    served.latest.show_samples((build.sample(GPUS[0], at_seconds=served.now),))
    assert len(served.series("DCGM_FI_DEV_GPU_TEMP")) == 1


def test_what_processes_had_goes_with_the_readings_it_was_made_with(served: Served) -> None:
    use = ProcessUse(bus_id=GPUS[0].bus_id, pid="4711", memory_bytes=1 << 30)
    samples = tuple(build.sample(gpu, at_seconds=100.0) for gpu in GPUS)
    served.latest.show_samples(samples, processes=(use,))
    assert len(served.series("gpuscape_process_memory_bytes")) == 1
    served.now = 100.1 + OLDEST_SECONDS
    assert served.series("gpuscape_process_memory_bytes") == []


def test_the_oldest_reading_counts(served: Served) -> None:
    """A newer one does not vouch for it: it was made before another GPU hung, for instance."""
    served.now = 120.0
    ages = zip(GPUS, (100.0, 120.0), strict=True)
    served.latest.show_samples(tuple(build.sample(gpu, at_seconds=at) for gpu, at in ages))
    served.now = 131.0
    assert served.series("DCGM_FI_DEV_GPU_TEMP") == []


def test_a_thread_that_renders_for_ever_leaves_what_is_fresh_and_hides_what_is_old(
    served: Served,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hang(_: AgentMetrics) -> None:
        begun.set()
        go_on.wait()

    writer = threading.Thread(target=served.latest.refresh, args=(hang,))
    writer.start()
    begun.wait()
    try:
        assert len(served.series("DCGM_FI_DEV_GPU_TEMP")) == 2
        served.now = 101.0 + OLDEST_SECONDS
        assert served.series("DCGM_FI_DEV_GPU_TEMP") == []
        assert served.series("gpuscape_build_info")
    finally:
        go_on.set()
        writer.join()


def test_the_exposition_of_other_settings_shows_what_was_shown_until_it_is_read_anew(
    served: Served,
) -> None:
    sxid = Sxid(
        bus_id="0000:c5:00.0",
        code=12028,
        severity=Severity.FATAL,
        count=1,
        last_seen_seconds=7.0,
    )
    served.latest.show_allocation(HELD)
    served.latest.show_sxids([sxid])
    after = Served()
    after.latest.show_samples(())
    after.latest.show_snapshot(build.node(()), 0.0)
    assert after.series("gpuscape_gpu_up") == []
    after.latest.go_on_from(served.latest)
    for family in ("gpuscape_gpu_up", "DCGM_FI_DEV_GPU_TEMP", "gpuscape_nvswitch_errors_total"):
        assert after.series(family) == served.series(family) != []
    assert after.latest.snapshot is served.latest.snapshot


def test_other_counters_are_served_at_once_with_the_number_of_lines_left_out(
    served: Served,
) -> None:
    asked = read_counters("DCGM_FI_DEV_SM_CLOCK, gauge, x", "x")
    served.latest.show_counters(Renderer(asked.families, asked.labels), 3)
    assert served.series("DCGM_FI_DEV_GPU_TEMP") == []
    assert len(served.series("DCGM_FI_DEV_SM_CLOCK")) == 2
    assert served.series("gpuscape_counters_skipped") == ["gpuscape_counters_skipped 3.0"]
