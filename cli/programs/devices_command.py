# SPDX-License-Identifier: Apache-2.0
"""``gpuscape devices``: settles the settings and hands over to the door."""

from __future__ import annotations

from collections.abc import Callable

import click

from cli import options
from devices.device_settings import DEVICE_SETTINGS, DeviceSettings


@click.command(
    cls=options.BySubject,
    epilog="""\b
Examples:
  gpuscape devices                     in a pod, with the kubelet's folder of device plugins
  gpuscape devices --mig-strategy mixed --pass-device-specs
  gpuscape devices --numa off          where NVSwitch joins all GPUs

SIGTERM and SIGINT end it; pods that run are not touched, and new ones get no GPU until it is there
again. Exit codes: 0 ended by a signal, 2 bad input.""",
)
@options.program_settings(DEVICE_SETTINGS)
def command(load: Callable[[], DeviceSettings]) -> None:
    """Hand the node's GPUs out to containers, in place of NVIDIA's device plugin.

    Devices, their health and their links come from the agent, in a file: this program calls no
    driver and needs no token. It never runs beside another device plugin of the same resource: it
    waits until that one is gone.

    Each option can stand in the environment and in a settings file too; flags win over the
    environment, the environment over the file. A name that is not known is an error.
    """
    settings = load()
    from cli.program_log import begin_log
    from devices.devices_program import run

    begin_log(settings.log_level, settings.log_format)
    run(settings)
