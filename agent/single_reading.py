# SPDX-License-Identifier: Apache-2.0
"""A single reading of this machine, or of a simulated one, by a device reader that then ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from agent.settings.agent_settings import AgentSettings
from agent.settings.machine_from_settings import place_of, start_of
from base.errors import BadInput
from discovery.mig_state import MigReading
from discovery.model import NodeSnapshot
from discovery.reader.device_reader import DeviceReader
from discovery.reader.mig_reading import read_mig
from discovery.reader.protocol import Start
from discovery.reader.reader_results import DiscoveryResult
from labelers.label_settings import PluginConfig


def take_snapshot(settings: AgentSettings, plugin: PluginConfig | None = None) -> NodeSnapshot:
    """Run the device reader once and end it.

    Raises DriverAbsent or DriverMismatch, with cause and fix, where no driver answers,
    ReaderStuck where it does not return, and BadInput for an unknown machine or a
    damaged recording.
    """
    if settings.simulate is not None and settings.node_name is None:
        # called after itself, a simulated machine looks the same everywhere
        settings = replace(settings, node_name=Path(settings.simulate).stem)
    with opened_machine(settings) as start:
        reading = read_devices(start, settings)
        place = place_of(settings, plugin or PluginConfig(), start)
        return place.snapshot(reading.driver, reading.gpus, reading.counts)


@contextmanager
def opened_machine(settings: AgentSettings) -> Iterator[Start]:
    """How to start a device reader; raises BadInput where the settings point at nothing."""
    if settings.library is not None and not settings.library.is_file():
        raise BadInput(f"there is no file {settings.library}: name the driver's library itself")
    with start_of(settings) as start:
        yield start


def take_mig_readings(settings: AgentSettings) -> tuple[MigReading, ...]:
    """The MIG state of every GPU, in PCI bus order. Raises as :func:`take_snapshot`."""
    with opened_machine(settings) as start:
        return read_mig_readings(start, settings)


def read_mig_readings(start: Start, settings: AgentSettings) -> tuple[MigReading, ...]:
    """The MIG state of every GPU of a machine that the caller has opened, in PCI bus order.

    The driver's session has ended. Raises as :func:`take_snapshot`.
    """
    with _reader(start, settings) as reader:
        return read_mig(reader)


def read_devices(start: Start, settings: AgentSettings) -> DiscoveryResult:
    """Driver and GPUs as the device reader reports them. Raises as :func:`take_snapshot`."""
    with _reader(start, settings) as reader:
        return reader.discover()


@contextmanager
def _reader(start: Start, settings: AgentSettings) -> Iterator[DeviceReader]:
    reader = DeviceReader(
        structs.replace(start, events=False),
        deadline_seconds=settings.deadline_seconds,
        init_seconds=settings.init_deadline_seconds,
    )
    with closing(reader):
        yield reader
