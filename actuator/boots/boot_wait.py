# SPDX-License-Identifier: Apache-2.0
"""A change that waits for a boot of the node, which brings the MIG mode that nobody could reset.

The mode waits in the board; the journal has the boot in which it was asked for, once for a change.
Its GPU is done with as soon as it has the mode, whatever brought it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from msgspec.structs import replace

from actuator.boots.reboot_sentinel import RebootSentinel
from actuator.change_record import ChangeRecord, Direction
from actuator.journal import Journal, JournalUnusable
from actuator.layout_steps import observed_gpu
from actuator.mig_world import MigWorld, StepFailed
from api.mig_mode_change import MigReboot
from base.text import rfc3339

log = logging.getLogger(__name__)

_LEAST_SECONDS: Final = 1.0


def waiting_for_boot(
    world: MigWorld, journal: Journal, record: ChangeRecord, sentinel: RebootSentinel | None
) -> ChangeRecord | None:
    """The change, whose step lacks a reset, once its mode waits for a boot; None: it does not wait.

    It does not where a boot may not be asked for, or was before, and where the step lacks something
    else by now. The file itself is written when all GPUs of the request are done.
    """
    boot = world.boot()
    is_allowed = sentinel is not None and record.fallback.reboot is MigReboot.SENTINEL
    if not is_allowed or record.boot_asked or not boot:
        return None
    try:
        if _has_mode(world, record) or not world.leave_mode(record.gpu, on=record.desired.mig):
            return None
        waiting = replace(record, boot_asked=boot, asked_at=world.now())
        journal.write(waiting)
    except (StepFailed, JournalUnusable) as error:  # the way back takes the mode back too
        log.warning("MIG change cannot wait for a boot", extra={"why": str(error)})
        return None
    log.warning("MIG change waits for a boot", extra={"change": record.change, "gpu": record.gpu})
    return waiting


def after_wait(
    world: MigWorld, record: ChangeRecord, sentinel: RebootSentinel | None, taken_back: str
) -> ChangeRecord | None:
    """The waiting change as it goes on, forward or back; None: it still waits.

    Before it goes on nobody is asked for a boot any more. ``taken_back``: id of the change that a
    person or the agent takes back.
    """
    why = _why_back(world, record, sentinel, taken_back)
    if why is not None and sentinel is not None:
        sentinel.remove()
    return going_back(record, why) if why else record if why is not None else None


def going_back(record: ChangeRecord, why: str) -> ChangeRecord:
    """The change, on its way to the previous layout."""
    log.warning(
        "MIG change no longer waits for a boot", extra={"change": record.change, "why": why}
    )
    return replace(record, direction=Direction.BACK, reason=why)


def _why_back(
    world: MigWorld, record: ChangeRecord, sentinel: RebootSentinel | None, taken_back: str
) -> str | None:
    """Why it goes back; empty: it goes on to its layout; None: it still waits."""
    try:
        if _has_mode(world, record):
            return ""
    except StepFailed:
        pass  # one that cannot be read does not have it; the boot may bring it back too
    state = "off" if record.desired.mig else "on"
    if world.boot() not in ("", record.boot_asked):
        return f"the node has booted, and MIG is still {state}"
    if record.change == taken_back:
        return "the change was cancelled before the node booted"
    if not mode_waits(world, record):
        return "the mode that waited for a boot was taken back by another program"
    if sentinel is None:
        return "the setting mig-reboot is off now"
    if _remaining_seconds(world, record, sentinel) <= 0:
        return f"the node did not boot within {sentinel.seconds:.0f} s"
    return None


def seconds_to_wait(
    world: MigWorld, waiting: Collection[ChangeRecord], sentinel: RebootSentinel
) -> float:
    """Seconds until the first of these changes goes back; 0 where there is none."""
    seconds = (_remaining_seconds(world, record, sentinel) for record in waiting)
    return max(min(seconds), _LEAST_SECONDS) if waiting else 0.0


def is_for_boot(record: ChangeRecord) -> bool:
    """Whether a change waits, or has waited until the newest boot."""
    is_forward = record.direction is Direction.FORWARD and record.outcome is None
    return is_forward and bool(record.boot_asked)


def mode_waits(world: MigWorld, record: ChangeRecord) -> bool:
    """Whether the next boot brings the mode; so it is assumed where the GPU cannot be read."""
    try:
        mode = observed_gpu(world, record.gpu).mode
    except StepFailed:
        return True
    return mode is not None and mode.current != mode.pending == record.desired.mig


def _has_mode(world: MigWorld, record: ChangeRecord) -> bool:
    mode = observed_gpu(world, record.gpu).mode
    return mode is not None and mode.current == record.desired.mig


def _remaining_seconds(world: MigWorld, record: ChangeRecord, sentinel: RebootSentinel) -> float:
    asked, now = rfc3339.unix_seconds(record.asked_at), rfc3339.unix_seconds(world.now())
    # either way: a clock that was set back by years would have it wait for years
    return 0.0 if asked is None or now is None else sentinel.seconds - abs(now - asked)
