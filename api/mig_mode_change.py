# SPDX-License-Identifier: Apache-2.0
"""How the MIG mode of a GPU may be changed that needs a reset for it: Ampere, for both directions.

Values of the annotation ``gpuscape.io/mig-mode-change`` and of the settings ``mig-mode-change``,
``mig-reset`` and ``mig-reboot``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from api import keys
from base.errors import BadInput
from base.words import quoted


class ModeChange(StrEnum):
    """Permission to change the MIG mode of GPUs that need a reset for it."""

    OFF = "off"
    """Never; a layout that needs it is refused."""
    DRIVER = "driver"
    """By nvmlDeviceSetMigMode alone, which resets a GPU that no program has open."""


class MigReset(StrEnum):
    """Permission to reset GPUs whose driver makes no reset for a new MIG mode."""

    OFF = "off"
    """Never; the mode is taken back."""
    ALLOW = "allow"
    """Once for each change and GPU, by the driver's own nvidia-smi."""


class MigReboot(StrEnum):
    """Permission to ask for a boot of the machine, where nothing else resets a GPU."""

    OFF = "off"
    """Never."""
    SENTINEL = "sentinel"
    """By a file that whoever boots nodes looks for, such as kured."""


class ResetFallback(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What may follow when the driver's call needs a reset that it does not make: the actuator's
    settings."""

    reset: MigReset = MigReset.OFF
    reboot: MigReboot = MigReboot.OFF


NO_FALLBACK: Final = ResetFallback()


def annotated_mode_change(text: str) -> ModeChange:
    """The value of the Node's annotation. Raises BadInput that names it."""
    try:
        return ModeChange(text)
    except ValueError:
        expected = " or ".join(ModeChange)
        raise BadInput(
            f"annotation {keys.MIG_MODE_CHANGE} is {quoted(text)}: write {expected}"
        ) from None
