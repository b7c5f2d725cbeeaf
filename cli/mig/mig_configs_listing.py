# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig configs``: configurations to choose from, and what they mean here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from base.errors import BadInput
from cli import options, terminal
from cli.mig.mig_wanted import all_read, config_file_option, file_configs
from cli.mig.mig_words import NONE, numbers
from cli.mig.planned_words import layout_document, layout_words
from cli.observe import take_mig
from cli.options import Load
from cli.terminal import Cell, Styled, TextTable
from discovery.mig_state import MigGpu
from mig.configs.config_choice import config_layouts
from mig.configs.default_configs import generated_configs, listed_configs
from mig.configs.known_gpus import known_profiles
from mig.configs.mig_config_text import mig_config_text
from mig.configs.mig_configs import MigConfig
from mig.gpu_layout import GpuLayout, has_layout
from mig.placement import Grid

FILE = "mig-parted"
"""The output that is a configuration file."""
_NO = Styled("no", "red")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMeaning:
    """What a configuration means for GPUs of this machine that are alike."""

    gpus: tuple[int, ...]
    """Indices."""
    layout: GpuLayout
    fits: bool | None
    """On empty GPUs; None where the driver does not report their profiles."""
    reason: str
    """Why it does not fit; empty where it does."""
    now: tuple[int, ...]
    """Indices of the GPUs that have it already."""


@click.command(
    epilog="""\b
Examples:
  gpuscape mig configs
  gpuscape mig configs -f config.yaml -o json | jq '.configs[].name'
  gpuscape mig configs -o mig-parted > config.yaml
  gpuscape mig configs --all-models > config.yaml

\b
FITS is about empty GPUs: whether all instances find a place beside each other. `?` where the
driver reports places only with MIG on. NOW has the GPUs that are so already. A configuration that
would be refused on this machine is listed with the reason.
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
def command(load: Load, config_file: str | None, output: str, all_models: bool) -> None:
    """List MIG configurations, the GPUs that each chooses, and whether it fits them."""
    if all_models:
        terminal.document(mig_config_text(listed_configs().configs))
        return
    configs = None if config_file is None else file_configs(config_file)
    if configs is not None and output == FILE:
        terminal.document(mig_config_text(configs.configs))
        return
    gpus = all_read(take_mig(load()))
    configs = generated_configs(gpus) if configs is None else configs
    if output == FILE:
        terminal.document(mig_config_text(configs.configs))
    elif output == "table":
        terminal.show(config_table(configs.configs, gpus))
        if notes := [*_notes(configs.configs, gpus)]:
            terminal.note("", *notes)
    else:
        listed = [_document(one, gpus) for one in configs.configs]
        terminal.data({"source": configs.source, "configs": listed}, output)


def config_table(configs: Sequence[MigConfig], gpus: Sequence[MigGpu]) -> TextTable:
    """A row for each configuration and layout."""
    return TextTable(
        header=("CONFIGURATION", "GPUS", "LAYOUT", "FITS", "NOW"),
        rows=tuple(
            (one.name if at == 0 else "", *cells)
            for one in configs
            for at, cells in enumerate(_cells(one, gpus))
        ),
    )


def _cells(config: MigConfig, gpus: Sequence[MigGpu]) -> Iterator[tuple[Cell, ...]]:
    try:
        found = meanings(config, gpus)
    except BadInput:
        yield NONE, NONE, _NO, NONE
        return
    for one in found:
        fits: Cell = "?" if one.fits is None else "yes" if one.fits else _NO
        yield numbers(one.gpus), layout_words(one.layout), fits, numbers(one.now) or NONE
    if not found:
        yield NONE, NONE, "yes", NONE


def _notes(configs: Sequence[MigConfig], gpus: Sequence[MigGpu]) -> Iterator[str]:
    """Why configurations do not fit here."""
    for config in configs:
        try:
            for one in meanings(config, gpus):
                if one.reason:
                    yield f"{config.name}: GPU {numbers(one.gpus)}: {one.reason}"
        except BadInput as error:
            yield f"{config.name}: {error}"


def meanings(config: MigConfig, gpus: Sequence[MigGpu]) -> list[ConfigMeaning]:
    """What a configuration wants, for GPUs together of which the same is true.

    Raises BadInput where it would be refused here.
    """
    wanted = config_layouts(config, gpus)
    groups: dict[tuple[GpuLayout, bool | None, str], list[MigGpu]] = {}
    for gpu in gpus:
        if gpu.uuid in wanted:
            layout = wanted[gpu.uuid]
            groups.setdefault((layout, *_fit(gpu, layout)), []).append(gpu)
    return [
        ConfigMeaning(
            gpus=tuple(gpu.index for gpu in found),
            layout=layout,
            fits=fits,
            reason=reason,
            now=tuple(gpu.index for gpu in found if has_layout(gpu, layout)),
        )
        for (layout, fits, reason), found in groups.items()
    ]


def _fit(gpu: MigGpu, layout: GpuLayout) -> tuple[bool | None, str]:
    """Whether an empty GPU takes it, and why not."""
    profiles = gpu.profiles or known_profiles(gpu.device_id)
    misfit = Grid(profiles).misfit(layout.instances) if profiles else None
    if misfit is None and layout.instances and not gpu.profiles:
        return None, ""
    return misfit is None, "" if misfit is None else misfit.detail


def _document(config: MigConfig, gpus: Sequence[MigGpu]) -> dict[str, Any]:
    try:
        found, refused = meanings(config, gpus), None
    except BadInput as error:
        found, refused = [], str(error)
    return {
        "name": config.name,
        "refused": refused,
        "layouts": [
            {
                "gpus": one.gpus,
                **layout_document(one.layout),
                "fits": one.fits,
                "reason": one.reason or None,
                "now": one.now,
            }
            for one in found
        ],
    }
