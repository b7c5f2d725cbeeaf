# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig configs``: configurations to choose from, and what they mean here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from agent.single_reading import take_mig_readings
from base.errors import BadInput
from cli import options, terminal
from cli.mig.desired_layouts import config_file_option, file_configs, fully_read_gpus
from cli.mig.mig_text import NONE, gpu_numbers
from cli.mig.plan_text import layout_document
from cli.options import Load
from cli.terminal import Cell, Styled, TextTable
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
    elif output == "table":
        terminal.show_table(config_table(configs.configs, gpus))
        if notes := [*_notes(configs.configs, gpus)]:
            terminal.note("", *notes)
    else:
        listed = [_document(config, gpus) for config in configs.configs]
        terminal.print_data({"source": configs.source, "configs": listed}, output)


def config_table(configs: Sequence[MigConfig], gpus: Sequence[MigGpu]) -> TextTable:
    """Table of configurations, a row for each layout of each."""
    return TextTable(
        header=("CONFIGURATION", "GPUS", "LAYOUT", "FITS", "NOW"),
        rows=tuple(
            (config.name if row == 0 else "", *cells)
            for config in configs
            for row, cells in enumerate(_cells(config, gpus))
        ),
    )


def _cells(config: MigConfig, gpus: Sequence[MigGpu]) -> Iterator[tuple[Cell, ...]]:
    try:
        config_meanings = evaluate_config(config, gpus)
    except BadInput:
        yield NONE, NONE, _NO, NONE
        return
    for meaning in config_meanings:
        fits: Cell = "?" if meaning.fits is None else "yes" if meaning.fits else _NO
        yield (
            gpu_numbers(meaning.gpus),
            str(meaning.layout),
            fits,
            gpu_numbers(meaning.now) or NONE,
        )
    if not config_meanings:
        yield NONE, NONE, "yes", NONE


def _notes(configs: Sequence[MigConfig], gpus: Sequence[MigGpu]) -> Iterator[str]:
    """Lines on the configurations that do not fit here, and why."""
    for config in configs:
        try:
            for meaning in evaluate_config(config, gpus):
                if meaning.reason:
                    yield f"{config.name}: GPU {gpu_numbers(meaning.gpus)}: {meaning.reason}"
        except BadInput as error:
            yield f"{config.name}: {error}"


def evaluate_config(config: MigConfig, gpus: Sequence[MigGpu]) -> list[ConfigMeaning]:
    """Evaluate a configuration for these GPUs: an answer for each group of equal GPUs.

    Raises BadInput where the configuration would be refused on this machine.
    """
    desired = config_layouts(config, gpus)
    groups: dict[tuple[GpuLayout, bool | None, str], list[MigGpu]] = {}
    for gpu in gpus:
        if gpu.uuid in desired:
            layout = desired[gpu.uuid]
            groups.setdefault((layout, *_fit(gpu, layout)), []).append(gpu)
    return [
        ConfigMeaning(
            gpus=tuple(gpu.index for gpu in equal_gpus),
            layout=layout,
            fits=fits,
            reason=reason,
            now=tuple(gpu.index for gpu in equal_gpus if has_layout(gpu, layout)),
        )
        for (layout, fits, reason), equal_gpus in groups.items()
    ]


def _fit(gpu: MigGpu, layout: GpuLayout) -> tuple[bool | None, str]:
    """Whether a layout fits the GPU when empty, and why not; None where that is not known."""
    profiles = offered_profiles(gpu)
    misfit = Grid(profiles).misfit(layout.instances) if profiles else None
    if misfit is None and layout.instances and not gpu.profiles:
        return None, ""
    return misfit is None, "" if misfit is None else misfit.detail


def _document(config: MigConfig, gpus: Sequence[MigGpu]) -> dict[str, Any]:
    try:
        config_meanings, refusal = evaluate_config(config, gpus), None
    except BadInput as error:
        config_meanings, refusal = [], str(error)
    return {
        "name": config.name,
        "refused": refusal,
        "layouts": [
            {
                "gpus": meaning.gpus,
                **layout_document(meaning.layout),
                "fits": meaning.fits,
                "reason": meaning.reason or None,
                "now": meaning.now,
            }
            for meaning in config_meanings
        ],
    }
