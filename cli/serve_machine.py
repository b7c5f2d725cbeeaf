# SPDX-License-Identifier: Apache-2.0
"""``gpuscape simulate serve``: a simulated machine for programs that are not ours."""

from __future__ import annotations

import json
import signal
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import click

from base.errors import BadInput
from base.process import process_signals
from cli import options, terminal
from simulator.clibrary.served_machine import ServedMachine, served_machine
from simulator.simulation import Simulation, simulate

ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


@click.command(
    epilog="""\b
Examples:
  gpuscape simulate serve hgx-h100
      prints the variables to set; then, in another shell:
      LD_LIBRARY_PATH=... nvitop
  gpuscape simulate serve dgx-a100-mig-mixed --directory /tmp/machine -o json
      one line of JSON when it is ready
  gpuscape topo --simulate /tmp/machine/state.json
      the same machine, as gpuscape sees it

\b
Programs load a real libnvidia-ml.so.1. It is built once, with an installed C compiler (CC, a
compiler on PATH, or the Python package ziglang). Each call goes to this process over a Unix socket
next to the library, so give a container the whole folder. The state file has what changes (MIG
layouts, processes, faults); it is the same for all programs.

Exit codes: 0 ended by SIGTERM, SIGINT or SIGHUP, 2 bad input."""
)
@click.argument("machine", metavar="MACHINE|FILE")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Make the machine here and keep it.  [default: a temporary folder, removed at the end]",
)
@options.output("text", "json")
def command(machine: str, directory: Path | None, output: str) -> None:
    """Serve a simulated machine to programs that load libnvidia-ml.so.1, until a signal.

    MACHINE is as for --simulate: a name, or a machine, recording or state file.
    """
    stop = threading.Event()

    def take(number: signal.Signals) -> None:
        if number in ENDING:
            stop.set()

    with process_signals.delivered_signals(take), ExitStack() as ending:
        simulation = _simulation(machine, directory, ending)
        ready = ending.enter_context(served_machine(simulation))
        terminal.note(*([_line(ready)] if output == "json" else _text(ready).splitlines()))
        stop.wait()


def _simulation(machine: str, directory: Path | None, ending: ExitStack) -> Simulation:
    """Raises BadInput for an unknown machine, and for a folder that cannot take one."""
    if directory is not None and (directory / "state.json").exists():
        raise BadInput(
            f"{directory} holds a machine already: serve {directory / 'state.json'},"
            " or name another folder"
        )
    try:
        folder = directory or Path(
            ending.enter_context(tempfile.TemporaryDirectory(prefix="gpuscape-"))
        )
        return simulate(machine, folder)
    except OSError as error:
        raise BadInput(
            f"cannot make a machine in {error.filename or directory}: {error.strerror or error};"
            " name another folder with --directory"
        ) from error


def _line(ready: ServedMachine) -> str:
    """Absolute paths; ``library`` is null where the machine has no driver."""
    return json.dumps(
        {
            "machine": ready.name,
            "library": None if ready.library is None else str(ready.library),
            "library_path": None if ready.library is None else str(ready.library.parent),
            "driver_root": str(ready.driver_root),
            "sysfs_root": str(ready.sysfs_root),
            "state_file": str(ready.state_file),
        }
    )


def _text(ready: ServedMachine) -> str:
    first, setting = "This machine has no driver, so there is no library to load.", ""
    if ready.library is not None:
        setting = f"LD_LIBRARY_PATH={ready.library.parent} "
        first = f"In another shell:\n\n  export {setting.strip()}"
    return f"""\
Serving {ready.name} until SIGTERM or SIGINT (Ctrl-C). {first}

driver root  {ready.driver_root}
sysfs root   {ready.sysfs_root}
state file   {ready.state_file}

A program that reads /sys by itself sees this machine in a mount namespace of its own:

  sudo unshare --mount sh -c 'mount --rbind {ready.sysfs_root} /sys && {setting}PROGRAM'
"""
