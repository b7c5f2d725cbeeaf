# SPDX-License-Identifier: Apache-2.0
"""How the MIG mode of a GPU may be changed that needs a reset for it: Ampere, for both directions.

Values of the annotation ``gpuscape.io/mig-mode-change`` and of the setting ``mig-mode-change``.
"""

from __future__ import annotations

from enum import StrEnum

from api import keys
from base.errors import BadInput
from base.words import quoted


class ModeChange(StrEnum):
    """Permission to change the MIG mode of GPUs that need a reset for it."""

    OFF = "off"
    """Never; a layout that needs it is refused."""
    DRIVER = "driver"
    """By nvmlDeviceSetMigMode alone, which resets a GPU that no program has open."""


def annotated_mode_change(text: str) -> ModeChange:
    """The value of the Node's annotation. Raises BadInput that names it."""
    try:
        return ModeChange(text)
    except ValueError:
        expected = " or ".join(ModeChange)
        raise BadInput(
            f"annotation {keys.MIG_MODE_CHANGE} is {quoted(text)}: write {expected}"
        ) from None
