# SPDX-License-Identifier: Apache-2.0
"""The counters file: dcgm-exporter's format, both spellings, and what is wrong told by line."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from discovery.sample import ReadingGroup
from exporters.dcgm import legacy
from exporters.dcgm.catalog import CATALOG, COUNTED, LABEL_ROWS
from exporters.dcgm.counters_format import (
    DEFAULT_COUNTERS,
    MOST_BYTES,
    MOST_LINES,
    CountersConfig,
    read_counters,
)
from exporters.dcgm.csv_records import BARE_QUOTE, MOST_RECORD_BYTES, OPEN_QUOTE
from exporters.dcgm.render import Renderer, SeriesIdentity
from tests import build, exposition

DEFAULT_FILE = """\
# Format
# If line starts with a '#' it is considered a comment

DCGM_FI_DEV_SM_CLOCK,  gauge, SM clock.
DCGM_FI_DEV_MEM_CLOCK, gauge, Memory clock.
DCGM_FI_DEV_MEMORY_TEMP, gauge, Memory temperature.
DCGM_FI_DEV_GPU_TEMP,    gauge, GPU temperature.
DCGM_FI_DEV_POWER_USAGE,              gauge, Power.
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy.
# DCGM_FI_PROF_PCIE_TX_BYTES,  counter, Sent.
DCGM_FI_DEV_PCIE_REPLAY_COUNTER, counter, Retries.
DCGM_FI_DEV_GPU_UTIL,      gauge, GPU.
DCGM_FI_DEV_MEM_COPY_UTIL, gauge, Memory.
DCGM_FI_DEV_ENC_UTIL,      gauge, Encoder.
DCGM_FI_DEV_DEC_UTIL ,     gauge, Decoder.
DCGM_FI_DEV_XID_ERRORS,              gauge,   XID.
DCGM_FI_DEV_FB_FREE, gauge, Free.
DCGM_FI_DEV_FB_USED, gauge, Used.
DCGM_FI_DEV_FB_RESERVED, gauge, Reserved.
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL,            gauge, NVLink.
DCGM_FI_DEV_VGPU_LICENSE_STATUS, gauge, Licence.
DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS, counter, Rows
DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS,   counter, Rows
DCGM_FI_DEV_ROW_REMAP_FAILURE,           gauge,   Failed
DCGM_FI_DRIVER_VERSION,        label, Driver
DCGM_FI_PROF_GR_ENGINE_ACTIVE,   gauge, Engine.
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, gauge, Tensor.
DCGM_FI_PROF_DRAM_ACTIVE,        gauge, Memory.
DCGM_FI_PROF_PCIE_TX_BYTES,      gauge, Sent.
DCGM_FI_PROF_PCIE_RX_BYTES,      gauge, Received.
"""
"""Names, types and layout of dcgm-exporter's default-counters.csv, other help texts."""


def names(counters: CountersConfig) -> list[str]:
    return [family.name for family in counters.families]


def reasons(counters: CountersConfig) -> list[str]:
    return [str(skipped) for skipped in counters.skipped]


def test_dcgm_exporter_s_own_file_is_the_default_set() -> None:
    counters = read_counters(DEFAULT_FILE, "default-counters.csv")

    assert counters.skipped == ()
    assert sorted(names(counters)) == sorted(names(DEFAULT_COUNTERS))
    assert [row.name for row in counters.labels] == [row.name for row in DEFAULT_COUNTERS.labels]
    assert {family.name: family.kind for family in counters.families} == {
        family.name: family.kind for family in DEFAULT_COUNTERS.families
    }


@pytest.mark.parametrize("spelling", ["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"])
def test_a_family_is_announced_by_the_file_s_spelling_type_and_help(spelling: str) -> None:
    counters = read_counters(f'{spelling}, counter,"Warm, says ""NVML"""\r\n', "a.csv")
    gpu = build.gpu()

    body = Renderer(counters.families, counters.labels).render(
        build.node([gpu]), [build.sample(gpu)], (), SeriesIdentity(hostname="a")
    )

    (family,) = exposition.parse(body).values()
    assert (family.name, family.kind, family.help) == (spelling, "counter", 'Warm, says "NVML"')
    assert list(family.series.values()) == ["34"]


@pytest.mark.parametrize(
    ("quoted", "help_text"),
    [
        ("Clock,\n# of SMs", "Clock,\n# of SMs"),
        ("Clock\r\nof SMs", "Clock\nof SMs"),
        ('A ""clock""\n\n# TYPE x gauge\nx 1', 'A "clock"\n\n# TYPE x gauge\nx 1'),
        ("C:\\new\nline", "C:\\new\nline"),
    ],
)
def test_help_over_several_lines_is_one_line_for_prometheus(quoted: str, help_text: str) -> None:
    """As Prometheus' own reader has it: what stands in a help adds no family and no series."""
    counters = read_counters(f'DCGM_FI_DEV_GPU_TEMP,gauge,"{quoted}"\n', "a.csv")
    gpu = build.gpu()

    body = Renderer(counters.families, counters.labels).render(
        build.node([gpu]), [build.sample(gpu)], (), SeriesIdentity(hostname="a")
    )

    (theirs,) = text_string_to_metric_families(body.decode())
    (ours,) = exposition.parse(body).values()
    assert (theirs.documentation, ours.help) == (help_text, help_text)
    assert [(it.name, it.value) for it in theirs.samples] == [("DCGM_FI_DEV_GPU_TEMP", 34.0)]


def test_a_label_stands_on_every_series_by_the_file_s_spelling() -> None:
    file = "DCGM_FI_SYSTEM_DRIVER_VERSION,label,x\nDCGM_FI_DEV_SM_CLOCK,gauge,x"
    counters, gpu = read_counters(file, "a.csv"), build.gpu()

    body = Renderer(counters.families, counters.labels).render(
        build.node([gpu]), [build.sample(gpu)], (), SeriesIdentity(hostname="a")
    )

    (family,) = exposition.parse(body).values()
    (_, labels), *_ = family.series
    assert ("DCGM_FI_SYSTEM_DRIVER_VERSION", "400.300") in labels


def test_every_family_and_label_can_be_asked_for_by_each_of_its_names() -> None:
    rows = [(row.name, row.renamed, "gauge") for row in CATALOG]
    rows += [(row.name, None, "gauge") for row in COUNTED]
    rows += [(row.name, row.renamed, "label") for row in LABEL_ROWS]
    asked = [(name, kind) for *both, kind in rows for name in both if name]

    counters = read_counters("\n".join(f"{name},{kind},x" for name, kind in asked), "a.csv")

    assert counters.skipped == ()
    assert len(counters.families) + len(counters.labels) == len(asked)


@pytest.mark.parametrize(
    ("old", "now"),
    [
        ("dcgm_memory_clock", "DCGM_FI_DEV_MEM_CLOCK"),
        ("dcgm_gpu_utilization", "DCGM_FI_DEV_GPU_UTIL"),
        ("dcgm_retired_pages_pending", "DCGM_FI_DEV_RETIRED_PENDING"),
        ("dcgm_nvlink_data_crc_error_count_total", "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"),
        ("dcgm_ecc_dbe_volatile_total", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
        ("dcgm_fi_prof_sm_occupancy", "DCGM_FI_PROF_SM_OCCUPANCY"),
    ],
)
def test_a_name_from_before_dcgm_exporter_2_is_served_by_that_name(old: str, now: str) -> None:
    (family,) = read_counters(f"{old},gauge,x", "a.csv").families

    assert (family.name, family.field) == (
        old,
        *(row.field for row in CATALOG if row.name == now),
    )


def test_every_old_name_is_served_but_those_that_dcgm_gives_no_value_for() -> None:
    asked = read_counters("\n".join(f"{name},gauge,x" for name in legacy.FIELDS), "a.csv")

    assert [skipped.reason.partition(" ")[0] for skipped in asked.skipped] == [
        "dcgm_pcie_tx_throughput",
        "dcgm_pcie_rx_throughput",
    ]
    assert len(asked.families) == len(legacy.FIELDS) - 2 == 39


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "DCGM_FI_DEV_GPU_TEMP,gauge",
            "2 fields instead of name, type, help text: put quotes around a help text with commas",
        ),
        (
            "DCGM_FI_DEV_GPU_TEMP,gauge,hot, very hot",
            "4 fields instead of name, type, help text: put quotes around a help text with commas",
        ),
        (
            "DCGM_FI_DEV_GPU_TEMPERATURE,gauge,x",
            "'DCGM_FI_DEV_GPU_TEMPERATURE' is not served: docs/metrics.md lists what is",
        ),
        (
            "DCGM_FI_PROCESS_NAME,label,x",
            "DCGM_FI_PROCESS_NAME is not served: it is about DCGM's own process",
        ),
        (
            "DCGM_FI_DEV_PCIE_TX_THROUGHPUT,gauge,x",
            "DCGM_FI_DEV_PCIE_TX_THROUGHPUT is not served: DCGM gives no value for it either",
        ),
        (
            "gpu_temp,gauge,x",
            "'gpu_temp' is no DCGM field: names begin with DCGM_FI_ or DCGM_EXP_",
        ),
        (
            "DCGM_FI_DEV_GPU_TEMP,histogram,x",
            "DCGM_FI_DEV_GPU_TEMP is a number, not 'histogram': "
            "its type can be gauge, counter or label",
        ),
        (
            "DCGM_EXP_XID_ERRORS_TOTAL,label,x",
            "DCGM_EXP_XID_ERRORS_TOTAL is a number, not 'label': its type can be gauge or counter",
        ),
        (
            "DCGM_FI_DEV_SERIAL,gauge,x",
            "DCGM_FI_DEV_SERIAL is text, not 'gauge': its type can only be label",
        ),
        ("DCGM_FI_DEV_SM_CLOCK,gauge,x", "DCGM_FI_DEV_SM_CLOCK stands in an earlier line already"),
        (
            'DCGM_FI_DEV_GPU_TEMP,gauge,"hot',
            OPEN_QUOTE,
        ),
        ('DCGM_FI_DEV_GPU_TEMP,gauge, "hot, very hot"', BARE_QUOTE),
        ('DCGM_FI_DEV_GPU_TEMP,gauge,so "hot"', BARE_QUOTE),
        ('DCGM_FI_DEV_GPU_TEMP,gauge,"hot" ', BARE_QUOTE),
        ("  ", "it has blanks alone, at which dcgm-exporter ends: leave it empty"),
        (
            "DCGM_FI_DEV_GPU_TEMP,\tgauge,x",
            "DCGM_FI_DEV_GPU_TEMP is a number, not '\\tgauge': "
            "its type can be gauge, counter or label",
        ),
        ("DCGM_FI_DEV_GPU_TEMP,gauge,\0", "it holds a NUL byte: write it as plain text"),
        ("DCGM_FI_DEV_GPU_TEMP,gauge,\udcff", "it is not UTF-8: save the file as UTF-8"),
        (
            "DCGM_FI_DEV_GPU_TEMP,gauge," + "x" * 10_000_000,
            f"10000027 bytes are too long for a line: {MOST_RECORD_BYTES} are allowed",
        ),
        (
            "x" * 4000 + ",gauge,x",
            f"'{'x' * 60}\\u2026' is no DCGM field: names begin with DCGM_FI_ or DCGM_EXP_",
        ),
    ],
    ids=lambda text: text[:40],
)
def test_a_wrong_line_is_told_by_file_and_number_and_the_others_count(
    line: str, reason: str
) -> None:
    around = ("DCGM_FI_DEV_SM_CLOCK,gauge,x\n# comment\n", "\nDCGM_FI_DEV_FB_FREE,gauge,x\n")

    counters = read_counters(line.join(around), "my.csv")

    assert reasons(counters)[0] == f"my.csv, line 3: {reason}"
    assert names(counters) == ["DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_FB_FREE"]


def test_a_file_that_is_too_long_is_read_as_far_as_it_may_be_and_told() -> None:
    file = "DCGM_FI_DEV_SM_CLOCK,gauge,x\n" + "#\n" * MOST_LINES + "DCGM_FI_DEV_FB_FREE,gauge,x"

    counters = read_counters(file, "a.csv")

    assert names(counters) == ["DCGM_FI_DEV_SM_CLOCK"]
    assert reasons(counters) == [
        "a.csv, line 10001: no more than 10000 lines are read: take lines out"
    ]


def test_a_file_that_is_too_large_is_read_as_far_as_it_may_be_and_told() -> None:
    file = "DCGM_FI_DEV_SM_CLOCK,gauge,x\n#" + "#" * MOST_BYTES + "\nDCGM_FI_DEV_FB_FREE,gauge,x"

    counters = read_counters(file, "a.csv")

    assert names(counters) == ["DCGM_FI_DEV_SM_CLOCK"]
    assert reasons(counters) == [
        "a.csv, line 2: no more than 16777216 bytes are read: make the file smaller"
    ]


def test_a_file_that_begins_with_a_byte_order_mark_loses_its_first_row_as_dcgm_exporter_ends() -> (
    None
):
    file = "\ufeffDCGM_FI_DEV_SM_CLOCK,gauge,x\nDCGM_FI_DEV_FB_FREE,gauge,x".encode()

    counters = read_counters(file, "a.csv")

    assert names(counters) == ["DCGM_FI_DEV_FB_FREE"]
    assert reasons(counters) == [
        "a.csv, line 1: the file begins with a byte order mark, at which dcgm-exporter ends: save"
        " it as UTF-8 without one"
    ]


def test_a_help_text_in_quotes_may_go_over_several_lines() -> None:
    file = 'DCGM_FI_DEV_SM_CLOCK,gauge,"Clock,\r\n# of SMs"\nDCGM_FI_DEV_FB_FREE,gauge,x\n'

    counters = read_counters(file, "a.csv")

    assert names(counters) == ["DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_FB_FREE"]
    assert counters.families[0].help == "Clock,\n# of SMs"
    assert counters.skipped == ()


def test_an_empty_file_asks_for_nothing() -> None:
    assert read_counters("", "a.csv") == CountersConfig(families=(), labels=())


def test_the_groups_of_readings_are_those_of_the_families_and_labels() -> None:
    asked = (
        *("DCGM_FI_DEV_FAN_SPEED", "DCGM_FI_DEV_FB_FREE"),
        *("DCGM_EXP_CLOCK_EVENTS_COUNT", "DCGM_EXP_P2P_STATUS"),
    )
    labels = ("DCGM_FI_DEV_BRAND", "DCGM_FI_DEV_PSTATE", "DCGM_FI_DEV_PCIE_LINK_GEN")
    file = "\n".join(
        f"{name},{kind},x"
        for names, kind in ((asked, "gauge"), (labels, "label"))
        for name in names
    )

    assert read_counters(file, "a.csv").groups == {
        ReadingGroup.FAN,
        ReadingGroup.CLOCK_EVENTS,
        ReadingGroup.P2P,
        ReadingGroup.BOARD,
        ReadingGroup.PCIE,
    }
    assert DEFAULT_COUNTERS.groups == {ReadingGroup.PROFILING}


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error_and_each_skip_is_one_line(data: bytes) -> None:
    counters = read_counters(data, "a.csv")

    lines = data.count(b"\n") + 1
    assert all(1 <= skipped.line <= lines for skipped in counters.skipped)
    assert not [reason for reason in reasons(counters) if "\n" in reason or len(reason) > 300]


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=200))
def test_any_help_text_on_one_line_comes_through_quoted(help_text: str) -> None:
    written = io.StringIO()
    csv.writer(written).writerow(("DCGM_FI_DEV_SM_CLOCK", "gauge", help_text))

    (family,) = read_counters(written.getvalue(), "a.csv").families

    assert family.help == help_text.strip(" ")
