# SPDX-License-Identifier: Apache-2.0
"""The command lines that the simulated nvidia-smi knows: ``--gpu-reset`` and ``-mig``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_RESET: Final = ("-r", "--gpu-reset")
_MODE: Final = ("-mig", "--multi-instance-gpu")
_IDS: Final = ("-i", "--id")
_MODES: Final = {"0": False, "DISABLED": False, "1": True, "ENABLED": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiCommand:
    """A command: a reset, or where ``mig`` is given a change of the MIG mode."""

    ids: tuple[str, ...] | None = None
    """Bus ids, indices, UUIDs or serials; None: all GPUs."""
    mig: bool | None = None


def smi_command(arguments: Sequence[str]) -> SmiCommand | None:
    """The command of these arguments; None where they make none that is known here.

    Source: nvidia-smi(1), --gpu-reset, --multi-instance-gpu and --id.
    """
    rest, ids, is_reset, modes = list(arguments), None, False, []
    while rest:
        option, has_value, value = rest.pop(0).partition("=")
        if option in _RESET and not has_value:
            is_reset = True
        elif option in (*_IDS, *_MODE) and (has_value or rest):
            value = value if has_value else rest.pop(0)
            if option in _IDS:
                ids = tuple(value.split(","))
            else:
                modes.append(_MODES.get(value.upper()))
        else:
            return None
    if is_reset == bool(modes) or None in modes or len(modes) > 1:
        return None
    return SmiCommand(ids=ids, mig=modes[0] if modes else None)
