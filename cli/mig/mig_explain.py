# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig explain``: profiles, where instances of one may be, and what is in their way."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from string import ascii_lowercase
from typing import Any

import click

from agent.single_reading import take_mig_readings
from base.errors import BadInput
from base.grouping import grouped
from base.words import quoted
from cli import options, terminal
from cli.mig.mig_text import UNUSABLE, gpu_numbers, pid_cell, unit_range, unread_note
from cli.options import Load
from cli.terminal import NONE, Cell, Styled, TextTable
from discovery.driver_errors import MigUnread
from discovery.mig_state import CurrentInstance, MigGpu, MigProfile, UnreadMigGpu, split_readings
from mig.configs.known_gpus import known_profiles
from mig.placement_grid import PlacementGrid, PlacementRow, memory_units, placement_grid
from mig.profile_names import device_name

GIB = 1 << 30

FREE, TAKEN, OUTSIDE = Styled("#", "green"), Styled("x", "red"), Styled(".", "dim")

_UNDESCRIBED = "this driver describes profiles only where MIG is on"


def _complete_profiles(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Names of all simulated models' profiles: reading the GPUs would take too long here."""
    from simulator.description.machine_catalog import load_models  # only completion needs it

    del ctx, parameter
    names = {profile.name for model in load_models().values() for profile in model.mig}
    return [name for name in sorted(names) if name.startswith(incomplete)]


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
    instance_profile = None if profile is None else device_name(profile).instance
    read, unread = split_readings(take_mig_readings(load()))
    read = _selected_gpus(read, unread, chosen)
    gpus = [gpu for gpu in read if gpu.mode is not None]
    if instance_profile is None:
        if output == "table":
            _show_profiles(gpus, unread)
        else:
            documents = [_gpu_document(gpu) | {"profiles": gpu.profiles} for gpu in gpus]
            terminal.print_data({"gpus": documents, "unread": unread}, output)
        return
    profiles = [(gpu, gpu.profile(instance_profile)) for gpu in gpus]
    gpus_with_profile = [(gpu, found) for gpu, found in profiles if found is not None]
    if not gpus_with_profile:
        raise _unknown_profile(instance_profile, gpus, unread)
    if output != "table":
        documents = [_grid_document(gpu, gpu_profile) for gpu, gpu_profile in gpus_with_profile]
        terminal.print_data({"gpus": documents, "unread": unread}, output)
        return
    _show_grids(gpus_with_profile)
    _show_others([gpu for gpu, found in profiles if found is None], unread)


def _selected_gpus(
    read: list[MigGpu], unread: Sequence[UnreadMigGpu], indices: Sequence[int]
) -> list[MigGpu]:
    """GPUs with these indices, all for none. Raises BadInput for an index that no GPU has."""
    indices_present = {gpu.index for gpu in read} | {gpu.index for gpu in unread}
    for index in indices:
        if index not in indices_present:
            raise BadInput(f"there is no GPU {index}: see gpuscape mig status")
    return [gpu for gpu in read if not indices or gpu.index in indices]


def _unknown_profile(
    profile_name: str, gpus: Sequence[MigGpu], unread: Sequence[UnreadMigGpu]
) -> Exception:
    """Error for a profile that no GPU has; BadInput only where all profiles are known."""
    if unread:
        return MigUnread("; ".join(unread_note(gpu) for gpu in unread))
    undescribed = [gpu.index for gpu in gpus if not gpu.profiles]
    if undescribed:
        known = [_by_table(gpu).profile(profile_name) for gpu in gpus]
        fitting = max((profile.max_instances for profile in known if profile), default=0)
        text = f"; by the table of known models {fitting} fit" if fitting else ""
        return MigUnread(f"GPU {gpu_numbers(undescribed)}: {_UNDESCRIBED}{text}")
    if not gpus:
        return BadInput("no GPU that is shown has MIG")
    names = sorted({profile.name for gpu in gpus for profile in gpu.profiles})
    return BadInput(f"no GPU has the profile {quoted(profile_name)}; they have {', '.join(names)}")


# all profiles


def _show_profiles(gpus: Sequence[MigGpu], unread: Sequence[UnreadMigGpu]) -> None:
    described = [gpu for gpu in gpus if gpu.profiles]
    if not gpus and not unread:
        terminal.note("No GPU of this machine has MIG.")
    for index, group in enumerate(_groups(described)):
        terminal.note(f"{chr(10) if index else ''}{_title(group)}: {memory_units(group[0])} units")
        terminal.show_table(profile_table(group[0]))
        terminal.note("", "More that fit now, by GPU:")
        terminal.show_table(fitting_table(group))
    undescribed = [gpu for gpu in gpus if not gpu.profiles]
    _show_others(undescribed, unread, first=not described)
    for group in _groups([_by_table(gpu) for gpu in undescribed]):
        if group[0].profiles:
            _show_known(group)


def _by_table(gpu: MigGpu) -> MigGpu:
    """The GPU with the profiles that the table of known models has for it, which may be none."""
    return replace(gpu, profiles=known_profiles(gpu.device_id))


def _show_known(gpus: Sequence[MigGpu]) -> None:
    """Profiles of GPUs by the table of known models."""
    terminal.note("", f"{_title(gpus)}, by the table of known models:")
    rows = [(p.name, f"({p.max_instances})", str(p.size)) for p in _by_size(gpus[0].profiles)]
    table = TextTable(header=("PROFILE", "FIT", "UNITS"), rows=tuple(rows), right=frozenset({1, 2}))
    terminal.show_table(table)
    terminal.note("gpuscape mig plan LAYOUT shows what it takes to turn MIG on.")


def _groups(gpus: Sequence[MigGpu]) -> list[list[MigGpu]]:
    """Group GPUs of one model with the same profiles, in the order of each group's first GPU."""

    def kind(gpu: MigGpu) -> Hashable:
        profiles = ((it.id, it.name, it.max_instances, it.starts) for it in gpu.profiles)
        return gpu.model, tuple(profiles)

    return list(grouped(gpus, kind).values())


def _title(gpus: Sequence[MigGpu]) -> str:
    return f"{gpus[0].model} (GPU {gpu_numbers(gpu.index for gpu in gpus)})"


def profile_table(gpu: MigGpu) -> TextTable:
    """Table of the profiles with the size and engines of an instance, the smallest first."""
    return TextTable(
        header=("PROFILE", "ID", "MOST", "MEMORY", "SMS", "UNITS", "DEC", "ENC", "JPG", "OFA"),
        rows=tuple(
            (
                profile.name,
                str(profile.id),
                str(profile.max_instances),
                f"{profile.memory_bytes / GIB:.1f} GiB",
                str(profile.multiprocessors),
                str(profile.size),
                *(str(count) if count else NONE for count in _engines(profile)),
            )
            for profile in _by_size(gpu.profiles)
        ),
        right=frozenset(range(1, 10)),
    )


def fitting_table(gpus: Sequence[MigGpu]) -> TextTable:
    """Table of how many more of each profile fit, a column for all GPUs with equal numbers."""
    columns: dict[tuple[str, ...], list[int]] = {}
    for gpu in gpus:
        counts = tuple(_fitting(gpu, profile) for profile in _by_size(gpu.profiles))
        columns.setdefault(counts, []).append(gpu.index)
    names = tuple(profile.name for profile in _by_size(gpus[0].profiles))
    return TextTable(
        header=("PROFILE", *(f"GPU {gpu_numbers(indices)}" for indices in columns.values())),
        rows=tuple(zip(names, *columns, strict=True)),
        right=frozenset(range(1, len(columns) + 1)),
    )


def _by_size(profiles: Sequence[MigProfile]) -> list[MigProfile]:
    return sorted(profiles, key=lambda profile: (profile.slices, profile.size, profile.number))


def _engines(profile: MigProfile) -> tuple[int, int, int, int]:
    engines = profile.engines
    return engines.decoders, engines.encoders, engines.jpeg, engines.ofa


def _fitting(gpu: MigGpu, profile: MigProfile) -> str:
    """Number of further instances that fit; in brackets that of an empty GPU, where MIG is off."""
    if gpu.mode is not None and not gpu.mode.current:
        return f"({profile.max_instances})"
    return str(placement_grid(gpu, profile).room if profile.fitting is None else profile.fitting)


# one profile


def _show_grids(gpus_with_profile: Sequence[tuple[MigGpu, MigProfile]]) -> None:
    profile_by_gpu_index = {gpu.index: profile for gpu, profile in gpus_with_profile}
    for index, group in enumerate(_groups([gpu for gpu, _ in gpus_with_profile])):
        profile = profile_by_gpu_index[group[0].index]
        terminal.note(f"{chr(10) if index else ''}{profile.name} on {_title(group)}")
        terminal.note(*_sizes(profile))
        for grid_gpus in _same_grids(group, profile):
            terminal.note("", _state(grid_gpus, profile))
            grid = placement_grid(grid_gpus[0], profile)
            terminal.show_table(grid_table(grid))
            if grid.instances:
                terminal.note("")
                terminal.show_table(key_table(grid_gpus[0], grid))


def _sizes(profile: MigProfile) -> tuple[str, str]:
    names = ("decoder", "encoder", "JPEG engine", "OFA engine")
    counts = zip(_engines(profile), names, strict=True)
    engines = [f"{count} {name}{'s' if count > 1 else ''}" for count, name in counts if count]
    parts = [f"{profile.memory_bytes / GIB:.1f} GiB", f"{profile.multiprocessors} SMs", *engines]
    size = f"{profile.size} memory unit{'s' if profile.size > 1 else ''}"
    return (
        f"each has {', '.join(parts)}",
        f"id {profile.id}, {size}, at most {profile.max_instances} on a GPU",
    )


def _same_grids(gpus: Sequence[MigGpu], profile: MigProfile) -> list[list[MigGpu]]:
    """Group GPUs that share a grid: equal GPUs without instances; any other GPU stands alone."""

    def grid(gpu: MigGpu) -> Hashable:
        return gpu.index if gpu.instances else (gpu.mode, gpu.profile(profile.name))

    return list(grouped(gpus, grid).values())


def _state(gpus: Sequence[MigGpu], profile: MigProfile) -> str:
    gpu = gpus[0]
    indices = gpu_numbers(gpu.index for gpu in gpus)
    own_profile = gpu.profile(profile.name) or profile
    if gpu.mode is None or not gpu.mode.current:
        return f"GPU {indices}: MIG is off; the places when it is on:"
    return f"GPU {indices}: {_fitting(gpu, own_profile)} more fit"


def grid_table(grid: PlacementGrid) -> TextTable:
    """Grid with a column for each memory unit: a row of instances, then one for each placement."""
    occupants: list[Cell] = [OUTSIDE] * grid.units
    for letter, instance in _lettered(grid):
        for unit in range(instance.start, instance.start + instance.size):
            occupants[unit] = letter
    return TextTable(
        header=("MEMORY UNIT", *(str(unit) for unit in range(grid.units)), ""),
        rows=(("there", *occupants, ""), *(_grid_row(grid, row) for row in grid.rows)),
        right=frozenset(range(1, grid.units + 1)),
    )


def _grid_row(grid: PlacementGrid, row: PlacementRow) -> tuple[Cell, ...]:
    letters = {instance.id: letter for letter, instance in _lettered(grid)}
    span = range(row.start, row.start + row.size)
    mark = TAKEN if row.taken_by else FREE
    cells = [mark if unit in span else OUTSIDE for unit in range(grid.units)]
    takers = ", ".join(letters[instance_id] for instance_id in row.taken_by)
    state = Styled(f"taken by {takers}", "red") if takers else Styled("free", "green")
    return (f"start {row.start}", *cells, state)


def _lettered(grid: PlacementGrid) -> Iterator[tuple[str, CurrentInstance]]:
    return zip(ascii_lowercase, grid.instances, strict=False)


def key_table(gpu: MigGpu, grid: PlacementGrid) -> TextTable:
    """Table that explains a grid's letters: the instance of each, and the programs on it."""
    return TextTable(
        header=("", "INSTANCE", "PROFILE", "UNITS", "PROGRAMS"),
        rows=tuple(
            (
                letter,
                str(instance.id),
                instance.profile,
                unit_range(instance.start, instance.size),
                pid_cell(gpu.pids_on(instance))
                if instance.compute
                else Styled(UNUSABLE, "bold yellow"),
            )
            for letter, instance in _lettered(grid)
        ),
    )


def _show_others(
    gpus: Sequence[MigGpu], unread: Sequence[UnreadMigGpu], *, first: bool = False
) -> None:
    """Print why the other GPUs are not shown."""
    notes = []
    if undescribed := [gpu.index for gpu in gpus if not gpu.profiles]:
        notes.append(f"GPU {gpu_numbers(undescribed)}: MIG is off, and {_UNDESCRIBED}")
    if lacking := [gpu.index for gpu in gpus if gpu.profiles]:
        notes.append(f"GPU {gpu_numbers(lacking)}: no such profile")
    notes += map(unread_note, unread)
    if notes:
        terminal.note(*([] if first else [""]), *notes)


# documents


def _gpu_document(gpu: MigGpu) -> dict[str, Any]:
    facts = {name: getattr(gpu, name) for name in ("index", "uuid", "model", "mode")}
    return facts | {"memory_units": memory_units(gpu)}


def _grid_document(gpu: MigGpu, profile: MigProfile) -> dict[str, Any]:
    grid = placement_grid(gpu, profile)
    return _gpu_document(gpu) | {
        "profile": profile,
        "places": grid.rows,
        "instances": [
            {
                "id": instance.id,
                "profile": instance.profile,
                "start": instance.start,
                "size": instance.size,
                "compute_instances": len(instance.compute),
                "pids": gpu.pids_on(instance),
            }
            for instance in grid.instances
        ],
    }
