# SPDX-License-Identifier: Apache-2.0
"""What the settings have the agent ask of others, and what it does without."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import parts_from_settings as parts
from agent.cluster.startup_spread import PATIENCE_SECONDS
from agent.extra_readings import NO_EXTRA_READINGS, ExtraReadings
from agent.gpu_errors.kernel_log import KernelLog
from agent.gpu_records import GpuRecords
from agent.metrics import metric_settings
from agent.metrics.latest_metrics import LatestMetrics
from agent.pods.known_pods import KnownPod, KnownPods
from agent.pods.kubelet_pods import ASK_SECONDS
from agent.processes import gpu_processes
from agent.settings.agent_settings import AgentSettings
from agent.stored_records import FORMAT, VERSION, Session, StoredGpu, StoredRecords
from base.defects import Defects
from base.errors import BadInput
from base.followed_file import POLL_SECONDS
from discovery.gpu_part import GpuPart
from discovery.reader.protocol import XidSeen
from discovery.sample import Process, ProcessKind, ReadingGroup
from exporters.dcgm.counters_format import DEFAULT_COUNTERS, read_counters
from exporters.device_user_names import NO_POD_USES, PodUse
from exporters.gpuscape.agent_metrics import AgentMetrics
from exporters.gpuscape.process_use import OfPod
from kube.api import CONFIG_MAPS, PODS, Object
from kube.api_errors import Unreachable
from kube.informer import ObjectSeen
from kubelet.podresources import podresources_pb2 as wire
from labelers.label_settings import PluginConfig
from mig.configs.config_overlap import Overlap
from tests import build
from tests.agent.agent_process import SOON, until
from tests.fakes.api import FakeApi
from tests.kubelet.podresources_server import message, serving
from tests.log_lines import log_lines, whys

GPU = build.gpu(0)
UID = "3f2a9c1d-0b7c-4d55-9d2e-6a1f0c9b8e77"
POD: Object = {
    "metadata": {
        "name": "job",
        "namespace": "default",
        "uid": UID,
        "labels": {"app": "train", "tier": "x"},
    },
    "spec": {"nodeName": "node-a", "containers": [{"name": "main", "image": "none"}]},
}
SHARED = AgentSettings(standalone=True, pods=True, virtual_gpus=True)


@pytest.mark.parametrize(
    ("settings", "read"),
    [
        (SHARED, True),
        (AgentSettings(processes=True), True),
        (AgentSettings(standalone=True, virtual_gpus=True), False),  # no pods are shown
        (AgentSettings(), False),
    ],
)
def test_processes_are_read_where_pods_on_a_gpu_are_told_apart(
    settings: AgentSettings, read: bool
) -> None:
    assert (
        ReadingGroup.PROCESSES in metric_settings.reading_groups(settings, DEFAULT_COUNTERS)
    ) is read


def test_without_a_cluster_pods_that_share_a_gpu_are_not_told_apart_and_the_rest_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    with contextlib.ExitStack() as ending:
        assert parts.cluster_client(SHARED, ending) is None
    ((level, message, fields),) = log_lines(caplog)
    assert (level, message) == ("WARNING", "pods on shared GPUs not distinguished")
    assert fields["why"].endswith(
        ", or leave out what asks a cluster: pod-uid-label, pod-labels, counters-from"
    )


def test_what_cannot_be_shown_without_a_cluster_ends_the_start() -> None:
    settings = AgentSettings(standalone=True, pods=True, virtual_gpus=True, pod_labels=True)
    with contextlib.ExitStack() as ending:
        with pytest.raises(BadInput, match=", or leave out what asks a cluster: "):
            parts.cluster_client(settings, ending)
        with pytest.raises(BadInput, match=r", or run without a cluster: --standalone$"):
            parts.cluster_client(AgentSettings(), ending)
        assert parts.cluster_client(AgentSettings(standalone=True), ending) is None


COUNTERS = {"metrics": "DCGM_FI_DEV_FAN_SPEED, gauge, x\nDCGM_FI_DEV_SM_CLOCK, gauge, x"}


def config_map(server: FakeApi, data: dict[str, str] | None) -> None:
    """Somebody makes the ConfigMap default:counters."""
    meta = {"name": "counters", "namespace": "default"}
    server.create(CONFIG_MAPS, {"metadata": meta, "data": data}, namespace="default")


def names_of(source: parts.CountersSource) -> list[str]:
    return [family.name for family in source.served.families]


@pytest.mark.parametrize("data", [None, {}, {"other": "x"}])
def test_a_config_map_without_counters_is_logged_and_the_file_counts(
    data: dict[str, str] | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "counters.csv"
    file.write_text("DCGM_FI_DEV_SM_CLOCK, gauge, x")
    settings = AgentSettings(counters=file, counters_from="default:counters")
    server = FakeApi()
    config_map(server, data)
    source = parts.counters_source(settings, server)
    assert names_of(source) == ["DCGM_FI_DEV_SM_CLOCK"]
    assert source.file == file
    why = {"why": "it has no key metrics"}
    assert log_lines(caplog) == [("WARNING", "counters ConfigMap not read", why)]
    caplog.clear()
    server.fail("get", Unreachable("no route"), times=1)
    assert parts.counters_source(settings, server).served == source.served
    assert whys(caplog, "counters ConfigMap not read") == ["no route"]


def test_a_config_map_that_cannot_be_read_any_more_leaves_what_was_read() -> None:
    """Where it never could be, the default holds."""
    settings = AgentSettings(standalone=True, counters_from="default:counters")
    server = FakeApi()
    assert parts.counters_source(settings, server).served == DEFAULT_COUNTERS
    config_map(server, COUNTERS)
    read = parts.counters_source(settings, server)
    assert names_of(read) == ["DCGM_FI_DEV_FAN_SPEED", "DCGM_FI_DEV_SM_CLOCK"]
    named = parts.counters_source(replace(settings, counters=Path("none.csv")), server)
    assert (named.served, named.file) == (
        read.served,
        None,
    )  # the file is neither read nor followed
    server.fail("get", Unreachable("get"), times=None)
    again = parts.counters_source(settings, server, read.config_map)
    assert (again.served, again.file) == (read.served, None)
    assert parts.counters_source(settings, server).served == DEFAULT_COUNTERS


def test_a_config_map_that_comes_late_is_served_then_and_the_file_no_longer_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "counters.csv"
    file.write_text("DCGM_FI_DEV_GPU_TEMP, gauge, x")
    options = {"prefix": "own_", "own_families": "none", "counters": file}
    settings = AgentSettings(counters_from="default:counters", **options)  # type: ignore[arg-type]  # handed through
    server, latest = FakeApi(), latest_of(settings)
    asked: list[tuple[ReadingGroup, ...]] = []
    server.fail("get", Unreachable("no route"), times=4)
    source = parts.counters_source(settings, server)
    tick = parts.followed_counters(settings, source, latest, asked.append)
    assert tick is not None
    assert lines(latest, 'gpuscape_source_up{source="counters"}') == []
    for now in (0.0, 100.0):
        assert 0.0 <= tick(now) <= POLL_SECONDS
        assert lines(latest, 'gpuscape_source_up{source="counters"}')[0].endswith(" 0.0")
    file.write_text("DCGM_FI_DEV_MEM_CLOCK, gauge, x")
    tick(150.0)
    assert len(lines(latest, "own_DCGM_FI_DEV_MEM_CLOCK{")) == 1
    assert lines(latest, 'gpuscape_source_up{source="counters"}')[0].endswith(" 0.0")

    config_map(server, COUNTERS)
    assert tick(200.0) > POLL_SECONDS
    file.write_text("DCGM_FI_DEV_GPU_TEMP, gauge, x")
    tick(300.0)

    assert len(lines(latest, "own_DCGM_FI_DEV_SM_CLOCK{")) == 1
    assert lines(latest, "own_DCGM_FI_DEV_GPU_TEMP{") == []
    assert asked[-1] == (ReadingGroup.FAN,)
    assert lines(latest, 'gpuscape_source_up{source="counters"}')[0].endswith(" 1.0")
    assert whys(caplog, "counters ConfigMap not read") == ["no route"]
    assert [text for _, text, _ in log_lines(caplog)].count("counters ConfigMap read") == 1
    assert [call.verb for call in server.calls].count("get") == 5


# readings in addition to those always made


def extra(root: Path, known: KnownPods | None = None, **settings: Any) -> ExtraReadings:
    fans = read_counters(b"DCGM_FI_DEV_FAN_SPEED, gauge, x", "x")
    return parts.extra_readings(AgentSettings(**settings), fans, root, known, None)


def test_without_settings_for_them_nothing_more_is_read_than_the_counters_need(
    tmp_path: Path,
) -> None:
    read = extra(tmp_path, own_families="none")
    assert read == replace(NO_EXTRA_READINGS, groups=(ReadingGroup.FAN,))


def test_processes_and_jobs_are_read_where_the_settings_ask_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_processes, "missing", lambda _proc: None)  # in a container too
    cgroup = tmp_path / f"proc/{os.getpid()}/cgroup"
    cgroup.parent.mkdir(parents=True)
    cgroup.write_text(f"0::/kubepods/pod{UID}/main\n")
    known = KnownPods(labels=None, update_metrics=lambda _change: None)
    known.on_watch_event(ObjectSeen(object=POD))
    process = Process(pid=os.getpid(), kind=ProcessKind.COMPUTE, memory_bytes=1 << 30)
    sample = build.sample(GPU, processes=(process,), gpu_busy_ratio=0.0)

    read = extra(tmp_path, known, processes=True)
    (use,) = read.processes([sample])
    assert (use.bus_id, use.pid, use.memory_bytes) == (GPU.bus_id, str(os.getpid()), 1 << 30)
    assert use.pod == OfPod(uid=UID, namespace="default", name="job")
    assert read.of_pods([sample]) == NO_POD_USES
    (use,) = extra(tmp_path, processes=True).processes([sample])
    assert use.pod == OfPod(uid=UID)

    read = extra(tmp_path, virtual_gpus=True)
    assert read.processes([sample]) == ()
    use_of_pod = PodUse(memory_bytes=1 << 30, busy_ratio=0.0)
    assert read.of_pods([sample]) == {GPU.bus_id: {(None, UID): use_of_pod}}

    (tmp_path / "0").write_text("job-7\n")
    jobs = extra(tmp_path, hpc_jobs=tmp_path).jobs(build.node([GPU]))
    assert jobs == {GpuPart(GPU.bus_id): ("job-7",)}


def test_the_kernel_log_is_read_where_there_is_one(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    file.touch()
    with contextlib.closing(KernelLog(file)) as kernel_log:
        read = parts.extra_readings(AgentSettings(), DEFAULT_COUNTERS, tmp_path, None, kernel_log)
        assert read.kernel_log(0.0) == ()
        file.write_text("3,1,2,-;NVRM: Xid (PCI:0000:10:00): 79, text\n")
        assert read.kernel_log(1.0) == (XidSeen(bus_id=GPU.bus_id, code=79),)


# files that are followed


def latest_of(settings: AgentSettings) -> LatestMetrics:
    """The exposition of these settings, with one GPU in it."""
    own = AgentMetrics("0", lambda: 100.0)
    latest = metric_settings.latest(settings, "node-a", own, DEFAULT_COUNTERS, GpuRecords())
    latest.show_snapshot(build.node([GPU]), 100.0)
    latest.show_samples((build.sample(GPU, at_seconds=time.monotonic()),))
    return latest


def lines(latest: LatestMetrics, start: str) -> list[str]:
    response = latest.metrics()
    text = (response.body.plain + response.tail).decode()
    return [line for line in text.splitlines() if line.startswith(start)]


def test_a_changed_counters_file_is_read_for_served_and_reported(tmp_path: Path) -> None:
    settings = AgentSettings(prefix="own_", own_families="none")
    file, latest = tmp_path / "counters.csv", latest_of(settings)
    asked: list[tuple[ReadingGroup, ...]] = []
    assert lines(latest, "own_DCGM_FI_DEV_GPU_TEMP{")
    file.write_text("DCGM_FI_DEV_FAN_SPEED, gauge, x\nDCGM_FI_DEV_SM_CLOCK, gauge, x\n1\n2\n")
    source = parts.CountersSource(served=DEFAULT_COUNTERS, file=file)
    tick = parts.followed_counters(settings, source, latest, asked.append)
    assert tick is not None
    assert tick(0.0) == POLL_SECONDS
    assert asked == [(ReadingGroup.FAN,)]
    assert lines(latest, "own_DCGM_FI_DEV_GPU_TEMP{") == []
    assert len(lines(latest, "own_DCGM_FI_DEV_SM_CLOCK{")) == 1
    assert lines(latest, "gpuscape_counters_skipped") == ["gpuscape_counters_skipped 2.0"]
    assert lines(latest, 'gpuscape_source_up{source="counters"}')[0].endswith(" 1.0")
    file.unlink()
    tick(0.0)
    assert lines(latest, 'gpuscape_source_up{source="counters"}')[0].endswith(" 0.0")


def test_a_web_config_file_is_followed_and_reported_where_there_is_one(tmp_path: Path) -> None:
    assert parts.web_config(AgentSettings(), lambda _change: None) is None
    file, own = tmp_path / "web.yaml", AgentMetrics("0", lambda: 0.0)
    settings = AgentSettings(web_config_file=file)
    with pytest.raises(BadInput, match=str(file)):
        parts.web_config(settings, lambda change: change(own))
    file.write_text("")
    followed = parts.web_config(settings, lambda change: change(own))
    assert followed is not None
    for text, up in (("", 1.0), ("{", 0.0)):
        file.write_text(text)
        followed.poll(0.0)
        assert f'gpuscape_source_up{{source="web-config"}} {up}' in own.render().decode()


def test_what_another_process_knew_is_taken_at_the_start_alone(tmp_path: Path) -> None:
    boot_id = tmp_path / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("one\n")
    gpus = (StoredGpu(bus_id=GPU.bus_id, place=0),)
    content = StoredRecords(v=VERSION, session=Session(boot="one"), gpus=gpus)
    (tmp_path / "state.json").write_bytes(FORMAT.encode(content))
    settings = AgentSettings(state_file=tmp_path / "state.json")
    found = []
    for restored in (False, True):
        records = GpuRecords(restored=restored)
        parts.restore_kept_records(settings, tmp_path, records)
        found.append(records.known_gpus.record.places)
        assert records.restored
    assert found == [{GPU.bus_id: 0}, {}]
    records = GpuRecords()
    parts.restore_kept_records(AgentSettings(), tmp_path, records)
    assert records.restored


def test_the_file_for_devices_is_kept_where_a_folder_is_set(tmp_path: Path) -> None:
    boot_id = tmp_path / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("0f0f0f0f-1111-4222-8333-444444444444\n")
    folder = tmp_path / "exchange"
    for settings in (AgentSettings(), AgentSettings(exchange_folder=folder)):
        assert not folder.exists()
        with contextlib.ExitStack() as ending:
            show = parts.device_exchange(settings, tmp_path, latest_of(settings), Defects(), ending)
            show(build.node([GPU]))
            if settings.exchange_folder is not None:
                until((folder / "devices.json").exists)


# pods


def test_the_nodes_pods_are_followed_where_the_settings_need_them() -> None:
    api, latest, defects = FakeApi(), latest_of(AgentSettings()), Defects()
    uid = api.server.create(PODS, POD, "default", manager="kubelet")["metadata"]["uid"]
    with contextlib.ExitStack() as ending:

        def known(**settings: Any) -> KnownPods | None:
            wanted = AgentSettings(**settings)
            return parts.known_pods(wanted, api, "node-a", latest, None, defects, ending)

        assert known() is None
        assert parts.known_pods(SHARED, None, "node-a", latest, None, defects, ending) is None
        uids = known(pod_uid_label=True, pod_label_allowlist=(re.compile("app"),))
        labels = known(pod_labels=True, pod_label_allowlist=(re.compile("app"),))
        assert uids is not None
        assert labels is not None
        until(lambda: bool(uids.named("default", "job") and labels.named("default", "job")))
        without = KnownPod(namespace="default", name="job", uid=uid, ended=False)
        assert uids.by_uid(uid) == without
        assert labels.by_uid(uid) == replace(without, labels=(("app", "train"),))
        until(lambda: bool(lines(latest, 'gpuscape_source_up{source="pods"} 1.0')))
    assert {call.fields == {"spec.nodeName": "node-a"} for call in api.calls} == {True}


def test_pods_are_not_asked_about_before_the_agents_turn() -> None:
    settings = AgentSettings(pod_uid_label=True, start_spread_seconds=None)
    api, latest, defects = FakeApi(), latest_of(settings), Defects()
    turn = parts.startup_spread(settings, api)
    assert turn is not None
    asked = threading.Event()
    until_watch = turn.until_watch

    def counted() -> float:
        asked.set()
        return until_watch()

    turn.until_watch = counted  # type: ignore[method-assign]  # to see that it was asked
    with contextlib.ExitStack() as ending:
        parts.known_pods(settings, api, "node-a", latest, turn, defects, ending)
        assert asked.wait(SOON)
        assert api.calls == []
        assert turn.ask(time.monotonic() + PATIENCE_SECONDS) > 0  # nobody could be counted


def test_a_turn_is_waited_for_in_a_cluster_alone() -> None:
    api = FakeApi()
    assert parts.startup_spread(AgentSettings(standalone=True), api) is None
    assert parts.startup_spread(AgentSettings(), None) is None
    at_once = parts.startup_spread(AgentSettings(start_spread_seconds=0.0), api)
    assert at_once is not None
    assert at_once.until_watch() == 0.0
    counting = parts.startup_spread(AgentSettings(), api)
    assert counting is not None
    assert counting.until_watch() > 0.0


@pytest.mark.parametrize(
    ("settings", "shown"),
    [({}, True), ({"pods": False}, False), ({"resource_names": ("example.com/gpu",)}, True)],
    ids=str,
)
def test_the_kubelets_pods_are_shown_on_series_where_the_settings_say_so(
    tmp_path: Path, settings: dict[str, Any], shown: bool
) -> None:
    resource = settings.get("resource_names", ["nvidia.com/gpu"])[0]
    part = wire.ContainerDevices(resource_name=resource, device_ids=[GPU.uuid or ""])
    container = wire.ContainerResources(name="main", devices=[part])
    pod = wire.PodResources(namespace="default", name="job", containers=[container])
    listed = message(wire.ListPodResourcesResponse(pod_resources=[pod]))
    offered = message(wire.AllocatableResourcesResponse(devices=[part]))
    wanted = AgentSettings(
        pod_resources_socket=tmp_path / "kubelet.sock", pod_uid_label=True, **settings
    )
    latest = latest_of(wanted)
    known = KnownPods(labels=None, update_metrics=latest.refresh)
    known.on_watch_event(ObjectSeen(object=POD))
    with serving(tmp_path / "kubelet.sock", {"List": listed, "GetAllocatableResources": offered}):
        assert parts.pods(wanted, "node-a", latest, known, None).ask(0.0) == ASK_SECONDS
    (series,) = lines(latest, "DCGM_FI_DEV_GPU_TEMP{")
    assert ('namespace="default",pod="job"' in series) is shown
    assert (f'pod_uid="{UID}"' in series) is shown
    assert lines(latest, 'gpuscape_source_up{source="pod-resources"} 1.0')


def test_the_hosts_own_mig_manager_is_found_by_the_link_that_enables_its_service(
    tmp_path: Path,
) -> None:
    """The link leads out of what the agent sees of the host."""
    nothing: Any = None
    edges = parts.layout_inputs(
        AgentSettings(mig_mode="observe", sink="node"),
        PluginConfig(),
        tmp_path,
        nothing,
        nothing,
        lambda _tick: None,
    )
    assert edges is not None
    assert not edges.service_enabled()
    enabled = tmp_path / "etc/systemd/system/multi-user.target.wants"
    enabled.mkdir(parents=True)
    (enabled / "nvidia-mig-manager.service").symlink_to("/lib/systemd/system/none.service")
    assert edges.service_enabled()


@pytest.mark.parametrize("overlap", Overlap)
def test_configurations_of_the_agents_file_overlap_as_its_settings_say(
    tmp_path: Path, overlap: Overlap
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("version: v1\nmig-configs: {mine: [{devices: all, mig-enabled: false}]}\n")
    nothing: Any = None
    inputs = parts.layout_inputs(
        AgentSettings(sink="node", mig_config=file, mig_config_overlap=overlap),
        PluginConfig(),
        tmp_path,
        nothing,
        nothing,
        lambda _tick: None,
    )
    assert inputs is not None
    configs = inputs.configs()
    assert configs is not None
    assert configs.selected().overlap is overlap
