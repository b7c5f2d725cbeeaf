"""dcgm-exporter's own flags and variables, and the settings they stand for. Pure.

Source: NVIDIA/dcgm-exporter, ``pkg/cmd/app.go`` (4.5.3-4.8.2), for names, units and defaults; the
grammar is that of Go's package flag, with which it reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from agent.settings.agent_settings import Layer, WrittenValue, nearest
from base.errors import BadInput
from base.settings.layers import is_service_link
from exporters.dcgm.legacy import COMPATIBILITY_FILE


class Form(Enum):
    """How a value is written."""

    TEXT = "text"
    SWITCH = "true or false; a flag alone is true"
    MILLISECONDS = "whole milliseconds"
    LIST = "a list with commas between; giving it again adds to it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag of dcgm-exporter, with its variable."""

    name: str
    variable: str
    short: str = ""
    form: Form = Form.TEXT
    setting: str = ""
    """The setting of ours that it gives; empty: none."""
    values: Mapping[str, str] = field(default_factory=dict)
    """What we call its values, where that differs; empty text: as if not given."""
    does: str = ""
    """For a flag that sets nothing: what holds here instead, as a sentence."""
    silent: tuple[str, ...] = ("false",)
    """Values with which that need not be said, since they change nothing there either."""
    refused: bool = False
    """All other values end the start, since going on would do what was not asked for."""


_IMAGE_FOLDER = Path("/etc/dcgm-exporter")
_DEFAULT_FILE = _IMAGE_FOLDER / "default-counters.csv"
_BUILT_IN: Mapping[Path, Path | None] = {
    _DEFAULT_FILE: None,
    _IMAGE_FOLDER / "dcp-metrics-included.csv": None,
    _IMAGE_FOLDER / "1.x-compatibility-metrics.csv": COMPATIBILITY_FILE,
}
"""Files of dcgm-exporter's image, which manifests name, to what stands for each where it is not
there: a file of ours, or None for the families that are served anyway."""

_NO_DCGM = "There is no DCGM here: this machine's GPUs are read through NVML."
_NO_DUMPS = "No dumps are written; `gpuscape record` writes down what a machine answers."
_ALWAYS_SEEN = "GPUs that come and go are always seen, and without a restart."

FLAGS: tuple[Flag, ...] = (
    Flag(name="collectors", short="f", variable="DCGM_EXPORTER_COLLECTORS", setting="counters"),
    Flag(
        name="configmap-data",
        short="m",
        variable="DCGM_EXPORTER_CONFIGMAP_DATA",
        setting="counters-from",
        values={"none": ""},
    ),
    Flag(name="address", short="a", variable="DCGM_EXPORTER_LISTEN", setting="listen"),
    Flag(
        name="collect-interval",
        short="c",
        variable="DCGM_EXPORTER_INTERVAL",
        form=Form.MILLISECONDS,
        setting="sample-interval",
    ),
    Flag(name="devices", short="d", variable="DCGM_EXPORTER_DEVICES_STR", setting="devices"),
    Flag(
        name="kubernetes",
        short="k",
        variable="DCGM_EXPORTER_KUBERNETES",
        form=Form.SWITCH,
        setting="pods",
    ),
    Flag(
        name="kubernetes-enable-pod-labels",
        variable="DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS",
        form=Form.SWITCH,
        setting="pod-labels",
    ),
    Flag(
        name="kubernetes-enable-pod-uid",
        variable="DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID",
        form=Form.SWITCH,
        setting="pod-uid-label",
    ),
    Flag(
        name="kubernetes-pod-label-allowlist-regex",
        variable="DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX",
        form=Form.LIST,
        setting="pod-label-allowlist",
    ),
    Flag(
        name="kubernetes-virtual-gpus",
        variable="KUBERNETES_VIRTUAL_GPUS",
        form=Form.SWITCH,
        setting="virtual-gpus",
    ),
    Flag(
        name="kubernetes-enable-dra",
        variable="KUBERNETES_ENABLE_DRA",
        form=Form.SWITCH,
        setting="resource-slices",
    ),
    Flag(
        name="nvidia-resource-names",
        variable="NVIDIA_RESOURCE_NAMES",
        form=Form.LIST,
        setting="resource-names",
    ),
    Flag(
        name="pod-resources-kubelet-socket",
        variable="DCGM_POD_RESOURCES_KUBELET_SOCKET",
        setting="pod-resources-socket",
    ),
    Flag(name="hpc-job-mapping-dir", variable="DCGM_HPC_JOB_MAPPING_DIR", setting="hpc-jobs"),
    Flag(
        name="no-hostname",
        short="n",
        variable="DCGM_EXPORTER_NO_HOSTNAME",
        form=Form.SWITCH,
        setting="hostname-label",
        values={"true": "none", "false": ""},
    ),
    Flag(
        name="use-old-namespace",
        short="o",
        variable="DCGM_EXPORTER_USE_OLD_NAMESPACE",
        form=Form.SWITCH,
        setting="old-namespace",
    ),
    Flag(
        name="replace-blanks-in-model-name",
        short="rbmn",
        variable="DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME",
        form=Form.SWITCH,
        setting="replace-blanks",
    ),
    Flag(
        name="xid-count-window-size",
        short="x",
        variable="DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE",
        form=Form.MILLISECONDS,
        setting="xid-window",
    ),
    Flag(
        name="clock-events-count-window-size",
        variable="DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE",
        form=Form.MILLISECONDS,
        setting="clock-events-window",
    ),
    Flag(
        name="web-config-file",
        variable="DCGM_EXPORTER_WEB_CONFIG_FILE",
        setting="web-config-file",
    ),
    Flag(name="log-format", variable="DCGM_EXPORTER_LOG_FORMAT", setting="log-format"),
    Flag(
        name="debug",
        variable="DCGM_EXPORTER_DEBUG",
        form=Form.SWITCH,
        setting="log-level",
        values={"true": "debug", "false": ""},
    ),
    Flag(
        name="kubernetes-gpu-id-type",
        variable="DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE",
        does="Every form of a device's id is known, so only uid and device-name may be given.",
        silent=("uid", "device-name"),
        refused=True,
    ),
    Flag(
        name="remote-hostengine-info",
        short="r",
        variable="DCGM_REMOTE_HOSTENGINE_INFO",
        does=_NO_DCGM,
        silent=("localhost:5555",),
    ),
    Flag(
        name="enable-dcgm-log",
        variable="DCGM_EXPORTER_ENABLE_DCGM_LOG",
        form=Form.SWITCH,
        does=_NO_DCGM,
    ),
    Flag(
        name="dcgm-log-level",
        variable="DCGM_EXPORTER_DCGM_LOG_LEVEL",
        does=_NO_DCGM,
        silent=("NONE",),
    ),
    Flag(
        name="switch-devices",
        short="s",
        variable="DCGM_EXPORTER_OTHER_DEVICES_STR",
        does="NVSwitches have no series of DCGM's here.",
        silent=("f",),
    ),
    Flag(
        name="cpu-devices",
        short="p",
        variable="DCGM_EXPORTER_CPU_DEVICES_STR",
        does="CPUs have no series here.",
        silent=("f",),
    ),
    Flag(
        name="disable-startup-validate",
        variable="DISABLE_STARTUP_VALIDATE",
        form=Form.SWITCH,
        does="A start needs neither GPUs nor a driver, so there is nothing to leave out.",
    ),
    Flag(
        name="enable-gpu-bind-unbind-watch",
        variable="DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH",
        form=Form.SWITCH,
        does=_ALWAYS_SEEN,
        silent=("true", "false"),
    ),
    Flag(
        name="gpu-bind-unbind-poll-interval",
        variable="DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL",
        does=f"{_ALWAYS_SEEN} GPUSCAPE_DISCOVER_INTERVAL sets how often one looks.",
        silent=("1s",),
    ),
    Flag(
        name="enable-pprof",
        variable="DCGM_EXPORTER_ENABLE_PPROF",
        form=Form.SWITCH,
        does="It is for programs in Go, so /debug/pprof/ is not served.",
    ),
    Flag(
        name="dump-enabled",
        variable="DCGM_EXPORTER_DUMP_ENABLED",
        form=Form.SWITCH,
        does=_NO_DUMPS,
    ),
    Flag(
        name="dump-directory",
        variable="DCGM_EXPORTER_DUMP_DIRECTORY",
        does=_NO_DUMPS,
        silent=("/tmp/dcgm-exporter-debug",),  # noqa: S108  # its default; nothing is written there
    ),
    Flag(
        name="dump-retention",
        variable="DCGM_EXPORTER_DUMP_RETENTION",
        does=_NO_DUMPS,
        silent=("24",),
    ),
    Flag(
        name="dump-compression",
        variable="DCGM_EXPORTER_DUMP_COMPRESSION",
        form=Form.SWITCH,
        does=_NO_DUMPS,
        silent=("true", "false"),
    ),
    Flag(
        name="web-systemd-socket",
        variable="DCGM_EXPORTER_SYSTEMD_SOCKET",
        form=Form.SWITCH,
        does="Sockets of systemd are not taken over: give an address instead.",
        refused=True,
    ),
    Flag(
        name="fake-gpus",
        variable="DCGM_EXPORTER_USE_FAKE_GPUS",
        form=Form.SWITCH,
        does="Simulated GPUs are chosen with GPUSCAPE_SIMULATE instead, such as dgx-a100.",
        refused=True,
    ),
)

_BY_WORD = {word: flag for flag in FLAGS for word in (flag.name, flag.short) if word}


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmSettings:
    """What dcgm-exporter was told, as settings."""

    flags: Layer
    environment: Layer
    notes: tuple[str, ...]
    """What was asked for and is not done: sentences that name the flag or variable."""
    untold: Layer
    """What holds where nobody says otherwise."""


def read(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    is_there: Callable[[Path], bool] = Path.exists,
) -> DcgmSettings:
    """Settings from dcgm-exporter's command line, without its name, and its environment.

    Raises BadInput that names the flag or variable: for unknown flags, words that are none,
    values of another form, and what is not done and cannot be passed over.
    """
    from_flags, from_variables = _flags(arguments), _variables(environ)
    everything = [*from_flags, *from_variables]
    notes = [note for flag, given in everything if (note := _note(flag, given))]
    return DcgmSettings(
        flags=_layer(from_flags, is_there),
        environment=_layer(from_variables, is_there),
        notes=(*notes, *_unknown(environ)),
        untold=_untold(is_there),
    )


def _untold(is_there: Callable[[Path], bool]) -> Layer:
    """The counters file that people mount over that of dcgm-exporter's image."""
    if not is_there(_DEFAULT_FILE):
        return {}
    return {"counters": WrittenValue(text=str(_DEFAULT_FILE), source="dcgm-exporter")}


def asks_for(words: Iterable[str], arguments: Iterable[str]) -> bool:
    """One of the arguments is one of these words as a flag."""
    return any(each.startswith("-") and each.lstrip("-") in words for each in arguments)


_Said = list[tuple[Flag, WrittenValue]]


def _flags(arguments: Sequence[str]) -> _Said:
    """Each flag once, with its last value, or with all that were added to its list."""
    said: dict[str, tuple[Flag, WrittenValue]] = {}
    rest = list(arguments)
    while rest:
        flag, given = _next(rest)
        if flag.form is Form.LIST and flag.name in said:
            given = replace(given, text=f"{said[flag.name][1].text},{given.text}")
        said[flag.name] = flag, given
    return list(said.values())


def _next(rest: list[str]) -> tuple[Flag, WrittenValue]:
    """Take a flag and its value from the front."""
    word = rest.pop(0)
    match = re.fullmatch(r"--?([^-=][^=]*)(?:=(.*))?", word, re.DOTALL)
    if match is None:
        advice = ": write --kubernetes=true, with =" if word in _BOOLEANS else ""
        raise BadInput(f"{word!r} is not a flag of dcgm-exporter{advice}")
    name, value = match.groups()
    if (flag := _BY_WORD.get(name)) is None:
        raise BadInput(f"{word!r} is not a flag of dcgm-exporter{nearest(name, _BY_WORD)}")
    if value is None and flag.form is Form.SWITCH:
        value = "true"
    elif value is None:
        if not rest:
            raise BadInput(f"{word} needs a value: {flag.form.value}")
        value = rest.pop(0)
    return flag, _given(flag, value, word.partition("=")[0])


def _variables(environ: Mapping[str, str]) -> _Said:
    return [
        (flag, _given(flag, text, flag.variable))
        for flag in FLAGS
        if (text := environ.get(flag.variable, "")).strip()
    ]


_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), "true"),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), "false"),
}
"""Source: Go's strconv.ParseBool."""


def _given(flag: Flag, text: str, source: str) -> WrittenValue:
    """The value as our setting takes it. Raises BadInput where its form is another."""
    value = text.strip()
    if flag.form is Form.SWITCH:
        value = _BOOLEANS.get(value, "")
    elif flag.form is Form.MILLISECONDS:
        value = f"{value}ms" if re.fullmatch(r"[0-9]+", value) else ""
    if text.strip() and not value:
        raise BadInput(f"{source} is {text!r}: expected {flag.form.value}")
    return WrittenValue(text=flag.values.get(value, value), source=source)


def _note(flag: Flag, given: WrittenValue) -> str:
    """What to say of a flag that sets nothing here. Raises BadInput for a refused one."""
    if flag.setting or not given.text or given.text in flag.silent:
        return ""
    if flag.refused:
        raise BadInput(f"{given.source} is {given.text!r}: {flag.does.lower()[0]}{flag.does[1:]}")
    return f"{given.source} does nothing: {flag.does[0].lower()}{flag.does[1:]}"


def _layer(said: _Said, is_there: Callable[[Path], bool]) -> Layer:
    """What gives a setting; for a file that only dcgm-exporter's image has, what stands for it."""
    layer: dict[str, WrittenValue] = {}
    for flag, given in said:
        file = Path(given.text)
        if flag.setting == "counters" and file in _BUILT_IN and not is_there(file):
            if (instead := _BUILT_IN[file]) is not None:
                layer[flag.setting] = replace(given, text=str(instead))
        elif flag.setting:
            layer[flag.setting] = given
    return layer


def _unknown(environ: Mapping[str, str]) -> list[str]:
    known = [flag.variable for flag in FLAGS]
    return [
        f"{name} does nothing: it is no variable of dcgm-exporter{nearest(name, known)}"
        for name in environ
        if name.startswith("DCGM_EXPORTER_")
        and name not in known
        and not is_service_link(name, "DCGM_EXPORTER_")
    ]
