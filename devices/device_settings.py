# SPDX-License-Identifier: Apache-2.0
"""Settings of ``gpuscape devices``: each declared once, with type, default, kind and help. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from api.mig_resources import MigStrategy
from base.errors import BadInput
from base.settings import setting_kinds as kinds
from base.settings.common_settings import flag
from base.settings.log_settings import log_format, log_level
from base.settings.option import setting
from base.settings.program_settings import ProgramSettings
from kubelet.device_plugin.plugin_sockets import PLUGIN_FOLDER


class Door(StrEnum):
    """The kubelet's interface by which devices are handed out."""

    DEVICE_PLUGIN = "device-plugin"


class NumaHints(StrEnum):
    """Whether the kubelet gets the NUMA nodes of GPUs."""

    GPU = "gpu"
    """The NUMA node of each GPU, as NVIDIA's plugin has it."""
    OFF = "off"
    """None: where NVSwitch joins all GPUs, a NUMA node says nothing of their links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSettings:
    """All settings of the program."""

    door: Door = setting(
        Door.DEVICE_PLUGIN,
        kinds.member_kind(Door),
        "Interface of the kubelet by which GPUs are handed out.",
        subject="Devices",
    )
    mig_strategy: MigStrategy = setting(
        MigStrategy.NONE,
        kinds.member_kind(MigStrategy),
        "What MIG devices are: with none they are no resource and each GPU is whole, with mixed"
        " each profile is a resource. single is not supported yet.",
        variables=("MIG_STRATEGY",),
    )
    numa: NumaHints = setting(
        NumaHints.GPU,
        kinds.member_kind(NumaHints),
        "Whether the kubelet gets the NUMA node of each GPU; off where NVSwitch joins all GPUs.",
    )
    disable_healthchecks: tuple[str, ...] = setting(
        (),
        kinds.NAMES,
        "Numbers of XID errors that do not make a device unhealthy; all: no cause does.",
        unset="every cause of the health table counts",
        variables=("DP_DISABLE_HEALTHCHECKS",),
    )
    pass_device_specs: bool = flag(
        "Give the kubelet the device nodes of each container too, for static CPUs."
        " NVIDIA's plugin calls it by the same name."
    )
    dev_root: str = setting(
        "/",
        kinds.text_kind("PATH"),
        "Folder of the host that has the driver's /dev.",
        variables=("NVIDIA_DEV_ROOT",),
    )
    exchange_folder: Path = setting(
        Path("/run/gpuscape/devices"),
        kinds.PATH,
        "Folder in which the agent writes its file for this program.",
        subject="Places",
    )
    plugin_folder: Path = setting(
        PLUGIN_FOLDER, kinds.PATH, "The kubelet's folder of device plugins."
    )
    host_root: Path = setting(
        Path("/"), kinds.PATH, "Folder in which this program sees the host's /proc and /dev."
    )

    log_level: str = log_level()
    log_format: str = log_format()

    def __post_init__(self) -> None:
        """Raises BadInput where a setting is known and not supported."""
        if self.mig_strategy is MigStrategy.SINGLE:
            raise BadInput("mig-strategy is single: it is not supported yet, use none or mixed")
        if not self.dev_root.startswith("/"):
            raise BadInput(f"dev-root is {self.dev_root}: give a path from the host's root")


DEVICE_SETTINGS: Final = ProgramSettings(DeviceSettings)
