# SPDX-License-Identifier: Apache-2.0
"""The sets of our own families: what is in the core, how much that is, and what it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from agent.gpu_records import GpuRecords
from agent.metrics import metric_settings
from agent.metrics.latest_metrics import LatestMetrics
from agent.settings.agent_settings import AgentSettings
from api.mig_status_annotation import MigPhase
from discovery.gpu_part import GpuPart
from discovery.model import Fabric, Mode, RemappedRows
from discovery.sample import ReadingGroup
from exporters.dcgm.counters_format import DEFAULT_COUNTERS
from exporters.desired_layout_metrics import DesiredLayoutState
from exporters.device_user_names import ContainerUser
from exporters.gpuscape.agent_metrics import AgentMetrics, ProgramUse
from exporters.gpuscape.core_families import CORE, ServedFamilies, families, needed_reading_groups
from exporters.gpuscape.families import FAMILIES
from exporters.gpuscape.node_view import GpuAllocation
from simulator.description.machine_catalog import machine_names
from tests import build
from tests import exposition as parsed
from tests.exporters.gpuscape_series import everything
from tests.observed import Observed, observed
from web.refusals import RefusalReason

SOURCES = ("nvml", "pod-resources", "kubernetes")
MORE_THAN_DCGM = 80


def settings(served: ServedFamilies) -> AgentSettings:
    return AgentSettings(own_families=served.value)


def served_on(machine: str, served: ServedFamilies) -> Mapping[str, parsed.Family]:
    """All that an agent in a cluster serves there, every GPU held by pods."""
    seen = observed(machine)
    # one of the readings that are not made, and without which DCGM's own are fewer
    samples = tuple(replace(sample, pcie=None) for sample in seen.samples)
    return parsed.parse(text(replace(seen, samples=samples), served))


def text(seen: Observed, served: ServedFamilies) -> bytes:
    own = AgentMetrics("0.1.0", lambda: 0.0, served)
    at = min((sample.at_seconds for sample in seen.samples), default=0.0)
    latest = metric_settings.latest(
        settings(served), "node-a", own, DEFAULT_COUNTERS, GpuRecords(), clock=lambda: at
    )
    latest.show_snapshot(seen.snapshot, 0.0)
    latest.show_allocation(_all_held(seen))
    latest.show_samples(seen.samples)
    latest.refresh(_in_a_cluster)
    return _body(latest)


def _body(latest: LatestMetrics) -> bytes:
    response = latest.metrics()
    return response.body.plain + response.tail


def _all_held(seen: Observed) -> GpuAllocation:
    user = ContainerUser(namespace="team", pod="train-0", container="main")
    parts: list[GpuPart] = []
    for gpu in seen.snapshot.gpus:
        instances = {GpuPart(gpu.bus_id, device.gpu_instance_id) for device in gpu.mig_devices}
        parts += instances or {GpuPart(gpu.bus_id)}
    return GpuAllocation(
        users=dict.fromkeys(parts, (user,)),
        allocatable={"nvidia.com/gpu": 8},
        allocated={"nvidia.com/gpu": 8},
        whole=frozenset(gpu.bus_id for gpu in seen.snapshot.gpus),
    )


def _in_a_cluster(own: AgentMetrics) -> None:
    own.serving.expect(RefusalReason)
    for source in SOURCES:
        own.source_answered(source, 1.0)
    for cycle in ("discover", "sample"):
        own.cycle_done(cycle, 0.1)
    for policy in ("node", "lease", "node-feature", "event"):
        own.confined(policy, True)
    own.holds_lease("gpuscape-node-a", True)
    own.unknown_devices("pod-resources", 0)
    for kind in ("Node", "Lease", "NodeFeature"):
        own.wrote(kind)
        own.left_alone(kind, 0)
    own.set_desired_layout(
        DesiredLayoutState(phase=MigPhase.WAITING, since_seconds=1.0, enforced=True)
    )
    own.programs_use(
        dict.fromkeys(("agent", "reader"), ProgramUse(cpu_seconds=1.0, resident_bytes=1))
    )


def count(found: Mapping[str, parsed.Family], prefix: str) -> int:
    return sum(len(family.series) for name, family in found.items() if name.startswith(prefix))


@pytest.mark.parametrize("machine", machine_names())
def test_the_core_adds_as_many_series_as_dcgm_has_and_eighty_at_most(machine: str) -> None:
    found = served_on(machine, ServedFamilies.CORE)

    assert count(found, "gpuscape_") <= count(found, "DCGM_") + MORE_THAN_DCGM


@pytest.mark.parametrize("machine", machine_names())
def test_without_families_of_ours_there_are_dcgms_alone(machine: str) -> None:
    ours, alone = served_on(machine, ServedFamilies.CORE), served_on(machine, ServedFamilies.NONE)

    assert alone == {name: it for name, it in ours.items() if name.startswith("DCGM_")}


def test_the_core_names_families_that_there_are() -> None:
    assert CORE.keys() <= {family.name for family in FAMILIES}
    assert {family.name for family in families(ServedFamilies.CORE)} == CORE.keys()
    assert families(ServedFamilies.ALL) == FAMILIES
    assert families(ServedFamilies.NONE) == ()


def test_series_of_the_core_are_those_of_all_and_no_others() -> None:
    snapshot, samples, about = everything()
    bodies = {}
    for served in (ServedFamilies.ALL, ServedFamilies.CORE):
        own = AgentMetrics("0", lambda: 0.0, served)
        latest = metric_settings.latest(
            settings(served), "node-a", own, DEFAULT_COUNTERS, GpuRecords()
        )
        latest.show_snapshot(snapshot, 0.0)
        latest.show_allocation(about["allocation"])
        latest.show_samples(samples)
        bodies[served] = _body(latest)
    everything_else, core = (
        set(parsed.series(bodies[it])) for it in (ServedFamilies.ALL, ServedFamilies.CORE)
    )

    assert core
    assert {name for name, _ in core - everything_else} == set()
    assert {name for name, _ in core} < {name for name, _ in everything_else}


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("gpuscape_gpu_clock_event", {"hw_thermal", "sw_thermal", "hw_power_brake"}),
        ("gpuscape_mig_instance_pipe_active_ratio", {"tensor"}),
    ],
)
def test_of_some_families_the_core_has_some_parts(name: str, kept: set[str]) -> None:
    (label,) = {it.labels[-1] for it in FAMILIES if it.name == name}
    body = text(observed("hgx-h100-mig-mixed"), ServedFamilies.CORE)

    found = [dict(labels) for each, labels in parsed.series(body) if each == name]
    assert {labels[label] for labels in found} == kept


def rare(served: Mapping[str, parsed.Family]) -> set[str]:
    """Families of the core that are served in some states alone."""
    return {name for name, part in CORE.items() if part.words.startswith("while")} & served.keys()


def test_states_that_are_rarely_another_are_served_while_they_are() -> None:
    ill = build.gpu(
        ecc=Mode(current=True, pending=False),
        persistence=False,
        remapped_rows=RemappedRows(correctable=0, uncorrectable=1, pending=True, failed=False),
        fabric=Fabric(state=2, status=0, cluster_uuid="", clique_id=0, health_mask=0b01),
    )
    seen = Observed(snapshot=build.node([ill]), samples=(build.sample(ill),))

    assert rare(served_on("hgx-h100", ServedFamilies.CORE)) == set()
    assert rare(parsed.parse(text(seen, ServedFamilies.CORE))) == {
        "gpuscape_gpu_ecc_change_pending",
        "gpuscape_gpu_persistence_enabled",
        "gpuscape_gpu_row_remap_pending",
        "gpuscape_gpu_remapped_rows_total",
        "gpuscape_gpu_fabric_registered",
        "gpuscape_gpu_fabric_fault",
    }


@pytest.mark.parametrize(
    ("served", "read"),
    [
        (ServedFamilies.NONE, {ReadingGroup.PROFILING}),
        (
            ServedFamilies.CORE,
            {
                ReadingGroup.PROFILING,
                ReadingGroup.CLOCK_EVENTS,
                ReadingGroup.ECC,
                ReadingGroup.WORKING_LIMIT,
                ReadingGroup.NVLINK_ERRORS,
                ReadingGroup.LINK_ERRORS,
            },
        ),
    ],
)
def test_what_is_switched_off_is_not_read(served: ServedFamilies, read: set[ReadingGroup]) -> None:
    """What DCGM's default families need alone is GPM."""
    assert set(metric_settings.reading_groups(settings(served), DEFAULT_COUNTERS)) == read


def test_the_readings_of_the_core_are_enough_for_it() -> None:
    needed = {group for family in families(ServedFamilies.CORE) for group in family.groups}

    assert needed_reading_groups(families(ServedFamilies.CORE)) == needed
    assert needed < needed_reading_groups(FAMILIES)


def test_the_page_says_what_is_in_the_core() -> None:
    page = parsed_page()

    assert {name for name, words in page.items() if words} >= CORE.keys()
    assert {name for name in CORE if page[name] != CORE[name].words} == set()


def parsed_page() -> dict[str, str]:
    """Family to what the page on metrics says of it and the core."""
    from tests.deploy.dockerfile import REPOSITORY

    lines = (REPOSITORY / "docs" / "metrics.md").read_text("utf-8")
    return dict(re.findall(r"^\| `(gpuscape_\w+)` \| ([^|]*?) \|", lines, re.MULTILINE))
