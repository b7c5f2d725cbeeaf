# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig export``: the present layout as a configuration file of mig-parted."""

from __future__ import annotations

import click

from agent.single_reading import take_mig_readings
from base.errors import BadInput
from cli import options, terminal
from cli.mig.desired_layouts import fully_read_gpus
from cli.options import Load
from mig.configs.mig_config_text import mig_config_json, mig_config_text
from mig.layout_export import CURRENT, export_losses, present_config


@click.command(
    epilog="""\b
Examples:
  gpuscape mig export > now.yaml
  gpuscape mig export --label before-upgrade -o json
  nvidia-mig-parted apply -f now.yaml -c current

\b
The format is mig-parted's, version v1. It counts devices and has no places. Export refuses (exit
2) what the format cannot express: a GPU instance without a compute instance, a mode that waits for
a reset, and compute instances that are spread over more GPU instances than they need. With
--allow-loss the file is the one that nvidia-mig-parted exports, and standard error lists what is
not in it.
A GPU that cannot be read in full is refused in any case (exit 3)."""
)
@options.output("yaml", "json")
@click.option(
    "-l", "--label", default=CURRENT, show_default=True, help="Name of the configuration."
)
@click.option(
    "--allow-loss", is_flag=True, help="Export what the format can express, and list losses."
)
@options.settings(*options.READING)
def command(load: Load, output: str, label: str, allow_loss: bool) -> None:
    """Print the current layout of the GPUs as a configuration file of mig-parted."""
    read = fully_read_gpus(take_mig_readings(load()))
    lost = [loss for gpu in read for loss in export_losses(gpu)]
    if lost and not allow_loss:
        raise BadInput(
            f"the format cannot express this: {'; '.join(lost)}: export without it with"
            " --allow-loss"
        )
    config = present_config(read, label, lossy=allow_loss)
    for loss in lost:
        terminal.note(f"not exported: {loss}", err=True)
    write = mig_config_json if output == "json" else mig_config_text
    terminal.print_document(write([config]))
