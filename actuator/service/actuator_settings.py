# SPDX-License-Identifier: Apache-2.0
"""The actuator's settings: each declared once, with type, default, kind and help text. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from actuator.boots.reboot_sentinel import REBOOT_FOLDER, RebootSentinel
from actuator.past_changes import JOURNAL_FOLDER
from api.actuator.actuator_client import SOCKET
from api.mig_mode_change import MigReboot, MigReset, ResetFallback
from base.errors import BadInput
from base.settings import setting_kinds as kinds
from base.settings.common_settings import duration, optional_path
from base.settings.log_settings import log_format, log_level
from base.settings.option import setting
from base.settings.program_settings import ProgramSettings
from base.settings.setting_kinds import SettingKind


def _user_ids(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(re.fullmatch(r"\d{1,10}", word) for word in words):
        raise ValueError(text)
    return tuple(int(word) for word in words)


_USER_IDS = SettingKind(
    metavar="UID,…",
    expects="user ids with commas between",
    parse=_user_ids,
    show=lambda value: ",".join(map(str, value)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActuatorSettings:
    """All settings of the actuator."""

    socket: Path = setting(
        SOCKET,
        kinds.PATH,
        "The socket for requests; its folder is created, and only the actuator may write to it.",
        subject="Access",
    )
    peers: tuple[int, ...] = setting(
        (),
        _USER_IDS,
        "User ids that may connect.",
        unset="that of the actuator, and root",
    )
    journal: Path = setting(
        JOURNAL_FOLDER,
        kinds.PATH,
        "Folder of the journal, on a disk of the host; only the actuator may write to it.",
        subject="Changes",
    )
    change_deadline_seconds: float = duration(
        300.0,
        "10s",
        "Time for the change of one GPU; past it the process that makes the driver's calls is"
        " killed, and another one goes on without that GPU.",
    )
    stop_deadline_seconds: float = duration(
        60.0,
        "0s",
        "How long SIGTERM waits for a change that runs; keep it below the pod's"
        " terminationGracePeriodSeconds.",
    )
    mig_reset: MigReset = setting(
        MigReset.OFF,
        kinds.member_kind(MigReset),
        "What the actuator does if the driver does not reset a GPU for its new MIG mode. off: it"
        " takes the mode back. allow: it has the driver's nvidia-smi reset the GPU, once, if no"
        " program has the GPU open.",
    )
    mig_reboot: MigReboot = setting(
        MigReboot.OFF,
        kinds.member_kind(MigReboot),
        "What the actuator does if mig-reset does not give the GPU its MIG mode either. off: it"
        " takes the mode back. sentinel: it requests a boot of the node by a file; kured boots it.",
    )
    mig_reboot_folder: Path = setting(
        REBOOT_FOLDER,
        kinds.PATH,
        "Folder of the file that requests a boot. The file's name is `required`; set kured's"
        " --reboot-sentinel to its path. Only root may write to the folder.",
    )
    mig_reboot_deadline_seconds: float = duration(
        7200.0,
        "1m",
        "How long a change waits for the boot; then the actuator takes the mode back. By default"
        " kured looks for the file once an hour, and boots one node after the other.",
    )

    host_root: Path = setting(
        Path("/"),
        kinds.PATH,
        "Where the host's root is mounted: device nodes are made below it.",
        subject="Machine",
    )
    pod_uid: str | None = setting(
        None,
        kinds.text_kind("UID"),
        "The actuator's own pod. Programs of that pod do not block a change. Set this where the"
        " container has a cgroup namespace of its own, as with cgroup version 2.",
        unset="what the cgroup names",
        variables=("POD_UID",),
    )
    library: Path | None = optional_path(
        "The driver's library libnvidia-ml.so.1.", unset="the loader finds it"
    )
    simulate: str | None = setting(
        None,
        kinds.text_kind("MACHINE|FILE"),
        "Change a simulated machine instead: a state file's, which other programs see too.",
        unset="the machine itself",
    )

    log_level: str = log_level()
    log_format: str = log_format()

    def __post_init__(self) -> None:
        """Check the path of the socket. Raises BadInput."""
        if not self.socket.is_absolute() or not self.socket.name:
            raise BadInput(f"socket is {self.socket}: name a file by its path from the root")

    @property
    def sentinel(self) -> RebootSentinel | None:
        """The file that asks for a boot; None where no boot may be asked for."""
        if self.mig_reboot is MigReboot.OFF:
            return None
        return RebootSentinel(
            folder=str(self.mig_reboot_folder), seconds=self.mig_reboot_deadline_seconds
        )

    @property
    def fallback(self) -> ResetFallback:
        """What may follow where the driver makes no reset that a mode needs."""
        return ResetFallback(reset=self.mig_reset, reboot=self.mig_reboot)


ACTUATOR_SETTINGS = ProgramSettings(ActuatorSettings)
