# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig explain``: profiles, where instances of one may be, and what is in their way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import ascii_lowercase
from typing import Any

import click
from click.shell_completion import CompletionItem

from base.errors import BadInput
from base.words import quoted
from cli import options, terminal
from cli.mig.mig_words import NONE, UNUSABLE, numbers, pids, split, units, unread_note
from cli.observe import take_mig
from cli.options import Load
from cli.terminal import Cell, Styled, TextTable
from discovery.driver_errors import MigUnread
from discovery.mig_state import MigGpu, MigProfile, UnreadMigGpu
from mig.placement_grid import PlacementGrid, PlacementRow, memory_units, placement_grid
from mig.profile_names import device_name

GIB = 1 << 30

FREE, TAKEN, OUTSIDE = Styled("#", "green"), Styled("x", "red"), Styled(".", "dim")

_UNTOLD = "this driver describes profiles only where MIG is on"


def _complete_profiles(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Profiles of all simulated models: reading the GPUs would take too long for a key stroke."""
    from discovery.simulator.description.machine_catalog import (
        load_models,  # only completion needs it here
    )

    del ctx, parameter
    names = {one.name for model in load_models().values() for one in model.mig}
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


@click.command(
    epilog="""\b
Examples:
  gpuscape mig explain
  gpuscape mig explain 2g.10gb
  gpuscape mig explain 1g.5gb --gpu 4 --simulate dgx-a100-mig-mixed
  gpuscape mig explain -o json | jq '.gpus[].profiles[].name'

\b
The grid has a column for each memory unit of the GPU. The first row shows what is there, a
letter for each GPU instance; then comes a row for each place where an instance of the profile
may start: # is free, x is taken. Places are the driver's, and so is how many more fit: engines
may allow fewer than there are free places. In brackets: what fits when MIG is on."""
)
@click.argument("profile", required=False, shell_complete=_complete_profiles)
@click.option(
    "--gpu",
    "chosen",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="INDEX",
    help="Show this GPU alone; may be given several times.",
)
@options.output("table", "json", "yaml")
@options.settings(*options.READING)
def command(load: Load, profile: str | None, chosen: tuple[int, ...], output: str) -> None:
    """Show the MIG profiles of this machine's GPUs, or where one PROFILE may be placed.

    A profile is 2g.10gb, or 1g.5gb+me; of a part such as 1c.3g.20gb its GPU instance is shown.
    """
    wanted = None if profile is None else device_name(profile).instance
    read, unread = split(take_mig(load()))
    read = _chosen(read, unread, chosen)
    gpus = [gpu for gpu in read if gpu.mode is not None]
    if wanted is None:
        if output == "table":
            _show_profiles(gpus, unread)
        else:
            terminal.data(_profile_document(gpus, unread), output)
        return
    having = [(gpu, one) for gpu in gpus if (one := gpu.profile(wanted)) is not None]
    if not having:
        raise _no_such(wanted, gpus, unread)
    if output != "table":
        terminal.data(_grid_document(having, unread), output)
        return
    _show_grids(having)
    _show_others([gpu for gpu in gpus if gpu.profile(wanted) is None], unread)


def _chosen(
    read: list[MigGpu], unread: Sequence[UnreadMigGpu], indices: Sequence[int]
) -> list[MigGpu]:
    """Raises BadInput for an index that no GPU has."""
    there = {gpu.index for gpu in read} | {gpu.index for gpu in unread}
    for index in indices:
        if index not in there:
            raise BadInput(f"there is no GPU {index}: see gpuscape mig status")
    return [gpu for gpu in read if not indices or gpu.index in indices]


def _no_such(wanted: str, gpus: Sequence[MigGpu], unread: Sequence[UnreadMigGpu]) -> Exception:
    """Why a profile cannot be explained; BadInput only where all profiles are known."""
    names = sorted({one.name for gpu in gpus for one in gpu.profiles})
    if unread:
        return MigUnread("; ".join(unread_note(gpu) for gpu in unread))
    untold = [gpu.index for gpu in gpus if not gpu.profiles]
    if untold:
        return MigUnread(f"GPU {numbers(untold)}: {_UNTOLD}")
    if not gpus:
        return BadInput("no GPU that is shown has MIG")
    return BadInput(f"no GPU has the profile {quoted(wanted)}; they have {', '.join(names)}")


# all profiles


def _show_profiles(gpus: Sequence[MigGpu], unread: Sequence[UnreadMigGpu]) -> None:
    told = [gpu for gpu in gpus if gpu.profiles]
    if not gpus and not unread:
        terminal.note("No GPU of this machine has MIG.")
    for at, alike in enumerate(_alike(told)):
        terminal.note(f"{chr(10) if at else ''}{_title(alike)}: {memory_units(alike[0])} units")
        terminal.show(profile_table(alike[0]))
        terminal.note("", "More that fit now, by GPU:")
        terminal.show(fitting_table(alike))
    _show_others([gpu for gpu in gpus if not gpu.profiles], unread, first=not told)


def _alike(gpus: Sequence[MigGpu]) -> Iterator[list[MigGpu]]:
    """GPUs of one model with the same profiles, in the order of the first of each kind."""
    kinds: dict[object, list[MigGpu]] = {}
    for gpu in gpus:
        rows = tuple((one.id, one.name, one.most, one.starts) for one in gpu.profiles)
        kinds.setdefault((gpu.model, rows), []).append(gpu)
    yield from kinds.values()


def _title(gpus: Sequence[MigGpu]) -> str:
    return f"{gpus[0].model} (GPU {numbers(gpu.index for gpu in gpus)})"


def profile_table(gpu: MigGpu) -> TextTable:
    """What an instance of each profile has, the smallest first."""
    return TextTable(
        header=("PROFILE", "ID", "MOST", "MEMORY", "SMS", "UNITS", "DEC", "ENC", "JPG", "OFA"),
        rows=tuple(
            (
                one.name,
                str(one.id),
                str(one.most),
                f"{one.memory_bytes / GIB:.1f} GiB",
                str(one.multiprocessors),
                str(one.size),
                *(_count(each) for each in _engines(one)),
            )
            for one in _by_size(gpu.profiles)
        ),
        right=frozenset(range(1, 10)),
    )


def fitting_table(gpus: Sequence[MigGpu]) -> TextTable:
    """How many more of each profile fit, a column for GPUs of which the same is true."""
    columns: dict[tuple[str, ...], list[int]] = {}
    for gpu in gpus:
        said = tuple(_fitting(gpu, one) for one in _by_size(gpu.profiles))
        columns.setdefault(said, []).append(gpu.index)
    names = [one.name for one in _by_size(gpus[0].profiles)]
    return TextTable(
        header=("PROFILE", *(f"GPU {numbers(indices)}" for indices in columns.values())),
        rows=tuple((name, *(said[at] for said in columns)) for at, name in enumerate(names)),
        right=frozenset(range(1, len(columns) + 1)),
    )


def _by_size(profiles: Sequence[MigProfile]) -> list[MigProfile]:
    return sorted(profiles, key=lambda one: (one.slices, one.size, one.number))


def _engines(one: MigProfile) -> tuple[int, int, int, int]:
    of = one.engines
    return of.decoders, of.encoders, of.jpeg, of.ofa


def _count(number: int) -> Cell:
    return str(number) if number else NONE


def _fitting(gpu: MigGpu, one: MigProfile) -> str:
    """As the driver counts; with MIG off what an empty GPU takes, in brackets."""
    if gpu.mode is not None and not gpu.mode.current:
        return f"({one.most})"
    return str(placement_grid(gpu, one).room if one.fitting is None else one.fitting)


# one profile


def _show_grids(having: Sequence[tuple[MigGpu, MigProfile]]) -> None:
    profile_of = {gpu.index: one for gpu, one in having}
    for at, alike in enumerate(_alike([gpu for gpu, _ in having])):
        profile = profile_of[alike[0].index]
        terminal.note(f"{chr(10) if at else ''}{profile.name} on {_title(alike)}")
        for line in _sizes(profile):
            terminal.note(line)
        for same in _same_grids(alike, profile):
            terminal.note("", f"{_state(same, profile)}")
            grid = placement_grid(same[0], profile)
            terminal.show(grid_table(grid))
            if grid.instances:
                terminal.note("")
                terminal.show(key_table(same[0], grid))


def _sizes(one: MigProfile) -> tuple[str, str]:
    names = ("decoder", "encoder", "JPEG engine", "OFA engine")
    engines = [
        f"{count} {name}{'s' if count > 1 else ''}"
        for count, name in zip(_engines(one), names, strict=True)
        if count
    ]
    has = [f"{one.memory_bytes / GIB:.1f} GiB", f"{one.multiprocessors} SMs", *engines]
    size = f"{one.size} memory unit{'s' if one.size > 1 else ''}"
    return f"each has {', '.join(has)}", f"id {one.id}, {size}, at most {one.most} on a GPU"


def _same_grids(gpus: Sequence[MigGpu], profile: MigProfile) -> Iterator[list[MigGpu]]:
    """GPUs without an instance are shown together where the same is true of them."""
    groups: dict[object, list[MigGpu]] = {}
    for gpu in gpus:
        empty = (gpu.mode, gpu.profile(profile.name)) if not gpu.instances else gpu.index
        groups.setdefault(empty, []).append(gpu)
    yield from groups.values()


def _state(gpus: Sequence[MigGpu], profile: MigProfile) -> str:
    gpu = gpus[0]
    indices = numbers(one.index for one in gpus)
    one = gpu.profile(profile.name) or profile
    if gpu.mode is None or not gpu.mode.current:
        return f"GPU {indices}: MIG is off; the places when it is on:"
    return f"GPU {indices}: {_fitting(gpu, one)} more fit"


def grid_table(grid: PlacementGrid) -> TextTable:
    """Memory units as columns; what is there, then a row for each place."""
    there: list[Cell] = [OUTSIDE] * grid.units
    for letter, one in zip(ascii_lowercase, grid.instances, strict=False):
        for unit in range(one.start, one.start + one.size):
            there[unit] = letter
    return TextTable(
        header=("MEMORY UNIT", *(str(unit) for unit in range(grid.units)), ""),
        rows=(
            ("there", *there, ""),
            *(_grid_row(grid, row) for row in grid.rows),
        ),
        right=frozenset(range(1, grid.units + 1)),
    )


def _grid_row(grid: PlacementGrid, row: PlacementRow) -> tuple[Cell, ...]:
    letters = {one.id: letter for letter, one in zip(ascii_lowercase, grid.instances, strict=False)}
    within = range(row.start, row.start + row.size)
    mark = TAKEN if row.taken_by else FREE
    cells = [mark if unit in within else OUTSIDE for unit in range(grid.units)]
    by = ", ".join(letters[one.id] for one in row.taken_by)
    words = Styled(f"taken by {by}", "red") if by else Styled("free", "green")
    return (f"start {row.start}", *cells, words)


def key_table(gpu: MigGpu, grid: PlacementGrid) -> TextTable:
    """The letters of a grid, and the programs on each instance."""
    return TextTable(
        header=("", "INSTANCE", "PROFILE", "UNITS", "PROGRAMS"),
        rows=tuple(
            (
                letter,
                str(one.id),
                one.profile,
                units(one.start, one.size),
                pids(gpu.holders(one)) if one.compute else Styled(UNUSABLE, "bold yellow"),
            )
            for letter, one in zip(ascii_lowercase, grid.instances, strict=False)
        ),
    )


def _show_others(
    gpus: Sequence[MigGpu], unread: Sequence[UnreadMigGpu], *, first: bool = False
) -> None:
    """Why other GPUs are not shown."""
    untold = [gpu.index for gpu in gpus if not gpu.profiles]
    without = [gpu.index for gpu in gpus if gpu.profiles]
    notes = [f"GPU {numbers(untold)}: MIG is off, and {_UNTOLD}"] if untold else []
    notes += [f"GPU {numbers(without)}: no such profile"] if without else []
    notes += [unread_note(gpu) for gpu in unread]
    if notes:
        terminal.note(*([] if first else [""]), *notes)


# documents


def _profile_document(gpus: Sequence[MigGpu], unread: Sequence[UnreadMigGpu]) -> dict[str, Any]:
    return {
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "model": gpu.model,
                "mode": gpu.mode,
                "memory_units": memory_units(gpu),
                "profiles": gpu.profiles,
            }
            for gpu in gpus
        ],
        "unread": list(unread),
    }


def _grid_document(
    having: Sequence[tuple[MigGpu, MigProfile]], unread: Sequence[UnreadMigGpu]
) -> dict[str, Any]:
    return {
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "model": gpu.model,
                "mode": gpu.mode,
                "memory_units": memory_units(gpu),
                "profile": profile,
                "places": [
                    {
                        "start": row.start,
                        "size": row.size,
                        "taken_by": [one.id for one in row.taken_by],
                    }
                    for row in placement_grid(gpu, profile).rows
                ],
                "instances": [
                    {
                        "id": one.id,
                        "profile": one.profile,
                        "start": one.start,
                        "size": one.size,
                        "compute_instances": len(one.compute),
                        "pids": gpu.holders(one),
                    }
                    for one in placement_grid(gpu, profile).instances
                ],
            }
            for gpu, profile in having
        ],
        "unread": list(unread),
    }
