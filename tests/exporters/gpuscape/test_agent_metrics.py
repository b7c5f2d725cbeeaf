# SPDX-License-Identifier: Apache-2.0
"""The agent's metrics about itself: values in, series out, and names as promtool wants them."""

from __future__ import annotations

import re

import pytest

from api.mig_status_annotation import MigPhase
from discovery.model import Driver, Gap, GpuState, Host, NodeSnapshot, Reason, Xid
from exporters.desired_layout_metrics import DesiredLayoutState
from exporters.gpuscape.agent_metrics import AgentMetrics, ProgramUse
from exporters.gpuscape.core_families import ServedFamilies
from tests import build, exposition, promlint


def own(now: float = 0.0) -> AgentMetrics:
    return AgentMetrics("1.2.3", clock=lambda: now)


def value(metrics: AgentMetrics, name: str, **labels: str) -> float:
    body = metrics.render() + metrics.render_now()
    return exposition.series(body)[name, tuple(sorted(labels.items()))]


def told_everything() -> bytes:
    """An exposition with a series in every family."""
    metrics = own()
    metrics.snapshot_taken(build.node([build.gpu(xids=(Xid(code=79, count=1),))]), taken_at=0)
    metrics.source_answered("nvml", 1.0)
    metrics.source_failed("sysfs")
    metrics.reader_restarted()
    metrics.readers_stuck(8)
    metrics.gpus_quarantined(1)
    metrics.cycle_done("sample", 0.2)
    metrics.labels_changed(3)
    metrics.labeler_failed("hardware")
    metrics.is_released(True)
    metrics.confined("agent-node", True)
    metrics.holds_lease("gpuscape-node-a", True)
    metrics.wrote("Node")
    metrics.left_alone("Node", 2)
    metrics.keys_refused("Node", 3)
    metrics.samples_taken(0.0)
    metrics.counters_skipped(1)
    metrics.unknown_devices("pod-resources", 1)
    metrics.programs_use({"agent": ProgramUse(cpu_seconds=1.5, resident_bytes=1 << 20)})
    metrics.set_desired_layout(
        DesiredLayoutState(phase=MigPhase.WAITING, since_seconds=1.0, enforced=True)
    )
    metrics.serving.scraped(0.002)
    metrics.serving.refused("credentials")
    return metrics.render() + metrics.render_now()


def test_all_promised_metrics_are_there_and_no_others() -> None:
    assert set(exposition.parse(told_everything())) == {
        "gpuscape_build_info",
        "gpuscape_gpus",
        "gpuscape_gpus_counted",
        "gpuscape_gaps",
        "gpuscape_snapshot_age_seconds",
        "gpuscape_source_up",
        "gpuscape_last_success_timestamp_seconds",
        "gpuscape_reader_restarts_total",
        "gpuscape_reader_replacements_total",
        "gpuscape_log_lines_dropped_total",
        "gpuscape_reader_stuck",
        "gpuscape_reader_initialising",
        "gpuscape_quarantined_gpus",
        "gpuscape_cycle_duration_seconds",
        "gpuscape_label_changes_total",
        "gpuscape_labeler_failures_total",
        "gpuscape_xid_errors_total",
        "gpuscape_xid_last_timestamp_seconds",
        "gpuscape_released",
        "gpuscape_confinement_enforced",
        "gpuscape_lease_held",
        "gpuscape_api_writes_total",
        "gpuscape_keys_left_alone",
        "gpuscape_keys_refused",
        "gpuscape_samples_age_seconds",
        "gpuscape_tick_stalled_seconds",
        "gpuscape_counters_skipped",
        "gpuscape_unknown_devices",
        "gpuscape_program_cpu_seconds_total",
        "gpuscape_program_resident_memory_bytes",
        "gpuscape_scrape_duration_seconds",
        "gpuscape_http_refusals_total",
        "gpuscape_internal_errors_total",
        "gpuscape_events_dropped_total",
        "gpuscape_gpu_event_losses_total",
        "gpuscape_mig_phase",
        "gpuscape_mig_phase_timestamp_seconds",
        "gpuscape_mig_requests_ended_total",
        "gpuscape_mig_retries_total",
    }


@pytest.mark.parametrize(
    "family", exposition.parse(told_everything()).values(), ids=lambda f: f.name
)
def test_a_name_follows_prometheus_conventions(family: exposition.Family) -> None:
    assert promlint.problems(family) == []


def test_gpus_are_counted_by_state_and_zero_means_none() -> None:
    metrics = own()
    gpus = [build.gpu(0), build.gpu(1), build.gpu(2, state=GpuState.LOST)]

    metrics.snapshot_taken(build.node(gpus), taken_at=0)

    lasting = [state for state in GpuState if state is not GpuState.INITIALISING]
    assert [value(metrics, "gpuscape_gpus", state=state) for state in lasting] == [2, 1, 0, 0]


def test_gpus_that_initialise_are_counted_while_there_are_some() -> None:
    metrics, initialising = own(), {"state": GpuState.INITIALISING}
    metrics.snapshot_taken(build.node([build.silent(0, GpuState.INITIALISING)]), taken_at=0)
    assert value(metrics, "gpuscape_gpus", **initialising) == 1
    metrics.snapshot_taken(build.node([build.gpu(0)]), taken_at=0)
    with pytest.raises(KeyError):
        value(metrics, "gpuscape_gpus", **initialising)


def test_replacements_and_dropped_lines_are_counted_once_each() -> None:
    metrics = own()
    for reason in ("memory", "memory", "age"):
        metrics.reader_replaced(reason)
    for total in (3, 3, 7):
        metrics.log_lines_dropped(total)
    found = {
        reason: value(metrics, "gpuscape_reader_replacements_total", reason=reason)
        for reason in ("memory", "descriptors", "age")
    }
    assert found == {"memory": 2, "descriptors": 0, "age": 1}
    assert value(metrics, "gpuscape_log_lines_dropped_total") == 7


def test_gaps_of_host_driver_and_gpus_are_counted_by_reason() -> None:
    metrics = own()
    gap = Gap(what="x", reason=Reason.LOST, source="y")
    snapshot = NodeSnapshot(
        host=Host(name="a", gaps=(gap,)),
        driver=Driver(gaps=(gap,)),
        gpus=(build.gpu(gaps=(gap, Gap(what="x", reason=Reason.HUNG, source="y"))),),
    )

    metrics.snapshot_taken(snapshot, taken_at=0)

    counts = [
        value(metrics, "gpuscape_gaps", reason=reason) for reason in ("lost", "hung", "absent")
    ]
    assert counts == [3, 1, 0]


def test_xid_errors_are_summed_over_the_instances_of_a_gpu() -> None:
    metrics = own()
    xids = (
        Xid(code=94, count=2, gpu_instance_id=1, last_seen_seconds=20),
        Xid(code=94, count=3, gpu_instance_id=2, last_seen_seconds=10),
        Xid(code=31, count=1, last_seen_seconds=5),
    )
    gpu = build.gpu(xids=xids, uuid="GPU-a")

    metrics.snapshot_taken(build.node([gpu]), taken_at=0)

    at = {"uuid": "GPU-a", "pci_bus_id": gpu.bus_id}
    assert value(metrics, "gpuscape_xid_errors_total", **at, xid="94") == 5
    assert value(metrics, "gpuscape_xid_errors_total", **at, xid="31") == 1
    assert value(metrics, "gpuscape_xid_last_timestamp_seconds", **at, xid="94") == 20


def test_the_age_grows_with_the_clock_while_nothing_is_published() -> None:
    now = 100.0
    metrics = AgentMetrics("1", clock=lambda: now)
    metrics.snapshot_taken(build.node(), taken_at=90.0)
    earlier = value(metrics, "gpuscape_snapshot_age_seconds")

    now = 160.0

    assert (earlier, value(metrics, "gpuscape_snapshot_age_seconds")) == (10, 70)


def test_readings_have_an_age_of_their_own_which_ends_when_they_are_dropped() -> None:
    metrics = own(now=100.0)
    metrics.samples_taken(40.0)
    told = value(metrics, "gpuscape_samples_age_seconds")

    metrics.samples_taken(None)

    assert told == 60
    assert "gpuscape_samples_age_seconds" not in exposition.parse(metrics.render_now())


def test_what_each_program_takes_is_told_until_it_ends() -> None:
    metrics = own()
    agent = ProgramUse(cpu_seconds=12.5, resident_bytes=50 << 20)
    reader = ProgramUse(cpu_seconds=3.0, resident_bytes=20 << 20)
    metrics.programs_use({"agent": agent, "reader": reader})
    both = exposition.parse(metrics.render())

    metrics.programs_use({"agent": agent})

    assert len(both["gpuscape_program_cpu_seconds_total"].series) == 2
    assert value(metrics, "gpuscape_program_cpu_seconds_total", program="agent") == 12.5
    assert value(metrics, "gpuscape_program_resident_memory_bytes", program="agent") == 50 << 20
    left = exposition.parse(metrics.render())["gpuscape_program_cpu_seconds_total"].series
    assert len(left) == 1


def test_skipped_rows_and_unknown_devices_come_out_as_told() -> None:
    metrics = own()
    metrics.counters_skipped(3)
    metrics.unknown_devices("pod-resources", 2)

    assert value(metrics, "gpuscape_counters_skipped") == 3
    assert value(metrics, "gpuscape_unknown_devices", source="pod-resources") == 2


def test_before_the_first_snapshot_there_is_neither_age_nor_gpu() -> None:
    metrics = own()

    ages = {name for name in exposition.parse(metrics.render_now()) if "age_seconds" in name}
    assert ages == set()
    assert "gpuscape_gpus" not in exposition.parse(metrics.render())


def test_scrapes_and_refusals_are_in_the_next_scrape_without_a_publication() -> None:
    metrics = own()
    metrics.serving.expect(["name", "credentials"])
    published = metrics.render()
    metrics.serving.scraped(0.25)
    metrics.serving.scraped(0.5)
    metrics.serving.refused("name")

    now = exposition.series(metrics.render_now())
    assert now["gpuscape_scrape_duration_seconds_count", ()] == 2
    assert now["gpuscape_scrape_duration_seconds_sum", ()] == 0.75
    assert now["gpuscape_http_refusals_total", (("reason", "name"),)] == 1
    assert now["gpuscape_http_refusals_total", (("reason", "credentials"),)] == 0
    assert metrics.render() == published


def test_a_source_that_fails_keeps_the_time_of_its_last_answer() -> None:
    metrics = own()
    metrics.source_answered("nvml", 1700000000.5)

    metrics.source_failed("nvml")

    assert value(metrics, "gpuscape_source_up", source="nvml") == 0
    last = value(metrics, "gpuscape_last_success_timestamp_seconds", source="nvml")
    assert last == 1700000000.5


def test_counts_and_states_come_out_as_told() -> None:
    metrics = own()
    metrics.reader_restarted()
    metrics.reader_restarted()
    metrics.readers_stuck(8)
    metrics.gpus_quarantined(3)
    metrics.labels_changed(7)
    metrics.labeler_failed("health")
    metrics.cycle_done("discover", 0.25)

    assert value(metrics, "gpuscape_reader_restarts_total") == 2
    assert value(metrics, "gpuscape_reader_stuck") == 8
    assert value(metrics, "gpuscape_quarantined_gpus") == 3
    assert value(metrics, "gpuscape_label_changes_total") == 7
    assert value(metrics, "gpuscape_labeler_failures_total", labeler="health") == 1
    assert value(metrics, "gpuscape_cycle_duration_seconds_sum", cycle="discover") == 0.25


def test_what_is_told_of_the_cluster_comes_out_by_policy_lease_and_object() -> None:
    metrics = own()
    metrics.confined("gpuscape-agent-node", True)
    metrics.confined("gpuscape-agent-lease", False)
    metrics.holds_lease("gpuscape-a", True)
    metrics.wrote("Node")
    metrics.left_alone("Node", 2)
    metrics.keys_refused("NodeFeature", 3)
    metrics.is_released(True)

    assert value(metrics, "gpuscape_confinement_enforced", policy="gpuscape-agent-node") == 1
    assert value(metrics, "gpuscape_confinement_enforced", policy="gpuscape-agent-lease") == 0
    assert value(metrics, "gpuscape_lease_held", lease="gpuscape-a") == 1
    assert value(metrics, "gpuscape_api_writes_total", object="Node") == 1
    assert value(metrics, "gpuscape_keys_left_alone", object="Node") == 2
    assert value(metrics, "gpuscape_keys_refused", object="NodeFeature") == 3
    assert value(metrics, "gpuscape_released") == 1


def test_without_a_cluster_nothing_is_said_of_one() -> None:
    assert not re.search(r"gpuscape_(confinement|lease|api|keys)_\S*{", own().render().decode())


def test_text_that_utf8_cannot_say_does_not_stop_the_exposition() -> None:
    metrics = own()
    gpu = build.gpu(uuid="GPU-\udcff", xids=(Xid(code=13, count=1),))

    metrics.snapshot_taken(build.node([gpu]), taken_at=0)

    at = {"uuid": "GPU-?", "pci_bus_id": gpu.bus_id}
    assert value(metrics, "gpuscape_xid_errors_total", **at, xid="13") == 1


WISH = DesiredLayoutState(
    phase=MigPhase.FAILED,
    since_seconds=1_700_000_000.0,
    ends={"applied": 3, "rolled-back": 2},
    retries={"rolled-back": 1},
    enforced=True,
)


def mig_series(metrics: AgentMetrics) -> dict[str, float]:
    """By name, with the label's value behind it."""
    return {
        "/".join((name, *(value for _, value in labels))): number
        for (name, labels), number in exposition.series(metrics.render()).items()
        if name.startswith("gpuscape_mig_")
    }


def test_a_mig_wish_is_shown_with_its_phase_and_what_came_of_it() -> None:
    metrics = own()

    metrics.set_desired_layout(WISH)

    found = mig_series(metrics)
    assert {name for name, number in found.items() if "phase/" in name and number} == {
        "gpuscape_mig_phase/failed"
    }
    assert found["gpuscape_mig_phase/waiting"] == 0
    assert found["gpuscape_mig_phase_timestamp_seconds"] == 1_700_000_000
    assert found["gpuscape_mig_requests_ended_total/applied"] == 3
    assert found["gpuscape_mig_requests_ended_total/stuck"] == 0
    assert found["gpuscape_mig_retries_total/rolled-back"] == 1


def test_of_a_wish_that_nobody_carries_out_there_are_no_requests() -> None:
    metrics = own()

    metrics.set_desired_layout(DesiredLayoutState(phase=MigPhase.PLANNED, since_seconds=1.0))

    assert mig_series(metrics)["gpuscape_mig_phase/planned"] == 1
    assert not any("requests" in name or "retries" in name for name in mig_series(metrics))


def test_where_no_mig_layout_is_asked_for_nothing_is_said_of_one() -> None:
    metrics = own()
    assert mig_series(metrics) == {}

    metrics.set_desired_layout(WISH)
    metrics.set_desired_layout(None)
    assert mig_series(metrics) == {}

    metrics.set_desired_layout(WISH)
    metrics.settings_changed()
    assert mig_series(metrics) == {}


def test_the_core_has_the_present_phase_alone_and_no_retries_that_were_not() -> None:
    metrics = AgentMetrics("1", lambda: 0.0, ServedFamilies.CORE)

    metrics.set_desired_layout(WISH)

    assert {name for name in mig_series(metrics) if "phase/" in name or "retries" in name} == {
        "gpuscape_mig_phase/failed",
        "gpuscape_mig_retries_total/rolled-back",
    }
