# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig configs``: configurations to choose from, and what they mean here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from agent.single_reading import take_mig_readings
from base.errors import BadInput
from base.grouping import grouped
from cli import options, terminal
from cli.mig.desired_layouts import config_file_option, file_configs, fully_read_gpus
from cli.mig.mig_text import gpu_numbers
from cli.mig.plan_text import layout_document
from cli.options import Load
from cli.terminal import NONE, Cell, Styled, TextTable
from discovery.mig_state import MigGpu
from mig.configs.config_choice import config_layouts
from mig.configs.config_overlap import Overlap
from mig.configs.default_configs import generated_configs, listed_configs
from mig.configs.known_gpus import offered_profiles
from mig.configs.mig_config_text import mig_config_text
from mig.configs.mig_configs import MigConfig
from mig.gpu_layout import GpuLayout, has_layout
from mig.placement import Grid

FILE = "mig-parted"
"""Name of the output format that is a configuration file."""
_NO = Styled("no", "red")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMeaning:
    """Layout that a configuration gives to equal GPUs of this machine, and whether it fits."""

    gpus: tuple[int, ...]
    """Indices of the GPUs."""
    layout: GpuLayout
    fits: bool | None
    """Whether the layout fits empty GPUs; None where the driver does not report their profiles."""
    reason: str
    """Why the layout does not fit; empty where it does."""
    now: tuple[int, ...]
    """Indices of the GPUs that have the layout already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedConfig:
    """A configuration with its meaning on this machine."""

    name: str
    refused: str | None = None
    """Why it would be refused here; None where it would not."""
    layouts: tuple[ConfigMeaning, ...] = ()
    """A layout for each group of equal GPUs that it chooses."""


@click.command(
    epilog="""\b
Examples:
  gpuscape mig configs
  gpuscape mig configs -f config.yaml -o json | jq '.configs[].name'
  gpuscape mig configs -o mig-parted > config.yaml
  gpuscape mig configs --all-models > config.yaml

\b
FITS: whether all instances have a place on an empty GPU; `?` if the driver reports places only
with MIG on. NOW: the GPUs that have the layout already. A configuration that would be refused on
this machine is listed with the reason.
Without -f, configurations are generated from what the driver reports, as nvidia-mig-parted does:
all-<profile> has as many of a profile as fit, all-balanced a mix. -o mig-parted writes the
configurations as a file that gpuscape and nvidia-mig-parted read."""
)
@config_file_option
@options.output("table", "json", "yaml", FILE)
@click.option(
    "--all-models",
    is_flag=True,
    help="Write the file with configurations of all known models; no GPU is read.",
)
@options.settings(*options.READING)
def command(
    load: Load, config_file: str | None, overlap: Overlap, output: str, all_models: bool
) -> None:
    """List MIG configurations, the GPUs that each chooses, and whether it fits them."""
    if all_models:
        terminal.print_document(mig_config_text(listed_configs().configs))
        return
    configs = None if config_file is None else file_configs(config_file, overlap)
    if configs is not None and output == FILE:
        terminal.print_document(mig_config_text(configs.configs))
        return
    gpus = fully_read_gpus(take_mig_readings(load()))
    configs = generated_configs(gpus) if configs is None else configs
    if output == FILE:
        terminal.print_document(mig_config_text(configs.configs))
        return
    listed = [evaluated_config(config, gpus) for config in configs.configs]
    if output == "table":
        rows = tuple(row for config in listed for row in _rows(config))
        header = ("CONFIGURATION", "GPUS", "LAYOUT", "FITS", "NOW")
        terminal.show_table(TextTable(header=header, rows=rows))
        if notes := [note for config in listed for note in _notes(config)]:
            terminal.note("", *notes)
    else:
        documents = [_document(config) for config in listed]
        terminal.print_data({"source": configs.source, "configs": documents}, output)


def _rows(config: ListedConfig) -> Iterator[tuple[Cell, ...]]:
    """Rows of a configuration, one for each of its layouts."""
    for row, meaning in enumerate(config.layouts):
        yield (
            "" if row else config.name,
            gpu_numbers(meaning.gpus),
            str(meaning.layout),
            "?" if meaning.fits is None else "yes" if meaning.fits else _NO,
            gpu_numbers(meaning.now) or NONE,
        )
    if not config.layouts:
        yield config.name, NONE, NONE, _NO if config.refused else "yes", NONE


def _notes(config: ListedConfig) -> Iterator[str]:
    """Lines on why a configuration does not fit here."""
    if config.refused:
        yield f"{config.name}: {config.refused}"
    for meaning in config.layouts:
        if meaning.reason:
            yield f"{config.name}: GPU {gpu_numbers(meaning.gpus)}: {meaning.reason}"


def evaluated_config(config: MigConfig, gpus: Sequence[MigGpu]) -> ListedConfig:
    """Evaluate a configuration for these GPUs."""
    try:
        desired = config_layouts(config, gpus)
    except BadInput as error:
        return ListedConfig(name=config.name, refused=str(error))
    chosen = [gpu for gpu in gpus if gpu.uuid in desired]
    groups = grouped(chosen, lambda gpu: (desired[gpu.uuid], *_fit(gpu, desired[gpu.uuid])))
    meanings = (
        ConfigMeaning(
            gpus=tuple(gpu.index for gpu in equal_gpus),
            layout=layout,
            fits=fits,
            reason=reason,
            now=tuple(gpu.index for gpu in equal_gpus if has_layout(gpu, layout)),
        )
        for (layout, fits, reason), equal_gpus in groups.items()
    )
    return ListedConfig(name=config.name, layouts=tuple(meanings))


def _fit(gpu: MigGpu, layout: GpuLayout) -> tuple[bool | None, str]:
    """Whether a layout fits the GPU when empty, and why not; None where that is not known."""
    profiles = offered_profiles(gpu)
    misfit = Grid(profiles).misfit(layout.instances) if profiles else None
    if misfit is None and layout.instances and not gpu.profiles:
        return None, ""
    return misfit is None, "" if misfit is None else misfit.detail


def _document(config: ListedConfig) -> dict[str, Any]:
    return {
        "name": config.name,
        "refused": config.refused,
        "layouts": [
            {
                "gpus": meaning.gpus,
                **layout_document(meaning.layout),
                "fits": meaning.fits,
                "reason": meaning.reason or None,
                "now": meaning.now,
            }
            for meaning in config.layouts
        ],
    }
