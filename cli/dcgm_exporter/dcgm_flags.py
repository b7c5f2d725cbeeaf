# SPDX-License-Identifier: Apache-2.0
"""dcgm-exporter's own flags and variables, and the setting of ours that each gives. Pure.

Source: NVIDIA/dcgm-exporter at the tag of each release, ``pkg/cmd/app.go``, for names, units and
defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from exporters.dcgm.peer.peer_releases import EVERY_RELEASE, SINCE_4_8_3, SINCE_4_8_4, ReleaseSpan


class Form(Enum):
    """Form in which a flag's value is written."""

    TEXT = "text"
    SWITCH = "true or false; a flag alone is true"
    MILLISECONDS = "whole milliseconds"
    LIST = "a list with commas between; giving it again adds to it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag of dcgm-exporter, with its variable and its effect here."""

    name: str
    own_variable: str = ""
    """Its variable, where that does not follow from the name."""
    short: str = ""
    form: Form = Form.TEXT
    setting: str = ""
    """The setting of ours that it gives; empty: none."""
    values: Mapping[str, str] = field(default_factory=dict)
    """The flag's value to the setting's, where they differ; empty text: as if not set."""
    does: str = ""
    """Effect of a flag that sets nothing, as a sentence; empty for other flags."""
    silent: tuple[str, ...] = ("false",)
    """Values that need no note, since they change nothing in dcgm-exporter either."""
    releases: ReleaseSpan = EVERY_RELEASE
    """Releases that have the flag. It is accepted whatever release is served."""

    @property
    def variable(self) -> str:
        """The variable that sets the same."""
        return self.own_variable or f"DCGM_EXPORTER_{self.name.upper().replace('-', '_')}"


_NO_DCGM = "There is no DCGM here: this machine's GPUs are read through NVML."
_NO_DUMPS = "No dumps are written; `gpuscape record` writes down what a machine answers."
_NO_HISTORY = "No history of readings is kept: /metrics shows the newest."
OF_DCGM = frozenset({_NO_DCGM, _NO_DUMPS, _NO_HISTORY})
"""Texts of :attr:`Flag.does` for flags that concern DCGM itself."""
_NO_RUNTIME = "Labels of containers are not read from a container runtime."
_OWN_TIMES = "The server's own limits hold: 5 s for a request's head, 10 s for taking the answer."
_ALWAYS_SEEN = "GPUs that come and go are always seen, and without a restart."

CONFIG_FILE = Flag(
    name="config-file",
    does="A YAML file of dcgm-exporter is read: its metrics, and the interval of all of them.",
    releases=SINCE_4_8_3,
)

FLAGS: tuple[Flag, ...] = (
    CONFIG_FILE,
    Flag(name="collectors", short="f", setting="counters"),
    Flag(name="configmap-data", short="m", setting="counters-from", values={"none": ""}),
    Flag(name="address", short="a", own_variable="DCGM_EXPORTER_LISTEN", setting="listen"),
    Flag(
        name="collect-interval",
        short="c",
        own_variable="DCGM_EXPORTER_INTERVAL",
        form=Form.MILLISECONDS,
        setting="sample-interval",
    ),
    Flag(name="devices", short="d", own_variable="DCGM_EXPORTER_DEVICES_STR", setting="devices"),
    Flag(name="kubernetes", short="k", form=Form.SWITCH, setting="pods"),
    Flag(name="kubernetes-enable-pod-labels", form=Form.SWITCH, setting="pod-labels"),
    Flag(name="kubernetes-enable-pod-uid", form=Form.SWITCH, setting="pod-uid-label"),
    Flag(
        name="kubernetes-pod-label-allowlist-regex",
        form=Form.LIST,
        setting="pod-label-allowlist",
        releases=ReleaseSpan(first="4.6.0"),
    ),
    Flag(
        name="kubernetes-virtual-gpus",
        own_variable="KUBERNETES_VIRTUAL_GPUS",
        form=Form.SWITCH,
        setting="virtual-gpus",
    ),
    Flag(
        name="kubernetes-enable-dra",
        own_variable="KUBERNETES_ENABLE_DRA",
        form=Form.SWITCH,
        setting="resource-slices",
    ),
    Flag(
        name="nvidia-resource-names",
        own_variable="NVIDIA_RESOURCE_NAMES",
        form=Form.LIST,
        setting="resource-names",
    ),
    Flag(
        name="pod-resources-kubelet-socket",
        own_variable="DCGM_POD_RESOURCES_KUBELET_SOCKET",
        setting="pod-resources-socket",
    ),
    Flag(name="hpc-job-mapping-dir", own_variable="DCGM_HPC_JOB_MAPPING_DIR", setting="hpc-jobs"),
    Flag(
        name="no-hostname",
        short="n",
        form=Form.SWITCH,
        setting="hostname-label",
        values={"true": "none", "false": ""},
    ),
    Flag(name="use-old-namespace", short="o", form=Form.SWITCH, setting="old-namespace"),
    Flag(
        name="replace-blanks-in-model-name",
        short="rbmn",
        form=Form.SWITCH,
        setting="replace-blanks",
    ),
    Flag(name="xid-count-window-size", short="x", form=Form.MILLISECONDS, setting="xid-window"),
    Flag(
        name="clock-events-count-window-size",
        form=Form.MILLISECONDS,
        setting="clock-events-window",
    ),
    Flag(name="web-config-file", setting="web-config-file"),
    Flag(name="log-format", setting="log-format"),
    Flag(
        name="debug",
        form=Form.SWITCH,
        setting="log-level",
        values={"true": "debug", "false": ""},
    ),
    Flag(
        name="health-require-gpus",
        form=Form.SWITCH,
        setting="health-needs-gpus",
        releases=SINCE_4_8_4,
    ),
    Flag(
        name="kubernetes-gpu-id-type",
        does="Every form of a device's id is known, so there is nothing to choose.",
        silent=("uid", "device-name"),
    ),
    Flag(
        name="remote-hostengine-info",
        short="r",
        own_variable="DCGM_REMOTE_HOSTENGINE_INFO",
        does=_NO_DCGM,
        silent=("localhost:5555",),
    ),
    Flag(name="enable-dcgm-log", form=Form.SWITCH, does=_NO_DCGM),
    Flag(name="dcgm-log-level", does=_NO_DCGM, silent=("NONE",)),
    Flag(
        name="switch-devices",
        short="s",
        own_variable="DCGM_EXPORTER_OTHER_DEVICES_STR",
        does="NVSwitches have no series of DCGM's here.",
        silent=("f",),
    ),
    Flag(
        name="cpu-devices",
        short="p",
        own_variable="DCGM_EXPORTER_CPU_DEVICES_STR",
        does="CPUs have no series here.",
        silent=("f",),
    ),
    Flag(
        name="disable-startup-validate",
        own_variable="DISABLE_STARTUP_VALIDATE",
        form=Form.SWITCH,
        does="A start needs neither GPUs nor a driver, so there is nothing to leave out.",
        releases=ReleaseSpan(first="4.5.2"),
    ),
    Flag(
        name="enable-gpu-bind-unbind-watch",
        form=Form.SWITCH,
        does=_ALWAYS_SEEN,
        silent=("true", "false"),
        releases=ReleaseSpan(first="4.8.0"),
    ),
    Flag(
        name="gpu-bind-unbind-poll-interval",
        does=f"{_ALWAYS_SEEN} GPUSCAPE_DISCOVER_INTERVAL sets how often GPUs are listed.",
        silent=("1s",),
        releases=ReleaseSpan(first="4.8.0"),
    ),
    Flag(
        name="enable-pprof",
        form=Form.SWITCH,
        does="It is for programs in Go, so /debug/pprof/ is not served.",
        releases=ReleaseSpan(first="4.8.2"),
    ),
    Flag(
        name="kubernetes-pod-label-cache-size",
        does="Which labels of pods are shown is decided once for each pod, without a cache.",
        silent=("150000",),
        releases=ReleaseSpan(first="4.7.0", last="4.7.1"),
    ),
    Flag(name="web-read-timeout", does=_OWN_TIMES, silent=("10s",), releases=SINCE_4_8_3),
    Flag(name="web-write-timeout", does=_OWN_TIMES, silent=("30s",), releases=SINCE_4_8_3),
    Flag(name="container-labels", form=Form.SWITCH, does=_NO_RUNTIME, releases=SINCE_4_8_3),
    Flag(
        name="container-runtime-socket",
        own_variable="DCGM_CONTAINER_RUNTIME_SOCKET",
        does=_NO_RUNTIME,
        releases=SINCE_4_8_3,
    ),
    Flag(
        name="watch-max-keep-age",
        does=_NO_HISTORY,
        silent=("10m", "10m0s"),
        releases=SINCE_4_8_4,
    ),
    Flag(name="watch-max-keep-samples", does=_NO_HISTORY, silent=("0",), releases=SINCE_4_8_4),
    Flag(
        name="max-concurrent-scrapes",
        does="A scrape is answered with bytes that are there already, so none waits for another.",
        silent=("16",),
        releases=SINCE_4_8_4,
    ),
    Flag(
        name="enable-exporter-metrics",
        form=Form.SWITCH,
        does="Metrics go_, process_ and promhttp_ are of programs in Go; GPUSCAPE_OWN_FAMILIES=core"
        " adds metrics of the agent itself.",
        releases=SINCE_4_8_4,
    ),
    Flag(name="dump-enabled", form=Form.SWITCH, does=_NO_DUMPS),
    Flag(
        name="dump-directory",
        does=_NO_DUMPS,
        silent=("/tmp/dcgm-exporter-debug",),  # noqa: S108  # its default; nothing is written there
    ),
    Flag(name="dump-retention", does=_NO_DUMPS, silent=("24",)),
    Flag(name="dump-compression", form=Form.SWITCH, does=_NO_DUMPS, silent=("true", "false")),
    Flag(
        name="web-systemd-socket",
        own_variable="DCGM_EXPORTER_SYSTEMD_SOCKET",
        form=Form.SWITCH,
        does="Sockets of systemd are not taken over: metrics are served at the address.",
    ),
    Flag(
        name="fake-gpus",
        own_variable="DCGM_EXPORTER_USE_FAKE_GPUS",
        form=Form.SWITCH,
        does="GPUs are not made up; GPUSCAPE_SIMULATE=dgx-a100 simulates a whole machine.",
    ),
)
