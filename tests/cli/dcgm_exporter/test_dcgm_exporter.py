# SPDX-License-Identifier: Apache-2.0
"""dcgm-exporter's flags, variables and container specs settle what they say, or are refused."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agent.metrics import metric_settings
from agent.settings.agent_settings import AgentSettings
from base.errors import BadInput
from cli.dcgm_exporter import dcgm_arguments
from cli.dcgm_exporter.dcgm_exporter_command import load_dcgm_settings
from cli.dcgm_exporter.dcgm_flags import CONFIG_FILE, FLAGS, Flag
from exporters.dcgm.selection import Level, LevelSelection, Selection
from tests.cli.conftest import Run
from web.address import Address

PAGE = Path(__file__).parents[3] / "docs" / "dcgm-exporter.md"

OURS = {
    "standalone": True,
    "own_families": "none",
    "probe_listen": Address(host="127.0.0.1", port=0),
}
"""Settings that nobody gives and that hold in dcgm-exporter's place."""

HELM = (
    ("-f", "/etc/dcgm-exporter/default-counters.csv"),
    {
        "DCGM_EXPORTER_KUBERNETES": "true",
        "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS": "true",
        "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID": "true",
        "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX": "^app$,^team/",
        "DCGM_EXPORTER_LISTEN": ":9400",
        "NODE_NAME": "worker-3",
        "DCGM_EXPORTER_WEB_CONFIG_FILE": "/etc/dcgm-exporter/web-config.yaml",
        "KUBERNETES_ENABLE_DRA": "true",
    },
)
"""Source: NVIDIA/dcgm-exporter, deployment/templates/daemonset.yaml, with all that it can set."""

HELM_DUMPS: tuple[tuple[str, ...], dict[str, str]] = (
    ("--dump-enabled", "--dump-directory=/dumps", "--dump-retention=24", "--dump-compression"),
    {},
)

OPERATOR: tuple[tuple[str, ...], dict[str, str]] = (
    (),
    {
        "DCGM_EXPORTER_LISTEN": ":9400",
        "DCGM_EXPORTER_KUBERNETES": "true",
        "DCGM_EXPORTER_COLLECTORS": "/etc/dcgm-exporter/dcp-metrics-included.csv",
        "NODE_NAME": "worker-3",
        "DCGM_REMOTE_HOSTENGINE_INFO": "nvidia-dcgm:5555",
        "DCGM_HPC_JOB_MAPPING_DIR": "/var/lib/dcgm-exporter/job-mapping",
    },
)
"""Source: NVIDIA/gpu-operator, assets/state-dcgm-exporter and controllers/object_controls.go."""

WRITTEN = {
    "counters": ("own.csv", Path("own.csv")),
    "counters-from": ("monitoring:gpu-counters", "monitoring:gpu-counters"),
    "listen": ("[::1]:9500", Address(host="::1", port=9500)),
    "sample-interval": ("1500", 1.5),
    "devices": (
        "g:0,2+i",
        Selection(
            choices=(
                LevelSelection(level=Level.GPUS, ids=frozenset({0, 2})),
                LevelSelection(level=Level.INSTANCES),
            )
        ),
    ),
    "pods": ("true", True),
    "pod-labels": ("true", True),
    "pod-uid-label": ("true", True),
    "pod-label-allowlist": ("^app$", ("^app$",)),
    "virtual-gpus": ("true", True),
    "resource-slices": ("true", True),
    "resource-names": ("nvidia.com/a100", ("nvidia.com/a100",)),
    "pod-resources-socket": ("/run/kubelet.sock", Path("/run/kubelet.sock")),
    "hpc-jobs": ("/run/jobs", Path("/run/jobs")),
    "hostname-label": ("true", "none"),
    "health-needs-gpus": ("true", True),
    "old-namespace": ("true", True),
    "replace-blanks": ("true", True),
    "xid-window": ("60000", 60.0),
    "clock-events-window": ("60000", 60.0),
    "web-config-file": ("web.yaml", Path("web.yaml")),
    "log-format": ("json", "json"),
    "log-level": ("true", "debug"),
}
"""Setting to what dcgm-exporter is told and what that stands for."""

FIELDS = {
    "sample-interval": "sample_interval_seconds",
    "xid-window": "xid_window_seconds",
    "clock-events-window": "clock_events_window_seconds",
}

GIVING = [flag for flag in FLAGS if flag.setting]


def names(flags: list[Flag]) -> list[str]:
    return [flag.name for flag in flags]


def settled(*arguments: str, **environ: str) -> AgentSettings:
    return load_dcgm_settings(arguments, environ)[0]


def field_of(settings: AgentSettings, flag: Flag) -> object:
    value = getattr(settings, FIELDS.get(flag.setting, flag.setting.replace("-", "_")))
    if flag.setting == "pod-label-allowlist":
        return tuple(pattern.pattern for pattern in value)
    return value


def notes(*arguments: str, **environ: str) -> tuple[str, ...]:
    return load_dcgm_settings(arguments, environ)[1].notes


def refusal(*arguments: str, **environ: str) -> str:
    with pytest.raises(BadInput) as caught:
        load_dcgm_settings(arguments, environ)
    return str(caught.value)


def test_our_own_families_are_served_where_somebody_asks_for_them() -> None:
    assert settled().own_families == "none"
    assert settled(GPUSCAPE_OWN_FAMILIES="core").own_families == "core"


# Container specs


def test_the_container_of_its_helm_chart_settles_without_a_remark() -> None:
    arguments, environ = HELM

    settings, told = load_dcgm_settings(arguments, environ)

    patterns = [pattern.pattern for pattern in settings.pod_label_allowlist]
    assert patterns == ["^app$", "^team/"]
    assert told.notes == ()
    assert settings == AgentSettings(
        **OURS,  # type: ignore[arg-type]  # one mapping of fields of several types
        pods=True,
        pod_labels=True,
        pod_uid_label=True,
        pod_label_allowlist=settings.pod_label_allowlist,
        resource_slices=True,
        node_name="worker-3",
        web_config_file=Path("/etc/dcgm-exporter/web-config.yaml"),
    )


def test_the_charts_dumps_are_passed_over_and_that_is_said() -> None:
    arguments, environ = HELM_DUMPS

    settings, told = load_dcgm_settings(arguments, environ)

    assert settings == AgentSettings(**OURS)  # type: ignore[arg-type]  # as above
    assert [note.partition(":")[0] for note in told.notes] == [
        "--dump-enabled does nothing",
        "--dump-directory does nothing",
    ]


def test_the_container_of_the_gpu_operator_settles_and_no_dcgm_is_asked() -> None:
    arguments, environ = OPERATOR

    settings, told = load_dcgm_settings(arguments, environ)

    assert settings == AgentSettings(
        **OURS,  # type: ignore[arg-type]  # as above
        pods=True,
        node_name="worker-3",
        hpc_jobs=Path("/var/lib/dcgm-exporter/job-mapping"),
    )
    assert told.notes == (
        "DCGM_REMOTE_HOSTENGINE_INFO does nothing: there is no DCGM here: this machine's GPUs are"
        " read through NVML.",
    )


def test_a_counters_file_that_is_mounted_over_its_own_counts() -> None:
    told = dcgm_arguments.read_dcgm_arguments(*HELM, is_there=lambda _path: True)

    assert told.flags["counters"].text == "/etc/dcgm-exporter/default-counters.csv"


def test_a_file_of_its_image_that_is_not_there_asks_for_the_default_families() -> None:
    told = dcgm_arguments.read_dcgm_arguments(*HELM, is_there=lambda _path: False)

    assert "counters" not in told.flags


def test_the_file_of_old_names_asks_for_them_though_it_is_not_there() -> None:
    """Its names and types by hand from dcgm-exporter's etc/1.x-compatibility-metrics.csv."""
    file = ("-f", "/etc/dcgm-exporter/1.x-compatibility-metrics.csv")
    gauges = "dcgm_sm_clock dcgm_memory_clock dcgm_memory_temp dcgm_gpu_temp dcgm_power_usage"
    gauges += " dcgm_gpu_utilization dcgm_mem_copy_utilization dcgm_enc_utilization"
    gauges += " dcgm_dec_utilization dcgm_xid_errors dcgm_fb_free dcgm_fb_used"
    gauges += " dcgm_fi_prof_gr_engine_active dcgm_fi_prof_pipe_tensor_active"
    gauges += " dcgm_fi_prof_dram_active"
    counters = "dcgm_total_energy_consumption dcgm_pcie_replay_counter dcgm_nvlink_bandwidth_total"
    counters += " dcgm_fi_prof_pcie_tx_bytes dcgm_fi_prof_pcie_rx_bytes"

    settings, _ = load_dcgm_settings(file, {})
    asked = metric_settings.configured_counters(settings)

    assert asked.skipped == ()
    assert {family.name: family.kind.value for family in asked.families} == {
        **dict.fromkeys(gauges.split(), "gauge"),
        **dict.fromkeys(counters.split(), "counter"),
    }


def test_the_file_of_old_names_that_is_mounted_counts() -> None:
    file = "/etc/dcgm-exporter/1.x-compatibility-metrics.csv"

    told = dcgm_arguments.read_dcgm_arguments(("-f", file), {}, is_there=lambda _path: True)

    assert told.flags["counters"].text == file


@pytest.mark.parametrize("is_there", [True, False])
def test_without_a_word_the_file_that_is_mounted_over_its_own_counts(is_there: bool) -> None:
    file = Path("/etc/dcgm-exporter/default-counters.csv")

    told = dcgm_arguments.read_dcgm_arguments(
        (), {}, is_there=lambda path: is_there and path == file
    )

    assert {name: given.text for name, given in told.fallback.items()} == (
        {"counters": str(file)} if is_there else {}
    )


def test_another_counters_file_is_never_left_out() -> None:
    told = dcgm_arguments.read_dcgm_arguments(
        ("-f", "/etc/mine.csv"), {}, is_there=lambda _path: False
    )

    assert told.flags["counters"].text == "/etc/mine.csv"


# Flags and variables


@pytest.mark.parametrize("flag", GIVING, ids=names(GIVING))
def test_each_flag_gives_its_setting(flag: Flag) -> None:
    text, value = WRITTEN[flag.setting]

    assert field_of(settled(f"--{flag.name}={text}"), flag) == value


@pytest.mark.parametrize("flag", GIVING, ids=names(GIVING))
def test_each_variable_gives_its_setting(flag: Flag) -> None:
    text, value = WRITTEN[flag.setting]

    assert field_of(settled(**{flag.variable: text}), flag) == value


def test_no_flag_or_variable_stands_for_two_things() -> None:
    words = [word for flag in FLAGS for word in (flag.name, flag.short, flag.variable) if word]
    settings = [flag.setting for flag in GIVING]

    assert len(set(words)) == len(words)
    assert len(set(settings)) == len(settings)


@pytest.mark.parametrize(
    ("arguments", "pods"),
    [
        (("-k",), True),
        (("--k",), True),
        (("-kubernetes",), True),
        (("--kubernetes=T",), True),
        (("--kubernetes=0",), False),
        (("-k", "-k=false"), False),
        ((), None),
    ],
)
def test_switches_are_written_as_in_go(arguments: tuple[str, ...], pods: bool | None) -> None:
    assert settled(*arguments).pods is pods


def test_a_list_given_again_grows() -> None:
    settings = settled(
        *("--nvidia-resource-names", "nvidia.com/a100,nvidia.com/a10"),
        *("--nvidia-resource-names=nvidia.com/l4",),
    )

    assert settings.resource_names == ("nvidia.com/a100", "nvidia.com/a10", "nvidia.com/l4")


def test_what_is_false_or_none_is_as_if_not_given() -> None:
    settings = settled("--no-hostname=false", "--debug=false", "-m", "none")

    assert settings == AgentSettings(**OURS)  # type: ignore[arg-type]  # as above


def test_flags_win_over_our_variables_and_these_over_its_variables_and_the_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("log-format: json\nxid-window: 3s\nclock-events-window: 3s\ndeadline: 3s\n")

    settings = settled(
        *("-c", "1000"),
        GPUSCAPE_CONFIG=str(file),
        GPUSCAPE_SAMPLE_INTERVAL="2s",
        GPUSCAPE_XID_WINDOW="2s",
        DCGM_EXPORTER_INTERVAL="4000",
        DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE="4000",
        DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE="4000",
    )

    assert settings.sample_interval_seconds == 1.0
    assert settings.xid_window_seconds == 2.0
    assert settings.clock_events_window_seconds == 4.0
    assert settings.deadline_seconds == 3.0


# What is refused, and what does nothing


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--kubernetes", "true"),
            "'true' is not a flag of dcgm-exporter: write --kubernetes=true, with =",
        ),
        (("--colectors=x",), "is not a flag of dcgm-exporter: did you mean collectors?"),
        (("-",), "'-' is not a flag of dcgm-exporter"),
        (("---k",), "'---k' is not a flag of dcgm-exporter"),
        (("-f",), "-f needs a value: text"),
        (("-c", "10s"), "-c is '10s': expected whole milliseconds"),
        (("-c=-1",), "-c is '-1': expected whole milliseconds"),
        (("-k=yes",), "-k is 'yes': expected true or false"),
        (("-d", "x"), "-d is 'x': expected f, g, i, g+i, or letters with ids: g:0,2-4+i"),
        (("-d=f+i",), "-d is 'f+i': expected f, g, i"),
        (("--log-format=xml",), "--log-format is 'xml': expected text or json"),
    ],
)
def test_mistakes_end_the_start_with_a_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in refusal(*arguments)


def test_a_mistake_in_a_variable_names_it() -> None:
    assert refusal(DCGM_EXPORTER_INTERVAL="30s").startswith("DCGM_EXPORTER_INTERVAL is '30s'")


PASSED_OVER = [flag for flag in FLAGS if not flag.setting and flag is not CONFIG_FILE]


@pytest.mark.parametrize("flag", PASSED_OVER, ids=names(PASSED_OVER))
def test_a_flag_that_does_nothing_says_so_only_if_it_would_change_something(flag: Flag) -> None:
    quiet = [note for text in flag.silent for note in notes(f"--{flag.name}={text}")]
    loud = notes(f"--{flag.name}=true") if flag.silent == ("false",) else ()

    assert quiet == []
    assert [note.partition(":")[0] for note in loud] in ([], [f"--{flag.name} does nothing"])
    assert bool(loud) is (flag.silent == ("false",))


def test_unknown_variables_are_told_and_those_of_a_service_are_not() -> None:
    seen = notes(
        DCGM_EXPORTER_INTERVALL="1000",
        DCGM_EXPORTER_SERVICE_HOST="10.0.0.7",
        DCGM_EXPORTER_SERVICE_PORT_METRICS="9400",
        DCGM_EXPORTER_PORT_9400_TCP_ADDR="10.0.0.7",
    )

    assert seen == (
        "DCGM_EXPORTER_INTERVALL does nothing: it is no variable of dcgm-exporter: did you mean"
        " DCGM_EXPORTER_INTERVAL?",
    )


# The command


def test_help_names_every_flag(run: Run) -> None:
    text = run("dcgm-exporter", "--help").stdout

    assert [flag.name for flag in FLAGS if f"--{flag.name}" not in text] == []


def test_a_mistake_is_one_sentence_and_exit_code_2(run: Run) -> None:
    result = run("dcgm-exporter", "-c", "soon")

    assert (result.exit_code, result.stderr) == (
        2,
        "Error: -c is 'soon': expected whole milliseconds\n",
    )


def test_the_page_names_every_flag_and_variable() -> None:
    page = PAGE.read_text()

    missing = [
        word
        for flag in FLAGS
        for word in (f"`--{flag.name}`", f"`{flag.variable}`", f"`{flag.setting}`")
        if word not in page and word != "``"
    ]
    assert missing == []


SCRIPT = """
import json, os, signal, sys, threading, time, urllib.error, urllib.request
from cli.main import main

address = os.environ["DCGM_EXPORTER_LISTEN"]

def fetch(path):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
        return answer.status, answer.read().decode()

def end_when_seen():
    seen = {}
    for _ in range(300):
        try:
            seen = {path: fetch(path) for path in ("/metrics", "/health", "/")}
        except OSError:
            pass
        if seen and "DCGM_FI_DEV_GPU_TEMP{" in seen["/metrics"][1]:
            break
        time.sleep(0.1)
    print(json.dumps(seen), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end_when_seen, daemon=True).start()
main(["dcgm-exporter", *sys.argv[1:]])
"""


def free_address() -> str:
    """An address on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_the_container_of_the_gpu_operator_answers_scrapes_and_probes() -> None:
    arguments, environ = OPERATOR
    named = {"PATH": os.environ["PATH"], "GPUSCAPE_SIMULATE": "t4"}

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env={**named, **environ, "DCGM_EXPORTER_LISTEN": free_address()},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    metrics = seen["/metrics"][1]
    assert metrics.count("\nDCGM_FI_DEV_GPU_TEMP{") == 4
    assert metrics.count('hostname="worker-3"') > 4
    assert seen["/health"] == [200, "OK"]
    assert "DCGM_REMOTE_HOSTENGINE_INFO does nothing" in done.stderr
