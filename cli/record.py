# SPDX-License-Identifier: Apache-2.0
"""``gpuscape record``: what this machine answers, in one file that can be replayed anywhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from agent.single_reading import opened_machine, read_devices
from base.errors import BadInput
from base.text.safe_text import safe_json
from cli import options, terminal
from cli.options import Load
from discovery.driver_errors import ReaderGone, ReaderStuck
from discovery.model import GpuSnapshot
from discovery.nvml.session import use_library
from discovery.reader.protocol import (
    AgentMessage,
    Discover,
    ReaderMessage,
    ReadMig,
    RequestRefused,
    Sample,
    Start,
)
from discovery.reader.reader_child import Channel, serve
from discovery.sample import ReadingGroup
from simulator import recording

_OUTPUT = Path("-")
BETWEEN_SECONDS = 0.2
"""Time between the two samples: NVML has no profile of less than 100 ms."""


@click.command(
    epilog="""\b
Examples:
  gpuscape record machine.json
  gpuscape topo --simulate machine.json
  gpuscape record - | gzip > machine.json.gz

\b
The file contains every answer of the driver, errors included, and the data in sysfs and procfs
about GPUs, RDMA NICs, NUMA nodes and memory. It does not contain the host's name and network
addresses."""
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-f", "--force", is_flag=True, help="Replace FILE if it exists.")
@click.option(
    "--anonymise/--no-anonymise",
    default=True,
    help="Replace serial numbers and UUIDs; equal ones stay equal.  [default: --anonymise]",
)
@options.settings(*options.READING)
def command(load: Load, file: Path, force: bool, anonymise: bool) -> None:
    """Record this machine into FILE, for a bug report or for --simulate; - is standard output.

    GPUs that hang, or that make the reading process end, are left out.
    """
    settings = load()
    if file != _OUTPUT:
        _check(file, force=force)
    with opened_machine(settings) as start:
        gpus = read_devices(start, settings).gpus
        skipped = tuple(gpu.bus_id for gpu in gpus if _is_left_alone(gpu))
        if gpus and len(skipped) == len(gpus):
            raise ReaderStuck(f"nothing is recorded: no GPU can be read: {_why(gpus[0])}")
        with _library(start):
            taken = recording.capture(lambda: _read_all(skipped, start), Path(start.host_root))
    shown = recording.anonymise(taken) if anonymise else taken
    if file == _OUTPUT:
        terminal.print_document(safe_json(recording.encode(shown).decode()))
    else:
        recording.save_recording(shown, file, replace=force)
        terminal.note(f"{file}: {len(taken.calls)} answers of {len(gpus) - len(skipped)} GPUs")
    for gpu in gpus:
        if gpu.bus_id in skipped:
            terminal.note(f"left out: {gpu.bus_id}: {_why(gpu)}", err=file == _OUTPUT)


def _check(file: Path, *, force: bool) -> None:
    """Raises BadInput for a file that would not be written, before the machine is read."""
    why = None
    if file.is_dir():
        why = "it is a folder: name a file in it"
    elif not file.parent.is_dir():
        why = f"there is no folder {file.parent}: create it"
    if why is not None:
        raise BadInput(f"cannot write the recording {file}: {why}")
    if file.exists() and not force:
        raise BadInput(f"{file} is there already: name another file, or replace it with --force")


def _is_left_alone(gpu: GpuSnapshot) -> bool:
    """Whether the device reader hung or died on this GPU: this process must not touch it."""
    gap = gpu.gap("state")
    return gap is not None and gap.source == "device reader"


def _why(gpu: GpuSnapshot) -> str:
    gap = gpu.gap("state")
    return "" if gap is None else gap.detail


@contextmanager
def _library(start: Start) -> Iterator[None]:
    """Have pynvml call the library that ``start`` names, in this process too."""
    if start.simulation is not None:
        from simulator.simulation import Simulation  # never loaded on real hardware

        with Simulation.open(Path(start.simulation)):
            yield
        return
    if start.library is not None:
        use_library(start.library)
    yield


class _Script(Channel):
    """A channel on which all requests have been made; of the answers it keeps how they ended."""

    def __init__(self, *messages: AgentMessage) -> None:
        self._remaining = list(messages)
        self.refused: str | None = None
        """Why a request could not be answered."""

    def send(self, message: ReaderMessage) -> None:
        """Drop the answer itself: it is on the tape below pynvml."""
        if isinstance(message, RequestRefused):
            self.refused = self.refused or message.text

    def receive(self) -> AgentMessage | None:
        """The next request; None at the end."""
        if len(self._remaining) == 1:
            time.sleep(BETWEEN_SECONDS)
        return self._remaining.pop(0) if self._remaining else None

    def may_proceed(self) -> bool:
        """True always: nobody else waits for an answer."""
        return True


def _read_all(skipped: tuple[str, ...], start: Start) -> None:
    """Have the device reader's own code ask everything it ever asks, in this process.

    Twice, since some readings are about the time between two samples. Raises ReaderGone where
    the driver refuses: what is on the tape by then is no recording of the machine.
    """
    own_start, all_groups = Start(host_root=start.host_root, skip=skipped), tuple(ReadingGroup)
    first = Sample(request=2, groups=all_groups)
    second = Sample(request=3, groups=all_groups)
    script = _Script(own_start, Discover(request=1), ReadMig(request=4), first, second)
    serve(script, _no_choice)
    if script.refused is not None:
        raise ReaderGone(f"nothing is recorded: {script.refused}")


def _no_choice(_start: Start) -> None:
    """Leave pynvml with the library that this process records."""
