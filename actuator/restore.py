# SPDX-License-Identifier: Apache-2.0
"""After a reboot or a load of the driver the layouts come back that the last change verified.

Nobody has to be asked: what comes back was wanted, and pods that are still bound to the node hold
its UUIDs. When unsure it does less: a GPU that has any instance by now, a program on it, or that
needs a reset stays as it is, with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from actuator.change import begin, drive, remember
from actuator.change_record import ChangeOutcome
from actuator.journal import Journal
from actuator.mig_world import MigWorld, StepFailed
from actuator.verified_layouts import RestoredGpu, VerifiedLayout
from discovery.mig_state import MigGpu
from mig.gpu_layout import has_layout
from mig.planner import MigRefusal, plan

log = logging.getLogger(__name__)


def restore(world: MigWorld, journal: Journal) -> tuple[RestoredGpu, ...]:
    """Bring back what is verified and was lost; GPUs of which nothing was lost are left out.

    A layout that was changed under the same load of the driver is another program's: it is
    forgotten. A GPU on which a change is held is left to that; no change may be under way. Raises
    JournalUnusable where the journal cannot be kept, and
    StepFailed where the GPUs cannot be read.
    """
    verified = journal.verified()
    if not verified:
        return ()
    load = world.driver_load()
    seen = {gpu.uuid: gpu for gpu in world.observe()}
    _forget_changed(journal, verified, seen, load)
    held = _held(journal)
    lost = {uuid: one for uuid, one in verified.items() if one.load != load and uuid not in held}
    refused = {
        uuid: why
        for uuid, one in lost.items()
        if (why := _why_not(world, one, uuid, seen.get(uuid))) is not None
    }
    ready = [uuid for uuid in lost if uuid not in refused]
    failed = _bring_back(world, journal, ready, lost)
    if failed and len(ready) > 1:  # one GPU's fault is not to cost the others their layouts
        failed = {uuid: why for uuid, why in failed.items() if uuid in _held(journal)} | {
            uuid: why
            for one in ready
            if one not in _held(journal)
            for uuid, why in _bring_back(world, journal, [one], lost).items()
        }
    return _told(world, lost, refused | failed)


def _held(journal: Journal) -> frozenset[str]:
    """GPUs on which a change is held."""
    return frozenset[str]().union(*(one.concerns for one in journal.held()))


def _forget_changed(
    journal: Journal, verified: Mapping[str, VerifiedLayout], seen: Mapping[str, MigGpu], load: str
) -> None:
    changed = {
        uuid
        for uuid, one in verified.items()
        if uuid in seen and one.load == load and not has_layout(seen[uuid], one.layout())
    }
    for uuid in sorted(changed):
        log.warning("MIG layout changed by another program", extra={"gpu": uuid})
    if changed:
        journal.verify({uuid: one for uuid, one in verified.items() if uuid not in changed})


def _why_not(world: MigWorld, wanted: VerifiedLayout, uuid: str, gpu: MigGpu | None) -> str | None:
    """What keeps a GPU from its layout; None where nothing does."""
    if gpu is None:
        return "the driver does not list the GPU, or its MIG state cannot be read"
    if has_layout(gpu, wanted.layout()):
        return None
    if gpu.instances:
        return "it has instances that were made since the driver was loaded"
    found = plan([gpu], {uuid: wanted.layout()}, world.holders(), spare_busy=True)
    return found.obstacles[0].detail if isinstance(found, MigRefusal) else None


def _bring_back(
    world: MigWorld, journal: Journal, uuids: Sequence[str], lost: Mapping[str, VerifiedLayout]
) -> dict[str, str]:
    """One change for these GPUs; those that did not get their layout, with the reason."""
    seen = {gpu.uuid: gpu for gpu in world.observe()}
    missing = [
        uuid for uuid in uuids if uuid in seen and not has_layout(seen[uuid], lost[uuid].layout())
    ]
    if missing:
        record = begin(
            world,
            journal,
            [seen[uuid] for uuid in missing],
            {uuid: lost[uuid].layout() for uuid in missing},
            asked="the layout from before the driver was loaded",
        )
        take_in_order(world, missing, seen, lost)
        result = drive(world, journal, record)
        if result.outcome is not ChangeOutcome.APPLIED:
            return dict.fromkeys(missing, result.reason)
    remember(world, journal, uuids)
    return {}


def take_in_order(
    world: MigWorld,
    uuids: Sequence[str],
    seen: Mapping[str, MigGpu],
    lost: Mapping[str, VerifiedLayout],
) -> None:
    """The steps in the order that gives the old ids; what fails is left to the planner."""
    for uuid in uuids:
        for step in lost[uuid].steps(seen[uuid]):
            log.info("MIG step", extra={"step": str(step)})
            try:
                world.observe([uuid])  # what a step goes by changes with the mode and each instance
                world.perform(step)
            except StepFailed as error:
                log.warning("MIG step failed", extra={"step": str(step), "why": str(error)})
                break


def _told(
    world: MigWorld, lost: Mapping[str, VerifiedLayout], why_not: Mapping[str, str]
) -> tuple[RestoredGpu, ...]:
    seen = {gpu.uuid: gpu for gpu in world.observe()}
    found = []
    for uuid, before in lost.items():
        one = RestoredGpu(
            gpu=uuid,
            why_not=why_not.get(uuid, ""),
            gone=before.gone(seen[uuid]) if uuid in seen else (),
        )
        found.append(one)
        if one.why_not:
            log.warning("MIG layout not restored", extra={"gpu": uuid, "why": one.why_not})
        else:
            log.info("MIG layout restored", extra={"gpu": uuid})
        if one.gone and uuid in seen:
            log.warning("MIG devices gone", extra={"gpu": uuid, "devices": ", ".join(one.gone)})
    return tuple(found)
