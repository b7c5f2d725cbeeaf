# SPDX-License-Identifier: Apache-2.0
"""No flag or variable that a release of dcgm-exporter has ends the start, nor its YAML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.metrics import metric_settings
from agent.settings.agent_settings import AgentSettings
from base.errors import BadInput
from cli.dcgm_exporter.dcgm_exporter_command import load_dcgm_settings
from exporters.dcgm.peer.peer_releases import RELEASES
from tests.exporters.dcgm.peer.peer_files import recorded

VALUES = {
    "address": ":9400",
    "collectors": "/etc/dcgm-exporter/default-counters.csv",
    "config-file": "/dev/null",
    "configmap-data": "gpu-operator:custom-metrics",
    "devices": "g",
    "kubernetes-pod-label-allowlist-regex": "^app$",
    "log-format": "json",
    "watch-max-keep-age": "5m",
}
"""Values of flags that are no number, no switch and not any text."""

KINDS = {"Bool": "true", "Int": "2000", "Int64": "20", "String": "/some/text", "StringSlice": "x"}

CHART = {
    "DCGM_EXPORTER_KUBERNETES": "true",
    "DCGM_EXPORTER_LISTEN": ":9400",
    "NODE_NAME": "worker-3",
    "DCGM_EXPORTER_WEB_READ_TIMEOUT": "10s",
    "DCGM_EXPORTER_WEB_WRITE_TIMEOUT": "30s",
}
"""Source: the chart of 4.8.4, README of ``deployment``: its default variables and timeouts."""

OPERATOR_DRA = {
    "DCGM_EXPORTER_LISTEN": ":9400",
    "DCGM_EXPORTER_KUBERNETES": "true",
    "DCGM_EXPORTER_COLLECTORS": "/etc/dcgm-exporter/dcp-metrics-included.csv",
    "NODE_NAME": "worker-3",
    "DCGM_REMOTE_HOSTENGINE_INFO": "localhost:5555",
    "DCGM_HPC_JOB_MAPPING_DIR": "/var/lib/dcgm-exporter/job-mapping",
    "KUBERNETES_ENABLE_DRA": "true",
    "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS": "true",
    "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID": "true",
    "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX": r"^app$,^kueue\.x-k8s\.io/.*$",
}
"""Source: NVIDIA/gpu-operator 26.7.0, ``manifests/state-dcgm-exporter``, all that it can set."""


def value(name: str, kind: str) -> str:
    return VALUES.get(name) or KINDS[kind]


def notes(*arguments: str, **environ: str) -> list[str]:
    return [note.partition(":")[0] for note in load_dcgm_settings(arguments, environ)[1].notes]


@pytest.fixture(name="config")
def fixture_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A YAML file that the flags of every release name."""
    path = tmp_path / "config.yaml"
    path.write_text("version: 2\n")
    monkeypatch.setitem(VALUES, "config-file", str(path))
    return path


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize("release", RELEASES)
def test_every_flag_of_a_release_starts_with_one_note_at_most(release: str) -> None:
    for name, _, _, kind in recorded(release).flags:
        assert len(notes(f"--{name}={value(name, kind)}")) <= 1


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize("release", RELEASES)
def test_every_variable_of_a_release_is_known_and_starts(release: str) -> None:
    for name, _, variable, kind in recorded(release).flags:
        told = load_dcgm_settings((), {variable: value(name, kind)})[1].notes
        assert not any("no variable" in note for note in told)
        assert len(told) <= 1


@pytest.mark.parametrize("word", ["--watch-max-keep", "--health", "--metrics-file=x"])
def test_a_flag_that_no_release_has_ends_the_start(word: str) -> None:
    with pytest.raises(BadInput, match="is not a flag of dcgm-exporter"):
        load_dcgm_settings((word,), {})


def test_what_the_chart_sets_by_default_starts_without_a_note() -> None:
    assert notes(**CHART) == []


def test_all_that_the_gpu_operator_can_set_starts_without_a_note() -> None:
    settings, told = load_dcgm_settings((), OPERATOR_DRA)

    assert told.notes == ()
    assert (settings.pods, settings.pod_labels, settings.resource_slices) == (True, True, True)


def test_values_without_a_meaning_here_are_notes() -> None:
    assert notes("--web-systemd-socket", "--fake-gpus", "--kubernetes-gpu-id-type=index") == [
        "--web-systemd-socket does nothing",
        "--fake-gpus does nothing",
        "--kubernetes-gpu-id-type does nothing",
    ]


@pytest.mark.parametrize(
    ("text", "seconds", "note"),
    [
        ("33", 0.1, "DCGM_EXPORTER_INTERVAL is 33ms"),
        ("100", 0.1, None),
        ("30000", 30.0, None),
        ("90000000", 86_400.0, "DCGM_EXPORTER_INTERVAL is 90000000ms"),
    ],
)
def test_an_interval_beyond_ours_is_taken_as_the_nearest_with_a_note(
    text: str, seconds: float, note: str | None
) -> None:
    """33 is what NVIDIA's GenAI-Perf documents for its own measurements."""
    settings, told = load_dcgm_settings((), {"DCGM_EXPORTER_INTERVAL": text})

    assert settings.sample_interval_seconds == seconds
    assert [it.partition(": ")[0] for it in told.notes] == ([note] if note else [])


# The YAML file

FIELDS = """\
version: 2
metrics:
  fields:
    - name: DCGM_FI_DEV_GPU_TEMP
      prometheusType: gauge
      help: GPU temperature (in C).
    - name: DCGM_FI_DRIVER_VERSION
      prometheusType: label
      help: Driver version.
collections:
  - {name: scrape, every: 1m30s, metrics: {include: ["*"]}}
"""
"""After the chart's README at 4.8.4."""


def configured(path: Path, text: str, **environ: str) -> tuple[AgentSettings, tuple[str, ...]]:
    path.write_text(text)
    settings, told = load_dcgm_settings((), {"DCGM_EXPORTER_CONFIG_FILE": str(path), **environ})
    return settings, told.notes


def test_the_fields_of_the_yaml_file_are_served_and_no_others(config: Path) -> None:
    settings, told = configured(config, FIELDS)
    served = metric_settings.configured_counters(settings)

    assert told == ()
    assert [(it.name, it.kind.value, it.help) for it in served.families] == [
        ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).")
    ]
    assert [it.name for it in served.labels] == ["DCGM_FI_DRIVER_VERSION"]
    assert settings.sample_interval_seconds == 90.0


def test_a_field_that_is_not_served_is_named_with_its_line(config: Path) -> None:
    text = FIELDS.replace("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_BRAND")
    served = metric_settings.configured_counters(configured(config, text)[0])

    assert [str(it) for it in served.skipped] == [
        f"{config}, line 4: DCGM_FI_DEV_BRAND is text, not 'gauge': its type can only be label"
    ]


def test_version_1_sets_a_file_and_an_interval(config: Path) -> None:
    settings, told = configured(
        config, "version: 1\nmetrics: {file: /etc/mine.csv}\ncollection: {interval: 5s}\n"
    )

    assert told == ()
    assert settings.counters == Path("/etc/mine.csv")
    assert settings.sample_interval_seconds == 5.0


def test_flags_and_variables_win_over_the_yaml_file(config: Path) -> None:
    settings, _ = configured(
        config, FIELDS, DCGM_EXPORTER_COLLECTORS="/etc/mine.csv", DCGM_EXPORTER_INTERVAL="2000"
    )

    assert settings.counters == Path("/etc/mine.csv")
    assert settings.sample_interval_seconds == 2.0


def test_what_the_file_sets_without_a_meaning_here_is_noted_by_its_line(config: Path) -> None:
    _, told = configured(
        config,
        "version: 2\n"
        "metrics: {file: /etc/mine.csv, enableExporterMetrics: true}\n"
        "server: {maxConcurrentScrapes: 4}\n"
        "sources:\n"
        "  dcgm:\n"
        "    watch: {maxKeepAge: 1m, maxKeepSamples: 0}\n"
        "    detectBindUnbind: {enabled: true, pollInterval: 1s}\n"
        "collections:\n"
        "  - name: thermals\n"
        "    every: 5s\n"
        "    metrics: {include: [DCGM_FI_DEV_GPU_TEMP]}\n",
    )

    assert [note.partition(" does nothing")[0] for note in told] == [
        f"{config}:2: metrics.enableExporterMetrics",
        f"{config}:3: server.maxConcurrentScrapes",
        f"{config}:6: sources.dcgm.watch.maxKeepAge",
        f"{config}:9: collections",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("metrics: {file: x}\n", "version is missing: write version: 2"),
        ("version: 3\n", "'3' is not one of 1, 2"),
        ("version: 2\nmetric: {}\n", "did you mean metrics?"),
        ("version: 2\nmetrics: {}\n", "expected file, fields or enableExporterMetrics"),
        ("version: 2\nmetrics: {file: x, fields: [{name: y}]}\n", "exclude each other"),
        ("version: 2\nmetrics: {fields: [{name: y}]}\n", "prometheusType of entry 0 is missing"),
        ("version: 2\nmetrics: {fields: [{nme: y}]}\n", "did you mean name?"),
        ("version: 2\ncollection: {interval: 5s}\n", "version 2 has no collection"),
        ("version: 1\ncollections: []\n", "version 1 has no collections"),
        ("version: 1\ncollection: {interval: 5}\n", "'5' is no duration of whole milliseconds"),
        ("version: 1\ncollection: {interval: 100us}\n", "is no duration of whole milliseconds"),
        ("version: 1\nversion: 1\n", "config.yaml:2"),
    ],
)
def test_a_file_that_dcgm_exporter_refuses_ends_the_start_with_its_place(
    config: Path, text: str, reason: str
) -> None:
    with pytest.raises(BadInput) as caught:
        configured(config, text)

    assert str(caught.value).startswith("DCGM_EXPORTER_CONFIG_FILE: ")
    assert reason in str(caught.value)


def test_a_yaml_file_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^--config-file: cannot read"):
        load_dcgm_settings(("--config-file", str(tmp_path / "none.yaml")), {})
