# SPDX-License-Identifier: Apache-2.0
"""What the settings say of metrics is how they are served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.gpu_records import GpuRecords
from agent.metrics import metric_settings
from agent.metrics.latest_metrics import LatestMetrics
from agent.settings.agent_settings import AgentSettings
from base.errors import BadInput
from discovery.gpu_part import GpuPart
from discovery.model import Xid
from discovery.sample import ReadingGroup
from exporters.dcgm.counters_format import DEFAULT_COUNTERS, read_counters
from exporters.dcgm.peer.peer_releases import RELEASES
from exporters.dcgm.selection import Level, LevelSelection, Selection
from exporters.dcgm.series_labels import SeriesIdentity
from exporters.device_user_names import ContainerUser, ContainerUsers, PodUse, PodUses
from exporters.gpuscape.agent_metrics import AgentMetrics
from exporters.gpuscape.node_view import GpuAllocation
from exporters.gpuscape.waste import GpuUse
from tests import build
from tests.exporters.dcgm.peer.peer_files import recorded
from tests.log_lines import log_lines

GPU = build.gpu(0, model="NVIDIA A30")
POD = ContainerUser(namespace="team", pod="job", container="main", uid="uid-1", share="0")
OTHER = ContainerUser(namespace="team", pod="other", container="main", uid="uid-2", share="1")
TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"


class Exposed:
    """The exposition of some settings, of one GPU that two pods share."""

    def __init__(self, records: GpuRecords | None = None, **settings: Any) -> None:
        self.now = 100.0
        self.settings = AgentSettings(**settings)
        self.latest: LatestMetrics = metric_settings.latest(
            self.settings,
            "node-a",
            AgentMetrics("0", lambda: self.now),
            metric_settings.configured_counters(self.settings),
            GpuRecords() if records is None else records,
            clock=lambda: self.now,
        )
        users: ContainerUsers = {GpuPart(GPU.bus_id): (POD, OTHER)}
        self.latest.show_allocation(GpuAllocation(users=users))
        self.latest.show_snapshot(build.node([GPU]), self.now)
        uses: PodUses = {
            GPU.bus_id: {(None, "uid-1"): PodUse(memory_bytes=1), (None, "uid-2"): PodUse()}
        }
        self.latest.show_samples((build.sample(GPU, at_seconds=100.0),), of_pods=uses)

    def lines(self, family: str) -> list[str]:
        response = self.latest.metrics()
        text = (response.body.plain + response.tail).decode()
        return [it for it in text.splitlines() if it.startswith((family + "{", family + " "))]

    @property
    def temperature(self) -> str:
        """The labels of the first series of a temperature."""
        return self.lines(TEMPERATURE)[0]


def test_series_have_the_labels_of_dcgm_exporter_by_default() -> None:
    line = Exposed().temperature
    for label in ('gpu="0"', 'hostname="node-a"', 'modelName="NVIDIA A30"', 'pod="'):
        assert label in line
    for label in ("pod_uid", "vgpu", "pod_name"):
        assert label not in line


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"hostname_label": "Hostname"}, 'Hostname="node-a"'),
        ({"old_namespace": True}, 'pod_name="'),
        ({"replace_blanks": True}, 'modelName="NVIDIA-A30"'),
        ({"pod_uid_label": True}, 'pod_uid="uid-'),
    ],
    ids=str,
)
def test_settings_of_labels_are_those_of_the_series(settings: dict[str, Any], label: str) -> None:
    assert label in Exposed(**settings).temperature


@pytest.mark.parametrize("release", RELEASES)
def test_the_release_that_is_named_decides_the_types_of_the_default_families(release: str) -> None:
    """Read by prometheus_client; names and types by the release's own file."""
    settings = AgentSettings(compat_release=release)
    body = metric_settings.renderer(settings, metric_settings.configured_counters(settings)).render(
        build.node([GPU]), [build.sample(GPU)], (), SeriesIdentity(hostname="a")
    )
    own = {name: kind for name, kind, served in recorded(release).counters if served}
    found = {it.name: it.type for it in text_string_to_metric_families(body.decode())}

    assert found.keys() >= {"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"}
    assert found == {name: own[name] for name in found}
    families = metric_settings.configured_counters(settings).families
    assert {it.name: it.kind.value for it in families} == {
        name: kind for name, kind in own.items() if kind != "label"
    }


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({}, 'hostname="node-a"'),
        ({"compat_release": "4.8.3"}, 'hostname="node-a"'),
        ({"compat_release": "4.8.2"}, 'Hostname="node-a"'),
        ({"compat_release": "4.8.2", "hostname_label": "hostname"}, 'hostname="node-a"'),
        ({"compat_release": "4.8.2", "hostname_label": "none"}, 'modelName="NVIDIA A30"'),
    ],
)
def test_the_node_s_name_stands_in_the_label_of_the_release_unless_one_is_set(
    settings: dict[str, Any], label: str
) -> None:
    line = Exposed(**settings).temperature

    assert label in line
    assert line.lower().count("hostname=") == (settings.get("hostname_label") != "none")


def test_pods_that_share_a_gpu_have_a_series_each_where_the_settings_say_so() -> None:
    assert len(Exposed().lines("DCGM_FI_DEV_FB_USED")) == 1
    lines = Exposed(virtual_gpus=True).lines("DCGM_FI_DEV_FB_USED")
    assert ['vgpu="0"' in line for line in lines].count(True) == 1
    assert len(lines) > 1


def test_a_prefix_stands_before_dcgms_families_alone() -> None:
    exposed = Exposed(prefix="own_")
    assert exposed.lines(f"own_{TEMPERATURE}")
    assert exposed.lines(TEMPERATURE) == []
    assert exposed.lines("gpuscape_gpu_up")


def test_selected_devices_alone_have_series() -> None:
    others = LevelSelection(level=Level.GPUS, ids=frozenset({1}))
    assert Exposed(devices=Selection(choices=(others,))).lines(TEMPERATURE) == []


def test_our_own_families_are_those_of_the_settings() -> None:
    found = {
        which: bool(Exposed(own_families=which).lines("gpuscape_gpu_temperature_celsius"))
        for which in ("all", "core", "none")
    }
    assert found == {"all": True, "core": False, "none": False}
    assert Exposed(own_families="core").lines("gpuscape_gpu_up")
    assert Exposed(own_families="none").lines("gpuscape_gpu_up") == []


def test_readings_are_served_for_three_sampling_intervals() -> None:
    exposed = Exposed(sample_interval_seconds=2.0)
    exposed.now = 106.0
    assert exposed.lines(TEMPERATURE)
    exposed.now = 106.1
    assert exposed.lines(TEMPERATURE) == []


def test_windows_have_the_lengths_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "counters.csv"
    file.write_text("DCGM_EXP_XID_ERRORS_COUNT, gauge, x\nDCGM_EXP_CLOCK_EVENTS_COUNT, gauge, x\n")
    exposed = Exposed(counters=file, xid_window_seconds=60.0, clock_events_window_seconds=30.0)
    xid = Xid(code=79, count=1, last_seen_seconds=0.0)
    exposed.latest.show_snapshot(build.node([build.gpu(0, xids=(xid,))]), 100.0)
    capped = build.sample(GPU, at_seconds=100.0, clock_event_reasons=4)
    exposed.latest.show_samples((capped,))
    assert 'window_size_in_ms="60000"' in exposed.lines("DCGM_EXP_XID_ERRORS_COUNT")[0]
    assert 'window_size_in_ms="30000"' in exposed.lines("DCGM_EXP_CLOCK_EVENTS_COUNT")[0]


def test_what_was_counted_before_goes_on() -> None:
    records = GpuRecords()
    user = frozenset({("team", "alice", "main")})
    for at in (0.0, 60.0):
        use = GpuUse(entity=GpuPart(GPU.bus_id), at_seconds=at, held_by=user, busy_ratio=0.0)
        records.waste.add([use])
    (line,) = Exposed(records, own_families="all").lines("gpuscape_allocated_seconds_total")
    assert float(line.rpartition(" ")[2]) >= 60.0


def test_lines_of_counters_that_are_not_served_are_logged_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "counters.csv"
    file.write_text(f"{TEMPERATURE}, gauge, x\nnonsense\nDCGM_FI_NONE, gauge, x\n")
    exposed = Exposed(counters=file)
    assert exposed.lines("gpuscape_counters_skipped") == ["gpuscape_counters_skipped 2.0"]
    assert exposed.lines(TEMPERATURE)
    found = log_lines(caplog)
    assert [(level, message) for level, message, _ in found] == [
        ("WARNING", "counter not served")
    ] * 2
    assert [fields["why"].partition(": ")[0] for _, _, fields in found] == [
        f"{file}, line 2",
        f"{file}, line 3",
    ]


def test_the_file_wins_over_the_default(tmp_path: Path) -> None:
    file = tmp_path / "counters.csv"
    settings = AgentSettings(counters=file)
    with pytest.raises(BadInput, match=str(file)):
        metric_settings.configured_counters(settings)
    file.write_text(f"{TEMPERATURE}, gauge, x\n")
    assert [it.name for it in metric_settings.configured_counters(settings).families] == [
        TEMPERATURE
    ]
    assert metric_settings.configured_counters(AgentSettings()) is DEFAULT_COUNTERS


def test_the_groups_read_are_those_of_what_is_served_and_no_dear_ones_for_our_own_families() -> (
    None
):
    fan = read_counters("DCGM_FI_DEV_FAN_SPEED, gauge, x", "x")
    none = AgentSettings(own_families="none")
    assert metric_settings.reading_groups(none, fan) == (ReadingGroup.FAN,)
    found = metric_settings.reading_groups(AgentSettings(own_families="all"), fan)
    assert ReadingGroup.FAN in found
    assert ReadingGroup.ECC in found
    assert not {ReadingGroup.BAR1, ReadingGroup.PROCESSES} & set(found)
    assert list(found) == sorted(found)
