# SPDX-License-Identifier: Apache-2.0
"""Restores, after a reboot or a load of the driver, the layouts that the last change verified.

No request is needed: these layouts were desired, and pods that are still bound to the node hold
UUIDs of their devices. When unsure it does less: a GPU that has an instance or a program by now, or
that needs a reset, stays as it is, with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from uuid import uuid4

from actuator.change import begin, drive, remember
from actuator.journal import Journal
from actuator.mig_world import MigWorld, StepFailed
from actuator.verified_layouts import RestoredGpu, VerifiedLayout
from api.mig_outcome import Outcome
from discovery.mig_state import MigGpu
from mig.gpu_layout import has_layout
from mig.planner import MigRefusal, plan

log = logging.getLogger(__name__)


def restore_layouts(world: MigWorld, journal: Journal) -> tuple[RestoredGpu, ...]:
    """Restore the verified layouts that were lost; GPUs that lost nothing are left out.

    A layout that changed under the same load of the driver was changed by another program: it is
    forgotten. A GPU whose change has not ended is left to that change. Raises
    JournalUnusable if the journal cannot be kept, and StepFailed if the GPUs cannot be read.
    """
    verified = journal.verified()
    if not verified:
        return ()
    load = world.driver_load()
    seen = {gpu.uuid: gpu for gpu in world.observe()}
    _forget_changed(journal, verified, seen, load)
    unended = {record.gpu for record in journal.content().unended}
    lost = {
        uuid: remembered
        for uuid, remembered in verified.items()
        if remembered.load != load and uuid not in unended
    }
    why_not = {
        uuid: _why_not(world, remembered, uuid, seen.get(uuid)) for uuid, remembered in lost.items()
    }
    change = str(uuid4())
    for uuid, remembered in lost.items():
        if not why_not[uuid]:
            why_not[uuid] = _bring_back(world, journal, seen[uuid], remembered, change)
    after = {gpu.uuid: gpu for gpu in world.observe()}
    return tuple(
        _restored(uuid, remembered, why_not[uuid], after.get(uuid))
        for uuid, remembered in lost.items()
    )


def _forget_changed(
    journal: Journal, verified: Mapping[str, VerifiedLayout], seen: Mapping[str, MigGpu], load: str
) -> None:
    kept = {
        uuid: remembered
        for uuid, remembered in verified.items()
        if uuid not in seen
        or remembered.load != load
        or has_layout(seen[uuid], remembered.layout())
    }
    for uuid in sorted(verified.keys() - kept.keys()):
        log.warning("MIG layout changed by another program", extra={"gpu": uuid})
    if len(kept) < len(verified):
        journal.verify(kept)


def _why_not(world: MigWorld, remembered: VerifiedLayout, uuid: str, gpu: MigGpu | None) -> str:
    """Why a GPU's layout cannot be restored; empty if it can."""
    if gpu is None:
        return "the driver does not list the GPU, or its MIG state cannot be read"
    if has_layout(gpu, remembered.layout()):
        return ""
    if gpu.instances:
        return "it has instances that were made since the driver was loaded"
    planned = plan([gpu], {uuid: remembered.layout()}, world.device_users(), spare_busy=True)
    return planned.obstacles[0].detail if isinstance(planned, MigRefusal) else ""


def _bring_back(
    world: MigWorld, journal: Journal, gpu: MigGpu, lost: VerifiedLayout, change: str
) -> str:
    """Restore a GPU; why it failed, empty where it did not. ``change``: id of the change."""
    if not has_layout(gpu, lost.layout()):
        desired, origin = {gpu.uuid: lost.layout()}, "the layout from before the driver was loaded"
        (record,) = begin(world, journal, [gpu], desired, origin=origin, change=change)
        take_in_order(world, gpu, lost)
        record = drive(world, journal, record)
        if record.outcome is not Outcome.APPLIED:
            return record.reason
    remember(world, journal, [gpu.uuid])
    return ""


def take_in_order(world: MigWorld, gpu: MigGpu, lost: VerifiedLayout) -> None:
    """Take the steps in the order that gives the old ids; the planner does what fails here."""
    for step in lost.steps(gpu):
        log.info("MIG step", extra={"step": str(step)})
        try:
            # a step relies on state that changes with the mode and each instance
            world.observe([gpu.uuid])
            world.perform(step)
        except StepFailed as error:
            log.warning("MIG step failed", extra={"step": str(step), "why": str(error)})
            break


def _restored(
    uuid: str, remembered: VerifiedLayout, why_not: str, gpu: MigGpu | None
) -> RestoredGpu:
    """The result for a GPU, logged; ``gpu``: as it is now, None where it cannot be read."""
    gone = () if gpu is None else remembered.gone(gpu)
    if why_not:
        log.warning("MIG layout not restored", extra={"gpu": uuid, "why": why_not})
    else:
        log.info("MIG layout restored", extra={"gpu": uuid})
    if gone:
        log.warning("MIG devices gone", extra={"gpu": uuid, "devices": ", ".join(gone)})
    return RestoredGpu(gpu=uuid, why_not=why_not, gone=gone)
