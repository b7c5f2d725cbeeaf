# SPDX-License-Identifier: Apache-2.0
"""The coordinator's settings: each declared once, with type, default, kind and help text. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from api import names
from base.errors import BadInput
from base.settings import setting_kinds as kinds
from base.settings.common_settings import kubeconfig, namespace, pod_name
from base.settings.log_settings import log_format, log_level
from base.settings.option import setting
from base.settings.program_settings import ProgramSettings
from base.settings.setting_kinds import SettingKind
from fleet.gpu_pod import GpuPodSelector, Selector
from fleet.rollout_settings import RolloutSettings
from web.address import ADDRESS, Address

_LABEL: Final = re.compile(r"([A-Za-z0-9./_-]+)=([A-Za-z0-9._-]*)")


def _selectors(text: str) -> tuple[Selector, ...]:
    matches = [_LABEL.fullmatch(word.strip()) for word in text.split(",") if word.strip()]
    if not all(matches):
        raise ValueError(text)
    return tuple((match[1], match[2]) for match in matches if match is not None)


_SELECTORS: Final = SettingKind(
    metavar="LABEL=VALUE,…",
    expects="labels with their values, with commas between",
    parse=_selectors,
    show=lambda value: ",".join(f"{key}={text}" for key, text in value),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings(RolloutSettings):
    """All settings of the coordinator; those of rollouts come first."""

    gpu_resources: tuple[str, ...] = setting(
        ("nvidia.com/gpu", "nvidia.com/mig-"),
        kinds.NAMES,
        "Names of GPU resources, each also with the suffix .shared; a text that ends in -, . or /"
        " matches all names that begin with it.",
        subject="Cluster",
    )
    device_plugins: tuple[Selector, ...] = setting(
        (
            ("app", "nvidia-device-plugin-daemonset"),
            ("name", "nvidia-device-plugin-ds"),
            ("app.kubernetes.io/name", "nvidia-device-plugin"),
        ),
        _SELECTORS,
        "Pods with any of these labels are device plugins, and are restarted after a change.",
    )
    kubeconfig: Path | None = kubeconfig()
    namespace: str = namespace(names.NAMESPACE, "Namespace of the Leases.")
    instance: str | None = pod_name(
        "Unique name of this coordinator, for the Lease and for Events.", unset="the host's name"
    )
    listen: Address = setting(
        Address(host="", port=9402), ADDRESS, "Where /metrics, /livez and /readyz are served."
    )

    log_level: str = log_level()
    log_format: str = log_format()

    def __post_init__(self) -> None:
        """Raises BadInput where settings make no sense."""
        for name in ("failures_in_row", "failures_in_all"):
            if getattr(self, name) < 1:
                option = name.replace("_", "-")
                raise BadInput(f"{option} is 0: give the failures that stop a rollout")
        if not self.gpu_resources:
            raise BadInput("gpu-resources is empty: every node would count as idle")

    @property
    def pod_terms(self) -> GpuPodSelector:
        """Resources and labels by which pods count."""
        return GpuPodSelector(resources=self.gpu_resources, plugins=self.device_plugins)


COORDINATOR_SETTINGS = ProgramSettings(CoordinatorSettings)
