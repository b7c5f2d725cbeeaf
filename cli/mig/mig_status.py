# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig status``: modes, instances, devices and who uses them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from actuator.change_record import ChangeRecord
from actuator.past_changes import past_changes
from agent.single_reading import opened_machine, read_mig_readings
from base.errors import Permanent
from cli import options, terminal
from cli.mig.mig_text import (
    UNUSABLE,
    mode_cell,
    outcome_cell,
    outcome_text,
    pending_note,
    pid_cell,
    unit_range,
    unread_note,
)
from cli.mig.running_change import journal_folder, journal_option
from cli.options import Load
from cli.terminal import NONE, Cell, Styled, TextTable
from discovery.mig_state import CurrentInstance, MigGpu, split_readings, whole_devices
from discovery.reader.protocol import Start
from kubelet.device_access.instance_access import stale_devices
from mig.placement_grid import memory_units
from mig.profile_names import part_name


@click.command(
    epilog="""\b
Examples:
  gpuscape mig status
  gpuscape mig status -o wide --simulate dgx-a100-mig-mixed
  gpuscape mig status -o json | jq -r '.gpus[].instances[].compute[].uuid'

\b
UNITS are memory units, from the first to the last. PROGRAMS are process ids as the driver
lists them; a program that only has the driver open is not among them. A GPU instance without
a compute instance is marked: it takes its place, and no program can use it.
If a change of a GPU's layout goes on or is stuck, its row is in a table of its own.
If a kubelet runs here, the command reports devices in its list that no longer exist: then restart
the device plugin, or delete the pod that uses such a MIG device.
In json and yaml, `gpus` are those that were read in full, `unread` all others with the reasons,
`unended` the changes that have not ended, a GPU each, and `problems` those of the kubelet's list
and of the journal; none of these changes the exit code."""
)
@journal_option
@options.output("table", "wide", "json", "yaml")
@options.settings(*options.READING)
def command(load: Load, journal: Path | None, output: str) -> None:
    """Show each GPU's MIG mode, its instances, and the programs on them."""
    settings = load()
    with opened_machine(settings) as start:
        read, unread = split_readings(read_mig_readings(start, settings))
        problems = list(_problems(read, start)) if not unread else []
        try:
            unended = past_changes(journal_folder(journal, start)).unended
        except Permanent as error:
            unended = ()
            problems.append(str(error))
    if output in ("json", "yaml"):
        document = {"gpus": read, "unread": unread, "unended": [*map(_unended_document, unended)]}
        terminal.print_data(document | {"problems": problems}, output)
        return
    if not any(gpu.mode for gpu in read) and not unread and not problems and not unended:
        terminal.note("No GPU of this machine has MIG.")
        return
    wide = output == "wide"
    if read:
        terminal.show_table(mig_mode_table(read, wide=wide))
    for table in (instance_table(read, wide=wide), unended_table(unended)):
        if table.rows:
            terminal.note("")
            terminal.show_table(table)
    notes = [note for gpu in read if (note := pending_note(gpu)) is not None]
    notes += [unread_note(gpu) for gpu in unread]
    notes += [f"Look at this: {problem}" for problem in problems]
    if notes:
        terminal.note(*([""] if read else []), *notes)


def _problems(gpus: Sequence[MigGpu], start: Start) -> Iterator[str]:
    """Stale devices in the kubelet's list; none where not all devices of the GPUs are known."""
    devices = whole_devices(gpus)
    if len(devices) == sum(1 for gpu in gpus for _ in gpu.devices()):
        yield from stale_devices(Path(start.host_root), devices)


def unended_table(changes: Sequence[ChangeRecord]) -> TextTable:
    """Table of the changes that have not ended, a row for each GPU."""
    rows = ((str(it.index), outcome_cell(it.outcome), it.origin, it.reason) for it in changes)
    return TextTable(header=("GPU", "CHANGE", "TO", "REASON"), rows=tuple(rows))


def _unended_document(entry: ChangeRecord) -> dict[str, Any]:
    return {
        "gpu": entry.gpu,
        "change": entry.change,
        "origin": entry.origin,
        "started": entry.started,
        "outcome": outcome_text(entry.outcome).replace(" ", "-"),
        "reason": entry.reason or None,
    }


def mig_mode_table(gpus: Sequence[MigGpu], *, wide: bool) -> TextTable:
    """Table of the GPUs' modes and use, a row for each GPU."""
    header = ("GPU", "MIG", "TAKEN", "INSTANCES", "PROGRAMS")
    more = ("MODEL", "BUS ID", "UUID") if wide else ()
    return TextTable(
        header=(*header, *more),
        rows=tuple(
            (
                str(gpu.index),
                mode_cell(gpu.mode, resetless=gpu.resetless),
                _taken(gpu),
                _instances(gpu),
                pid_cell(sorted({process.pid for process in gpu.processes})),
                *((gpu.model, gpu.bus_id, gpu.uuid) if wide else ()),
            )
            for gpu in gpus
        ),
    )


def instance_table(gpus: Sequence[MigGpu], *, wide: bool) -> TextTable:
    """Table of MIG devices, with a row for each GPU instance that has none."""
    header = ("GPU", "INSTANCE", "UNITS", "COMPUTE", "DEVICE", "PROGRAMS")
    return TextTable(
        header=(*header, "UUID") if wide else header,
        rows=tuple(
            (str(gpu.index), str(instance.id), unit_range(instance.start, instance.size), *cells)
            for gpu in gpus
            for instance in sorted(gpu.instances, key=lambda instance: instance.start)
            for cells in _devices(gpu, instance, wide=wide)
        ),
    )


def _devices(gpu: MigGpu, instance: CurrentInstance, *, wide: bool) -> Iterator[tuple[Cell, ...]]:
    """Cells from COMPUTE on, for each row of an instance."""
    if not instance.compute:
        unusable = Styled(f"{instance.profile}: {UNUSABLE}", "bold yellow")
        yield (NONE, unusable, pid_cell(gpu.pids_on(instance)), *((NONE,) if wide else ()))
    for compute in instance.compute:
        uuid = (NONE if compute.uuid is None else compute.uuid,) if wide else ()
        programs = pid_cell(gpu.pids_on(instance, compute))
        yield (str(compute.id), part_name(instance.profile, compute.slices), programs, *uuid)


def _taken(gpu: MigGpu) -> Cell:
    if gpu.mode is None or not gpu.mode.current:
        return NONE
    return f"{sum(instance.size for instance in gpu.instances)} of {memory_units(gpu)}"


def _instances(gpu: MigGpu) -> Cell:
    if gpu.mode is None or not gpu.mode.current:
        return NONE
    by_start = sorted(gpu.instances, key=lambda instance: instance.start)
    profiles = Counter(instance.profile for instance in by_start)
    return ", ".join(f"{count} x {name}" for name, count in profiles.items()) or "none"
