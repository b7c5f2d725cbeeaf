# SPDX-License-Identifier: Apache-2.0
"""How long one run of a part of the agent may take, given the deadlines of its readings. Pure."""

from __future__ import annotations

from base.errors import BadInput

_FIRST_ANSWERS = 17
"""First answers of the driver and of 16 GPUs: a tick may wait for all, one after the other."""


def refuse_short_limit(
    tick_limit_seconds: float, deadline_seconds: float, init_deadline_seconds: float
) -> None:
    """Check the limit against both deadlines. Raises BadInput that names the settings."""
    deadlines = {"deadline": deadline_seconds, "init-deadline": init_deadline_seconds}
    name, seconds = max(deadlines.items(), key=lambda setting: setting[1])
    if tick_limit_seconds < (needed := _FIRST_ANSWERS * seconds):
        raise BadInput(
            f"tick-limit is {tick_limit_seconds:g}s, but with a {name} of {seconds:g}s the driver"
            f" and 16 GPUs may take {needed:g}s for their first answers, one after the other:"
            f" raise tick-limit or lower {name}"
        )
