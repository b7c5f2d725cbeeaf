# SPDX-License-Identifier: Apache-2.0
"""Desired layouts on a command line: a configuration's name, or the layouts themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from base.errors import BadInput
from base.files import read_stdin, read_text
from cli.mig.mig_text import unread_note
from discovery.driver_errors import MigUnread
from discovery.mig_state import MigGpu, MigReading, split_readings
from mig.configs.config_choice import LayoutChoice
from mig.configs.config_overlap import Overlap
from mig.configs.default_configs import SOURCE, listed_configs
from mig.configs.layout_annotation import parse_layout_annotation
from mig.configs.mig_config_file import parse_mig_configs
from mig.configs.mig_configs import MigConfig, MigConfigs
from mig.gpu_layout import GpuLayout

STDIN: Final = "-"

WORDS: Final = """\
LAYOUT is the name of a configuration: of the file that -f names, or of the default ones that
`gpuscape mig configs` lists. A file with a single configuration needs no name. Or it is the
layouts themselves, GPU by GPU, as the annotation gpuscape.io/mig-layout has them:
  '{"all": {"1g.10gb": 7}}'
  '{"0-3": {"3g.40gb": 2}, "4,5": "off", "6": {"3g.40gb@4": 1, "4g.40gb@0": 1}}'"""
"""Help text about LAYOUT, for commands with :func:`layout_argument`."""

Command = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredLayouts:
    """Desired layouts of a command, read and checked as far as possible without GPUs."""

    choice: LayoutChoice
    title: str
    """Name of the layouts with their source, for people: ``all-1g.10gb of config.yaml``."""

    def layouts(self, gpus: Sequence[MigGpu]) -> dict[str, GpuLayout]:
        """Desired layouts by GPU UUID; other GPUs stay as they are.

        Raises BadInput where the request does not go with these GPUs.
        """
        try:
            return self.choice.gpu_layouts(gpus)
        except BadInput as error:
            name, configs = self.choice.layout, self.choice.configs
            if configs is None and isinstance(name, str) and Path(name).is_file():
                raise BadInput(f"{name} is a file: name it with -f") from error
            raise

    def needed_gpus(self, readings: Sequence[MigReading]) -> list[MigGpu]:
        """The GPUs to plan with.

        Raises MigUnread where a GPU could not be read in full and the layouts may concern it: all
        GPUs have to be read, unless the layouts name the GPUs one by one.
        """
        read, unread = split_readings(readings)
        if unread and not self.choice.is_of(read):
            notes = "; ".join(unread_note(gpu) for gpu in unread)
            raise MigUnread(f"{notes}; to leave it as it is, name the other GPUs in LAYOUT")
        return read


ReadDesired = Callable[[], DesiredLayouts]
"""Reads the desired layouts. Raises BadInput naming file, line and key."""


def layout_argument(function: Command) -> Command:
    """Add the argument LAYOUT, ``-f`` and ``-c``; the command gets ``read_desired``."""

    @click.argument("layout", required=False, shell_complete=_complete_names)
    @config_file_option
    @click.option(
        "-c",
        "--selected-config",
        metavar="NAME",
        envvar="MIG_PARTED_SELECTED_CONFIG",
        show_envvar=True,
        help="The same as a name for LAYOUT, as nvidia-mig-parted takes it.",
    )
    @functools.wraps(function)
    def command(
        *,
        layout: str | None,
        config_file: str | None,
        overlap: Overlap,
        selected_config: str | None,
        **parameters: Any,
    ) -> Any:
        ctx = click.get_current_context()
        read_desired = functools.partial(
            _desired, ctx, layout, config_file, selected_config, overlap
        )
        return function(read_desired=read_desired, **parameters)

    return command


def config_file_option(function: Command) -> Command:
    """Add ``-f`` and ``--overlap``."""
    overlap_option = click.option(
        "--overlap",
        type=click.Choice([overlap.value for overlap in Overlap]),
        default=Overlap.REFUSE.value,
        show_default=True,
        callback=lambda _ctx, _parameter, value: Overlap(value),
        help="If entries of a configuration of FILE give a GPU different layouts: refuse it, or let"
        " the last entry decide, as nvidia-mig-parted does.",
    )
    file_option = click.option(
        "-f",
        "--config-file",
        metavar="FILE",
        envvar="MIG_PARTED_CONFIG_FILE",
        show_envvar=True,
        type=click.Path(allow_dash=True),
        help="Configurations in mig-parted's format, - for standard input."
        "  [default: those for the GPUs of this machine]",
    )
    return file_option(overlap_option(function))


def file_configs(file: str, overlap: Overlap = Overlap.REFUSE) -> MigConfigs:
    """Read configurations from a file or standard input. Raises BadInput naming line and key."""
    if file != STDIN:
        return parse_mig_configs(read_text(Path(file), "configuration file"), file, overlap)
    content = read_stdin()
    try:
        return parse_mig_configs(content.decode(), "standard input", overlap)
    except UnicodeDecodeError as error:
        raise BadInput("cannot read standard input: it is not UTF-8 text") from error


def fully_read_gpus(readings: Sequence[MigReading]) -> list[MigGpu]:
    """The GPUs of a machine. Raises MigUnread where one of them could not be read in full."""
    read, unread = split_readings(readings)
    if unread:
        raise MigUnread("; ".join(unread_note(gpu) for gpu in unread))
    return read


def _desired(
    ctx: click.Context, layout: str | None, file: str | None, name: str | None, overlap: Overlap
) -> DesiredLayouts:
    """Read the desired layouts of a command line and of the configuration file that it names.

    Raises UsageError for options that exclude each other, BadInput for a mistake in a value or in
    the file.
    """
    if layout is not None:
        if _is_written(ctx, "selected_config"):
            raise click.UsageError("LAYOUT and -c say the same: keep one of them")
        name_or_layouts = parse_layout_annotation(layout, "LAYOUT")
        if isinstance(name_or_layouts, MigConfig):
            if _is_written(ctx, "config_file"):
                raise click.UsageError("LAYOUT has the layouts themselves, so -f has no use")
            return DesiredLayouts(choice=LayoutChoice(layout=name_or_layouts), title=layout.strip())
        name = name_or_layouts
    if file is None:
        if name is None:
            raise click.UsageError("what layout? Name a configuration of `gpuscape mig configs`")
        return DesiredLayouts(choice=LayoutChoice(layout=name), title=f"{name} of {SOURCE}")
    configs = file_configs(file, overlap)
    title = f"{configs.selected(name).name} of {configs.source}"  # refused before GPUs are read
    return DesiredLayouts(choice=LayoutChoice(layout=name, configs=configs), title=title)


def _is_written(ctx: click.Context, parameter: str) -> bool:
    """Whether a parameter stands on the command line; its environment variable does not count."""
    return ctx.get_parameter_source(parameter) is ParameterSource.COMMANDLINE


def _complete_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Configurations of the file, else of all known models: reading GPUs would take too long."""
    del parameter
    file = ctx.params.get("config_file")
    try:
        configs = listed_configs() if file is None else file_configs(file)
    except BadInput:
        return []
    return [config.name for config in configs.configs if config.name.startswith(incomplete)]
