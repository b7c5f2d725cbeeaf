"""The settings of ``gpuscape scheduler``: how each is written, and the value that layers give."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from agent.settings.agent_settings import OPTIONS as AGENT_OPTIONS
from agent.settings.agent_settings import Option, SettingSpec, values
from base.settings import setting_kinds as kinds
from base.settings.layers import layers
from base.settings.setting_kinds import SettingKind
from scheduler.extender.scheduler_settings import SchedulerSettings
from scheduler.scores.kubelet_model import DevicePluginPolicy, Scope, TopologyManager
from web.address import Address

LISTEN: Final = Address(host="127.0.0.1", port=8888)


def _one_of(words: type[StrEnum]) -> SettingKind:
    """One of an enumeration's values."""
    kind = kinds.choice(*(each.value for each in words))
    return dataclasses.replace(kind, parse=words)


SAID: Final[Mapping[str, SettingSpec]] = {
    "listen": SettingSpec(
        kinds.ADDRESS,
        "Where it is served; port 0 is any free one. Any address but loopback needs TLS.",
    ),
    "kubeconfig": SettingSpec(
        kinds.PATH,
        "How to reach the cluster.",
        "the pod's own token, else kubectl's file",
        ("KUBECONFIG",),
    ),
    "namespace": SettingSpec(
        kinds.text("NAME"), "Namespace of the agents' Leases.", "", ("POD_NAMESPACE",)
    ),
    "tls_cert_file": SettingSpec(
        kinds.PATH,
        "The server's certificate, PEM; changed files count within seconds.",
        "plain HTTP, on loopback only",
    ),
    "tls_private_key_file": SettingSpec(
        kinds.PATH, "The key of that certificate, PEM, not encrypted."
    ),
    "client_ca_file": SettingSpec(
        kinds.PATH,
        "Authorities, PEM, one of which has to have signed a client's certificate; probes,"
        " metrics and the API's description are served without.",
        "everybody is served",
    ),
    "client_names": SettingSpec(
        kinds.NAMES,
        "Common or DNS names, of which a client's certificate has to carry one.",
        "any",
    ),
    "gpu_resource": SettingSpec(
        kinds.text("NAME"), "The resource by which pods ask for whole GPUs."
    ),
    "nic_resources": SettingSpec(
        kinds.NAMES,
        "Resources that are RDMA NICs: a pod that asks for one is sent where its GPUs are close"
        " to a NIC, as with the annotation gpuscape.io/nic.",
        "none",
    ),
    "topology_manager": SettingSpec(
        _one_of(TopologyManager),
        "The kubelets' TopologyManager policy.",
    ),
    "topology_manager_scope": SettingSpec(
        _one_of(Scope), "The scope of that policy in the kubelets' configuration."
    ),
    "allocation": SettingSpec(
        _one_of(DevicePluginPolicy),
        "How the device plugin chooses GPUs; NVIDIA's own is best-effort.",
    ),
    "budget_seconds": SettingSpec(
        kinds.duration("1ms"),
        "Time for an answer, past which it is empty and the scheduler's other opinions decide;"
        " keep it below the scheduler's httpTimeout.",
    ),
    "events": SettingSpec(
        kinds.FLAG, "Write an Event on a pod that asked for linked GPUs and did not get them."
    ),
    "instance": SettingSpec(
        kinds.text("NAME"), "What Events call this replica.", "the host's name", ("POD_NAME",)
    ),
    "log_level": SettingSpec(
        kinds.choice("debug", "info", "warning", "error"), "The least that is logged."
    ),
    "log_format": SettingSpec(
        kinds.choice("text", "json"), "Log lines for people or for programs."
    ),
}
"""Each field of :class:`SchedulerSettings`."""

_DEFAULTS: Final = {
    field.name: field.default for field in dataclasses.fields(SchedulerSettings)
} | {"listen": LISTEN}

_SUBJECTS: Final[Mapping[str, Sequence[str]]] = {
    "Addresses and access": (
        "listen",
        "tls_cert_file",
        "tls_private_key_file",
        "client_ca_file",
        "client_names",
    ),
    "Cluster": ("kubeconfig", "namespace", "events", "instance"),
    "Scores": (
        "gpu_resource",
        "nic_resources",
        "topology_manager",
        "topology_manager_scope",
        "allocation",
        "budget_seconds",
    ),
    "Log": ("log_level", "log_format"),
}
"""In the order of help texts."""

OPTIONS: Final = tuple(
    Option(field=name, default=_DEFAULTS[name], said=SAID[name], subject=subject)
    for subject, names in _SUBJECTS.items()
    for name in names
)


def load(
    flags: Mapping[str, str],
    environ: Mapping[str, str],
    read_file: Callable[[Path], str] = Path.read_text,
) -> SchedulerSettings:
    """The settings as they stand now; precedence and mistakes as in :mod:`base.settings.layers`.

    Raises BadInput with one sentence that names the flag, variable, or file, line and key.
    """
    given = values(layers(flags, environ, read_file, OPTIONS, beside=AGENT_OPTIONS), OPTIONS)
    return SchedulerSettings(**{"listen": LISTEN, **given})  # type: ignore[arg-type]  # each Kind gives its own field's type
