# SPDX-License-Identifier: Apache-2.0
"""The exposition: exact text, GPU instances, what is left out, and text that cannot break it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from discovery.gpu_counts import GpuCounts
from discovery.gpu_part import GpuPart
from discovery.model import Driver, GpuSnapshot, GpuState, MigDevice, Mode, Xid
from discovery.sample import GpuSample, MemoryUse
from exporters.dcgm.catalog import CATALOG, COUNTED, DEFAULT_FAMILIES, LABEL_ROWS
from exporters.dcgm.dcgm_family import AnyFamily, DcgmFamily, Paired, UnderMig
from exporters.dcgm.render import Renderer, SeriesIdentity
from exporters.dcgm.selection import parse_selection
from exporters.dcgm.windows import Event, EventCounts, Span
from exporters.device_user_names import ContainerUser, ContainerUsers
from exporters.prometheus_text import MOST_LABEL_CHARACTERS, MetricType
from tests import build, exposition
from tests.exporters import everything

NODE = SeriesIdentity(hostname="node-a")
CLOCK = tuple(family for family in CATALOG if family.name == "DCGM_FI_DEV_SM_CLOCK")
XIDS = tuple(family for family in CATALOG if family.name == "DCGM_FI_DEV_XID_ERRORS")
WHOLE_LABELS = (
    'gpu="0",UUID="GPU-00000000-0000-0000-0000-000000000000",pci_bus_id="00000000:10:00.0",'
    'device="nvidia0",modelName="MOCKMODEL",hostname="node-a",DCGM_FI_DRIVER_VERSION="400.300"'
)


def split(*devices: MigDevice, **facts: Any) -> GpuSnapshot:
    return build.gpu(mig=build.SPLIT, mig_devices=devices, **facts)


def render(
    gpus: Sequence[GpuSnapshot],
    samples: Sequence[GpuSample] | None = None,
    *,
    identity: SeriesIdentity = NODE,
    families: Sequence[AnyFamily] = DEFAULT_FAMILIES,
) -> bytes:
    if samples is None:
        samples = [build.sample(gpu) for gpu in gpus]
    return Renderer(families).render(build.node(gpus), samples, (), identity)


def names(body: bytes) -> list[str]:
    return list(exposition.parse(body))


def values(body: bytes, family: str) -> list[str]:
    return list(exposition.parse(body)[family].series.values())


def only_labels(body: bytes) -> dict[str, str]:
    """The labels of the first series."""
    family = next(iter(exposition.parse(body).values()))
    return dict(next(iter(family.series))[1])


def test_a_gpu_is_written_as_dcgm_exporter_writes_it() -> None:
    gpu = build.gpu()
    sample = build.sample(gpu, power_watts=45.999)
    families = [family for family in CATALOG if family.field in (100, 155, 156)]

    body = render([gpu], [sample], families=families)

    assert body.decode() == (
        "# HELP DCGM_FI_DEV_SM_CLOCK Clock of the streaming multiprocessors in MHz.\n"
        "# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n"
        f"DCGM_FI_DEV_SM_CLOCK{{{WHOLE_LABELS}}} 210\n"
        "# HELP DCGM_FI_DEV_POWER_USAGE Power the board draws in watts.\n"
        "# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n"
        f"DCGM_FI_DEV_POWER_USAGE{{{WHOLE_LABELS}}} 45.999000\n"
        "# HELP DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION "
        "Energy used since the driver was loaded in millijoules.\n"
        "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n"
        f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{WHOLE_LABELS}}} 1234567\n"
    )


def test_a_gpu_instance_is_written_with_its_profile_and_id_between_model_and_host() -> None:
    gpu = split(build.mig_device("1c.3g.20gb", gi=2))

    body = render([gpu], families=CLOCK)

    labels = WHOLE_LABELS.replace(",hostname=", ',GPU_I_PROFILE="3g.20gb",GPU_I_ID="2",hostname=')
    assert body.decode().splitlines()[2] == f"DCGM_FI_DEV_SM_CLOCK{{{labels}}} 210"


def test_families_come_in_the_order_of_their_field_ids() -> None:
    body = render([build.gpu()], families=tuple(reversed(DEFAULT_FAMILIES)))

    announced = [family.name for family in DEFAULT_FAMILIES]
    assert names(body) == [name for name in announced if name in names(body)]


def test_a_split_gpu_appears_as_its_instances_only() -> None:
    gpu = split(build.mig_device(gi=3), build.mig_device(gi=7), build.mig_device(gi=7, ci=1))

    body = render([gpu], families=CLOCK)

    series = exposition.parse(body)["DCGM_FI_DEV_SM_CLOCK"].series
    assert [dict(labels)["GPU_I_ID"] for _, labels in series] == ["3", "7"]


def test_a_gpu_with_mig_on_and_no_instances_appears_as_a_gpu() -> None:
    body = render([build.gpu(mig=build.SPLIT)], families=CLOCK)

    assert "GPU_I_ID" not in only_labels(body)


def test_an_instance_repeats_shared_readings_has_its_own_memory_and_no_utilisation() -> None:
    gpu = split(build.mig_device(gi=3), build.mig_device(gi=7))
    use = MemoryUse(free_bytes=5 * build.MIB, used_bytes=3 * build.MIB, reserved_bytes=build.MIB)
    sample = build.sample(gpu, gpu_celsius=50, gpu_busy_ratio=0.5, mig_memory=((7, use),))

    body = render([gpu], [sample])

    assert values(body, "DCGM_FI_DEV_GPU_TEMP") == ["50", "50"]
    assert values(body, "DCGM_FI_DEV_FB_FREE") == ["5"]  # instance 3 gave none
    assert not [name for name in names(body) if name.endswith("_UTIL")]


@pytest.mark.parametrize("family", CATALOG, ids=lambda family: family.name)
def test_a_family_under_mig_is_repeated_own_or_absent_as_declared(family: DcgmFamily) -> None:
    gpu = everything.gpu(
        mig=build.SPLIT,
        mig_devices=(build.mig_device(gi=1), build.mig_device(gi=2)),
        xids=(Xid(code=31, count=1, gpu_instance_id=2),),
    )

    node = build.node([gpu], counts=GpuCounts(nvml=1))
    body = Renderer([family]).render(node, [everything.sample(gpu)], (), NODE)

    found = [len(set(values(body, name))) for name in names(body)]
    assert (
        found == {UnderMig.REPEATED: [1], UnderMig.OWN: [2], UnderMig.ABSENT: []}[family.under_mig]
    )


def test_the_newest_xid_of_a_gpu_is_the_last_one() -> None:
    gpu = build.gpu(
        xids=(
            Xid(code=79, count=1, last_seen_seconds=200),
            Xid(code=43, count=5, gpu_instance_id=9),
        )
    )

    body = render([gpu])

    (labels, value), *_ = exposition.parse(body)["DCGM_FI_DEV_XID_ERRORS"].series.items()
    assert (dict(labels[1])["err_code"], value) == ("43", "43")


def test_a_gpu_without_xid_shows_code_zero() -> None:
    assert values(render([build.gpu()]), "DCGM_FI_DEV_XID_ERRORS") == ["0"]


def test_an_instance_shows_its_own_xids_and_those_of_the_whole_gpu_but_no_siblings() -> None:
    devices = [build.mig_device(gi=gi) for gi in (3, 7, 9)]
    xids = (
        Xid(code=94, count=1, gpu_instance_id=3),
        Xid(code=63, count=1),
        Xid(code=31, count=1, gpu_instance_id=7),
    )

    body = render([split(*devices, xids=xids)])

    assert values(body, "DCGM_FI_DEV_XID_ERRORS") == ["63", "31", "63"]


@pytest.mark.parametrize("state", [GpuState.LOST, GpuState.HUNG, GpuState.UNREADABLE])
def test_a_gpu_that_does_not_answer_has_no_series_and_hides_no_other(state: GpuState) -> None:
    gpus = [build.gpu(0, state=state), build.gpu(1)]

    body = render(gpus, families=CLOCK)

    series = exposition.parse(body)["DCGM_FI_DEV_SM_CLOCK"].series
    assert [dict(labels)["gpu"] for _, labels in series] == ["1"]


def test_a_gpu_without_sample_has_no_series() -> None:
    assert render([build.gpu()], []) == b""


def test_a_family_without_series_is_not_announced() -> None:
    gpu = build.gpu()

    body = render([gpu], [build.sample(gpu, memory_celsius=None)])

    assert "DCGM_FI_DEV_MEMORY_TEMP" not in names(body)


def test_what_a_gpu_does_not_tell_of_itself_is_a_missing_label() -> None:
    gpu = build.gpu(index=None, uuid=None, model=None)

    body = Renderer(CLOCK).render(build.node([gpu], driver=Driver()), [build.sample(gpu)], (), NODE)

    assert only_labels(body) == {"pci_bus_id": "00000000:10:00.0", "hostname": "node-a"}


def test_a_long_pci_domain_keeps_its_digits() -> None:
    body = render([build.gpu(bus_id="10000:1b:00.0")], families=CLOCK)

    assert only_labels(body)["pci_bus_id"] == "00010000:1B:00.0"


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (replace(NODE, hostname_label="Hostname"), {"Hostname", "DCGM_FI_DRIVER_VERSION"}),
        (replace(NODE, hostname_label=None), {"DCGM_FI_DRIVER_VERSION"}),
        (replace(NODE, driver_version=False), {"hostname"}),
        (replace(NODE, hostname_label=None, driver_version=False), set()),
    ],
)
def test_the_node_s_labels_can_be_renamed_and_left_out(
    identity: SeriesIdentity, expected: set[str]
) -> None:
    labels = only_labels(render([build.gpu()], families=CLOCK, identity=identity))

    assert set(labels) - {"gpu", "UUID", "pci_bus_id", "device", "modelName"} == expected


CHANGES = {
    "index": build.gpu(index=5),
    "uuid": build.gpu(uuid="GPU-other"),
    "model": build.gpu(model="Other"),
    "layout": split(build.mig_device(gi=1)),
    "state": build.gpu(state=GpuState.LOST),
    "address": build.gpu(bus_id="0000:99:00.0"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_renderer_that_has_rendered_before_writes_what_a_new_one_would(change: str) -> None:
    renderer = Renderer()
    first, then = build.gpu(), CHANGES[change]
    renderer.render(build.node([first]), [build.sample(first)], (), NODE)

    later = renderer.render(build.node([then]), [build.sample(then)], (), NODE)

    assert later == render([then])


@pytest.mark.parametrize(
    ("version", "identity", "label"),
    [
        ("500.1", NODE, ("DCGM_FI_DRIVER_VERSION", "500.1")),
        ("400.300", SeriesIdentity(hostname="node-b"), ("hostname", "node-b")),
    ],
)
def test_a_driver_upgrade_and_a_new_identity_reach_the_labels(
    version: str, identity: SeriesIdentity, label: tuple[str, str]
) -> None:
    renderer, gpu = Renderer(CLOCK), build.gpu()
    samples = [build.sample(gpu)]
    renderer.render(build.node([gpu]), samples, (), NODE)

    node = build.node([gpu], driver=Driver(version=version))
    body = renderer.render(node, samples, (), identity)

    assert label in only_labels(body).items()


def test_rates_are_taken_from_the_sample_before() -> None:
    gpu = build.gpu()
    before = build.sample(gpu, at_seconds=100.0, nvlink_sent_bytes=0)
    now = build.sample(gpu, at_seconds=110.0, nvlink_sent_bytes=1024 * 1000 * 10 * 25)

    body = Renderer().render(build.node([gpu]), [now], [before], NODE)

    assert values(body, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL") == ["25"]


def test_the_rate_of_a_link_is_taken_from_the_sample_before() -> None:
    gpu = everything.gpu()
    before, now = everything.sample(gpu), everything.sample(gpu, at_seconds=110.0)
    families = [family for family in CATALOG if family.name.endswith("NVLINK_BANDWIDTH_L2")]

    body = Renderer(families).render(build.node([gpu]), [now], [before], NODE)

    assert values(body, "DCGM_FI_DEV_NVLINK_BANDWIDTH_L2") == ["9"]


LEGAL_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=MOST_LABEL_CHARACTERS)


@given(model=LEGAL_TEXT, host=LEGAL_TEXT, profile=LEGAL_TEXT, version=LEGAL_TEXT)
def test_any_text_comes_back_from_the_exposition(
    model: str, host: str, profile: str, version: str
) -> None:
    gpu = split(build.mig_device("x" + profile), model=model)  # "x": no compute slices in front
    node = build.node([gpu], driver=Driver(version=version))

    body = Renderer(CLOCK).render(node, [build.sample(gpu)], (), SeriesIdentity(hostname=host))

    labels = only_labels(body)
    sent = (model, host, "x" + profile, version)
    assert sent == tuple(
        labels[name]
        for name in ("modelName", "hostname", "GPU_I_PROFILE", "DCGM_FI_DRIVER_VERSION")
    )
    (family,) = text_string_to_metric_families(body.decode())
    assert family.samples[0].labels == labels


def test_text_that_utf8_cannot_say_or_that_is_too_long_leaves_the_exposition_readable() -> None:
    labels = only_labels(render([build.gpu(model="\udcff" * 1000)], families=CLOCK))

    assert labels["modelName"] == "?" * MOST_LABEL_CHARACTERS


@given(text=LEGAL_TEXT)
def test_any_help_text_leaves_the_exposition_readable(text: str) -> None:
    body = render([build.gpu()], families=[replace(CLOCK[0], help=text)])

    assert exposition.parse(body)["DCGM_FI_DEV_SM_CLOCK"].help == text


def test_an_xid_of_another_code_brings_its_own_labels() -> None:
    renderer, gpu = Renderer(XIDS), build.gpu()
    renderer.render(build.node([gpu]), [build.sample(gpu)], (), NODE)

    then = build.changed(gpu, xids=(Xid(code=79, count=1),))
    body = renderer.render(build.node([then]), [build.sample(then)], (), NODE)

    assert only_labels(body)["err_code"] == "79"


def test_a_prefix_stands_before_every_name() -> None:
    gpu = build.gpu(xids=(Xid(code=79, count=1),))
    families: list[AnyFamily] = [*CLOCK, *XIDS, *COUNTED]
    counts = {
        (Event.XID, Span.WINDOW): EventCounts(
            milliseconds=1, entities={GpuPart(gpu.bus_id): {"79": 1}}
        )
    }

    body = Renderer(families, prefix="shadow_").render(
        build.node([gpu]), [build.sample(gpu)], (), NODE, counts=counts
    )

    assert names(body) == [
        "shadow_DCGM_FI_DEV_SM_CLOCK",
        "shadow_DCGM_FI_DEV_XID_ERRORS",
        "shadow_DCGM_EXP_XID_ERRORS_COUNT",
    ]


def test_labels_that_were_asked_for_stand_sorted_on_every_series() -> None:
    gpu = build.gpu(serial="123", vbios_version=None)
    rows = tuple(reversed(LABEL_ROWS))

    body = Renderer(CLOCK, rows).render(build.node([gpu]), [build.sample(gpu)], (), NODE)

    ours = [name for name in only_labels(body) if name.startswith("DCGM_")]
    assert ours == [
        "DCGM_FI_DEV_CUDA_VISIBLE_DEVICES_STR",
        "DCGM_FI_DEV_NAME",
        "DCGM_FI_DEV_PCI_BUSID",
        "DCGM_FI_DEV_SERIAL",
        "DCGM_FI_DEV_UUID",
        "DCGM_FI_DRIVER_VERSION",
        "DCGM_FI_NVML_VERSION",
    ]


def test_a_number_that_is_a_label_has_the_value_of_the_series_own_device() -> None:
    """Memory is each instance's own, temperature the GPU's; utilisation is no instance's."""
    mig = Mode(current=True, pending=True)
    gpu = everything.gpu(mig=mig, mig_devices=(build.mig_device(gi=5),))
    rows = [f"DCGM_FI_DEV_{name}" for name in ("FB_USED", "GPU_TEMP", "GPU_UTIL")]
    asked = [family.as_label() for family in CATALOG if family.name in rows]
    sample = everything.sample(gpu, mig_memory=((5, everything.memory(7)),))

    def labels(level: str) -> dict[str, str]:
        renderer = Renderer(CLOCK, asked, devices=parse_selection(level))
        found = only_labels(renderer.render(build.node([gpu]), [sample], (), NODE))
        return {name: found[name] for name in rows if name in found}

    assert labels("g") == dict(zip(rows, ("1000", "45", "57"), strict=True))
    assert labels("i") == dict(zip(rows[:2], ("1007", "45"), strict=True))


@pytest.mark.parametrize(("nvml", "served"), [(5, ["5"]), (None, [])])
def test_the_count_of_gpus_is_nvml_s_whatever_is_shown(nvml: int | None, served: list[str]) -> None:
    gpu = build.gpu()
    families = [family for family in CATALOG if family.name == "DCGM_FI_DEV_COUNT"]
    node = replace(build.node([gpu]), counts=GpuCounts(sysfs=1, nvml=nvml))

    body = Renderer(families).render(node, [build.sample(gpu)], (), NODE)

    assert ("DCGM_FI_DEV_COUNT" in names(body)) == bool(served)
    assert not served or values(body, "DCGM_FI_DEV_COUNT") == served


def test_a_number_that_is_a_label_follows_the_reading() -> None:
    gpu = build.gpu()
    (asked,) = (it.as_label() for it in CATALOG if it.name == "DCGM_FI_DEV_GPU_TEMP")
    renderer = Renderer(CLOCK, [asked])

    def temperature(celsius: int) -> str:
        samples = [build.sample(gpu, gpu_celsius=celsius)]
        return only_labels(renderer.render(build.node([gpu]), samples, (), NODE))[asked.name]

    assert [temperature(celsius) for celsius in (45, 46, 45)] == ["45", "46", "45"]


COUNTS = {
    (Event.XID, Span.WINDOW): EventCounts(
        milliseconds=300_000, entities={GpuPart(build.gpu().bus_id): {"79": 1, "13": 4}}
    ),
    (Event.CLOCK_EVENT, Span.WINDOW): EventCounts(
        milliseconds=60_000, entities={GpuPart(build.gpu().bus_id): {}}
    ),
    (Event.XID, Span.TOTAL): EventCounts(entities={GpuPart(build.gpu().bus_id): {"79": 9}}),
    (Event.CLOCK_EVENT, Span.TOTAL): EventCounts(entities={GpuPart(build.gpu().bus_id): {}}),
}


def test_counted_events_are_a_series_each_in_a_window_with_its_length() -> None:
    gpu = build.gpu()

    body = Renderer(COUNTED).render(build.node([gpu]), [build.sample(gpu)], (), NODE, counts=COUNTS)

    first = WHOLE_LABELS.rpartition(",")[0]
    version = 'DCGM_FI_DRIVER_VERSION="400.300"'
    assert [line for line in body.decode().splitlines() if not line.startswith("#")] == [
        f'DCGM_EXP_XID_ERRORS_COUNT{{{first},{version},window_size_in_ms="300000",xid="13"}} 4',
        f'DCGM_EXP_XID_ERRORS_COUNT{{{first},{version},window_size_in_ms="300000",xid="79"}} 1',
        f'DCGM_EXP_CLOCK_EVENTS_COUNT{{{first},{version},window_size_in_ms="60000"}} 0',
        f'DCGM_EXP_XID_ERRORS_TOTAL{{{first},{version},xid="79"}} 9',
    ]


def test_events_that_nobody_looked_for_are_not_counted_as_none() -> None:
    gpu = build.gpu()

    assert render([gpu], families=COUNTED) == b""


def test_a_gpu_that_nobody_looked_at_hides_no_counts_of_another() -> None:
    gpus = [build.gpu(1), build.gpu(0)]
    samples = [build.sample(gpu) for gpu in gpus]

    body = Renderer(COUNTED[1:]).render(build.node(gpus), samples, (), NODE, counts=COUNTS)

    assert only_labels(body)["gpu"] == "0"
    assert values(body, "DCGM_EXP_CLOCK_EVENTS_COUNT") == ["0"]


def test_counted_events_stand_where_the_device_s_pod_is() -> None:
    gpu = build.gpu()
    users: ContainerUsers = {
        GpuPart(gpu.bus_id): (ContainerUser(namespace="ns", pod="p", container="c"),)
    }

    body = Renderer(COUNTED[:1]).render(
        build.node([gpu]), [build.sample(gpu)], (), NODE, users, counts=COUNTS
    )

    assert list(only_labels(body))[-5:] == [
        "window_size_in_ms",
        "xid",
        "container",
        "namespace",
        "pod",
    ]


PAIRED = [family for family in COUNTED if isinstance(family, Paired)]


def paired(gpus: Sequence[GpuSnapshot], *statuses: int, devices: str = "f") -> bytes:
    """The first GPU's status with each of the others."""
    said = tuple((gpu.bus_id, status) for gpu, status in zip(gpus[1:], statuses, strict=True))
    samples = [build.sample(gpus[0], nvlink_p2p=said), *map(build.sample, gpus[1:])]
    return Renderer(PAIRED, devices=parse_selection(devices)).render(
        build.node(gpus), samples, (), NODE
    )


def pairs(body: bytes) -> list[tuple[str, str, str, str]]:
    """GPU, its peer, the status in a word and as number, of each series."""
    family = exposition.parse(body).get("DCGM_EXP_P2P_STATUS")
    found = [] if family is None else [(dict(it[1]), n) for it, n in family.series.items()]
    return [(it["gpu"], it["peer_gpu"], it["link_status"], n) for it, n in found]


def test_a_pair_of_gpus_is_written_with_its_peer_and_status_among_the_labels() -> None:
    body = paired([build.gpu(), build.gpu(1)], 5)

    first = WHOLE_LABELS.rpartition(",")[0]
    assert body.decode() == (
        "# HELP DCGM_EXP_P2P_STATUS Whether the GPU can reach the memory of another over NVLink: "
        "0 it can, else why not.\n"
        "# TYPE DCGM_EXP_P2P_STATUS gauge\n"
        f'DCGM_EXP_P2P_STATUS{{{first},DCGM_FI_DRIVER_VERSION="400.300",'
        'link_status="NotSupported",peer_gpu="1"} 5\n'
    )


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (0, "OK"),
        (1, "ChipsetNotSupported"),
        (2, "GPUNotSupported"),
        (3, "TopologyNotSupported"),
        (4, "DisabledByRegKey"),
        (5, "NotSupported"),
        (6, "Unknown"),
        (7, "Unknown"),
    ],
)
def test_the_status_of_a_pair_is_told_in_dcgm_exporter_s_words(status: int, word: str) -> None:
    assert pairs(paired([build.gpu(), build.gpu(1)], status)) == [("0", "1", word, str(status))]


def test_a_pair_is_not_told_where_the_other_gpu_does_not_answer_or_has_no_number() -> None:
    others = [build.silent(1), build.gpu(2, index=None), build.gpu(3)]

    assert pairs(paired([build.gpu(), *others], 0, 0, 0)) == [("0", "3", "OK", "0")]


@pytest.mark.parametrize(
    ("devices", "expected"), [("f", []), ("g", [("0", "1", "NotSupported", "5")]), ("g:1", [])]
)
def test_pairs_are_of_whole_gpus_that_were_selected(
    devices: str, expected: list[tuple[str, str, str, str]]
) -> None:
    gpus = [split(build.mig_device(gi=1)), build.gpu(1)]

    assert pairs(paired(gpus, 5, devices=devices)) == expected


def test_a_gpu_whose_pairs_were_not_read_has_none() -> None:
    assert render([build.gpu(), build.gpu(1)], families=PAIRED) == b""


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ("f", [("0", "1"), ("0", "2"), ("1", None)]),
        ("g", [("0", None), ("1", None)]),
        ("g:1", [("1", None)]),
        ("i", [("0", "1"), ("0", "2")]),
        ("i:1", [("0", "2")]),
        ("g+i", [("0", None), ("0", "1"), ("0", "2"), ("1", None)]),
        ("g:1+i:1", [("0", "2"), ("1", None)]),
    ],
)
def test_the_devices_that_were_selected_have_series(
    devices: str, expected: list[tuple[str, str | None]]
) -> None:
    gpus = [split(build.mig_device(gi=1), build.mig_device(gi=2)), build.gpu(1)]
    renderer = Renderer(CLOCK, devices=parse_selection(devices))

    body = renderer.render(build.node(gpus), [build.sample(gpu) for gpu in gpus], (), NODE)

    found = [dict(labels) for _, labels in exposition.parse(body)["DCGM_FI_DEV_SM_CLOCK"].series]
    assert [(labels["gpu"], labels.get("GPU_I_ID")) for labels in found] == expected


def test_a_split_gpu_that_was_selected_as_a_whole_has_its_own_readings() -> None:
    gpu = split(build.mig_device(gi=1), xids=(Xid(code=31, count=1, gpu_instance_id=1),))
    samples = [everything.sample(gpu, mig_memory=((1, everything.memory(900)),))]
    families = [family for family in CATALOG if family.field in (230, 252, 1009)]

    body = Renderer(families, devices=parse_selection("g")).render(
        build.node([gpu]), samples, (), NODE
    )

    assert [values(body, name) for name in names(body)] == [["31"], ["1000"], ["20971520"]]


def test_counters_keep_their_dcgm_names() -> None:
    kinds = {
        family.name: family.kind for family in exposition.parse(render([build.gpu()])).values()
    }

    assert kinds["DCGM_FI_DEV_PCIE_REPLAY_COUNTER"] == MetricType.COUNTER
