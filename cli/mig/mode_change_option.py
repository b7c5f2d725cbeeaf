# SPDX-License-Identifier: Apache-2.0
"""Options on changes of the MIG mode: by a reset, by nvidia-smi too, and without instances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from api.mig_mode_change import NO_FALLBACK, MigReset, ModeChange, ResetFallback

_BY_SMI: Final = ResetFallback(reset=MigReset.ALLOW)


def mode_only_option(help: str) -> Callable[..., Any]:  # noqa: A002  # as click calls it
    """Add ``--mode-only``, as nvidia-mig-parted has it; the command gets ``mode_only``."""
    variable = "MIG_PARTED_MODE_CHANGE_ONLY"
    return click.option(
        "-m", "--mode-only", is_flag=True, envvar=variable, show_envvar=True, help=help
    )


def mode_change_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--no-mode-change`` and ``--allow-reset``; the command gets ``mode_change`` and
    ``fallback``."""
    by_smi = click.option(
        "--allow-reset",
        "fallback",
        is_flag=True,
        callback=lambda _ctx, _parameter, is_on: _BY_SMI if is_on else NO_FALLBACK,
        help="If the driver does not reset the GPU for its new MIG mode, have the driver's"
        " nvidia-smi reset it, once, if no program has the GPU open.",
    )
    by_driver = click.option(
        "--no-mode-change",
        "mode_change",
        is_flag=True,
        callback=lambda _ctx, _parameter, is_off: ModeChange.OFF if is_off else ModeChange.DRIVER,
        help="Refuse a layout for which the driver would have to reset a GPU, to turn MIG on or off"
        " (A100, A30).",
    )
    return by_driver(by_smi(function))
