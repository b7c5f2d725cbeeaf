# SPDX-License-Identifier: Apache-2.0
"""The agent's settings of MIG layouts, in the order of its other settings."""

from __future__ import annotations

from pathlib import Path

from api import names
from base.settings import setting_kinds as kinds
from base.settings.option import setting
from mig.configs.config_overlap import Overlap


def mig_mode() -> str:
    """Declare ``mig_mode``; the subject MIG begins with it."""
    return setting(
        "observe",
        kinds.choice_kind("off", "observe", "enforce"),
        "What the agent does about the Node's desired MIG layout: off, nothing; observe, show the"
        " plan on the Node and change nothing; enforce, have the actuator change the GPUs, with"
        " the coordinator's permit.",
        subject="MIG",
    )


def actuator_socket() -> Path:
    """Declare ``actuator_socket``."""
    return setting(
        Path(names.ACTUATOR_SOCKET), kinds.PATH, "The actuator's socket, where mig-mode is enforce."
    )


def mig_config() -> Path | None:
    """Declare ``mig_config``."""
    return setting(
        None,
        kinds.PATH,
        "File with MIG configurations, in mig-parted's format; changes of it take effect at once.",
        unset="the default ones for the GPUs of the machine",
    )


def mig_config_overlap() -> Overlap:
    """Declare ``mig_config_overlap``."""
    return setting(
        Overlap.REFUSE,
        kinds.member_kind(Overlap),
        "What happens if entries of one MIG configuration give a GPU different layouts: refuse, the"
        " desired layout is refused; last, the last of them decides, as for nvidia-mig-parted.",
    )


def mig_deadline() -> float | None:
    """Declare ``mig_deadline``."""
    return setting(
        None,
        kinds.duration_kind("1m"),
        "How long a MIG change may wait for a permit; then its outcome is expired, until a layout"
        " is desired anew.",
        unset="for ever",
    )
