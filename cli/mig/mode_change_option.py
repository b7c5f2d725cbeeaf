# SPDX-License-Identifier: Apache-2.0
"""The option that forbids changes of the MIG mode by a reset of the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from api.mig_mode_change import ModeChange


def mode_change_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--no-mode-change``; the command gets ``mode_change``."""
    return click.option(
        "--no-mode-change",
        "mode_change",
        is_flag=True,
        callback=lambda _ctx, _parameter, is_off: ModeChange.OFF if is_off else ModeChange.DRIVER,
        help="Refuse a layout for which the driver would have to reset a GPU, to turn MIG on or off"
        " (A100, A30).",
    )(function)
